"""The topics of a declared table as the source of its changelog."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.source import MODE_APPEND, MODE_UPSERT, DecodesAgain, ForeseesLoss, ReplaysFrom, Start, Unread
from upsert_platform.core.task_runner import LocalTaskRunner
from upsert_platform.kafka.endpoint import keeping_admins
from upsert_platform.kafka.modes import StartupMode
from upsert_platform.kafka.source import offsets
from upsert_platform.kafka.source.fetch import close_consumers
from upsert_platform.kafka.source.oldest import first_times
from upsert_platform.kafka.source.retention import unread_records
from upsert_platform.kafka.source.source import write_changes, write_changes_in_task
from upsert_platform.kafka.table import KafkaTable
from upsert_platform.writing.notices import warn_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from upsert_platform.changelog.accounting import OffsetRange
    from upsert_platform.changelog.data_files import DataFile
    from upsert_platform.changelog.store import Positions
    from upsert_platform.core.task_runner import TaskRunner
    from upsert_platform.kafka.source.decode import RecordDecoder

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class TopicSource(DecodesAgain, ReplaysFrom, ForeseesLoss):
    """Reads the topics of an `upsert-kafka` or `kafka` table; lanes are partitions, numbers are offsets."""

    kafka: KafkaTable
    every_record: bool = False

    def keeping_every_record(self) -> TopicSource:
        """Reads without reducing a range to the last record per key."""
        return replace(self, every_record=True)

    @property
    def _reading(self) -> str:
        return MODE_APPEND if self.every_record else self.mode

    @property
    def mode(self) -> str:
        """``upsert`` keeps the last record per key and batch, ``append`` every record (plain `kafka` tables)."""
        return MODE_UPSERT if self.kafka.is_upsert else MODE_APPEND

    @property
    def quarantine_limits(self) -> tuple[int | None, int | None]:
        """As declared."""
        return self.kafka.settings.quarantine_fail_count, self.kafka.settings.quarantine_fail_percent

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Keeps clients of the brokers; a consumer is kept in any case, and closed here."""
        with keeping_admins():
            try:
                yield
            finally:
                close_consumers()

    def discover(self) -> Sequence[offsets.TopicOffsets]:
        """The topics with the offsets that can be read."""
        return offsets.discover(self.kafka)

    def backlog(self, streams: Sequence[offsets.TopicOffsets], positions: Positions) -> Sequence[OffsetRange]:
        """Every offset after the committed position, up to the end or the declared bound."""
        return offsets.plan_backlog(self.kafka, streams, positions)

    def first_times(self, backlog: Sequence[OffsetRange]) -> Sequence[datetime | None]:
        """The times of the records, which producers or brokers set."""
        return first_times(self.kafka, backlog)

    def bound(
        self, ranges: Sequence[OffsetRange], *, record_bytes: float | None, widened: int = 1
    ) -> tuple[OffsetRange, ...]:
        """The part of a backlog that the next batch reads."""
        return offsets.bound_batch(self.kafka, ranges, record_bytes=record_bytes, widened=widened)

    def write(
        self, spark: SparkSession, ranges: Sequence[OffsetRange], *, batch: int, location: TableLocation
    ) -> list[DataFile]:
        """Reads ranges in Spark tasks, which write their rows into data files."""
        return write_changes(spark, self.kafka, ranges, batch=batch, mode=self._reading, location=location)

    def write_by_one_task(
        self, runner: TaskRunner, ranges: Sequence[OffsetRange], *, batch: int, location: TableLocation
    ) -> list[DataFile] | None:
        """Reads ranges together, or one after the other, into as few files as they fill.

        With ``scan.parallelism`` Spark divides ranges among so many tasks, few as the records may be.
        """
        if self.kafka.settings.scan_parallelism is not None:
            if not isinstance(runner, LocalTaskRunner):
                return None
            warn_once(
                _LOGGER,
                f"table '{self.table.name}': 'scan.parallelism' = '{self.kafka.settings.scan_parallelism}' has no"
                " effect on batches that the driver's process reads; it is the number of Spark's tasks",
            )
        task = partial(write_changes_in_task, self.kafka, ranges, batch=batch, mode=self._reading, location=location)
        return runner.call(task, what=f"read topics of table '{self.kafka.name}'")

    def publish(self, positions: Positions) -> None:
        """Commits the offsets to the table's consumer group, so that Kafka's own lag tools show them."""
        offsets.commit_to_group(self.kafka, positions.offsets)

    def starting(self, start: Start) -> TopicSource:
        """The same topics from another start; the consumer group is told nothing."""
        mode = StartupMode.EARLIEST
        if start.timestamp is not None:
            mode = StartupMode.TIMESTAMP
        elif start.offsets:
            mode = StartupMode.SPECIFIC
        update = {"startup_mode": mode, "startup_timestamp": start.timestamp, "startup_offsets": start.offsets}
        settings = self.kafka.settings.model_copy(update=update)
        silent = replace(self.kafka.properties, commit_offsets=False)
        return replace(self, kafka=replace(self.kafka, settings=settings, properties=silent))

    def unread(self, positions: Positions, *, warn: timedelta | None, fail: timedelta | None) -> list[Unread]:
        """Records that are not read yet, against the topics' retention; of compacted ones against that of deletes."""
        return unread_records(self.kafka, positions, warn=warn, fail=fail)

    def decoder(self) -> RecordDecoder:
        """Decodes blocks of raw records."""
        from upsert_platform.kafka.source.decode import RecordDecoder

        return RecordDecoder(self.kafka)
