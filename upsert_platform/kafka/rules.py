"""Rules of Kafka tables that bind several options and columns: what a settings model alone cannot see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from upsert_platform.core.destination import BEFORE
from upsert_platform.core.model import Column, ColumnKind, Table
from upsert_platform.kafka.change_topic import ChangeTopicSettings
from upsert_platform.kafka.endpoint import NO_KERBEROS, NO_MECHANISM, client_has_kerberos
from upsert_platform.kafka.metadata import WRITABLE, metadata_key, metadata_problem
from upsert_platform.kafka.modes import BoundedMode, CleanupPolicy, DeliveryGuarantee, StartupMode
from upsert_platform.kafka.options import ScanSettings, UpsertKafkaSettings
from upsert_platform.kafka.properties import ClientProperties

CDC_FORMATS: Final = ("debezium-json", "canal-json", "maxwell-json", "ogg-json", "debezium-avro-confluent")
SEVERAL_TOPICS: Final = (
    "a destination writes one topic: a row names its topic in a metadata column, but a delete holds the key alone and"
    " could not say which topic to remove it from; set 'topic' to one name and declare a table per topic"
)
Finding = tuple[str, str, str]
"""Message, the option that it is about (or an empty text), and the severity."""


def table_findings(
    table: Table, settings: ScanSettings, properties: ClientProperties, *, writes: bool
) -> Iterator[Finding]:
    """Yield the problems of a declared table.

    Args:
        writes: whether it is a destination.
    """
    if not table.physical_columns:
        yield "no physical column is declared", "", "error"
    yield from _metadata(table, writes=writes)
    yield from _kerberos(properties)
    if isinstance(settings, UpsertKafkaSettings):
        yield from _primary_key(table, settings)
        yield from _upsert_options(settings, writes=writes)
        if writes:
            yield from _raw_nulls(table, settings)
            yield from _delivery(settings, properties)
        if isinstance(settings, ChangeTopicSettings) and any(column.name == BEFORE for column in table.columns):
            yield f"'{BEFORE}' is the name of a column of the platform itself; rename it", "", "error"
        if writes and len(set(settings.topic)) != 1:
            yield SEVERAL_TOPICS, "topic" if settings.topic else "topic-pattern", "error"
    elif writes:
        yield "the platform reads 'kafka' tables and writes 'upsert-kafka' ones; change the connector", "", "error"
    if properties.group_id is None:
        yield from _without_group(table, settings, properties)


def _kerberos(properties: ClientProperties) -> Iterator[Finding]:
    """Warns of a login by Kerberos that the installed client cannot do. The runs may have another client."""
    common = properties.common
    mechanisms = [str(common[name]) for name in ("sasl.mechanism", "sasl.mechanisms") if name in common]
    if not str(common.get("security.protocol", "")).startswith("sasl_") or (mechanisms or ["GSSAPI"])[0] != "GSSAPI":
        return
    if not client_has_kerberos():
        hint = NO_KERBEROS if mechanisms else NO_MECHANISM
        yield (
            f"the login by SASL GSSAPI (Kerberos) fails with the installed client{hint}",
            "properties.sasl.mechanism",
            "warning",
        )


def _metadata(table: Table, *, writes: bool) -> Iterator[Finding]:
    columns = [column for column in table.columns if column.kind is ColumnKind.METADATA]
    for column in columns:
        problem = metadata_problem(column)
        if problem:
            yield problem, "", "error"
        elif writes and not column.virtual:
            yield from _written_metadata(column, columns)


def _written_metadata(column: Column, columns: list[Column]) -> Iterator[Finding]:
    key = metadata_key(column)
    if key not in WRITABLE:
        yield f"column '{column.name}' reads '{key}', which cannot be written; declare it VIRTUAL", "", "error"
        return
    if key == "headers" and any(metadata_key(other) == "header-list" and not other.virtual for other in columns):
        message = "'headers' and 'header-list' would both be written; declare one of the columns VIRTUAL"
        yield message, "", "error"
    if key == "topic":
        message = f"column '{column.name}' has no effect: every record goes to the one 'topic'; declare it VIRTUAL"
        yield message, "", "warning"


def _primary_key(table: Table, settings: UpsertKafkaSettings) -> Iterator[Finding]:
    if not table.primary_key:
        yield "a PRIMARY KEY ... NOT ENFORCED is required; it is the key of the records", "", "error"
        return
    kinds = {column.name: column.kind for column in table.columns}
    for name in table.primary_key:
        if name not in kinds:
            yield f"primary key column '{name}' is not declared", "", "error"
        elif kinds[name] is not ColumnKind.PHYSICAL:
            message = f"primary key column '{name}' is a {kinds[name]} column; only physical columns can be keys"
            yield message, "", "error"
    if settings.key_fields and set(settings.key_fields) != set(table.primary_key):
        message = (
            f"'key.fields' is '{';'.join(settings.key_fields)}' but the primary key is '{';'.join(table.primary_key)}';"
            " the primary key decides, remove 'key.fields'"
        )
        yield message, "key.fields", "error"


def _raw_nulls(table: Table, settings: UpsertKafkaSettings) -> Iterator[Finding]:
    """A null of format raw would be a null value, which is how an upsert topic deletes."""
    if settings.value_format != "raw":
        return
    for column in table.physical_columns:
        if column.name not in table.primary_key and column.type is not None and column.type.nullable:
            message = (
                f"column '{column.name}' of format raw may be null, and a record without a value deletes its key: such"
                f" rows are refused; leave them out (WHERE {column.name} IS NOT NULL), or use another value format"
            )
            yield message, "value.format", "warning"


def _delivery(settings: UpsertKafkaSettings, properties: ClientProperties) -> Iterator[Finding]:
    """Client properties that a delivery guarantee does not go with; the others are the producer's as declared."""
    acks = str(properties.producer.get("acks", "")).strip()
    idempotent = str(properties.producer.get("enable.idempotence", "true")).strip().lower() == "true"
    guarantee = settings.delivery_guarantee
    if guarantee is DeliveryGuarantee.EXACTLY_ONCE:
        if acks not in ("", "all", "-1"):
            message = f"'properties.acks' = '{acks}' does not go with exactly-once, which needs all; remove it"
            yield message, "properties.acks", "error"
        if not idempotent:
            name = "properties.enable.idempotence"
            yield f"'{name}' = 'false' does not go with exactly-once, which needs it; remove it", name, "error"
    elif acks == "0":
        message = (
            "'properties.acks' = '0': brokers answer nothing, so rows that they do not take are lost and not counted"
            f" ('sink.delivery-guarantee' = '{guarantee}'); remove it, or set it to 1 or all"
        )
        severity = "error" if guarantee is DeliveryGuarantee.AT_LEAST_ONCE else "warning"
        yield message, "properties.acks", severity


