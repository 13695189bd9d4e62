"""Topics as a Spark source: a Python Data Source that reads offset ranges into changelog rows, or into its files.

Ranges are planned by the driver (`offsets.py`) and given in the options, so a task reads the same records however often
it runs. The class is importable, so Spark pickles it by reference.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.changelog.data_files import MANIFEST, DataFile, collect_files, write_files
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.kafka.table import KafkaTable
from upsert_platform.source import MODE_APPEND, MODE_UPSERT

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT: Final = "upsert-platform-kafka"
_PLAN: Final = "plan"


@dataclass(frozen=True)
class _Target:
    """The changelog that tasks write to, and the number of the batch."""

    location: TableLocation
    batch: int


@dataclass(frozen=True)
class _Plan:
    """What tasks need to know. Travels as one option, which Spark shows nowhere (it holds the login)."""

    table: KafkaTable
    ranges: tuple[OffsetRange, ...]
    reduces: bool
    target: _Target | None = None

    def to_text(self) -> str:
        return base64.b64encode(pickle.dumps(self)).decode()

    @staticmethod
    def from_text(text: str) -> _Plan:
        plan = pickle.loads(base64.b64decode(text))
        assert isinstance(plan, _Plan)
        return plan


@dataclass
class _Ranges(InputPartition):
    """What one task reads, range after range."""

    ranges: tuple[OffsetRange, ...]


class _Reader(DataSourceReader):
    def __init__(self, plan: str) -> None:
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        plan = _Plan.from_text(self._plan)
        return [_Ranges(ranges) for ranges in share_ranges(plan.ranges, plan.table.settings.scan_parallelism)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from upsert_platform.kafka.source.read_range import RangeReader

        assert isinstance(partition, _Ranges)
        plan = _Plan.from_text(self._plan)
        reader = RangeReader(plan.table, reduces=plan.reduces)
        found = chain.from_iterable(map(reader.read, partition.ranges))
        if plan.target is None:
            yield from found
        else:
            schema = rows.arrow_schema(plan.table.table)
            yield from write_files(found, location=plan.target.location, schema=schema, batch=plan.target.batch)


class KafkaRangesSource(DataSource):
    """Offset ranges of topics as changelog rows without `_batch`, or as the data files into which tasks wrote them.

    Use `read_changes` or `write_changes`.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        plan = _Plan.from_text(self.options[_PLAN])
        return _schema_without_batch(plan.table) if plan.target is None else MANIFEST

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options[_PLAN])


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
        `upsert_platform.writing.outcomes.failure_of` finds them in what Spark makes of them.
    """
    from pyspark.sql import functions as f

    frame = _frame(spark, _Plan(table, tuple(ranges), reduces=_reduces(table, mode)))
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
        Exception: of Spark; `failure_of` finds the platform's own in it. Nothing was committed.
    """
    plan = _Plan(table, tuple(ranges), reduces=_reduces(table, mode), target=_Target(location, batch))
    return collect_files(_frame(spark, plan))


def _reduces(table: KafkaTable, mode: str) -> bool:
    if mode not in (MODE_UPSERT, MODE_APPEND):
        raise ValueError(f"mode is {MODE_UPSERT} or {MODE_APPEND}, not '{mode}'")
    if mode == MODE_UPSERT and not table.is_upsert:
        raise ValueError(f"table '{table.name}' is not an upsert-kafka table: it is read in mode {MODE_APPEND}")
    return mode == MODE_UPSERT


def _frame(spark: SparkSession, plan: _Plan) -> DataFrame:
    spark.dataSource.register(KafkaRangesSource)
    schema = _schema_without_batch(plan.table) if plan.target is None else MANIFEST
    return spark.read.format(FORMAT).schema(schema).option(_PLAN, plan.to_text()).load()


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
