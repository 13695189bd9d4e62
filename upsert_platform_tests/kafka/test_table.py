"""Validation of declared Kafka tables; ids are those of the rules of the upsert-kafka connector."""

from __future__ import annotations

import pickle

import pytest

from upsert_platform.kafka.options import UpsertKafkaSettings
from upsert_platform_tests.kafka.tables import declare, problems_of, read

APSARA = {
    "aliyun.kafka.accessKeyId": "id-hunter2",
    "aliyun.kafka.accessKeySecret": "hunter2",
    "aliyun.kafka.instanceId": "alikafka-1",
    "aliyun.kafka.endpoint": "alikafka.cn-hangzhou.aliyuncs.com",
    "aliyun.kafka.regionId": "cn-hangzhou",
}
THREE = {"id": "INT", "user": "INT", "name": "STRING"}


@pytest.mark.parametrize(
    ("table", "texts"),
    [
        pytest.param(declare(key=()), ["PRIMARY KEY"], id="V1-no-primary-key"),
        pytest.param(
            declare(key=("at",), metadata={"at": ("TIMESTAMP_LTZ(3)", "timestamp")}),
            ["'at'", "metadata column"],
            id="V3-key-on-metadata-column",
        ),
        pytest.param(
            declare(key__format="debezium-json"), ["'key.format'", "'connector' = 'kafka'"], id="V4-cdc-key-format"
        ),
        pytest.param(
            declare(value__format="canal-json"), ["'value.format'", "'connector' = 'kafka'"], id="V5-cdc-value-format"
        ),
        pytest.param(
            declare(**{"sink.buffer-flush.interval": "1 s"}),
            ["sink.buffer-flush.max-rows", "sink.buffer-flush.interval"],
            id="V6-interval-alone",
        ),
        pytest.param(
            declare(**{"sink.buffer-flush.max-rows": "100"}),
            ["sink.buffer-flush.max-rows", "sink.buffer-flush.interval"],
            id="V6-rows-alone",
        ),
        pytest.param(
            declare(**{"sink.buffer-flush.max-rows": "-1"}), ["sink.buffer-flush.max-rows"], id="V7-negative-rows"
        ),
        pytest.param(
            declare(**{"sink.delivery-guarantee": "exactly-once"}),
            ["sink.transactional-id-prefix"],
            id="V8-exactly-once-without-prefix",
        ),
        pytest.param(
            declare(**{"sink.delivery-guarantee": "EXACTLY_ONCE", "sink.transactional-id-prefix": "p"}),
            ["sink.delivery-guarantee", "exactly-once"],
            id="exactly-once-needs-a-hyphen",
        ),
        pytest.param(
            declare(**{"key.fields-prefix": "i"}), ["key.fields-prefix", "EXCEPT_KEY"], id="V9-prefix-with-ALL"
        ),
        pytest.param(
            declare(**{"key.fields-prefix": "k_", "value.fields-include": "EXCEPT_KEY"}),
            ["'id'", "key.fields-prefix"],
            id="V10-column-without-prefix",
        ),
        pytest.param(declare(**{"topic-pattern": "u.*"}), ["topic", "topic-pattern", "both"], id="V11-V12-both-topics"),
        pytest.param(declare(topic=None), ["topic", "topic-pattern", "neither"], id="V11-V12-no-topic"),
        pytest.param(declare(**{"topic": None, "topic-pattern": "u("}), ["topic-pattern"], id="pattern-broken"),
        pytest.param(
            declare(**{"scan.bounded.mode": "timestamp"}), ["scan.bounded.timestamp-millis"], id="V13-timestamp"
        ),
        pytest.param(
            declare(**{"scan.bounded.mode": "specific-offsets"}), ["scan.bounded.specific-offsets"], id="V13-offsets"
        ),
        pytest.param(
            declare(**{"scan.bounded.specific-offsets": "partition:0,offset:2"}),
            ["scan.bounded.specific-offsets", "scan.bounded.mode"],
            id="V13-offsets-without-mode",
        ),
        pytest.param(
            declare(
                topic="a;b",
                **{"scan.bounded.mode": "specific-offsets", "scan.bounded.specific-offsets": "partition:0,offset:2"},
            ),
            ["one topic"],
            id="V14-offsets-with-two-topics",
        ),
        *(
            pytest.param(
                declare(**{"scan.bounded.mode": "specific-offsets", "scan.bounded.specific-offsets": text}),
                ["scan.bounded.specific-offsets"],
                id=f"V15-{text or 'empty'}",
            )
            for text in ("partition:0", "p:0,offset:1", "partition:0,offset:1,x:2", "partition:a,offset:1", "")
        ),
        pytest.param(declare(**{"scan.bounded.mode": "group-offsets"}), ["properties.group.id"], id="V16-group-bound"),
        pytest.param(
            declare(**{"properties.commit.offsets.on.checkpoint": "true"}),
            ["properties.group.id"],
            id="commit-no-group",
        ),
        pytest.param(
            declare(**{"value.json.fail-on-missing-field": "true", "value.json.ignore-parse-errors": "true"}),
            ["json.fail-on-missing-field", "json.ignore-parse-errors"],
            id="V18-json-policies",
        ),
        pytest.param(
            declare(**{"key.json.timestamp-format.standard": "sql"}),
            ["json.timestamp-format.standard"],
            id="V19-timestamp-standard",
        ),
        pytest.param(
            declare(THREE, key=("id", "user"), key__format="raw"), ["'raw'", "2"], id="V23-raw-with-two-columns"
        ),
        pytest.param(declare(**{"value.jsn.ignore-parse-errors": "true"}), ["value.jsn"], id="V29-unknown-option"),
        pytest.param(declare(value__format=None), ["value.format", "missing"], id="V29-missing-option"),
        pytest.param(declare(format="json"), ["same option"], id="format-and-value.format"),
        pytest.param(declare(**{"sink.partitioner": "fixed"}), ["sink.partitioner", "murmur2"], id="89-partitioner"),
        pytest.param(declare(**{"key.fields": "name"}), ["key.fields", "primary key"], id="key.fields-differ"),
        pytest.param(declare(**{"properties.partitioner": "random"}), ["partitioner"], id="client-partitioner"),
        pytest.param(declare(**{"properties.grup.id": "g"}), ["'grup.id'", "'group.id'"], id="unknown-property"),
        pytest.param(declare(metadata={"o": ("BIGINT", "ofset")}), ["'ofset'", "'offset'"], id="unknown-metadata"),
        pytest.param(declare(metadata={"o": ("STRING", "offset")}), ["'o'", "BIGINT"], id="metadata-type"),
        pytest.param(declare(metadata={"m": ("STRING", "value.schema")}), ["'value.schema'"], id="format-metadata"),
        pytest.param(
            declare({"id": "INT"}, **{"value.format": "csv", "value.fields-include": "EXCEPT_KEY"}),
            ["no column", "json"],
            id="R6-59-empty-csv-value",
        ),
        pytest.param(
            declare(**{"aliyun.kafka.accessKeyId": "k", "aliyun.kafka.instanceId": "i"}),
            ["aliyun.kafka.accessKeySecret, aliyun.kafka.endpoint, aliyun.kafka.regionId"],
            id="apsaramq-incomplete",
        ),
        pytest.param(
            declare(connector="kafka", **{"key.format": "json"}), ["key.format", "key.fields"], id="88-key-no-fields"
        ),
        pytest.param(
            declare(connector="kafka", **{"key.fields": "nope"}), ["key.fields", "nope"], id="88-unknown-key-field"
        ),
    ],
)
def test_refuses(table, texts):
    messages = problems_of(table)
    assert messages
    assert any(all(text in message for text in texts) for message in messages), messages


