"""Tables of connector `kafka-changes`: a topic of changes in the form that Flink CDC's pipelines give to sink `kafka`.

Written by `sink/changes.py`; read like a `kafka` table with a change data format.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, field_validator, model_validator

from upsert_platform.core.model import Options, Table
from upsert_platform.core.options import Boolean, option
from upsert_platform.kafka.modes import DeliveryGuarantee, FieldsInclude, OnError
from upsert_platform.kafka.options import UpsertKafkaSettings
from upsert_platform.kafka.quarantine_options import lower

CHANGES: Final = "kafka-changes"
"""Name of the connector."""
CHANGE_FORMATS: Final = ("debezium-json", "canal-json")
KEY_FORMATS: Final = ("json", "csv")
WITH_SCHEMA: Final = ("debezium-json.include-schema.enabled", "sink.debezium-json.include-schema.enabled")
"""Options that put a Kafka Connect schema into every message; refused."""
TABLE_ID: Final = "TableId"
"""First field of a key: the name of the table."""
MAPPING: Final = "sink.tableId-to-topic.mapping"
"""Option of a pipeline's sink: patterns of tables to topics."""
_READ: Final = ("topic", "value.format", "on-error", "on-data-loss")
_SEPARATORS: Final = re.compile("[,;]")


class PartitionStrategy(StrEnum):
    """The assignment of changes to partitions."""

    ALL_TO_ZERO = "all-to-zero"
    HASH_BY_KEY = "hash-by-key"


def _hyphens(value: object) -> object:
    return value.strip().lower().replace("_", "-") if isinstance(value, str) else value


def _headers(value: object) -> object:
    if not isinstance(value, str):
        return value
    pairs = []
    for item in filter(str.strip, _SEPARATORS.split(value)):
        name, separator, content = item.partition(":")
        if not (separator and name.strip()) or ":" in content:
            raise ValueError(f"takes name1:value1,name2:value2, not '{value}'")
        pairs.append((name.strip(), content.strip()))
    return tuple(pairs)


class ChangeTopicSettings(UpsertKafkaSettings):
    """Options of `connector` = `kafka-changes`; those of `upsert-kafka`, with formats of their own."""

    key_format: str = option("key.format", origin="flink", description="Format of the key: json or csv.")
    value_format: str = option(
        "value.format", origin="flink", description="Format of the value: debezium-json or canal-json."
    )
    partition_strategy: Annotated[PartitionStrategy, BeforeValidator(_hyphens)] = option(
        "partition.strategy",
        PartitionStrategy.ALL_TO_ZERO,
        origin="flink",
        description="all-to-zero writes partition 0 alone, hash-by-key the partition that follows from the key.",
    )
    custom_headers: Annotated[tuple[tuple[str, str], ...], BeforeValidator(_headers)] = option(
        "sink.custom-header",
        (),
        origin="flink",
        description="Headers of every record: name1:value1,name2:value2.",
    )
    delivery_guarantee: Annotated[DeliveryGuarantee, BeforeValidator(lower)] = option(
        "sink.delivery-guarantee",
        DeliveryGuarantee.AT_LEAST_ONCE,
        origin="flink",
        description="exactly-once writes in transactions; at-least-once may write changes twice when a run is killed."
        " none is refused: a change that is lost would make a sum over the topic wrong for ever.",
    )
    auto_create: Boolean = option(
        "auto.create",
        True,
        origin="platform",
        description="Whether a missing topic is created, without a limit of time: a reader that begins later needs all"
        " changes.",
    )

    on_error: Annotated[OnError, BeforeValidator(lower)] = option(
        "on-error",
        OnError.FAIL,
        origin="platform",
        description="fail: a row that cannot be written stops its batch, which is written once the row is mended."
        " quarantine is refused: later changes would contain a row before that the topic never had.",
    )

    @field_validator("value_format")
    @classmethod
    def _is_change_format(cls, value: str) -> str:
        if value not in CHANGE_FORMATS:
            raise ValueError(f"is one of {', '.join(CHANGE_FORMATS)}, not '{value}'")
        return value

    @field_validator("key_format")
    @classmethod
    def _is_key_format(cls, value: str) -> str:
        if value not in KEY_FORMATS:
            raise ValueError(f"is one of {', '.join(KEY_FORMATS)}, not '{value}'")
        return value

    @field_validator("delivery_guarantee")
    @classmethod
    def _loses_nothing(cls, value: DeliveryGuarantee) -> DeliveryGuarantee:
        if value is DeliveryGuarantee.NONE:
            raise ValueError("is at-least-once or exactly-once: changes that are lost make sums wrong for ever")
        return value

    @field_validator("on_error")
    @classmethod
    def _leaves_nothing_out(cls, value: OnError) -> OnError:
        if value is not OnError.FAIL:
            raise ValueError("is fail: changes that are kept aside make sums wrong for ever")
        return value

    @model_validator(mode="after")
    def _images_are_whole(self) -> Self:
        if self.value_fields_include is not FieldsInclude.ALL or self.key_fields_prefix:
            raise ValueError("images before and after hold all columns; leave 'value.fields-include' and prefixes out")
        return self


def read_as_changes(table: Table) -> Table:
    """The `kafka` table that reads what was written: the same columns and key, the format of the value."""
    value = table.options.get("value.format", "")
    kept = {"connector": "kafka", "scan.startup.mode": "earliest-offset"}
    for name, text in table.options.items():
        if value and name.startswith(f"{value}.") and name not in WITH_SCHEMA:
            kept[f"value.{name}"] = text
        elif name in _READ or name.startswith(("properties.", "quarantine.", "batch.", "scan.", f"value.{value}.")):
            kept[name] = text
    places = {name: place for name in kept if (place := table.options.location(name)) is not None}
    return Table(table.name, table.columns, table.primary_key, Options(kept, places), table.location)


def topic_of(name: str, mapping: str) -> str | None:
    """The topic of a table by ``sink.tableId-to-topic.mapping``, ``pattern:topic;pattern:topic``; None of no pattern.

    Raises:
        ValueError: it is not of that form.
    """
    for item in filter(str.strip, mapping.split(";")):
        pattern, separator, topic = item.partition(":")
        if not separator or not topic.strip() or ":" in topic:
            raise ValueError(f"takes pattern:topic;pattern:topic, not '{mapping}'")
        try:
            known = re.compile(pattern.strip().replace(r"\.", "\0").replace(".", r"\.").replace("\0", "."))
        except re.error as error:
            raise ValueError(f"'{pattern}' is not a pattern of table names: {error}") from None
        if known.fullmatch(name):
            return topic.strip()
    return None