def _upsert_options(settings: UpsertKafkaSettings, *, writes: bool) -> Iterator[Finding]:
    carries_changes = isinstance(settings, ChangeTopicSettings)
    for side, format_id in (("key", settings.key_format), ("value", settings.value_format)):
        if format_id in CDC_FORMATS and not (carries_changes and side == "value"):
            message = (
                f"'{side}.format' = '{format_id}': a CDC format carries its own row kinds and cannot be the {side} of"
                " an upsert topic; declare a table with 'connector' = 'kafka' for it"
            )
            yield message, f"{side}.format", "error"
    if settings.startup_mode is not StartupMode.EARLIEST:
        message = (
            f"'scan.startup.mode' = '{settings.startup_mode}' leaves out earlier records: keys that are not written"
            " again are missing, and the table is partial"
        )
        yield message, "scan.startup.mode", "warning"
    if settings.naming_strategy == "INCREMENTING":
        name = "sink.transaction-naming-strategy"
        yield f"'{name}' = 'INCREMENTING' has no effect: transactional ids are reused by writing task", name, "warning"
    if settings.apsara is not None and not (writes and settings.auto_create):
        name = "aliyun.kafka.instanceId"
        yield "options 'aliyun.kafka.*' have no effect: no topic is created for this table", name, "warning"
    elif settings.apsara is not None and settings.aliyun_cleanup is not CleanupPolicy.COMPACT:
        name = "aliyun.kafka.topic.cleanup-policy"
        message = (
            f"'{name}' is delete, so a topic that is created forgets values that are still current; on a Professional"
            " Edition instance set it to compact, and 'aliyun.kafka.topic.storage' to local"
        )
        yield message, name, "warning"


def _without_group(table: Table, settings: ScanSettings, properties: ClientProperties) -> Iterator[Finding]:
    if settings.bounded_mode is BoundedMode.GROUP:
        yield "'scan.bounded.mode' = 'group-offsets' needs 'properties.group.id'", "scan.bounded.mode", "error"
    if settings.startup_mode is StartupMode.GROUP and "scan.startup.mode" in table.options:
        yield "'scan.startup.mode' = 'group-offsets' needs 'properties.group.id'", "scan.startup.mode", "error"
    if properties.commit_offsets_declared:
        name = "properties.commit.offsets.on.checkpoint"
        yield f"'{name}' = 'true' needs 'properties.group.id'", name, "error"
