"""The broker that security tests run against lets in whom it should, and nobody else."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType

from upsert_platform_tests.secure_kafka import SecureBroker

WAYS = {
    "sasl plain": lambda broker, user: broker.sasl(user),
    "sasl scram 256": lambda broker, user: broker.sasl(user, "SCRAM-SHA-256"),
    "sasl scram 512 over tls": lambda broker, user: broker.sasl(user, "SCRAM-SHA-512", tls=True),
    "certificate": lambda broker, user: broker.tls(user),
}
Way = Callable[[SecureBroker, str], dict[str, str]]


@pytest.fixture(scope="module")
def granted_topic(secure_broker: SecureBroker) -> str:
    """A topic with one record that alice may read and write."""
    topic = f"secure-{uuid.uuid4().hex[:8]}"
    admin = secure_broker.admin()
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    for operation in (AclOperation.READ, AclOperation.WRITE):
        secure_broker.grant("alice", operation, ResourceType.TOPIC, topic)
    secure_broker.grant("alice", AclOperation.READ, ResourceType.GROUP, "readers-*")
    producer = Producer({"bootstrap.servers": secure_broker.address("PLAINTEXT")})
    producer.produce(topic, value="first")
    assert producer.flush(20) == 0
    return topic


def read_one(properties: dict[str, str], topic: str) -> bytes:
    consumer = Consumer({**properties, "group.id": "readers-1"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(20)
        assert message is not None
        if message.error():
            raise KafkaException(message.error())
        return message.value()
    finally:
        consumer.close()


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_user_with_a_grant_reads(secure_broker: SecureBroker, granted_topic: str, way: Way) -> None:
    assert read_one(way(secure_broker, "alice"), granted_topic) == b"first"


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_user_without_a_grant_is_refused(secure_broker: SecureBroker, granted_topic: str, way: Way) -> None:
    found = AdminClient(way(secure_broker, "bob")).list_topics(granted_topic, timeout=20).topics[granted_topic]
    assert found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param({"sasl.password": "wrong"}, KafkaError._AUTHENTICATION, id="wrong password"),
        pytest.param({"security.protocol": "PLAINTEXT"}, KafkaError._ALL_BROKERS_DOWN, id="no login"),
    ],
)
def test_connection_without_the_right_login_fails(
    secure_broker: SecureBroker, change: dict[str, str], code: int
) -> None:
    seen: list[int] = []
    admin = AdminClient({**secure_broker.sasl("alice"), **change, "error_cb": lambda error: seen.append(error.code())})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    admin.poll(0)
    assert code in seen


def test_authority_that_did_not_sign_the_broker_is_not_trusted(secure_broker: SecureBroker) -> None:
    seen: list[int] = []
    stranger = {"ssl.ca.location": secure_broker.certificates.path("stranger-ca.pem")}
    admin = AdminClient(
        {**secure_broker.sasl("alice", tls=True), **stranger, "error_cb": lambda error: seen.append(error.code())}
    )
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    admin.poll(0)
    assert KafkaError._SSL in seen


def test_older_broker_serves(older_kafka_broker) -> None:
    admin = AdminClient({"bootstrap.servers": older_kafka_broker.bootstrap_servers})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
    assert "t" in admin.list_topics(timeout=20).topics
