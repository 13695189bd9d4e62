"""Equality of a batch and of what a destination holds for it, by sums that tasks make of rows in Arrow.

Neither side passes through the JVM where Arrow computes the insert, and no row meets another: the tasks that reduce the
changelog sum up what must be, and those that read the destination what is there (`changelog/summed_in_tasks.py`).
Where the sums differ nothing is known yet, and `verify` joins both sides.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from upsert_platform.changelog.latest_in_tasks import SpanReduction, SpanRows
from upsert_platform.core.capabilities import MOST_TOLD_KEYS, ReadsInTasks, RowsByKey, RowsByShare, WritesByMode
from upsert_platform.core.spark_failures import job_failures
from upsert_platform.core.task_runner import answers_of, numbers_of
from upsert_platform.core.types import arrow_type
from upsert_platform.sync.arrow_insert import ArrowInsert
from upsert_platform.sync.comparison import SAMPLE_ROWS
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.equal_sums import EqualRows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from upsert_platform.changelog.counting_rows import Drawn
    from upsert_platform.changelog.summed_in_tasks import ExpectedRows, GivenKeys, Hashes, Task, Told
    from upsert_platform.engine.native_insert import NativeInsert, SharesOfSpan


class Equality(NamedTuple):
    """The result of comparing sums.

    Attributes:
        compared: whether there are sums of both sides.
        rows: how many rows there are where both sides are equal; else None.
    """

    compared: bool
    rows: EqualRows | None


_MOST_ENDED: Final = 1_000_000
"""Keys that end with a delete in a share whose hashes the driver takes; of more, Spark joins the rows."""
_SUMMED_ROWS: Final = 1 << 16
"""Rows of which a task makes sums at once."""
NOT_COMPARED: Final = Equality(compared=False, rows=None)


def equal_in_tasks(
    spark: SparkSession, hop: DestinationHop, *, since: int, after: int, upto: int, earlier_rows: int
) -> Equality:
    """Compares the keys of the batches after `after` and up to `upto`, and a sample of those after `since`.

    Args:
        earlier_rows: change rows between `since` and `after`.
    """
    destination = hop.destination
    fields = _fields(hop)
    if not isinstance(destination, ReadsInTasks) or fields is None or hop.refused.keys().num_rows:
        return NOT_COMPARED
    if isinstance(destination, WritesByMode) and (destination.skips_nulls or destination.keeps_deleted):
        return NOT_COMPARED  # rows that differ are the rule there
    files = [item for item in hop.store.files() if item.may_hold(after=since, upto=upto)]
    rows = sum(MOST_TOLD_KEYS + 1 if item.rows is None else item.rows for item in files)
    reads = destination.reads_in_tasks(since=since, rows=rows)
    if reads is None:
        return NOT_COMPARED
    from upsert_platform.changelog.counting_rows import Drawn
    from upsert_platform.changelog.summed_in_tasks import ExpectedRows, FoundRows, GivenKeys, KeysOfRows, Sample

    key = _schema([fields.field(name) for name in destination.primary_key])
    sample = Sample(after, max(1, earlier_rows // SAMPLE_ROWS)) if since < after else None
    whole = isinstance(reads, RowsByShare) and not reads.others  # all that was written since then is read: no sample
    drawn = None if sample is None or whole else Drawn(sample.after, sample.one_in)
    by_arrow = _by_arrow(spark, hop, since=since, upto=upto, drawn=drawn)
    if by_arrow is not None:
        sample = None  # the rows that are not drawn are left out before they are reduced
    if isinstance(reads, RowsByKey):
        task = ExpectedRows(fields, key, sample, read=reads.read)
        told, _ = _expected(spark, hop, task, by_arrow, since=since, upto=upto)
        return _judged(told)
    task = ExpectedRows(
        fields, key, None if whole else sample, held=reads.held, tells_keys=not whole and by_arrow is None
    )
    with ThreadPoolExecutor(1) as thread:  # tasks are at work while the destination is opened, and go on beside others
        expecting = thread.submit(_expected, spark, hop, task, by_arrow, since=since, upto=upto)
        shares = reads.open()

        def found(among: Callable[[], Hashes] | None = None) -> Told:
            finding = FoundRows(fields, key, shares.read, among=among, tells_deletes=reads.tells_deletes)
            return _in_shares(spark, finding, shares.count, evenly=shares.alike)[0]

        if whole:
            other = found()
            return _sides(expecting.result()[0], other, tells_deletes=reads.tells_deletes)
        try:
            if since == after and shares.rows is not None and shares.rows <= rows:
                told, _ = expecting.result()
                if told.expected.rows == shares.rows:  # no row of another key: nobody has to look for those of these
                    equality = _sides(told, found(), tells_deletes=reads.tells_deletes)
                    if equality.rows is not None:
                        return equality
            given = KeysOfRows(by_arrow.keys(), key) if by_arrow is not None else None
            other = found(given or GivenKeys(_joined(expecting.result()[1])))
        except job_failures():  # of a row of another key, perhaps; whoever looks closer reads these keys alone
            return NOT_COMPARED
        return _sides(expecting.result()[0], other, tells_deletes=reads.tells_deletes)


def equal_everywhere(spark: SparkSession, hop: DestinationHop, *, upto: int) -> Equality:
    """Compares all rows of a destination with those of the changelog up to a batch."""
    destination = hop.destination
    fields = _fields(hop)
    if not isinstance(destination, ReadsInTasks) or fields is None or hop.refused.keys().num_rows:
        return NOT_COMPARED
    if isinstance(destination, WritesByMode) and (destination.skips_nulls or destination.keeps_deleted):
        return NOT_COMPARED
    reads = destination.all_in_tasks(at_once=spark.sparkContext.defaultParallelism)
    if reads is None:
        return NOT_COMPARED
    from upsert_platform.changelog.summed_in_tasks import ExpectedRows, FoundRows, GivenKeys

    key = _schema([fields.field(name) for name in destination.primary_key])
    shares = reads.open()
    # A share alone does not know whether another one has a row of a key that it deletes.
    several = reads.replaced and reads.tells_deletes and shares.count > 1
    finding = FoundRows(
        fields, key, shares.read, tells_deletes=reads.tells_deletes, replaced=reads.replaced,
        most_ended=_MOST_ENDED // shares.count if several else 0,
    )  # fmt: skip

    def expected(ended: GivenKeys | None = None) -> Told:
        task = ExpectedRows(fields, key, held=reads.held, ended=ended)
        by_arrow = _by_arrow(spark, hop, since=0, upto=upto, drawn=None, counts_longer=True)
        told, _ = _expected(spark, hop, task, by_arrow, since=0, upto=upto)
        return _expected(spark, hop, task, None, since=0, upto=upto)[0] if told.divided else told

    try:
        if several:
            found, ended = _in_shares(spark, finding, shares.count, evenly=shares.alike)
            if found.divided:
                return NOT_COMPARED
            told = expected(GivenKeys(_joined(ended)) if ended else None)
            return NOT_COMPARED if told.met else _sides(told, found, tells_deletes=False)
        with ThreadPoolExecutor(1) as thread:
            expecting = thread.submit(expected)
            found, _ = _in_shares(spark, finding, shares.count, evenly=shares.alike)
            return _sides(expecting.result(), found, tells_deletes=False)
    except job_failures():  # a worker without memory, perhaps: Spark divides what a task would hold
        return NOT_COMPARED


class _ByArrow(NamedTuple):
    """A span of batches whose change rows tasks compute by Arrow."""

    span: SpanReduction
    insert: NativeInsert

    def shares(self) -> SharesOfSpan:
        """Gives the change rows of a share, one per key."""
        from upsert_platform.engine.native_insert import SharesOfSpan

        return SharesOfSpan(self.span, self.span.tasks, self.insert)

    def keys(self) -> Task:
        """Gives all change rows with nothing but their keys, several of a key, to any task."""
        from upsert_platform.engine.native_insert import ChangesOfRows

        bare = self.insert.of_key()
        return ChangesOfRows(SpanRows(self.span, bare.reads()), bare)


def _by_arrow(
    spark: SparkSession, hop: DestinationHop, *, since: int, upto: int, drawn: Drawn | None, counts_longer: bool = False
) -> _ByArrow | None:
    insert = ArrowInsert.of(hop.target, hop.destination, sets_aside=True)
    if insert is None:
        return None
    span = insert.reduction(spark, hop.store, after=since, upto=upto, drawn=drawn, counts_longer=counts_longer)
    return None if span is None else _ByArrow(span, insert.native)


def _fields(hop: DestinationHop) -> pa.Schema | None:
    """The columns of the table in Arrow; None where equal hashes would not mean equal values."""
    from upsert_platform.changelog.row_sums import are_told_apart

    columns = hop.destination.columns
    kinds = [arrow_type(column.type) for column in columns if column.type is not None]
    if len(kinds) < len(columns) or not all(map(are_told_apart, kinds)):
        return None
    import pyarrow as pa

    return pa.schema([pa.field(column.name, kind) for column, kind in zip(columns, kinds, strict=True)])


def _schema(fields: Sequence[pa.Field]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema(fields)


def _expected(
    spark: SparkSession, hop: DestinationHop, task: ExpectedRows, by_arrow: _ByArrow | None, *, since: int, upto: int
) -> tuple[Told, list[bytes]]:
    """The sums of the expected side, computed by Arrow from the changelog or from rows computed by Spark."""
    if by_arrow is not None:
        return _summed_shares(spark, hop, by_arrow.shares(), task)
    insert = hop.arrow_insert(after=since, upto=upto, sets_aside=True)
    if insert is not None:
        with insert.shares_of(spark, hop.store, after=since, upto=upto) as made:
            if made is not None:
                return _summed_shares(spark, hop, made[0], task)
    from upsert_platform.changelog.summed_in_tasks import TOLD_DDL

    return _sums_of(hop.changes(spark, after=since, upto=upto).mapInArrow(task, TOLD_DDL).collect())


def _summed_shares(
    spark: SparkSession,
    hop: DestinationHop,
    share: Callable[[int, int], Iterator[tuple[pa.Table, dict[str, int]]]],
    task: ExpectedRows,
) -> tuple[Told, list[bytes]]:
    shares = max(1, int(spark.sparkContext.defaultParallelism))
    tasks = [partial(_summed, partial(share, number, shares), task) for number in range(shares)]
    found = answers_of(spark, tasks, what=f"check table '{hop.destination.name}'")
    return _sums_of(row for rows in found for row in rows)


def _summed(make: Callable[[], Iterator[tuple[pa.Table, dict[str, int]]]], task: ExpectedRows) -> list[dict[str, Any]]:
    """Runs in Spark's workers.

    A row that cannot be computed counts twice: then the sides differ, and whoever looks closer finds it.
    """
    tables = (part for table, _ in make() for part in _poisoned(table))
    batches = (batch for table in tables for batch in table.to_batches(max_chunksize=_SUMMED_ROWS))
    return [row for told in task(batches) for row in told.to_pylist()]


def _poisoned(changes: pa.Table) -> Iterator[pa.Table]:
    from upsert_platform.changelog.change_rows import computed_rows

    computed, failed = computed_rows(changes)
    yield computed
    if failed.num_rows:
        yield from [failed.select(computed.column_names)] * 2


def _in_shares(spark: SparkSession, task: Task, shares: int, *, evenly: bool = False) -> tuple[Told, list[bytes]]:
    """The sums of a task that receives share numbers, and the hashes of keys that it told.

    Args:
        evenly: shares are alike and a task has work of its own to begin with: there are only so many tasks as run at a
            time. Otherwise each share has a task.
    """
    tasks = max(1, min(shares, int(spark.sparkContext.defaultParallelism)) if evenly else shares)
    ends = [number * shares // tasks for number in range(tasks + 1)]
    numbered = [partial(_of_numbers, task, first, end) for first, end in itertools.pairwise(ends)]
    return _sums_of(row for rows in answers_of(spark, numbered, what="sum up rows for a check") for row in rows)


def _of_numbers(task: Task, first: int, end: int) -> list[dict[str, Any]]:
    """Runs in Spark's workers."""
    return [row for told in task(numbers_of(range(first, end))) for row in told.to_pylist()]


def _sums_of(rows: Iterable[Any]) -> tuple[Told, list[bytes]]:
    """The sums of all tasks, and the hashes of keys that each of them told."""
    from upsert_platform.changelog.summed_in_tasks import Told

    told, keys = Told(), []
    for row in rows:
        told.add(row["told"])
        if row["keys"]:
            keys.append(bytes(row["keys"]))
    return told, keys


def _joined(keys: Sequence[bytes]) -> Hashes:
    import numpy as np

    return np.frombuffer(b"".join(keys), np.uint64)


def _sides(told: Told, other: Told, *, tells_deletes: bool) -> Equality:
    """Compare the sums of the expected side with those of the found side."""
    return _judged(replace(told, found=other.found, found_deleted=other.found_deleted), tells_deletes=tells_deletes)


def _judged(told: Told, *, tells_deletes: bool = False) -> Equality:
    same = told.expected == told.found and (not tells_deletes or told.deleted == told.found_deleted)
    return Equality(compared=True, rows=EqualRows(told.rows, told.expected.rows) if same else None)
