"""Samples of topics on a broker: at most 1,000 records, of the beginning and the end of each partition."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from upsert_platform.cli.main import main
from upsert_platform.core.errors import DeclarationError
from upsert_platform.discovery.declare_matching import declare_matching
from upsert_platform.discovery.sample import sample_topic
from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform.kafka.properties import read_properties

_EACH = 1_500
"""Records of a partition."""


def filled(servers: str, topic: str, partitions: int) -> str:
    """Return a topic whose records number the offsets of their partition."""
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 100_000})
    for partition in range(partitions):
        for number in range(_EACH):
            key, value = f"k-{partition}-{number}", json.dumps({"n": number})
            producer.produce(topic, key=key, value=value, partition=partition)
    assert producer.flush(60) == 0
    return topic


def test_a_long_topic_is_looked_at_where_its_partitions_begin_and_end(
    kafka_bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = filled(kafka_bootstrap, make_topic(partitions=3), 3)
    found = sample_topic(KafkaEndpoint(kafka_bootstrap, read_properties({})[0]), topic)
    assert 900 < len(found.records) <= 1_000
    assert (found.partitions, found.offsets) == (3, 3 * _EACH)
    for partition in range(3):
        offsets = sorted(record.offset for record in found.records if record.partition == partition)
        half = len(offsets) // 2
        assert offsets[:half] == list(range(half))
        assert offsets[half:] == list(range(_EACH - (len(offsets) - half), _EACH))


def test_a_declaration_that_is_there_is_not_written_over(
    kafka_bootstrap: str, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = filled(kafka_bootstrap, make_topic(), 1)
    words = ["discover", topic, "--bootstrap-servers", kafka_bootstrap, "--into", str(tmp_path / "shop")]
    words += ["--to", "postgres"]
    first = CliRunner().invoke(main, words)
    assert first.exit_code == 0, first.output
    [file] = (tmp_path / "shop").iterdir()
    assert "'connector' = 'postgres'" in file.read_text()
    sync, peek = first.stdout.splitlines()[-2:]
    assert sync == f"next: upsert-platform sync --project {tmp_path / 'shop'}"
    assert peek == f"then: upsert-platform peek {file.stem}_postgres --project {tmp_path / 'shop'}"
    file.write_text("-- mine")
    again = CliRunner().invoke(main, words)
    assert again.exit_code == 1
    assert f"kept {file}: it is there already" in again.stderr
    assert file.read_text() == "-- mine"


def test_of_topics_that_would_be_one_table_none_is_left_out_in_silence(
    kafka_bootstrap: str, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic()
    first, second = (make_topic(name=f"{topic}{end}") for end in ("-eu", "_eu"))
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    for name in (first, second):
        producer.produce(name, key=b"1", value=b'{"n":1}')
    assert producer.flush(60) == 0
    options = {"properties.bootstrap.servers": kafka_bootstrap}
    with pytest.raises(DeclarationError, match="would all be table") as refused:
        declare_matching(f"{topic}*", options, variables={})
    assert f"'{first}'" in str(refused.value)
    assert f"'{second}'" in str(refused.value)
    words = ["discover", first, second, "--bootstrap-servers", kafka_bootstrap]
    told = CliRunner().invoke(main, [*words, "--into", str(tmp_path / "shop")])
    assert told.exit_code != 0
    assert "would all be table" in str(told.exception) + told.output
    assert not (tmp_path / "shop").exists()
    assert CliRunner().invoke(main, words).exit_code == 0
