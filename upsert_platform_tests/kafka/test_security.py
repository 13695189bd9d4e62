"""Logging in to real listeners, declared as for a Java client, and what a refused login says."""

from __future__ import annotations

import pickle
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.core.errors import DestinationError, EndpointError
from upsert_platform.kafka import endpoint as endpoint_module
from upsert_platform.kafka.sink.control import ControlTopic
from upsert_platform.kafka.sink.destination import KafkaDestination
from upsert_platform.kafka.sink.transactions import open_transactional
from upsert_platform.kafka.source.fetch import close_consumers, fetch_range
from upsert_platform.kafka.source.offsets import discover
from upsert_platform.kafka.source.source import read_changes
from upsert_platform_tests.kafka.answering import answering
from upsert_platform_tests.kafka.logins import (
    LOGINS,
    REFUSED,
    Files,
    bearer,
    create,
    declared,
    issue,
    names_in,
    plain,
    scram,
    told,
)
from upsert_platform_tests.kafka.writing import frame, write
from upsert_platform_tests.secure_kafka import PASSWORDS, STORE_PASSWORD, SecureBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def files(secure_broker: SecureBroker, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(secure_broker, tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def topic(secure_broker: SecureBroker) -> str:
    """A topic that alice may use and bob may only see; with one record."""
    name = f"secure-{uuid.uuid4().hex[:8]}"
    create(secure_broker, name)
    for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS):
        secure_broker.grant("alice", operation, ResourceType.TOPIC, "secure-*")
    secure_broker.grant("alice", AclOperation.CREATE, ResourceType.TOPIC, "secure-*")
    secure_broker.grant("alice", AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "secure-*")
    secure_broker.grant("alice", AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "upsert-platform.secure-*")
    secure_broker.grant("bob", AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    table = declared(secure_broker, "PLAINTEXT", name, {})
    producer = table.endpoint.open_producer()
    producer.produce(name, '{"id":1,"name":"a"}', '{"id":1}')
    assert producer.flush(20) == 0
    return name


@pytest.fixture(autouse=True)
def no_consumer_outlives_its_login() -> Iterator[None]:
    yield
    close_consumers()


@pytest.mark.parametrize("way", LOGINS)
def test_a_topic_is_found_and_read(secure_broker: SecureBroker, files: Files, topic: str, way: str) -> None:
    listener, properties = LOGINS[way]
    table = declared(secure_broker, listener, topic, properties(files))
    carried = pickle.loads(pickle.dumps(table))  # as to a worker
    assert names_in(carried) == ["a"]
    assert not [secret for secret in table.properties.secrets() if secret in repr(table)]


def test_a_key_with_a_password_of_its_own(
    secure_broker: SecureBroker, files: Files, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.jks"
    command = ["keytool", "-noprompt", "-importkeystore", "-srckeystore", files.path("alice.p12"), "-srcstorepass"]
    command += [STORE_PASSWORD, "-srcalias", "1", "-destkeystore", str(path), "-deststoretype", "JKS"]
    command += ["-deststorepass", STORE_PASSWORD, "-destkeypass", "own-key-secret"]
    subprocess.run(command, capture_output=True, check=True)
    properties = {
        "security.protocol": "SSL",
        "ssl.keystore.location": str(path),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": "own-key-secret",
        **files.trust(),
    }
    assert names_in(declared(secure_broker, "TLS", topic, properties)) == ["a"]


@pytest.mark.parametrize("way", REFUSED)
def test_a_refused_login_is_told(
    secure_broker: SecureBroker,
    files: Files,
    topic: str,
    way: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listener, properties, text = REFUSED[way]
    if way == "protocol-of-another-listener":  # looks like a broker that is starting, so it is waited for
        monkeypatch.setattr(endpoint_module, "REQUEST_SECONDS", 2.0)
    table = declared(secure_broker, listener, topic, properties(files))
    with told(caplog, table, EndpointError, text):
        discover(table)


def test_a_refused_login_is_told_by_workers_too(
    secure_broker: SecureBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = declared(secure_broker, "SASL", topic, plain(password="not-alices"))
    for skip_deleted in (False, True):
        with told(caplog, table, EndpointError, "refuse the login", "properties.sasl.jaas.config"):
            list(fetch_range(table.endpoint, OffsetRange(topic, 0, 0, 1), skip_deleted=skip_deleted))


def test_a_topic_that_the_user_may_not_see(
    secure_broker: SecureBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = f"hidden-{topic}"
    create(secure_broker, other)
    bob = plain("bob", PASSWORDS["bob"])
    table = declared(secure_broker, "SASL", other, bob)
    with told(caplog, table, EndpointError, f"topic '{other}' cannot be used", "give the user the right"):
        discover(table)
    destination = KafkaDestination(declared(secure_broker, "SASL", other, bob, **{"sink.control-topic": "secure-c"}))
    with told(caplog, table, EndpointError, f"topic '{other}' cannot be used"):
        destination.prepare()


def test_a_topic_that_the_user_may_see_but_not_read(
    secure_broker: SecureBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = declared(secure_broker, "SASL", topic, plain("bob", PASSWORDS["bob"]))
    (found,) = discover(table)
    assert found.partitions[0].end >= 1
    with told(caplog, table, EndpointError, f"reading {topic}-0 failed", "authorization", "give the user the right"):
        list(fetch_range(table.endpoint, OffsetRange(topic, 0, 0, 1)))


def test_a_control_topic_that_the_user_may_see_but_not_read(
    secure_broker: SecureBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = declared(secure_broker, "SASL", topic, plain("bob", PASSWORDS["bob"]))
    with told(caplog, table, EndpointError, f"control topic '{topic}' cannot be read", "give the user the right"):
        ControlTopic(table.endpoint, topic, topic="written").read()


def test_a_transactional_id_that_the_user_may_not_use(
    secure_broker: SecureBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = declared(secure_broker, "SASL", topic, plain())
    with told(caplog, table, EndpointError, "transactional id 'others-0' cannot be used", "the right to write that id"):
        open_transactional(table.endpoint, "others-0")


def test_end_to_end_over_tls(spark: SparkSession, secure_broker: SecureBroker, files: Files, topic: str) -> None:
    """Written in transactions by a user with rights on a prefix, and read by Spark with the same login."""
    properties = scram(512, protocol="SASL_SSL") | {
        "ssl.truststore.location": files.java_trust("PKCS12"),
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": STORE_PASSWORD,
    }
    name = f"{topic}-written"
    options = {
        "sink.control-topic": f"{topic}-control",
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": name,
        "sink.parallelism": "2",
    }
    destination = KafkaDestination(declared(secure_broker, "SASLTLS", name, properties, **options))
    report = write(destination, frame(spark, [(key, f"n{key}", "U", 1) for key in range(20)]), 1)
    assert report.upserts == 20
    assert destination.state().applied_batch == 1
    table = declared(secure_broker, "SASLTLS", name, properties)
    ranges = [OffsetRange(found.name, p.partition, p.low, p.end) for found in discover(table) for p in found.partitions]
    rows = read_changes(spark, table, ranges, batch=1, mode="upsert").where("_kind = '+U'").collect()
    assert sorted((row.id, row.name) for row in rows) == [(key, f"n{key}") for key in range(20)]


def test_a_topic_that_the_user_may_not_write(
    spark: SparkSession, secure_broker: SecureBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"readable-{topic}"
    create(secure_broker, name)
    for operation in (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS):
        secure_broker.grant("alice", operation, ResourceType.TOPIC, name)
    table = declared(secure_broker, "SASL", name, plain(), **{"sink.control-topic": f"{topic}-control"})
    destination = KafkaDestination(table)
    with told(caplog, table, DestinationError, "was not written", "give the user the right to write"):
        write(destination, frame(spark, [(1, "a", "U", 1)]), 1)


def test_a_token_of_an_endpoint(secure_broker: SecureBroker, topic: str) -> None:
    with answering(issue) as endpoint:
        table = declared(secure_broker, "SASL", topic, bearer(endpoint.url, "client-secret"))
        assert names_in(table) == ["a"]
        asked = endpoint.asked[0]
        assert (asked.method, asked.path) == ("POST", "/token")
        assert sorted(asked.body.decode().split("&")) == ["grant_type=client_credentials", "scope=kafka"]
        close_consumers()


def test_a_token_endpoint_that_refuses(
    secure_broker: SecureBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with answering(issue) as endpoint:
        table = declared(secure_broker, "SASL", topic, bearer(endpoint.url, "another-secret"))
        with told(caplog, table, EndpointError, "refuse the login"):
            discover(table)