@pytest.mark.parametrize(
    ("table", "texts"),
    [
        pytest.param(
            declare(
                metadata={"h": ("MAP<STRING, BYTES>", "headers"), "l": ("ARRAY<ROW<k STRING, v BYTES>>", "header-list")}
            ),
            ["'headers'", "'header-list'"],
            id="V17-46-both-headers-written",
        ),
        pytest.param(declare(metadata={"o": ("BIGINT", "offset")}), ["'o'", "VIRTUAL"], id="read-only-metadata"),
        pytest.param(declare(topic="a;b"), ["one topic"], id="two-topics"),
        pytest.param(declare(connector="kafka", **{"key.format": None}), ["upsert-kafka"], id="plain-kafka"),
    ],
)
def test_refuses_as_destination(table, texts):
    messages = problems_of(table, writes=True)
    assert any(all(text in message for text in texts) for message in messages), messages


@pytest.mark.parametrize(
    ("table", "text"),
    [
        pytest.param(declare(**{"scan.startup.mode": "latest-offset"}), "partial", id="startup-mode"),
        pytest.param(declare(**{"scan.topic-partition-discovery.interval": "1 s"}), "every batch", id="discovery"),
        pytest.param(declare(**{"properties.key.deserializer": "x.Y"}), "key.deserializer", id="deserializer"),
        pytest.param(declare(**{"properties.auto.offset.reset": "latest"}), "auto.offset.reset", id="offset-reset"),
        pytest.param(declare(**{"properties.max.poll.records": "5"}), "Java", id="jvm-only"),
        pytest.param(declare(**{"sink.transaction-naming-strategy": "INCREMENTING"}), "INCREMENTING", id="naming"),
        pytest.param(declare(**APSARA), "no topic is created", id="apsaramq-of-a-source"),
    ],
)
def test_warns(table, text):
    (message,) = problems_of(table, severity="warning")
    assert text in message


