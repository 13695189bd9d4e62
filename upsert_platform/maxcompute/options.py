"""Options of a ``'connector' = 'maxcompute'`` table, read from its declaration.

Names, defaults and units are those of the MaxCompute connector for Flink; options of origin ``platform`` are ours.
`upsert_platform.maxcompute.replaced` says which of them Spark makes meaningless.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Self
from urllib.parse import urlparse
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import SecretStr, field_validator, model_validator

from upsert_platform.core.options import Boolean, Duration, MemorySize, Settings, option
from upsert_platform.maxcompute.assigners import check_assigner, check_pattern
from upsert_platform.maxcompute.choices import (
    ANY_CASE,
    Compression,
    Count,
    Milliseconds,
    OnError,
    SchemaChange,
    Seconds,
    SinkOperation,
    WriteApi,
)
from upsert_platform.maxcompute.partition_spec import refuse_value

NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
MAX_BUCKETS = 4096
DEFAULT_BUCKETS = 16
DEFAULT_PARTITION_LIMIT = 100
SHORT_INTERVAL = timedelta(minutes=3)
"""Commits that follow faster make small files and slow queries."""
_LEAST_INTERVAL = timedelta(minutes=1)
_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")


class ServiceSettings(Settings):
    """The table that is written, and the rights to write it."""

    connector: str = option("connector", origin="maxcompute", description="The literal `maxcompute`.")
    project: str = option("odps.project.name", origin="maxcompute", description="Project of the table.")
    access_id: SecretStr = option("odps.access.id", origin="maxcompute", description="AccessKey ID.")
    access_key: SecretStr = option("odps.access.key", origin="maxcompute", description="AccessKey secret.")
    sts_token: SecretStr | None = option(
        "odps.sts.token", None, origin="platform", synonyms=["sts-token"],
        description="Security token, when id and key are temporary.",
    )  # fmt: skip
    endpoint: str = option("odps.end.point", origin="maxcompute", description="URL of the MaxCompute service.")
    tunnel_endpoint: str | None = option(
        "odps.tunnel.end.point", None, origin="maxcompute",
        description="URL of the tunnel service; found by asking the project when it is not given.",
    )  # fmt: skip
    tunnel_quota: str | None = option(
        "odps.tunnel.quota.name", None, origin="maxcompute", description="Quota that pays for the data transfer."
    )
    table_name: str = option("table.name", origin="maxcompute", description="Table, as `[project.][schema.]table`.")
    namespace_schema: Boolean = option(
        "odps.namespace.schema", False, origin="maxcompute",
        description="Whether the project uses schemas; a two-part name is then `schema.table`, else `project.table`.",
    )  # fmt: skip
    operation: Annotated[SinkOperation, ANY_CASE] = option(
        "sink.operation", SinkOperation.INSERT, origin="maxcompute",
        description="`upsert` keeps a Delta table equal to the last value per primary key. `insert` appends, and"
        " refuses deletes; in a table that has a primary key, which is then declared, a row takes the place of the one"
        " with its key.",
    )  # fmt: skip
    parallelism: Count | None = option(
        "sink.parallelism", None, origin="maxcompute", ge=1,
        description="Number of writing tasks; that of the changes when it is not given.",
    )  # fmt: skip
    meta_cache_size: Count = option(
        "sink.meta.cache.time", 400, origin="maxcompute", ge=1, description="Size of the cache of table metadata."
    )
    meta_cache_expire: Seconds = option(
        "sink.meta.cache.expire.time", 1200, origin="maxcompute", ge=1, description="Life of that cache, in seconds."
    )
    coordinator: Boolean = option(
        "sink.coordinator.enable", True, origin="maxcompute",
        description="Whether a batch goes through one session and becomes visible at once. With `false` (`insert` into"
        " tables that are not Delta tables) every task has a session of its own, and its rows become visible on"
        " their own. The driver records and commits either kind, so no row is appended twice.",
    )  # fmt: skip

    @field_validator("connector")
    @classmethod
    def _is_maxcompute(cls, value: str) -> str:
        if value.strip().lower() != "maxcompute":
            raise ValueError(f"is 'maxcompute', not '{value}'")
        return "maxcompute"

    @field_validator("endpoint", "tunnel_endpoint")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parsed = urlparse(value.strip())
        if parsed.scheme not in ("http", "https") or not parsed.hostname or parsed.username or parsed.password:
            raise ValueError("takes a URL as 'https://host/api', without credentials in it")
        return value.strip().rstrip("/")

    @field_validator("project")
    @classmethod
    def _is_project(cls, value: str) -> str:
        return _name(value)


class PartitionSettings(Settings):
    """Partitions of the rows."""

    partition: str | None = option(
        "sink.partition", None, origin="maxcompute",
        description="Static partition, or the leading part of it when the other partition columns are dynamic.",
    )  # fmt: skip
    partition_default: str = option(
        "sink.partition.default-value", "__DEFAULT_PARTITION__", origin="maxcompute", min_length=1,
        description="Partition of rows whose dynamic partition column is null or blank. They are read back with this"
        " value, a DATE with null. Rows without a number are refused unless this is one.",
    )  # fmt: skip
    partition_limit: Count = option(
        "sink.dynamic-partition.limit", DEFAULT_PARTITION_LIMIT, origin="maxcompute", ge=1, le=60_000,
        description="Most partitions that one batch may write; more is an error, before anything is written.",
    )  # fmt: skip
    move_rows: Boolean = option(
        "sink.partition.move-rows", False, origin="platform",
        description="Applies to `upsert` into partitions that do not follow from the primary key. `false` keeps one row"
        " per partition and key, as the connector for Flink does: a row that arrives with another partition leaves the"
        " rows of other partitions alone, and a delete removes the key from every partition. `true` keeps one row per"
        " key: the row moves when its partition changes, for which each batch looks its keys up in the table.",
    )  # fmt: skip
    group_partition: Boolean = option(
        "sink.group-partition.enable", False, origin="maxcompute",
        description="Whether rows are sorted by partition in every task, so that a body holds few partitions.",
    )  # fmt: skip
    assigner: str | None = option(
        "sink.partition.assigner.class", None, origin="maxcompute",
        description="`package.module:function` that takes a record batch and gives the dynamic partition columns; or"
        " the connector's own classes `TablePartitionAssigner` (columns) and `DateTimePartitionAssigner` (time of the"
        " batch), with their package.",
    )  # fmt: skip
    assigner_format: str = option(
        "sink.partition.assigner.format", "yyyy-MM-dd--HH", origin="platform",
        description="Pattern of the date-time assigner: yyyy, yy, MM, dd, HH, mm, ss and quoted text.",
    )  # fmt: skip
    assigner_zone: str = option(
        "sink.partition.assigner.time-zone", "UTC", origin="platform",
        description="Time zone in which the date-time assigner writes the time.",
    )  # fmt: skip

    @field_validator("assigner")
    @classmethod
    def _is_known_assigner(cls, value: str | None) -> str | None:
        return check_assigner(value) if value is not None else None

    @field_validator("assigner_format")
    @classmethod
    def _is_pattern(cls, value: str) -> str:
        return check_pattern(value)

    @field_validator("assigner_zone")
    @classmethod
    def _is_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value.strip())
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"takes a time zone as 'Asia/Shanghai', not '{value}'") from None
        return value.strip()

    @field_validator("partition_default")
    @classmethod
    def _is_partition_value(cls, value: str) -> str:
        reason = refuse_value(value)
        if reason:
            raise ValueError(f"takes a value that a partition can have; '{value}' {reason}")
        return value


class SpillSettings(Settings):
    """Spill files of the Flink sink; Spark's shuffle does their work."""

    file_cached: Boolean = option(
        "sink.file-cached.enable", False, origin="maxcompute", description="Whether rows are spilled to local files."
    )
    file_cached_dirs: str = option(
        "sink.file-cached.tmp.dirs", "./local", origin="maxcompute", description="Folders of spilled files."
    )
    file_cached_writers: Count = option(
        "sink.file-cached.writer.num",
        16,
        origin="maxcompute",
        ge=1,
        description="Threads that upload spilled files.",
    )
    bucket_check_interval: Milliseconds = option(
        "sink.bucket.check-interval", 60_000, origin="maxcompute", ge=1, description="Period of the size check, in ms."
    )
    file_cached_rolling_size: MemorySize = option(
        "sink.file-cached.rolling.max-size", 16 << 20, origin="maxcompute", gt=0, description="Size of a spilled file."
    )
    file_cached_memory: MemorySize = option(
        "sink.file-cached.memory", 64 << 20, origin="maxcompute", gt=0, description="Memory for writing spilled files."
    )
    file_cached_segment: MemorySize = option(
        "sink.file-cached.memory.segment-size",
        128 << 10,
        origin="maxcompute",
        gt=0,
        description="Write buffer of a file.",
    )
    file_cached_flush: Boolean = option(
        "sink.file-cached.flush.always",
        True,
        origin="maxcompute",
        description="Whether every write is flushed to the file.",
    )
    file_cached_retries: Count = option(
        "sink.file-cached.write.max-retries", 3, origin="maxcompute", ge=0, description="Retries of a file."
    )

    @model_validator(mode="after")
    def _segment_fits(self) -> Self:
        # A size that nobody gave follows the other one, and is nobody's mistake.
        if "file_cached_segment" in self.model_fields_set and self.file_cached_segment > self.file_cached_memory:
            raise ValueError(
                "'sink.file-cached.memory.segment-size' is at most 'sink.file-cached.memory'"
                f" ({self.file_cached_memory} bytes)"
            )
        return self


