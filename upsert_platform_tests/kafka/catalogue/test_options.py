"""Options: behaviours 84 to 90."""

from __future__ import annotations

from typing import Any, Final

import pytest

from upsert_platform_tests.kafka.catalogue.cases import behaviour, case
from upsert_platform_tests.kafka.tables import declare, problems_of, read

THREE: Final = {"id": "INT", "user": "INT", "name": "STRING"}
PEOPLE: Final = {"id": "INT", "name": "STRING", "age": "INT", "address": "STRING"}
PREFIX: Final = {"key.fields-prefix": "k_"}
EXCEPT_KEY: Final = {"value.fields-include": "EXCEPT_KEY"}


@pytest.mark.parametrize("writes", [False, True], ids=["source", "sink"])
@pytest.mark.parametrize(
    ("table", "texts"),
    [
        case(84, "no-primary-key", declare(key=()), ["PRIMARY KEY", "the key of the records"]),
        case(85, "cdc-value", declare(**{"value.format": "debezium-json"}), ["'value.format' = 'debezium-json'"]),
        case(
            86,
            "exactly-once-without-prefix",
            declare(**{"sink.delivery-guarantee": "exactly-once"}),
            ["sink.transactional-id-prefix"],
        ),
        case(88, "prefix-with-all", declare({"k_id": "INT"}, key=["k_id"], **PREFIX), ["EXCEPT_KEY"]),
        case(88, "column-without-prefix", declare(**EXCEPT_KEY, **PREFIX), ["'id'", "'key.fields-prefix' = 'k_'"]),
        case(89, "partitioner", declare(**{"sink.partitioner": "fixed"}), ["sink.partitioner", "murmur2"]),
        case(89, "key-fields-that-differ", declare(**{"key.fields": "name"}), ["key.fields", "primary key"]),
        case(89, "format-and-value-format", declare(format="json"), ["format", "value.format"]),
        case(90, "V7-negative-rows", declare(**{"sink.buffer-flush.max-rows": "-1"}), ["sink.buffer-flush.max-rows"]),
        case(90, "V12-both-topics", declare(**{"topic-pattern": "u.*"}), ["topic", "topic-pattern", "both"]),
        case(90, "V12-no-topic", declare(topic=None), ["topic", "topic-pattern", "neither"]),
        case(90, "V16-group-bound", declare(**{"scan.bounded.mode": "group-offsets"}), ["properties.group.id"]),
        case(90, "V23-raw-key", declare(THREE, key=("id", "user"), **{"key.format": "raw"}), ["'raw'", "2"]),
    ],
)
def test_refused(table: Any, texts: list[str], writes: bool) -> None:
    messages = problems_of(table, writes=writes)
    assert any(all(text in message for text in texts) for message in messages), messages


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        case(88, "unknown-key-field", {"key.fields": "nope"}, ["key.fields", "nope"]),
        case(88, "key-format-without-fields", {}, ["key.format", "key.fields"]),
    ],
)
def test_refused_of_plain_kafka(options: dict[str, str], texts: list[str]) -> None:
    messages = problems_of(declare(PEOPLE, key=(), connector="kafka", **options))
    assert any(all(text in message for text in texts) for message in messages), messages


@behaviour(87, "key-and-value-projection")
def test_projection() -> None:
    table = read(declare(PEOPLE, key=(), connector="kafka", **EXCEPT_KEY, **{"key.fields": "address; name"}))
    assert table.key is not None
    names = list(PEOPLE)
    assert [names.index(name) for name in table.key.names] == [3, 1]
    assert [names.index(name) for name in table.value.names] == [0, 2]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        case(89, "start-elsewhere", {"scan.startup.mode": "latest-offset"}, "partial"),
        case(89, "start-at-the-earliest", {"scan.startup.mode": "earliest-offset"}, ""),
        case(89, "key-fields-equal-to-the-key", {"key.fields": "id"}, ""),
        case(89, "format-alone", {"format": "json", "value.format": None}, ""),
    ],
)
def test_accepted_beyond_flink(options: dict[str, str], text: str) -> None:
    """Vendors' documents have them; those that change the table warn of it."""
    found = problems_of(declare(**options), severity="warning")
    assert len(found) == bool(text)
    assert all(text in message for message in found)


@pytest.mark.parametrize(
    ("writes", "severity"), [case(90, "V20-source", False, "warning"), case(90, "V20-sink", True, "error")]
)
def test_null_key_mode(writes: bool, severity: str) -> None:
    (message,) = problems_of(declare(**{"value.json.map-null-key.mode": "nope"}), writes=writes, severity=severity)
    assert "map-null-key.mode" in message
