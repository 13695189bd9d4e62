"""Options of Kafka tables: the `upsert-kafka` connector as source and destination, and `kafka` as a source.

Names and defaults are those of Apache Flink and of the vendors that ship the connector (Alibaba, Volcengine, Tencent);
what the platform adds has origin ``platform``. Options of formats (``key.json.*``) and of the Kafka client
(``properties.*``) are read in `table.py` and `properties.py`.
"""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import BeforeValidator, SecretStr, field_validator, model_validator

from upsert_platform.core.options import Boolean, Duration, MemorySize, SemicolonList, option
from upsert_platform.kafka.apsara import ApsaraInstance, TopicProperties
from upsert_platform.kafka.modes import (
    BoundedMode,
    CleanupPolicy,
    DeliveryGuarantee,
    FieldsInclude,
    KeyConflict,
    NamingStrategy,
    OnDataLoss,
    SpecificOffsets,
    StartupMode,
    StorageEngine,
)
from upsert_platform.kafka.quarantine_options import QuarantineSettings, lower

PAGES = "flink, alibaba, volcengine, tencent"
"""All pages of the connector."""
MAX_TRANSACTIONAL_PREFIX = 64_000
"""Bytes; longer transactional ids do not fit the broker's coordinator records once a suffix is added."""
CONTROL_TOPIC = "upsert-platform-control-"
"""Begins the names of control topics that are not declared; a `topic-pattern` never matches them."""


def _upper(value: object) -> object:
    return value.strip().upper() if isinstance(value, str) else value


