"""Rows with numbers as the source of a changelog: those that are made, and those of INSERT INTO ... VALUES.

A table has one stream with one lane; a row's number is its offset. Which row has a number never changes, so a batch
that is tried again holds the same rows (but for what depends on the moment), and none is written twice.
"""

from __future__ import annotations

import hashlib
import json
import random
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import OffsetRange, RangeAccount
from upsert_platform.changelog.data_files import DataFile, write_rows
from upsert_platform.changelog.declared_values import declared_values
from upsert_platform.changelog.landed_rows import account_row
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.errors import RecordError, TopicError
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.source import MODE_APPEND, ReadsRanges
from upsert_platform.core.types import LogicalType, arrow_type, quote_name, spark_type
from upsert_platform.datagen.providers import ExpressionError
from upsert_platform.datagen.table import GeneratedTable
from upsert_platform.sql.evaluation import flink_sql

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from upsert_platform.changelog.store import Positions

_MOST_ROWS: Final = 200_000
"""A batch has at most so many rows: they are made in the driver's process."""
_CHUNK: Final = 1_000
_ENDLESS: Final = 1 << 62
_FAILURE: Final = internal("failure")
_NUMBER: Final = internal("number")


@dataclass(frozen=True, slots=True)
class Lane:
    """The numbers of rows that there are: from `low` (inclusive) to `end` (exclusive)."""

    partition: int
    low: int
    end: int


@dataclass(frozen=True, slots=True)
class Stream:
    """All rows of a table."""

    name: str
    topic_id: str
    partitions: tuple[Lane, ...]


