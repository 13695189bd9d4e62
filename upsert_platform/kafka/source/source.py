"""Topics as Spark tasks: each reads its offset ranges into changelog rows, or into files of the changelog.

Ranges are planned by the driver (`offsets.py`) and are part of what a task is told, so it reads the same records
however often it runs. Rows for Spark come of ``mapInArrow`` over one number each: a Python data source would start
two more processes that only plan. What tasks write by themselves needs no Spark SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.changelog.data_files import DataFile, files_by_tasks, write_files
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.source import MODE_APPEND, MODE_UPSERT
from upsert_platform.kafka.modes import OnDataLoss
from upsert_platform.kafka.source.fetch import fetch_together
from upsert_platform.kafka.table import KafkaTable

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message
    from pyspark.sql import DataFrame, SparkSession

_FETCHED_BYTES: Final = 32 << 20
"""Records of a batch that is read here are held at once up to so many bytes."""
Fetch = Callable[[OffsetRange], Iterator[list[Any]]]


@dataclass(frozen=True)
class _Target:
    """The changelog that tasks write to, and the number of the batch."""

    location: TableLocation
    batch: int


@dataclass(frozen=True)
class _Plan:
    """The data that tasks receive. Travels inside of their function, which Spark shows nowhere (it holds the login)."""

    table: KafkaTable
    reduces: bool
    target: _Target | None = None


def _reading(
    plan: _Plan, shares: Sequence[tuple[OffsetRange, ...]], fetch: Fetch | None = None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow`` that reads the shares whose numbers it gets.

    Args:
        fetch: of `RangeReader`.
    """

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from upsert_platform.kafka.source.read_range import RangeReader

        reader = RangeReader(plan.table, reduces=plan.reduces, fetch=fetch)
        mine = (share for batch in numbers for number in batch.column(0).to_pylist() for share in shares[number])
        found = chain.from_iterable(map(reader.read, mine))
        if plan.target is None:
            yield from found
        else:
            schema = rows.arrow_schema(plan.table.table)
            yield from write_files(found, location=plan.target.location, schema=schema, batch=plan.target.batch)

    return read


def _schema_without_batch(table: KafkaTable) -> str:
    return rows.spark_schema(table.table).removeprefix(f"`{rows.BATCH}` {rows.SYSTEM_COLUMNS[rows.BATCH]}, ")


def read_changes(
    spark: SparkSession, table: KafkaTable, ranges: Sequence[OffsetRange], *, batch: int, mode: str
) -> DataFrame:
    """The rows of one batch: changes, quarantined records and one accounting row per range, as `rows.spark_schema`.

    Args:
        ranges: as planned by `offsets.bound_batch`.
        batch: put into `_batch`.
        mode: ``upsert`` keeps the last decodable record per raw key and range (of each part of it, when the keys do not
            fit `scan.buffer-bytes`); ``append`` keeps every record.

    Returns:
        A frame whose reading raises, in a task, RecordError, TopicError or EndpointError;
        `upsert_platform.core.spark_failures.failure_of` finds them in what Spark makes of them.
    """
    from pyspark.sql import functions as f

    frame = _frame(spark, _Plan(table, reduces=_reduces(table, mode)), ranges)
    return frame.select(f.lit(batch).cast("bigint").alias(rows.BATCH), "*")


def write_changes(
    spark: SparkSession,
    table: KafkaTable,
    ranges: Sequence[OffsetRange],
    *,
    batch: int,
    mode: str,
    location: TableLocation,
) -> list[DataFile]:
    """Writes the rows of `read_changes` into new data files of a changelog, from the tasks that read them.

    Args:
        location: of the changelog, for `ChangelogStore.append`, which commits the files.

    Raises:
        RecordError, TopicError, EndpointError: as a task would.
    """
    plan = _Plan(table, reduces=_reduces(table, mode), target=_Target(location, batch))
    shares = share_ranges(ranges, table.settings.scan_parallelism)
    tasks = [partial(_written, plan, share) for share in shares]
    return files_by_tasks(spark, tasks, what=f"read topics of table '{table.name}'")