class ScanSettings(QuarantineSettings):
    """Options that both connectors share."""

    connector: str = option("connector", origin=PAGES, description="Kind of the table.")
    bootstrap_servers: str = option(
        "properties.bootstrap.servers", origin=PAGES, description="Brokers to connect to, host:port joined by commas."
    )
    topic: SemicolonList = option(
        "topic", (), origin=PAGES, description="Topic, or several joined by semicolons. Needs no topic-pattern."
    )
    topic_pattern: str | None = option(
        "topic-pattern", None, origin="flink", description="Regular expression that a topic's whole name must match."
    )
    key_fields_prefix: str = option(
        "key.fields-prefix",
        "",
        origin=PAGES,
        description="Prefix of key columns in the table that the key format does not have; needs EXCEPT_KEY.",
    )
    value_fields_include: Annotated[FieldsInclude, BeforeValidator(_upper)] = option(
        "value.fields-include",
        FieldsInclude.ALL,
        origin=PAGES,
        description="Whether key columns travel in the value too.",
    )
    startup_mode: Annotated[StartupMode, BeforeValidator(lower)] = option(
        "scan.startup.mode",
        StartupMode.EARLIEST,
        origin="flink, tencent",
        description="Where the first batch starts. On upsert-kafka anything but earliest-offset gives a partial table.",
    )
    startup_timestamp: int | None = option(
        "scan.startup.timestamp-millis", None, origin="flink", description="Start for mode timestamp, ms.", ge=0
    )
    startup_offsets: SpecificOffsets = option(
        "scan.startup.specific-offsets", (), origin="flink", description="Start for mode specific-offsets."
    )
    bounded_mode: Annotated[BoundedMode, BeforeValidator(lower)] = option(
        "scan.bounded.mode",
        BoundedMode.UNBOUNDED,
        origin="flink",
        description="Where every run stops reading; the next one goes on from there, up to the same bound.",
    )
    bounded_timestamp: int | None = option(
        "scan.bounded.timestamp-millis", None, origin="flink", description="End for mode timestamp, ms.", ge=0
    )
    bounded_offsets: SpecificOffsets = option(
        "scan.bounded.specific-offsets",
        (),
        origin="flink",
        description="End (exclusive) for mode specific-offsets; partitions that are not named are not read.",
    )
    scan_parallelism: int | None = option(
        "scan.parallelism", None, origin="flink", description="Number of reading tasks of a batch.", ge=1
    )
    discovery_interval: Duration | None = option(
        "scan.topic-partition-discovery.interval",
        None,
        origin="flink",
        description="Accepted with a warning: every batch looks for new partitions when it is planned.",
    )
    max_records: int = option(
        "batch.max-records",
        2_000_000,
        origin="platform",
        description="Offsets that one batch spans at most; some ten seconds of work, against one second of commit.",
        ge=1,
    )
    max_bytes: MemorySize = option(
        "batch.max-bytes",
        2 << 30,
        origin="platform",
        description="Bytes that one batch reads at most, estimated from the record size of the batch before (1 KiB).",
        ge=1,
    )
    buffer_bytes: MemorySize = option(
        "scan.buffer-bytes",
        192 << 20,
        origin="platform",
        description="Keys and values that a reading task holds before it hands rows on; bounds its memory.",
        ge=1 << 16,
        le=1 << 30,
    )
    on_data_loss: Annotated[OnDataLoss, BeforeValidator(lower)] = option(
        "on-data-loss",
        OnDataLoss.FAIL,
        origin="platform",
        description="Whether a batch fails when records were deleted before they were read, or the topic is a new one.",
    )

    @field_validator("topic_pattern")
    @classmethod
    def _pattern_compiles(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                re.compile(value)
            except re.error as error:
                raise ValueError(f"is not a regular expression: {error}") from None
        return value

    @model_validator(mode="after")
    def _one_of_topic_and_pattern(self) -> Self:
        if bool(self.topic) == bool(self.topic_pattern):
            both = "both are set" if self.topic else "neither is set"
            raise ValueError(f"exactly one of 'topic' and 'topic-pattern' is required; {both}")
        return self

    @model_validator(mode="after")
    def _modes_have_their_options(self) -> Self:
        for mode, prefix, timestamp, offsets in (
            (self.startup_mode.value, "scan.startup", self.startup_timestamp, self.startup_offsets),
            (self.bounded_mode.value, "scan.bounded", self.bounded_timestamp, self.bounded_offsets),
        ):
            needed = {"timestamp": (timestamp is not None, "timestamp-millis"), "specific-offsets": (bool(offsets), "")}
            for name, (given, suffix) in needed.items():
                option_name = f"{prefix}.{suffix or name}"
                if mode == name and not given:
                    raise ValueError(f"'{prefix}.mode' = '{mode}' needs option '{option_name}'")
                if mode != name and given:
                    raise ValueError(f"option '{option_name}' needs '{prefix}.mode' = '{name}'")
            if mode == "specific-offsets" and len(set(self.topic)) != 1:
                raise ValueError(
                    f"'{prefix}.mode' = 'specific-offsets' numbers the partitions of one topic; set 'topic' to one name"
                )
        return self

    @model_validator(mode="after")
    def _prefix_excludes_key_from_value(self) -> Self:
        if self.key_fields_prefix and self.value_fields_include is FieldsInclude.ALL:
            raise ValueError(
                "'key.fields-prefix' needs 'value.fields-include' = 'EXCEPT_KEY', or key columns would be in the value"
                " under their prefixed names"
            )
        return self


class KafkaSettings(ScanSettings):
    """Options of `connector` = `kafka`, which the platform reads: every record is a change of its own."""

    value_format: str = option(
        "value.format", origin=PAGES, synonyms=["format"], description="Format of the value; CDC formats included."
    )
    key_format: str | None = option("key.format", None, origin=PAGES, description="Format of the key.")
    key_fields: SemicolonList = option(
        "key.fields", (), origin="flink", description="Columns read from the key, joined by semicolons."
    )
    startup_mode: Annotated[StartupMode, BeforeValidator(lower)] = option(
        "scan.startup.mode",
        StartupMode.GROUP,
        origin="flink, tencent",
        description="Where the first batch starts. group-offsets without a group or a position there starts earliest.",
    )

    @model_validator(mode="after")
    def _key_format_and_fields_together(self) -> Self:
        if self.key_format and not self.key_fields:
            raise ValueError("'key.format' needs 'key.fields', the columns that the key holds")
        if self.key_fields and not self.key_format:
            raise ValueError("'key.fields' needs 'key.format'")
        return self


class UpsertKafkaSettings(ScanSettings):
    """Options of `connector` = `upsert-kafka`, as source and as destination."""

    key_format: str = option("key.format", origin=PAGES, description="Format of the key (the primary key).")
    value_format: str = option(
        "value.format", origin=PAGES, synonyms=["format"], description="Format of the value; not a CDC format."
    )
    key_fields: SemicolonList = option(
        "key.fields",
        (),
        origin="alibaba, tencent",
        description="Accepted when it names the primary key, which decides.",
    )
    key_conflict: Annotated[KeyConflict, BeforeValidator(lower)] = option(
        "key-conflict",
        KeyConflict.QUARANTINE,
        origin="platform",
        description="With value.fields-include = ALL, what happens when the value's copy of the key differs: the record"
        " goes aside (`quarantine`), or the key counts (`key`). A copy that is absent or null is taken from the key"
        " (but not with ignore-parse-errors, which makes null of what cannot be read).",
    )
    sink_parallelism: int | None = option(
        "sink.parallelism", None, origin=PAGES, description="Number of writing tasks.", ge=1
    )
    buffer_flush_max_rows: int = option(
        "sink.buffer-flush.max-rows",
        0,
        origin="flink, alibaba, tencent",
        description="Rows handed to the producer before it is flushed; needs the interval too. Rows of a key are"
        " reduced to the last one in every case.",
        ge=0,
    )
    buffer_flush_interval: Duration | None = option(
        "sink.buffer-flush.interval",
        None,
        origin="flink, alibaba, tencent",
        description="Time after which the producer is flushed.",
    )
    delivery_guarantee: Annotated[DeliveryGuarantee, BeforeValidator(lower)] = option(
        "sink.delivery-guarantee",
        DeliveryGuarantee.AT_LEAST_ONCE,
        origin="flink, alibaba",
        description="exactly-once writes in transactions; none counts rows that the brokers do not take, warns and goes"
        " on.",
    )
    transactional_id_prefix: str = option(
        "sink.transactional-id-prefix",
        "",
        origin="flink",
        description="Start of transactional ids; unique per destination, the same in every run.",
    )
    naming_strategy: Annotated[NamingStrategy | None, BeforeValidator(_upper)] = option(
        "sink.transaction-naming-strategy",
        None,
        origin="flink",
        description="POOLING, which is what happens: ids are reused by writing task, so that the next write fences an"
        " unfinished transaction. INCREMENTING is accepted with a warning.",
    )
    auto_create: Boolean = option(
        "auto.create", True, origin="platform", description="Whether a missing topic is created, compacted."
    )
    create_partitions: int | None = option(
        "auto.create.partitions", None, origin="platform", description="Partitions of a created topic.", ge=1
    )
    create_replication: int | None = option(
        "auto.create.replication-factor", None, origin="platform", description="Replicas of a created topic.", ge=1
    )
    control_topic: str | None = option(
        "sink.control-topic",
        None,
        origin="platform",
        description="Compacted topic of two partitions that keeps the applied batch, the last verdict and the lease of"
        " the written topic; upsert-platform-control-<topic> where none is named.",
        min_length=1,
    )
    table_id_header: Boolean = option(
        "sink.add-tableId-to-header-enabled",
        False,
        origin="alibaba",
        description="Writes headers namespace, schemaName and tableName, from the destination's declared name.",
    )
    aliyun_access_key_id: SecretStr | None = option(
        "aliyun.kafka.accessKeyId",
        None,
        origin="alibaba",
        description="AccessKey ID of who may create topics of an ApsaraMQ instance; needs the other aliyun.kafka ones.",
    )
    aliyun_access_key_secret: SecretStr | None = option(
        "aliyun.kafka.accessKeySecret", None, origin="alibaba", description="AccessKey secret of the same."
    )
    aliyun_instance_id: str | None = option(
        "aliyun.kafka.instanceId",
        None,
        origin="alibaba",
        description="ApsaraMQ for Kafka instance; auto.create then creates topics through its OpenAPI.",
    )
    aliyun_endpoint: str | None = option(
        "aliyun.kafka.endpoint", None, origin="alibaba", description="Control plane: alikafka.<region>.aliyuncs.com."
    )
    aliyun_region: str | None = option(
        "aliyun.kafka.regionId", None, origin="alibaba", description="Region of the ApsaraMQ instance."
    )
    aliyun_storage: Annotated[StorageEngine, BeforeValidator(lower)] = option(
        "aliyun.kafka.topic.storage",
        StorageEngine.CLOUD,
        origin="platform",
        description="Storage engine of a created topic: cloud (Normal Messages), or local (Partitionally Ordered"
        " Messages; Professional Edition).",
    )
    aliyun_cleanup: Annotated[CleanupPolicy, BeforeValidator(lower)] = option(
        "aliyun.kafka.topic.cleanup-policy",
        CleanupPolicy.DELETE,
        origin="platform",
        description="Log cleanup policy of a created topic; compact needs local storage.",
    )
    aliyun_remark: str = option(
        "aliyun.kafka.topic.remark", "upsert_platform", origin="platform", description="Description of a created topic."
    )
    aliyun_tags: SemicolonList = option(
        "aliyun.kafka.topic.tags", (), origin="platform", description="Tags of a created topic: key:value;key:value."
    )

    @model_validator(mode="after")
    def _buffer_options_come_in_pairs(self) -> Self:
        interval = self.buffer_flush_interval
        if bool(self.buffer_flush_max_rows) != bool(interval):
            raise ValueError(
                "'sink.buffer-flush.max-rows' and 'sink.buffer-flush.interval' are both greater than 0, or neither is"
            )
        return self

    @model_validator(mode="after")
    def _transactions_have_a_prefix(self) -> Self:
        if self.delivery_guarantee is DeliveryGuarantee.EXACTLY_ONCE and not self.transactional_id_prefix:
            raise ValueError("'sink.delivery-guarantee' = 'exactly-once' needs 'sink.transactional-id-prefix'")
        if len(self.transactional_id_prefix.encode()) > MAX_TRANSACTIONAL_PREFIX:
            raise ValueError(f"'sink.transactional-id-prefix' is longer than {MAX_TRANSACTIONAL_PREFIX} bytes")
        return self

    @model_validator(mode="after")
    def _apsara_options_come_together(self) -> Self:
        given = {
            "aliyun.kafka.accessKeyId": self.aliyun_access_key_id,
            "aliyun.kafka.accessKeySecret": self.aliyun_access_key_secret,
            "aliyun.kafka.instanceId": self.aliyun_instance_id,
            "aliyun.kafka.endpoint": self.aliyun_endpoint,
            "aliyun.kafka.regionId": self.aliyun_region,
        }
        missing = [name for name, value in given.items() if not value]
        if missing and len(missing) < len(given):
            raise ValueError(f"options 'aliyun.kafka.*' create topics only together; missing: {', '.join(missing)}")
        if self.aliyun_cleanup is CleanupPolicy.COMPACT and self.aliyun_storage is not StorageEngine.LOCAL:
            raise ValueError(
                "'aliyun.kafka.topic.cleanup-policy' = 'compact' needs 'aliyun.kafka.topic.storage' = 'local'"
            )
        for tag in self.aliyun_tags:
            if not all(part.strip() for part in (tag.partition(":")[0], tag.partition(":")[2])):
                raise ValueError(f"'aliyun.kafka.topic.tags' takes key:value;key:value, not '{tag}'")
        return self

    @property
    def apsara(self) -> ApsaraInstance | None:
        """The instance whose OpenAPI creates topics; None where the Kafka protocol does."""
        if not (self.aliyun_access_key_id and self.aliyun_access_key_secret and self.aliyun_instance_id):
            return None
        return ApsaraInstance(
            self.aliyun_instance_id,
            self.aliyun_region or "",
            self.aliyun_endpoint or "",
            self.aliyun_access_key_id,
            self.aliyun_access_key_secret,
            TopicProperties(
                self.aliyun_storage,
                self.aliyun_cleanup,
                self.aliyun_remark,
                tuple(
                    (key.strip(), value.strip()) for key, _, value in (tag.partition(":") for tag in self.aliyun_tags)
                ),
            ),
        )