class UpsertSettings(Settings):
    """Sessions of `upsert`."""

    writer_retries: Count = option(
        "upsert.writer.max-retries", 3, origin="maxcompute", ge=0, description="Retries of a request that sends rows."
    )
    writer_buffer: MemorySize = option(
        "upsert.writer.buffer-size", 64 << 20, origin="maxcompute", gt=0,
        description="Most bytes that a writing task holds before it sends; a body is at most a quarter of it.",
    )  # fmt: skip
    bucket_buffer: MemorySize = option(
        "upsert.writer.bucket.buffer-size",
        1 << 20,
        origin="maxcompute",
        gt=0,
        description="Buffer of one bucket; at most upsert.writer.buffer-size, which lowers the default.",
    )
    buckets: Count | None = option(
        "upsert.write.bucket.num", None, origin="maxcompute", ge=1, le=MAX_BUCKETS,
        description="Buckets of the table: compared with an existing table, used for one that is created (else 16).",
    )  # fmt: skip
    slots: Count = option(
        "upsert.write.slot-num", 1, origin="maxcompute", ge=1, description="Tunnel slots of an upsert session."
    )
    commit_retries: Count = option(
        "upsert.commit.max-retries", 3, origin="maxcompute", ge=0, description="Retries of a commit."
    )
    commit_threads: Count = option(
        "upsert.commit.thread-num", 16, origin="maxcompute", ge=1, description="Partitions committed at once."
    )
    commit_timeout: Seconds = option(
        "upsert.commit.timeout",
        600,
        origin="maxcompute",
        ge=1,
        description="Time for a commit with its retries, in seconds.",
    )
    compaction: Boolean = option(
        "upsert.major-compact.enable", False, origin="maxcompute",
        description="Whether a major compaction follows after enough commits.",
    )  # fmt: skip
    compaction_commits: Count = option(
        "upsert.major-compact.min-commits", 100, origin="maxcompute", ge=1, description="Commits from one to the next."
    )
    flush_concurrency: Count = option(
        "upsert.flush.concurrent", 2, origin="maxcompute", ge=1, description="Buckets of a partition sent at once."
    )

    @model_validator(mode="after")
    def _bucket_fits(self) -> Self:
        # A size that nobody gave follows the other one, and is nobody's mistake.
        if "bucket_buffer" in self.model_fields_set and self.bucket_buffer > self.writer_buffer:
            raise ValueError(
                "'upsert.writer.bucket.buffer-size' is at most 'upsert.writer.buffer-size'"
                f" ({self.writer_buffer} bytes)"
            )
        return self

    @property
    def bucket_bytes(self) -> int:
        """Encoded bytes of one bucket at which it is sent; a small `upsert.writer.buffer-size` lowers it."""
        return min(self.bucket_buffer, self.writer_buffer)