def _written(plan: _Plan, share: tuple[OffsetRange, ...], fetch: Fetch | None = None) -> list[DataFile]:
    """Writes the rows of a share into data files."""
    import pyarrow as pa

    manifests = _reading(plan, [share], fetch)(iter([pa.record_batch({"id": pa.array([0])})]))
    return [DataFile(**row) for manifest in manifests for row in manifest.to_pylist()]


def write_changes_in_task(
    table: KafkaTable,
    ranges: Sequence[OffsetRange],
    *,
    batch: int,
    mode: str,
    location: TableLocation,
    fetch: Fetch | None = None,
) -> list[DataFile]:
    """As `write_changes`, by the task's function in this process: fetched together where they are small.

    Args:
        fetch: gives the records of a range, or of a part of one; from the brokers unless it is given.

    Raises:
        RecordError, TopicError, EndpointError: as a task would. Nothing was committed.
    """
    fetched = fetch or _fetched(table, ranges)
    return _written(
        _Plan(table, reduces=_reduces(table, mode), target=_Target(location, batch)), tuple(ranges), fetched
    )


def _fetched(table: KafkaTable, ranges: Sequence[OffsetRange]) -> Fetch | None:
    """Gives records of ranges that were fetched together; None where each is better fetched by itself."""
    if len(ranges) < 2 or table.settings.on_data_loss is OnDataLoss.CONTINUE:  # begins where a partition still has some
        return None
    held = fetch_together(table.endpoint, ranges, most_bytes=_FETCHED_BYTES)
    if held is None:
        return None

    def fetch(wanted: OffsetRange) -> Iterator[list[Message]]:
        """The records of a range, or of a part of one."""
        records = held[wanted.topic, wanted.partition]
        some = [item for item in records if wanted.start <= item.offset() < wanted.end]
        if some:
            yield some

    return fetch


def _reduces(table: KafkaTable, mode: str) -> bool:
    if mode not in (MODE_UPSERT, MODE_APPEND):
        raise ValueError(f"mode is {MODE_UPSERT} or {MODE_APPEND}, not '{mode}'")
    if mode == MODE_UPSERT and not table.is_upsert:
        raise ValueError(f"table '{table.name}' is not an upsert-kafka table: it is read in mode {MODE_APPEND}")
    return mode == MODE_UPSERT


def _frame(spark: SparkSession, plan: _Plan, ranges: Sequence[OffsetRange]) -> DataFrame:
    shares = share_ranges(ranges, plan.table.settings.scan_parallelism)
    numbers = spark.range(0, len(shares), 1, max(len(shares), 1))
    return numbers.mapInArrow(_reading(plan, shares), _schema_without_batch(plan.table))


def share_ranges(ranges: Sequence[OffsetRange], tasks: int | None) -> list[tuple[OffsetRange, ...]]:
    """Deals ranges to tasks: one each unless `scan.parallelism` says otherwise.

    More tasks than ranges split the longest ones; fewer take several, the longest first. Parts of a range are reduced
    apart, which the offsets of their rows set right when the changelog is read.
    """
    pieces = list(ranges)
    if tasks is None or tasks == len(pieces) or not pieces:
        return [(piece,) for piece in pieces]
    while len(pieces) < tasks:
        longest = max(pieces, key=lambda item: item.offsets)
        if longest.offsets < 2:
            break
        middle = longest.start + longest.offsets // 2
        pieces.remove(longest)
        pieces.append(OffsetRange(longest.topic, longest.partition, longest.start, middle))
        pieces.append(OffsetRange(longest.topic, longest.partition, middle, longest.end))
    hands: list[list[OffsetRange]] = [[] for _ in range(min(tasks, len(pieces)))]
    for piece in sorted(pieces, key=lambda item: -item.offsets):
        min(hands, key=lambda hand: sum(item.offsets for item in hand)).append(piece)
    return [tuple(hand) for hand in hands]
