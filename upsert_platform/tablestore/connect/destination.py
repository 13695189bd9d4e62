"""A Tablestore table that is written by the connector's rules, as a destination of the platform."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.capabilities import ComparesRecords, ExpiresRows
from upsert_platform.core.destination import BatchSpan, KeepRefused, Lease, WriteReport, drop_nothing
from upsert_platform.core.errors import RecordError
from upsert_platform.core.masking import MASKED
from upsert_platform.tablestore.connect.refusals import RefusedRecord, from_row
from upsert_platform.tablestore.connect.reporter import Reporter
from upsert_platform.tablestore.connect.reports import ReportTopics
from upsert_platform.tablestore.connect.schema import prepare_sink, sink_created_at, sink_time_to_live, unprepared_sink
from upsert_platform.tablestore.connect.table import ConnectSink
from upsert_platform.tablestore.controlled import ControlledDestination, report_of
from upsert_platform.writing.lease import RenewedLease
from upsert_platform.writing.outcomes import Written, opener_of, raising_what_tasks_raised, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from upsert_platform.tablestore.task import TaskStats
    from upsert_platform.writing.refused_output import OpenFile

_SHOWN_BYTES: Final = 80


class ConnectDestination(ControlledDestination, ComparesRecords, ExpiresRows):
    """Implements `core.destination.Destination`; change frames hold every record, of which rows are made.

    Args:
        reports: sends failed records to topics, where the configuration wants that.
    """

    def __init__(self, sink: ConnectSink, *, reports: ReportTopics | None = None) -> None:
        super().__init__(sink.name, sink.table_name, sink.settings)
        self.sink = sink
        self.columns = sink.columns
        self.primary_key: tuple[str, ...] = ()
        self._reporter = Reporter(sink, reports, read_tenure=self._control.tenure)

    def prepare(self) -> None:
        """Creates missing tables and topics where ``auto.create`` is on, compares existing tables.

        Raises:
            DestinationError: one is missing, or different; every difference is named.
            EndpointError: not reachable, or credentials refused.
        """
        if self.sink.settings.auto_create and self._created() is None:
            self._control.forget_position()
        prepare_sink(self._client, self.sink)
        self._prepared = self._created()
        self._reporter.prepare()

    def unprepared(self) -> str:
        """Return which table is missing or different; topics of reports are looked for where something is written."""
        return unprepared_sink(self._client, self.sink)

    def drop_refusal(self) -> str | None:
        """Return why the table is not dropped: nothing would create it again, or it is a time-series table."""
        if self.sink.points is not None:
            return f"table '{self.name}': time-series table '{self.sink.table_name}' is dropped in the console alone"
        return super().drop_refusal()

    def _created(self) -> int | None:
        return sink_created_at(self._client, self.sink)

    def write(
        self, changes: DataFrame, *, span: BatchSpan, lease: Lease, keep_refused: KeepRefused = drop_nothing
    ) -> WriteReport:
        """Turns records into row changes and applies them, then records the span under the lease's epoch.

        Records that cannot be written are kept and reported where the configuration tolerates them. Otherwise the
        records before the first such one are written, in every partition, and the run fails; the next run writes them
        again, which changes nothing (but where Tablestore generates a key column it adds their rows again).

        Raises:
            RecordError: a record cannot be written, and its kind of error is not tolerated; names the first.
            DestinationError: the write failed for good; nothing is recorded as applied.
            LeaseHeldError: the lease was lost, or ends before the write can.
        """
        from upsert_platform.tablestore.connect.frame import before_stops, first_errors, record_frame
        from upsert_platform.tablestore.task import TaskStats

        assert isinstance(lease, RenewedLease)
        lease.check()
        started = time.monotonic()
        fatal = self.sink.failures.fatal
        records = record_frame(changes)
        if fatal or self.sink.rows_meet:
            records = self._judged(records)
        if fatal:
            records = records.persist()
        try:
            with raising_what_tasks_raised(f"table '{self.name}'"):
                stops = first_errors(records, fatal) if fatal else []
            wanted = before_stops(records, [stop.record for stop in stops])
            task = self._task(lease, opener_of(keep_refused))
            written = run_tasks(
                self._ordered(wanted),
                task,
                TaskStats,
                what=f"table '{self.name}'",
                keep=keep_refused,
                most=self.sink.settings.max_refused_rows,
                mask=self.sink.mask,
            )
        finally:
            if fatal:
                records.unpersist()
        self._fail_on(stops, written)
        written.keep_refused()
        for rows in written.refused():
            self._reporter.report([from_row(row) for row in rows], lease)
        self._record_applied(span, lease)
        return report_of(written, started=started)

    def read(self, spark: SparkSession, *, keys: DataFrame | None = None) -> DataFrame:
        """Rows of the table: primary key columns, and `cells`, JSON text of all other cells of the row.

        Of a time-series table `m_name`, `data_source`, `tags` (JSON), `time` (microseconds), and `cells`, its fields.

        Args:
            keys: only rows with these primary keys.
        """
        from upsert_platform.tablestore.connect.reading import scanning_task, schema_of
        from upsert_platform.tablestore.ranges import WHOLE, read_ranges
        from upsert_platform.tablestore.reader import RANGES_DDL

        kinds = {"string": "STRING", "int64": "BIGINT", "binary": "BINARY"}
        ddl = ", ".join(f"`{item.name}` {kinds[str(item.type)]}" for item in schema_of(self.sink))
        ranges = read_ranges(self.sink) if self.sink.points is None else [WHOLE]
        frame = spark.createDataFrame([(bounds,) for bounds in ranges], RANGES_DDL).repartition(len(ranges))
        found = frame.mapInArrow(scanning_task(self.sink), ddl)
        if keys is None:
            return found
        names = [item.name for item in schema_of(self.sink) if item.name != "cells"]
        return found.join(keys.select(*names).distinct(), names, "left_semi")

    def time_to_live(self) -> int | None:
        """That of the table as it is; the declared one counts where a table is created."""
        return sink_time_to_live(self._client, self.sink)

    def differences(self, changes: DataFrame, *, refused: Collection[str], expired: int) -> DataFrame:
        """Compares the rows that records changed with the table; see `ComparesRecords`."""
        from upsert_platform.tablestore.connect.compare import COMPARED_DDL, Expired, comparing_task
        from upsert_platform.tablestore.connect.frame import record_frame

        records = record_frame(changes)
        if self.sink.rows_meet:
            records = self._judged(records)
        seconds = self.time_to_live() if self.sink.points is not None else None  # points expire by their own time
        task = comparing_task(self.sink, refused, Expired(expired, seconds))
        return self._ordered(records).mapInArrow(task, COMPARED_DDL)

    def same_rows(self, changes: DataFrame, *, refused: Collection[str]) -> DataFrame:
        """Refused records and all others of their rows; see `upsert_platform.core.capabilities.ComparesRecords`."""
        from pyspark.sql import functions as F

        from upsert_platform.tablestore.connect.frame import KEY, record_frame

        place = ["topic", "partition", "offset"]
        places = [tuple(json.loads(key)[name] for name in place) for key in refused]
        wanted = changes.sparkSession.createDataFrame(places, "topic STRING, partition INT, `offset` BIGINT")
        if self.sink.rows_meet:
            judged = self._judged(record_frame(changes)).select(*place, KEY)
            keys = judged.join(F.broadcast(wanted), place, "left_semi").select(KEY)
            wanted = wanted.unionByName(judged.join(keys, KEY, "left_semi").select(*place)).distinct()
        return changes.join(wanted, place, "left_semi")

    def _judged(self, records: DataFrame) -> DataFrame:
        from upsert_platform.tablestore.connect.change import row_key
        from upsert_platform.tablestore.connect.frame import judged_frame
        from upsert_platform.tablestore.connect.points import point_key

        if self.sink.points is not None:
            return judged_frame(records, partial(point_key, table=self.sink.points))
        return judged_frame(records, partial(row_key, tables=self.sink.tables))

    def _ordered(self, records: DataFrame) -> DataFrame:
        from upsert_platform.tablestore.connect.frame import in_order

        tasks = self.sink.settings.parallelism
        if self.sink.rows_meet:
            return in_order(records, tasks=tasks)
        return records if tasks is None else records.repartition(tasks)

    def _task(self, lease: RenewedLease, open_file: OpenFile | None) -> Callable[[Any], Any]:
        from upsert_platform.tablestore.connect.points import points_task
        from upsert_platform.tablestore.connect.writer import records_task

        sink, terms = self.sink, lease.terms
        if sink.points is not None:
            return points_task(
                sink.points, sink.settings, name=sink.name, terms=terms, mask=sink.mask, open_file=open_file
            )
        return records_task(
            sink.tables,
            sink.settings,
            name=sink.name,
            table_name=sink.table_name,
            terms=terms,
            mask=sink.mask,
            open_file=open_file,
        )

    def _fail_on(self, stops: Sequence[RefusedRecord], written: Written[TaskStats]) -> None:
        """Raises the first record whose error is not tolerated: one before which writing stopped, or one refused."""
        fatal = self.sink.failures.fatal
        first, count = next(iter(stops), None), len(stops)
        for rows in written.refused() if fatal else ():
            found = [item for item in map(from_row, rows) if item.error in fatal]
            count += len(found)
            if found and not stops:
                first = min([*found, *([first] if first else [])], key=_place)
        if first is not None:
            written.discard()
            raise RecordError(f"table '{self.name}': {_shown(first, self.sink, others=count - 1)}")


def _place(item: RefusedRecord) -> tuple[int, str, int, int]:
    record = item.record
    return record.timestamp or 0, record.topic, record.partition, record.offset


def _shown(first: RefusedRecord, sink: ConnectSink, *, others: int) -> str:
    key = first.record.key
    text = MASKED if sink.mask else repr((key or b"")[:_SHOWN_BYTES].decode("utf-8", "backslashreplace"))
    shown = "no key" if key is None else f"key {text}"
    more = f" (so do {others} others)" if others else ""
    reason = sink.mask.reason(first.reason)
    return (
        f"record {first.record.place} with {shown} cannot be written{more}: {reason}. The records before it in"
        " its partition are written, and no batch is recorded as applied: mend the cause, or set"
        f" '{sink.failures.option_of(first.error)}' = 'all' to keep such records aside (with 'failure.handling.policy',"
        " that one to 'continue')"
    )