class InsertSettings(Settings):
    """Sessions of `insert`."""

    insert_commit_threads: Count = option(
        "insert.commit.thread-num",
        16,
        origin="maxcompute",
        ge=1,
        description="Sessions committed at once, where tasks have one each.",
    )
    insert_arrow: Boolean = option(
        "insert.arrow-writer.enable",
        False,
        origin="maxcompute",
        description="Whether rows travel as Arrow; always so here.",
    )
    insert_arrow_rows: Count = option(
        "insert.arrow-writer.batch-size", 512, origin="maxcompute", ge=1, description="Most rows of an Arrow batch."
    )
    insert_flush_interval: Milliseconds = option(
        "insert.arrow-writer.flush-interval",
        100_000,
        origin="maxcompute",
        ge=1,
        description="Time between flushes, in ms.",
    )
    insert_buffer: MemorySize = option(
        "insert.writer.buffer-size", 64 << 20, origin="maxcompute", gt=0,
        description="As upsert.writer.buffer-size, for `insert`.",
    )  # fmt: skip


class MaxComputeSettings(InsertSettings, UpsertSettings, SpillSettings, PartitionSettings, ServiceSettings):
    """All options of a MaxCompute table; those of the last base come first.

    Counts are checked against the ranges of the connector's documentation.
    """

    auto_create: Boolean = option(
        "auto.create", False, origin="platform", description="Whether a missing table is created from the declaration."
    )
    schema_change: Annotated[SchemaChange, ANY_CASE] = option(
        "schema.change.behavior", SchemaChange.EXCEPTION, origin="platform",
        description="`evolve` adds declared columns that the table lacks and widens types before a batch is written;"
        " `exception` stops and names them.",
    )  # fmt: skip
    on_error: Annotated[OnError, ANY_CASE] = option(
        "on-error", OnError.QUARANTINE, origin="platform",
        description="Rows that the table will not take: `quarantine` keeps them aside, `fail` stops before anything is"
        " committed.",
    )  # fmt: skip
    retain_hours: Count | None = option(
        "acid.data.retain.hours", None, origin="maxcompute", ge=0, le=168,
        description="History that a created Delta table keeps, in hours.",
    )  # fmt: skip
    lifecycle: Count | None = option(
        "table.lifecycle",
        None,
        origin="maxcompute",
        ge=1,
        le=37_231,
        description="Lifecycle of a created table, in days: MaxCompute drops partitions that nobody has written for so"
        " long, whose rows checks count as `expired`, and a table without partitions, which the next sync writes anew.",
    )
    api: Annotated[WriteApi, ANY_CASE] = option(
        "write.api", WriteApi.MAXSTORAGE, origin="platform",
        description="`maxstorage` sends Arrow to the storage service; `tunnel` uses upsert sessions and SQL, for"
        " projects without it.",
    )  # fmt: skip
    compression: Annotated[Compression, ANY_CASE] = option(
        "write.compression",
        Compression.LZ4,
        origin="platform",
        description="Codec of the bodies sent: none, lz4 or zstd.",
    )
    body_size: MemorySize = option(
        "write.body-size", 16 << 20, origin="platform", ge=64 << 10, le=64 << 20,
        description="Uncompressed size at which a task sends the rows it holds.",
    )  # fmt: skip
    request_timeout: Duration = option(
        "request.timeout",
        timedelta(seconds=120),
        origin="platform",
        description="Longest wait for one answer; a commit waits for `upsert.commit.timeout`.",
    )
    commit_interval: Duration | None = option(
        "commit.min-interval", None, origin="platform",
        description="A batch that comes sooner after the last commit is refused and left to a later run; 0 takes all."
        " If it is not given, a batch waits until a minute has passed; not so for a service on this machine.",
    )  # fmt: skip
    control_table: str = option(
        "control.table", "upsert_platform_control", origin="platform",
        description="Delta table beside the destination that keeps applied batch, lease and verdict.",
    )  # fmt: skip

    @field_validator("control_table")
    @classmethod
    def _is_control_table(cls, value: str) -> str:
        return _name(value)

    @field_validator("request_timeout")
    @classmethod
    def _is_positive(cls, value: timedelta) -> timedelta:
        if value <= timedelta(0):
            raise ValueError("takes a duration above 0")
        return value

    @property
    def least_interval(self) -> timedelta:
        """Time between commits: as declared, else a minute, and none for a service on this machine."""
        if self.commit_interval is not None:
            return self.commit_interval
        return timedelta(0) if urlparse(self.endpoint).hostname in _THIS_MACHINE else _LEAST_INTERVAL

    @property
    def body_bytes(self) -> int:
        """Uncompressed bytes of one body: `write.body-size`, and never above a quarter of the task's buffer."""
        buffer = self.writer_buffer if self.operation is SinkOperation.UPSERT else self.insert_buffer
        return max(64 << 10, min(self.body_size, buffer // 4))


def _name(value: str) -> str:
    if not NAME_PATTERN.fullmatch(value.strip()):
        raise ValueError("takes a name of letters, digits and _, that starts with a letter")
    return value.strip()
