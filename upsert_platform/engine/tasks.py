"""The task of a worker: a share of one stage, from files to files.

A task is data. It reads a share of a changelog, or some buckets of exchanges; carries out the stage; writes exchange
files, files of state and of the result; and answers with their names. Nothing that it wrote counts before the driver's
commit names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import DataFile, file_system, write_files
from upsert_platform.changelog.rows import ORDER
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.plan import Field
from upsert_platform.core.types import arrow_type, quote_name, spark_type
from upsert_platform.engine.aggregate import Groups, Multiset
from upsert_platform.engine.closing import add_times
from upsert_platform.engine.exchange import ExchangeWriter, Part, read_parts
from upsert_platform.engine.finals import FinalRows
from upsert_platform.engine.join import Matches
from upsert_platform.engine.keys import bucket_rows, place_rows
from upsert_platform.engine.lookup import Find, Found
from upsert_platform.engine.reading import ChangelogShare, read_changes
from upsert_platform.engine.results import Result
from upsert_platform.engine.sessions import Sessions
from upsert_platform.engine.sources import PUT
from upsert_platform.engine.stages import Feed, Stage
from upsert_platform.engine.state import Idle, State, StateFile
from upsert_platform.engine.steps import WEIGHT, Tally, fields_after, fields_read, take_steps
from upsert_platform.engine.temporal import AsOf

if TYPE_CHECKING:
    from upsert_platform.core.connector import KeyReader

_WAITING: Final = 1 << 18
"""Rows of an exchange that are collected before they are reduced and written."""
_WAITING_BYTES: Final = 16 << 20
"""And at most about so many bytes of them."""


@dataclass(frozen=True, slots=True)
class Task:
    """A share of a stage.

    Attributes:
        location: of the query's Delta table.
        attempt: names the folder of this attempt's exchanges.
        buckets: how many there are; `mine` are those of this task, None for one that takes files as they come.
        parts: of the exchanges that the stage reads.
        files: committed state, by name of the state and bucket.
        first: the query has no batch yet.
        lookups: per name of a table that rows are found in, what reads it.
    """

    stage: Stage
    location: TableLocation
    batch: int
    attempt: str
    buckets: int
    share: ChangelogShare | None = None
    mine: tuple[int, ...] | None = None
    parts: tuple[Part, ...] = ()
    files: Mapping[tuple[str, int], tuple[StateFile, ...]] = field(default_factory=dict)
    first: bool = False
    lookups: Mapping[str, KeyReader] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a task.

    Attributes:
        added: files to commit.
        removed: paths that files among them replace.
        parts: of exchanges, for later stages.
        read: rows of changelogs.
        met: keys that several branches of a merge have, of those that the batch touched.
        let_go: rows of state that left it, of closed windows or since they were idle.
        forgotten: rows that were taken back after they were let go of.
        tally: what came too late, and the times of windows that close.
    """

    added: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    read: int = 0
    met: int = 0
    let_go: int = 0
    forgotten: int = 0
    tally: Tally = field(default_factory=Tally)


def run_task(task: Task) -> Answer:
    """Carries out a task whose steps are native."""
    with ExitStack() as opened:
        work = _Work(task, opened)
        feeds = task.stage.feeds
        counts = bool(feeds) and all(isinstance(feed.operator, (Groups, Multiset)) for feed in feeds)
        for table in work.rows():
            work.hand_on(take_steps(table, task.stage.steps, work.tally, counts=counts and task.stage.result is None))
        return work.finish()


def stage_rows(task: Task, tally: Tally) -> Iterator[pa.Table]:
    """The rows before the steps of a stage that needs Spark for them, which takes columns by their places.

    Args:
        tally: is told the times of windows that close.
    """
    names = names_after(task.stage, 0)
    with ExitStack() as opened:
        for table in _Work(task, opened, tally).rows():
            yield table.select(names)