@dataclass(frozen=True)
class NumberedRows(ReadsRanges):
    """The common base of both datagen sources: one split, rows addressed by number, no external system."""

    @property
    def mode(self) -> str:
        """``append``: every row counts for itself."""
        return MODE_APPEND

    @property
    def stream(self) -> str:
        """Name of the stream, as rows and positions show it."""
        return f"rows of {self.table.name}"

    def first_times(self, backlog: Sequence[OffsetRange]) -> Sequence[datetime | None]:
        """None: a row is made when it is read, so none waits."""
        del backlog
        return []

    def bound(
        self, ranges: Sequence[OffsetRange], *, record_bytes: float | None, widened: int = 1
    ) -> tuple[OffsetRange, ...]:
        """So many rows as one process makes at once."""
        del record_bytes, widened
        (one,) = ranges
        return (replace(one, end=min(one.end, one.start + _MOST_ROWS)),)

    def write(
        self, spark: SparkSession, ranges: Sequence[OffsetRange], *, batch: int, location: TableLocation
    ) -> list[DataFile]:
        """Writes the rows of a range into new data files of a changelog."""

        schema = rows.arrow_schema(self.table)
        (span,) = ranges
        found = list(self._batches(spark, span, schema))
        return write_rows([*found, _account(span, schema)], location=location, schema=schema, batch=batch)

    def _batches(self, spark: SparkSession, span: OffsetRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of a range, in batches of the changelog's columns."""
        import pyarrow as pa

        for table in self.rows(spark, span.start, span.end):
            first = table.column(_NUMBER).to_numpy()
            given: dict[str, Any] = {
                rows.KIND: pa.repeat(pa.scalar(rows.KIND_INSERT), table.num_rows),
                rows.TOPIC: pa.repeat(pa.scalar(span.topic), table.num_rows),
                rows.PARTITION: pa.repeat(pa.scalar(0, pa.int32()), table.num_rows),
                rows.OFFSET: pa.array(first, pa.int64()),
                rows.ROW: pa.repeat(pa.scalar(0, pa.int32()), table.num_rows),
                rows.TIMESTAMP: pa.repeat(
                    pa.scalar(datetime.now(UTC), schema.field(rows.TIMESTAMP).type), table.num_rows
                ),
            }
            own = {column.name: column.type or column.expression_type for column in self.table.columns}
            columns = [
                _as_declared(table.column(field.name).combine_chunks().cast(field.type), own[field.name])
                if field.name in own
                else given.get(field.name, pa.nulls(table.num_rows, field.type))
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    @abstractmethod
    def rows(self, spark: SparkSession, start: int, end: int) -> Iterator[pa.Table]:
        """The rows of these numbers: the table's columns, and `_NUMBER`.

        Raises:
            RecordError: a row cannot be made.
        """

    def publish(self, positions: Positions) -> None:
        """Nobody else looks."""


def _account(span: OffsetRange, schema: pa.Schema) -> pa.RecordBatch:
    count = span.end - span.start
    account = RangeAccount(span.topic, 0, span.start, span.end, records=count, kept=count, rows=count)
    return account_row(schema, account)


def _range(stream: Stream, start: int, end: int) -> tuple[OffsetRange, ...]:

    return (OffsetRange(stream.name, 0, start, end),) if start < end else ()


@dataclass(frozen=True)
class GeneratedRows(NumberedRows):
    """The rows of a `faker` or `datagen` table."""

    generated: GeneratedTable

    def discover(self) -> Sequence[Stream]:
        """The stream; its end is far away where every run makes more."""
        end = _ENDLESS if self.generated.rows is None else self.generated.rows
        return (Stream(self.stream, "", (Lane(0, 0, end),)),)

    def backlog(self, streams: Sequence[Stream], positions: Positions) -> Sequence[OffsetRange]:
        """The rows that are left, or those of this run."""
        start = positions.offsets.get(self.stream, {}).get(0, 0)
        rows = self.generated.rows
        return _range(streams[0], start, start + self.generated.per_run if rows is None else rows)

    def rows(self, spark: SparkSession, start: int, end: int) -> Iterator[pa.Table]:
        """Makes rows; those of a chunk follow from its number alone."""
        import pyarrow as pa

        fields = [
            pa.field(column.name, arrow_type(column.type))
            for column in self.table.columns
            if column.type is not None and column.name in self.generated.makers
        ]
        for chunk in range(start // _CHUNK, -(-end // _CHUNK)):
            rng = random.Random(f"{self.table.name} {chunk}")
            numbers = range(chunk * _CHUNK, (chunk + 1) * _CHUNK)
            made: dict[str, list[Any]] = {name: [] for name in self.generated.makers}
            for number in numbers:
                for name, make in self.generated.makers.items():
                    try:
                        made[name].append(make(rng, number))
                    except ExpressionError as error:
                        raise RecordError(f"table '{self.table.name}', row {number}: column '{name}' {error}") from None
            columns = [pa.array(made[field.name], field.type) for field in fields]
            table = pa.table([*columns, pa.array(numbers, pa.int64())], names=[*(f.name for f in fields), _NUMBER])
            low, high = max(start, numbers[0]), min(end, numbers[-1] + 1)
            yield self._computed(spark, table.slice(low - numbers[0], high - low))

    def _computed(self, spark: SparkSession, table: pa.Table) -> pa.Table:
        """The rows with their computed columns."""
        if not self.generated.computed:
            return table

        view = f"rows_{abs(hash((self.table.name, table.column(_NUMBER)[0].as_py())))}"
        spark.createDataFrame(table).createOrReplaceTempView(view)
        try:
            added = ", ".join(f"{sql} AS {quote_name(name)}" for name, sql in self.generated.computed)
            found: pa.Table = flink_sql(spark, f"SELECT *, {added} FROM {view}").toArrow()
        finally:
            spark.catalog.dropTempView(view)
        return found


def _hash(rows_so_far: object) -> str:
    return hashlib.sha256(json.dumps(rows_so_far).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class WrittenRows(NumberedRows):
    """The rows of INSERT INTO ... VALUES, in the order of the statements; each is inserted once.

    Attributes:
        values: per row the Spark SQL of each column, and of the reason why it has no value (or None).
        target: the table that they are inserted into.
        declared: per row what it is known by when it was inserted, which no release renders otherwise.
    """

    values: tuple[tuple[tuple[str, ...], str | None], ...]
    target: str
    declared: tuple[str, ...]

    def discover(self) -> Sequence[Stream]:
        """The rows that are declared now."""
        return (Stream(self.stream, self._digest(len(self.values)), (Lane(0, 0, len(self.values)),)),)

    def backlog(self, streams: Sequence[Stream], positions: Positions) -> Sequence[OffsetRange]:
        """The rows behind those that were inserted.

        Raises:
            TopicError: rows that were inserted are no longer declared as they were.
        """
        start = positions.offsets.get(self.stream, {}).get(0, 0)
        known = positions.topic_ids.get(self.stream)
        # Before, rows were known by their Spark SQL.
        told = () if start > len(self.values) else (self._digest(start), _hash(self.values[:start]))
        if known is not None and known not in told:
            raise TopicError(
                f"INSERT INTO {self.target} VALUES: the first {start} rows were inserted already, and were changed or"
                " removed since. A row is inserted once: leave them as they were, and write new statements behind them"
            )
        return _range(streams[0], start, len(self.values))

    def bound(
        self, ranges: Sequence[OffsetRange], *, record_bytes: float | None, widened: int = 1
    ) -> tuple[OffsetRange, ...]:
        """All at once: the id of the stream tells which rows there were."""
        del record_bytes, widened
        return tuple(ranges)

    def _digest(self, count: int) -> str:
        return _hash(self.declared[:count])

    def rows(self, spark: SparkSession, start: int, end: int) -> Iterator[pa.Table]:
        """Evaluates the rows."""

        columns = [column for column in self.table.columns if column.type is not None]
        for low in range(start, end, _CHUNK // 10):
            selects = []
            for number in range(low, min(end, low + _CHUNK // 10)):
                given = [
                    f"CAST({sql} AS {spark_type(column.type)}) AS {quote_name(column.name)}"
                    for sql, column in zip(self.values[number][0], columns, strict=True)
                    if column.type is not None
                ]
                failure = self.values[number][1] or "NULL"
                selects.append(
                    f"SELECT {', '.join(given)}, {number}L AS {_NUMBER}, CAST({failure} AS STRING) AS {_FAILURE}"
                )
            found: pa.Table = flink_sql(spark, "\nUNION ALL\n".join(selects)).toArrow()
            for number, reason in zip(
                found.column(_NUMBER).to_pylist(), found.column(_FAILURE).to_pylist(), strict=True
            ):
                if reason is not None:
                    raise RecordError(
                        f"INSERT INTO {self.target} VALUES, row {number + 1}: {reason}; mend the statement"
                    )
            yield found.drop_columns([_FAILURE])


def _as_declared(values: pa.Array, kind: LogicalType | None) -> pa.Array:
    return values if kind is None else declared_values(values, kind)
