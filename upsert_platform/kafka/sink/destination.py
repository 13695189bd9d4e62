"""A declared upsert-kafka table as a destination of the platform.

The topic holds the last value per key after compaction, so a delete is a tombstone. What was applied, the last verdict
and the lease are records of a control topic beside it (`control.py`).
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.core.capabilities import (
    ComparesSchema,
    FindsDuplicates,
    HoldsLess,
    ReadsInTasks,
    ReadsRecent,
    Resets,
    RowsByShare,
    Shares,
    TellsBefore,
    WritesInTask,
)
from upsert_platform.core.destination import (
    BatchSpan,
    Destination,
    DestinationState,
    KeepRefused,
    Lease,
    Verdict,
    WriteReport,
    drop_nothing,
)
from upsert_platform.core.errors import DestinationError
from upsert_platform.core.masking import Mask
from upsert_platform.core.task_runner import RowsOfTask, RowsOfTasks
from upsert_platform.kafka.modes import DeliveryGuarantee, OnError
from upsert_platform.kafka.options import UpsertKafkaSettings
from upsert_platform.kafka.sink.control import Applied, ControlTopic, Share, unfinished_share
from upsert_platform.kafka.sink.lease import KafkaLease
from upsert_platform.kafka.sink.read_back import (
    TopicRows,
    keys_in_several_partitions,
    last_values,
    last_values_in_task,
    ranges_behind,
)
from upsert_platform.kafka.sink.transactions import open_transactional
from upsert_platform.kafka.table import KafkaTable
from upsert_platform.kafka.topics import TopicInfo, create_topic, delete_topic, describe_topic, wait_until_stable
from upsert_platform.writing.judge import Judge
from upsert_platform.writing.outcomes import opener_of, run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)
_FENCED_AT_ONCE = 16
_MARKED_WITHIN = 60.0
"""Seconds within which busy brokers mark what a write committed; a check before that would miss a partition's rows."""
_ALIKE = 1.3
"""Times the mean that the longest range may have, for one task to read several."""
_MOST_HELD = 16_000_000
"""Offsets of partitions of which tasks that run at once hold hashes; those of more are divided among tasks."""