def hand_on(task: Task, tables: Iterable[pa.Table]) -> Answer:
    """The rest of such a stage: takes the rows after the steps."""
    work = _Work(task, ExitStack())
    kinds = {item.name: arrow_type(item.type) for item in fields_after(task.stage.fields, task.stage.steps)}
    for table in tables:
        # Spark names time zones in its own way.
        columns = [
            table.column(name).cast(kinds.get(name, table.schema.field(name).type)) for name in table.column_names
        ]
        work.hand_on(pa.table(columns, names=table.column_names))
    return work.finish()


def rows_schema(stage: Stage) -> str:
    """Spark DDL of `stage_rows`."""
    return schema_after(stage, 0)


def names_after(stage: Stage, count: int) -> list[str]:
    """The columns of `schema_after`, in their order."""
    return [
        *(item.name for item in fields_after(stage.fields, stage.steps[:count])),
        *(name for name, _ in _beside(stage)),
    ]


def schema_after(stage: Stage, count: int) -> str:
    """Spark DDL of the rows after so many of the stage's steps."""
    fields = fields_after(stage.fields, stage.steps[:count])
    return ", ".join([_columns(fields), *(f"{name} {kind}" for name, kind in _beside(stage))])


def _columns(fields: Iterable[Field]) -> str:
    return ", ".join(f"{quote_name(item.name)} {spark_type(item.type)}" for item in fields)


def _beside(stage: Stage) -> list[tuple[str, str]]:
    """Columns that steps keep beside the stage's own, with their types in Spark."""
    if not _is_upsert(stage):
        return [(WEIGHT, "BIGINT")]
    return [*((name, rows.SYSTEM_COLUMNS[name]) for name in ORDER), (PUT, "BOOLEAN")]


def _is_upsert(stage: Stage) -> bool:
    return stage.scan is not None and (stage.ordered or (bool(stage.scan.key) and not stage.scan.signed))


class _Work:
    """One task while it runs.

    Args:
        opened: takes what is closed when the task ends.
    """

    def __init__(self, task: Task, opened: ExitStack, tally: Tally | None = None) -> None:
        self.task = task
        self.tally = Tally() if tally is None else tally
        self.opened = opened
        self.find: Find | None = None
        self.system, self.folder = file_system(task.location)
        self.states: list[State] = []
        self.feeds = [_Feeding(task, feed, self.system, self.folder) for feed in task.stage.feeds]
        self.results: list[pa.Table] = []
        self.read = 0

    def rows(self) -> Iterator[pa.Table]:
        """The operator's rows."""
        task, stage = self.task, self.task.stage
        if stage.scan is not None:
            yield from self._changes()
        elif not stage.bucketed:
            found = read_parts(task.parts, None, system=self.system, folder=self.folder)
            if found is not None:
                yield found
        else:
            for bucket in task.mine or ():
                found = self._bucket(bucket)
                if found is not None and found.num_rows:
                    yield found

    def _bucket(self, bucket: int) -> pa.Table | None:
        task, operator = self.task, self.task.stage.operator
        inputs = [
            read_parts(
                [part for part in task.parts if part.exchange == exchange],
                bucket,
                system=self.system,
                folder=self.folder,
            )
            for exchange in task.stage.reads
        ]
        first = task.first and task.stage.first_row and bucket == first_bucket(task.buckets)
        there = [item for item in inputs if item is not None]
        if not there and not first and task.stage.final is None:
            return None
        if operator is None:
            return pa.concat_tables(there, promote_options="permissive")
        closed, ttls = dict(task.stage.closed), dict(task.stage.ttls)
        over, session = task.stage.over, operator if isinstance(operator, Sessions) else None
        states = {
            schema.name: State(
                schema,
                system=self.system,
                folder=self.folder,
                files=task.files.get((schema.name, bucket), ()),
                bucket=bucket,
                batch=task.batch,
                closed=closed.get(schema.name),
                over=session.over(over) if session is not None and over is not None else None,
                idle=Idle(ttls[schema.name], task.stage.now) if schema.name in ttls else None,
            )
            for schema in operator.states
        }
        self.states += states.values()
        if isinstance(operator, (Matches, AsOf)):
            left, right = (
                item if item is not None else _no_rows(fields)
                for item, fields in zip(inputs, operator.sides, strict=True)
            )
            return operator.run_sides(left, right, states)
        if isinstance(operator, Found):
            if self.find is None:
                self.find = self.opened.enter_context(task.lookups[operator.node.table].open())
            return operator.run_found(there, states, self.find)
        if session is not None and over is not None:
            return session.run_closing(there, states, closed=over, tally=self.tally)
        if isinstance(operator, FinalRows):
            return operator.run_final(there, states, upto=task.stage.final)
        return operator.run(there, states, first=first)

    def _changes(self) -> Iterator[pa.Table]:
        share, scan = self.task.share, self.task.stage.scan
        assert share is not None
        assert scan is not None
        watched, upserts = self.task.stage.watched, _is_upsert(self.task.stage)
        wanted = {*(item.name for item in scan.fields), *(ORDER if upserts else ())}
        beside = {rows.TOPIC, rows.PARTITION} - wanted
        parts = {} if self.task.stage.needs_spark else fields_read(self.task.stage.steps)
        for table in read_changes(share, scan, upserts=upserts, lanes=bool(watched), parts=parts):
            self.read += table.num_rows
            if watched:
                add_times(self.tally, table, watched)
                table = table.drop_columns([name for name in table.column_names if name in beside])
            yield table

    def hand_on(self, table: pa.Table) -> None:
        """Takes rows after the steps."""
        if self.task.stage.result is not None:
            self.results.append(self.task.stage.result.changes(table, batch=self.task.batch))
        for feed in self.feeds:
            feed.take(table)

    def finish(self) -> Answer:
        """Writes what is not written yet."""
        added = [item for state in self.states for item in state.added]
        removed = [path for state in self.states for path in state.removed]
        if self.results and self.task.stage.result is not None:
            added += _write_result(self.results, self.task.stage.result, self.task)
        parts = [part for feed in self.feeds if (part := feed.close()) is not None]
        counts = {name: sum(getattr(state, name) for state in self.states) for name in ("met", "let_go", "forgotten")}
        return Answer(tuple(added), tuple(removed), tuple(parts), self.read, tally=self.tally, **counts)