def test_key_projection_follows_the_primary_key_and_value_the_table():
    table = read(declare({"user_id": "BIGINT", "name": "STRING", "event_id": "BIGINT"}, key=("event_id", "user_id")))
    assert table.key is not None
    assert table.key.names == ("event_id", "user_id")
    assert table.value.names == ("user_id", "name", "event_id")


def test_prefix_is_stripped_in_the_key_alone():
    table = read(
        declare(
            {"k_user_id": "BIGINT", "name": "STRING", "user_id": "INT"},
            key=("k_user_id",),
            **{"key.fields-prefix": "k_", "value.fields-include": "except_key"},
        )
    )
    assert table.key is not None
    assert [name for name, _ in table.key.columns] == ["user_id"]
    assert table.key.names == ("k_user_id",)
    assert table.value.names == ("name", "user_id")


def test_87_plain_kafka_key_fields():
    table = read(
        declare(
            {"id": "INT", "name": "STRING", "age": "INT", "address": "STRING"},
            key=(),
            connector="kafka",
            **{"key.fields": "address; name", "value.fields-include": "EXCEPT_KEY"},
        )
    )
    assert table.key is not None
    assert table.key.names == ("address", "name")
    assert table.value.names == ("id", "age")


def test_format_is_value_format_and_takes_its_options_both_ways():
    table = read(
        declare(
            **{"value.format": None, "format": "json", "json.ignore-parse-errors": "true"},
            **{"key.json.ignore-parse-errors": "false"},
        )
    )
    assert dict(table.value.options) == {"json.ignore-parse-errors": "true"}
    assert table.key is not None
    assert dict(table.key.options) == {"json.ignore-parse-errors": "false"}


def test_key_fields_equal_to_the_primary_key_are_accepted():
    assert read(declare(THREE, key=("id", "user"), **{"key.fields": "user;id"})).key is not None


def test_47_topic_list_is_trimmed():
    assert read(declare(topic=" a ; a;")).settings.topic == ("a", "a")


def test_secrets_are_never_shown():
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";'
    table = read(
        declare(
            **{"properties.sasl.jaas.config": jaas, "properties.sasl.mechanism": "PLAIN"},
            **{**APSARA, "properties.ssl.key.password": "hunter2"},
        )
    )
    for text in (repr(table), str(table), repr(table.endpoint), repr(table.settings), repr(table.properties)):
        assert "hunter2" not in text
    assert pickle.loads(pickle.dumps(table)).endpoint.consumer_config()["sasl.password"] == "hunter2"


def test_isolation_level_is_read_committed_unless_declared():
    assert read(declare()).endpoint.consumer_config()["isolation.level"] == "read_committed"
    other = read(declare(**{"properties.isolation.level": "read_uncommitted"}))
    assert other.endpoint.consumer_config()["isolation.level"] == "read_uncommitted"


def test_defaults():
    settings = read(declare()).settings
    assert isinstance(settings, UpsertKafkaSettings)
    assert settings.max_records == 2_000_000
    assert settings.delivery_guarantee == "at-least-once"
    assert settings.value_fields_include == "ALL"
    assert settings.on_error == "quarantine"
    assert settings.key_conflict == "quarantine"