class KafkaDestination(
    Destination, ReadsRecent, HoldsLess, WritesInTask, ReadsInTasks, ComparesSchema, FindsDuplicates, Resets
):
    """Implements `upsert_platform.core.destination.Destination`.

    Args:
        table: read with ``read_kafka_table(table, writes=True)``.

    Attributes:
        read_as: what reads the topic back.
    """

    kind = "kafka"

    def __init__(self, table: KafkaTable) -> None:
        assert isinstance(table.settings, UpsertKafkaSettings)
        self.table = table
        self.settings = table.settings
        self.name = table.name
        self.columns = table.table.physical_columns
        self.primary_key = table.primary_key
        self.topic = table.settings.topic[0]
        self.uri = f"kafka://{table.settings.bootstrap_servers}/{self.topic}"
        self.read_as = table
        self._control = ControlTopic.of(table)

    @property
    def topic_config(self) -> Mapping[str, str]:
        """Return the configuration of a created topic."""
        return {"cleanup.policy": "compact"}

    def judge_topic(self, found: TopicInfo) -> None:
        """Warns of a topic that forgets values."""
        if not found.compacted:
            _log.warning(
                "table '%s': topic '%s' is not compacted, so retention will delete values that are still current; set"
                " its cleanup.policy to compact",
                self.name,
                self.topic,
            )

    def close(self) -> None:
        """Nothing stays open between calls. Idempotent."""

    def prepare(self) -> None:
        """Creates the topic, compacted, when it is missing and may be created, and the control topic.

        ``auto.create`` = false and ``properties.allow.auto.create.topics`` = false keep it from being created.
        A topic that is not compacted is used with a warning: retention will delete the values of keys.

        Raises:
            DestinationError: the topic is missing and may not be created.
            EndpointError: not reachable, or credentials refused.
        """
        found = describe_topic(self.table.endpoint, self.topic)
        if found is None:
            allowed = str(self.table.properties.consumer.get("allow.auto.create.topics", "true")).strip().lower()
            if not self.settings.auto_create or allowed == "false":
                name = "auto.create" if not self.settings.auto_create else "properties.allow.auto.create.topics"
                raise DestinationError(
                    f"table '{self.name}': topic '{self.topic}' does not exist on {self.settings.bootstrap_servers};"
                    f" create it with {', '.join('='.join(item) for item in self.topic_config.items())}, or set"
                    f" '{name}' = 'true'"
                )
            create_topic(
                self.table.endpoint,
                self.topic,
                partitions=self.settings.create_partitions,
                replication=self.settings.create_replication,
                config=self.topic_config,
                apsara=self.settings.apsara,
            )
            found = describe_topic(self.table.endpoint, self.topic)
        if found is not None:
            self.judge_topic(found)
        self._control.create()

    def unprepared(self) -> str:
        """Return that the topic, or its control topic, does not exist as it has to."""
        if describe_topic(self.table.endpoint, self.topic) is None:
            return f"topic '{self.topic}' does not exist"
        return "" if self._control.is_ready() else f"control topic '{self._control.name}' is to be created"

    def schema_difference(self) -> str | None:
        """Return whether the topic is compacted: else it lets go of values that are still current."""
        found = describe_topic(self.table.endpoint, self.topic)
        if found is None or found.compacted:
            return None
        return (
            f"table '{self.name}': topic '{self.topic}' is not compacted, so retention will delete values that are"
            " still current; set its cleanup.policy to compact"
        )

    def state(self) -> DestinationState:
        """Reads the control topic; the initial state when the written topic is missing or was created anew."""
        control = self._control.read()
        found = describe_topic(self.table.endpoint, self.topic)
        applied = control.applied
        there = found is not None and found.topic_id == applied.topic_id
        known = DestinationState(
            applied.batch,
            applied.changelog_id,
            control.verdict,
            commit=applied.commit,
            begun=applied.begun,
            table_id=applied.topic_id,
        )
        return control.lease.shown_in(known if there else DestinationState())

    def lease(self, *, owner: str, duration: timedelta) -> AbstractContextManager[Lease]:
        """Takes the topic for one writer, renews while open, gives it back at the end.

        Raises:
            LeaseHeldError: someone else has it.
        """
        return KafkaLease(self._control, owner=owner, duration=duration)

    def write(
        self,
        changes: DataFrame | RowsOfTask | RowsOfTasks,
        *,
        span: BatchSpan,
        lease: Lease,
        keep_refused: KeepRefused = drop_nothing,
    ) -> WriteReport:
        """Writes one record per row, then records the span under the lease.

        Rows are dealt to tasks by their key. With `sink.delivery-guarantee` = exactly-once each task is a transaction
        that says what it holds; a replay skips what was committed. Otherwise a replay writes the same records again,
        which changes no last value.

        Raises:
            DestinationError: the write failed for good; nothing is recorded as applied.
            EndpointError: the brokers did not answer in time; the same.
            LeaseHeldError: the lease was lost.
            RecordError: a row cannot be encoded, and ``on-error`` is ``fail``.
        """
        from upsert_platform.kafka.sink.sink import TaskStats, WritingTask

        assert isinstance(lease, KafkaLease)
        lease.check()
        started = time.monotonic()
        found = self._described()
        before = self._known(found, lease, span)
        self._warn_of_new_partitions(before, found)
        committed = self._fence(before)
        resumed = before.resumed_by(span)
        shares = self._shares(changes, before, committed, span, resumed)
        # Rows that are written once more are never skipped, and say nothing to a write that follows.
        write = "" if span.repeats else resumed or uuid.uuid4().hex
        if self._exactly_once:
            # Known before the first transaction begins, or a task of a run that died here could not be fenced.
            before = replace(
                before,
                shares=shares,
                prefix=self.settings.transactional_id_prefix,
                begun=(span.changelog_id, span.upto, span.commit),
                write=write,
            )
            lease.record_applied(before)
        fails = self.settings.on_error is OnError.FAIL
        judge = Judge.of(
            self.columns,
            self.primary_key,
            fails=fails,
            keeps=not isinstance(self, TellsBefore),
            mask=Mask.of(self.table.table),
            beside=self.table.written_metadata,
        )
        task = WritingTask(self.table, span, found.topic_id, shares, lease.terms, write, opener_of(keep_refused))
        written = run_tasks(
            self._dealt(changes, shares), task, TaskStats, what=f"table '{self.name}'", keep=keep_refused, judge=judge
        )
        written.keep_refused()
        total = written.total
        ends = wait_until_stable(self.table.endpoint, self.topic, seconds=_MARKED_WITHIN if self._exactly_once else 5.0)
        applied = replace(
            before,
            batch=span.upto,
            changelog_id=span.changelog_id,
            commit=span.commit,
            begun=None,
            write="",
            shares=0,
            prefix="",
            partitions=found.partitions,
            marks=before.marked(span.upto, ends.offsets),
        )
        lease.record_applied(applied)
        if total.undelivered:
            _log.warning(
                "table '%s': %d of the rows were not delivered to topic '%s' and are lost, as 'sink.delivery-guarantee'"
                " = 'none' lets them be; the first one: %s",
                self.name,
                total.undelivered,
                self.topic,
                total.undelivered_reason,
            )
        metrics: dict[str, int | float | str] = {name: value for name, value in asdict(total).items() if value != ""}
        metrics["task_seconds"] = round(total.seconds, 3)
        metrics |= {"seconds": round(time.monotonic() - started, 3), "tasks": shares, "compacted": int(found.compacted)}
        if not ends.stable:
            metrics["note"] = "an open transaction of another producer hides what was written from committed readers"
        return written.report(upserts=total.upserts, deletes=total.deletes, metrics=metrics)

    @property
    def commits_in_parts(self) -> bool:
        """Return whether each task commits what it writes."""
        return self._exactly_once

    @property
    def _exactly_once(self) -> bool:
        return self.settings.delivery_guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def forget_applied(self, lease: Lease) -> None:
        """Records a position before the first batch and no verdict, and ends what a write that broke off left open.

        Raises:
            LeaseHeldError: the lease was lost.
        """
        assert isinstance(lease, KafkaLease)
        before = self._control.read().applied
        self._fence(before)
        lease.forget_applied()

    def drop_refusal(self) -> str | None:
        """Return why the topic is not deleted: nothing would create it again."""
        if self.settings.auto_create and self.settings.apsara is None:
            return None
        return (
            f"table '{self.name}': nothing would create topic '{self.topic}' again; declare 'auto.create' = 'true', or"
            " delete and create it with your own tools"
        )

    def drop_table(self) -> None:
        """Deletes the topic; no error where there is none.

        Raises:
            EndpointError: the brokers cannot be reached, or do not let this user do so.
        """
        delete_topic(self.table.endpoint, self.topic)

    def _described(self) -> TopicInfo:
        found = describe_topic(self.table.endpoint, self.topic)
        if found is None:
            raise DestinationError(f"table '{self.name}': topic '{self.topic}' is gone; run the write again")
        return found

    def _known(self, found: TopicInfo, lease: KafkaLease, span: BatchSpan) -> Applied:
        """The position, with a mark of where a topic ended before its first write.

        Checks of that write need not read what others wrote.
        """
        before = self._control.read().applied
        same = before.topic_id == found.topic_id
        if before.changelog_id not in ("", span.changelog_id):  # its marks are of batches of another changelog
            before = replace(before, marks=())
        if same and before.marks:
            return before
        kept = before if same else Applied(shares=before.shares, prefix=before.prefix)
        ends = wait_until_stable(self.table.endpoint, self.topic)
        marks = kept.marked(span.after, ends.offsets)
        known = replace(kept, topic_id=found.topic_id, partitions=found.partitions, marks=marks)
        lease.record_applied(known)
        return known

    def _warn_of_new_partitions(self, before: Applied, found: TopicInfo) -> None:
        if before.partitions and before.partitions != found.partitions:
            _log.warning(
                "table '%s': topic '%s' had %d partitions and has %d now: keys move to other partitions, and compaction"
                " keeps their old values where they were; readers must take the later record",
                self.name,
                self.topic,
                before.partitions,
                found.partitions,
            )

    def _fence(self, before: Applied) -> dict[int, Share]:
        """Ends the transactions of a write that broke off, so that none of its tasks can commit any more.

        Returns:
            What its tasks had committed; nothing after a write that came to its end.
        """
        if not before.shares:
            return {}
        prefix = before.prefix or self.settings.transactional_id_prefix
        endpoint = self.table.endpoint
        near = self._control.name

        def fence(number: int) -> None:
            open_transactional(endpoint, f"{prefix}-{number}", near=near)

        with ThreadPoolExecutor(_FENCED_AT_ONCE) as pool:
            list(pool.map(fence, range(before.shares)))
        return self._control.shares()

    def _shares(
        self,
        changes: DataFrame | RowsOfTask | RowsOfTasks,
        before: Applied,
        committed: Mapping[int, Share],
        span: BatchSpan,
        resumed: str,
    ) -> int:
        """Return the number of writing tasks: that of an interrupted attempt if there is one, since it determines each
        task's commits.
        """
        if self._exactly_once and resumed:
            unfinished = unfinished_share(
                committed, write=resumed, changelog_id=span.changelog_id, topic_id=before.topic_id
            )
            if unfinished is not None:
                return unfinished.shares
        if isinstance(changes, RowsOfTask):
            return 1
        if isinstance(changes, RowsOfTasks):
            return self.settings.sink_parallelism or changes.shares
        return self.settings.sink_parallelism or max(1, changes.sparkSession.sparkContext.defaultParallelism)

    def _dealt(
        self, changes: DataFrame | RowsOfTask | RowsOfTasks, shares: int
    ) -> DataFrame | RowsOfTask | RowsOfTasks:
        from upsert_platform.kafka.sink.sink import SHARE

        if isinstance(changes, RowsOfTask):
            return changes.then(_in_one_share)
        if isinstance(changes, RowsOfTasks):
            return changes.in_shares(shares, column=SHARE)
        from pyspark.sql import functions as F

        key = [F.col(f"`{name}`") for name in self.primary_key]
        dealt = changes.withColumn(SHARE, F.pmod(F.hash(*key), F.lit(shares)).cast("int"))
        return dealt.repartitionById(shares, F.col(SHARE))

    def read(self, spark: SparkSession, *, keys: DataFrame | None = None) -> DataFrame:
        """The last value per key of the whole topic, in declared types. A topic has no index: this reads all of it.

        Records that cannot be decoded (somebody else wrote them) count as absent, unless ``on-error`` is ``fail``.

        Args:
            keys: only rows with these primary keys.
        """
        return last_values(spark, self.read_as, ranges_behind(self.read_as), keys=keys)

    def duplicates(self, spark: SparkSession) -> DataFrame:
        """The keys that have a value in more than one partition: whoever reads partition by partition meets both."""
        ranges = ranges_behind(self.read_as) if self.read_as.is_upsert else []
        return keys_in_several_partitions(spark, self.read_as, ranges)

    def holding(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """Rows as the table's formats hold them: the same when they are written and read again."""
        from upsert_platform.kafka.sink.held import HeldRows

        return HeldRows(self.table, self.read_as)

    def writes_in_task(self) -> bool:
        """Unless exactly once: what a transaction of a broken attempt holds follows from how Spark dealt its rows."""
        return not self._exactly_once

    def writes_in_tasks(self) -> bool:
        """As `writes_in_task`."""
        return self.writes_in_task()

    def key_reader(self, *, since: int, most: int) -> Callable[[pa.Table], pa.Table | None] | None:
        """As `read_recent`, where few records were written since then."""
        ranges = self.recent_ranges(since)
        if sum(item.offsets for item in ranges) > most:
            return None
        return partial(_last_values, self.read_as, tuple(ranges))

    def reads_in_tasks(self, *, since: int, rows: int) -> RowsByShare | None:
        """The last record per key of each range that batches after `since` wrote, tombstones too."""
        return self._in_tasks(partial(self.recent_ranges, since))

    def all_in_tasks(self, *, at_once: int) -> RowsByShare | None:
        """The last record per key of each partition, or of several parts of a long one."""
        ranges = ranges_behind(self.read_as)
        if max((item.offsets for item in ranges), default=0) * at_once > _MOST_HELD:
            return None
        found = self._in_tasks(lambda: ranges)
        return None if found is None else replace(found, replaced=True)

    def _in_tasks(self, ranges_of: Callable[[], Sequence[OffsetRange]]) -> RowsByShare | None:
        if not self.read_as.is_upsert:
            return None

        def opened() -> Shares:
            ranges = tuple(ranges_of())
            sizes = [item.offsets for item in ranges]
            alike = max(sizes, default=0) * len(sizes) <= _ALIKE * sum(sizes)
            return Shares(len(ranges), TopicRows(self.read_as, ranges), alike=alike)

        return RowsByShare(opened, others=False, tells_deletes=True, held=self.holding())

    def recent_batches(self) -> list[int]:
        """Batches after which the end of the topic is known: those of the last writes, some 24."""
        return [batch for batch, _ in self._marks()]

    def read_recent(self, spark: SparkSession, *, keys: DataFrame, since: int) -> DataFrame:
        """Return the rows of `read` for keys written by batches after `since`, from the records written since then.

        A topic that an earlier version of the platform wrote last is read as a whole.
        """
        return last_values(spark, self.read_as, self.recent_ranges(since), keys=keys)

    def recent_ranges(self, since: int) -> list[OffsetRange]:
        """Offsets that hold everything that batches after `since` wrote."""
        ends = next((ends for batch, ends in reversed(self._marks()) if batch <= since), ())
        return ranges_behind(self.read_as, ends)

    def _marks(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        applied = self._control.read().applied
        found = describe_topic(self.table.endpoint, self.topic)
        return applied.marks if found is not None and found.topic_id == applied.topic_id else ()

    def record_verdict(self, verdict: Verdict) -> None:
        """Keeps the result of a check beside the applied batch."""
        self._control.record_verdict(verdict)

    def last_verdict(self) -> Verdict | None:
        """Return the verdict in the control topic."""
        return self._control.read().verdict

    def swap_verdict(self, old: Verdict | None, new: Verdict) -> bool:
        """Keeps the result of a check in the place of another one, and returns whether that was still there."""
        return self._control.swap_verdict(old, new)


def _in_one_share(changes: pa.Table) -> pa.Table:
    import pyarrow as pa

    from upsert_platform.kafka.sink.sink import SHARE

    return changes.append_column(SHARE, pa.repeat(pa.scalar(0, pa.int32()), changes.num_rows))


def _last_values(table: KafkaTable, ranges: Sequence[OffsetRange], keys: pa.Table) -> pa.Table:
    """The last values of all keys that ranges hold, those that are asked for among them."""
    del keys
    return last_values_in_task(table, ranges)