class _Feeding:
    """The rows of one feed, reduced as they come."""

    def __init__(self, task: Task, feed: Feed, system: Any, folder: str) -> None:
        self.feed = feed
        self.waiting: list[pa.Table] = []
        self.count = self.bytes = 0
        self.writer = ExchangeWriter(
            feed.exchange,
            system=system,
            folder=folder,
            attempt=task.attempt,
            buckets=task.buckets,
            group=feed.group,
            rest=feed.rest,
            spread=feed.spread,
        )

    def take(self, table: pa.Table) -> None:
        if self.feed.operator is not None and not self.feed.prepared:
            table = self.feed.operator.prepare(table)
        if table.num_rows:
            self.waiting.append(table)
            self.count += table.num_rows
            self.bytes += table.nbytes
        if self.count > _WAITING or self.bytes > _WAITING_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self.waiting:
            return
        together = pa.concat_tables(self.waiting, promote_options="permissive")
        if self.feed.operator is not None and (len(self.waiting) > 1 or isinstance(self.feed.operator, Multiset)):
            together = self.feed.operator.combine(together)
        self.writer.write(together)
        self.waiting, self.count, self.bytes = [], 0, 0

    def close(self) -> Part | None:
        self._flush()
        return self.writer.close()


def _no_rows(fields: Iterable[Any]) -> pa.Table:
    columns = [pa.field(item.name, arrow_type(item.type)) for item in fields]
    return pa.schema([*columns, pa.field(WEIGHT, pa.int64())]).empty_table()


def _write_result(tables: list[pa.Table], result: Result, task: Task) -> list[DataFile]:
    batches = [item for table in tables for item in table.combine_chunks().to_batches()]
    manifests = write_files(batches, location=task.location, schema=result.schema, batch=task.batch)
    return [DataFile(**row) for manifest in manifests for row in manifest.to_pylist()]


def first_bucket(buckets: int) -> int:
    """The bucket of the only group of a GROUP BY without columns."""
    one = pa.table({"_": pa.array([0])})
    return int(bucket_rows(place_rows(one, []), buckets, spread=False)[0])
