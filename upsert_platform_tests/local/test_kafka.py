"""The local broker: what it serves, what survives, what it says when it cannot start."""

from __future__ import annotations

import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from upsert_platform.local import kafka
from upsert_platform.local.process import ServerError, free_port, running


def produce(bootstrap: str, topic: str, *records: tuple[str, str | None]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in records:
        producer.produce(topic, key=key, value=value)
    assert producer.flush(20) == 0


def read_all(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    try:
        while True:
            message = consumer.poll(20)
            assert message is not None, "the broker gave neither a record nor the end of the partition"
            if message.error():
                return found
            found.append((message.key(), message.value()))
    finally:
        consumer.close()


def test_record_and_tombstone_come_back(kafka_bootstrap: str, topic: str) -> None:
    produce(kafka_bootstrap, topic, ("a", "1"), ("a", None))
    assert read_all(kafka_bootstrap, topic) == [(b"a", b"1"), (b"a", None)]


def test_topic_takes_partitions_and_configuration(kafka_bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=3, config={"cleanup.policy": "compact"})
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 3
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    assert admin.describe_configs([resource])[resource].result(10)["cleanup.policy"].value == "compact"


def test_unknown_topic_is_not_made(kafka_bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    assert admin.list_topics("never-made", timeout=10).topics["never-made"].error is not None
    assert "never-made" not in admin.list_topics(timeout=10).topics


def test_transaction_commits_and_aborts(kafka_bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka_bootstrap, "transactional.id": f"writer-{topic}"})
    producer.init_transactions(20)
    for value, keep in (("kept", True), ("dropped", False)):
        producer.begin_transaction()
        producer.produce(topic, value=value)
        producer.commit_transaction(20) if keep else producer.abort_transaction(20)
    assert [value for _, value in read_all(kafka_bootstrap, topic)] == [b"kept"]


@pytest.mark.soak
def test_records_survive_a_restart_on_another_port(tmp_path: Path) -> None:
    with kafka.start_broker(tmp_path / "data", die_with_parent=True) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
        produce(broker.bootstrap_servers, "t", ("k", "v"))
    assert running(broker.server.pid_file) is None
    with kafka.start_broker(tmp_path / "data", port=free_port(), die_with_parent=True) as again:
        assert again.bootstrap_servers != broker.bootstrap_servers
        assert read_all(again.bootstrap_servers, "t") == [(b"k", b"v")]


def test_taken_port_is_an_error_with_the_log(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ServerError, match=r"the Kafka broker ended with code 1(.|\n)*already in use"):
            kafka.start_broker(tmp_path / "data", port=taken.getsockname()[1], die_with_parent=True)
    assert not list(tmp_path.rglob("server.pid"))


def test_refused_property_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"could not be formatted(.|\n)*num\.io\.threads"):
        kafka.start_broker(tmp_path / "data", properties={"num.io.threads": "many"})


def test_configuration_is_private(tmp_path: Path) -> None:
    server = kafka.broker_server(tmp_path / "data", listeners=[kafka.Listener(free_port())])
    assert stat.S_IMODE((server.home / "server.properties").stat().st_mode) == 0o600
