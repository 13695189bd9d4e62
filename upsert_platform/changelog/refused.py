"""Rows that a destination refused for good, kept in the lake: a Delta table per destination, written without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.changelog import refused_files
from upsert_platform.changelog.tables import TableLocation, create_table, open_table, write_table
from upsert_platform.destination import BatchSpan, KeepsFiles, RefusedFile, RefusedRow
from upsert_platform.model import Column
from upsert_platform.types import quote_name, spark_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = ("batch", "key", "row", "reason", "at")


class RefusedStore:
    """The refused rows of one destination.

    Args:
        location: of the Delta table; a path by itself will do.
    """

    def __init__(self, location: TableLocation | str) -> None:
        self.location = TableLocation.of(location)

    def of(self, span: BatchSpan, *, failed: Sequence[RefusedRow] = ()) -> RefusedOfSpan:
        """Keeps the rows that a write of a span refuses: a `KeepRefused` that takes rows, or files of tasks.

        Args:
            failed: rows of the span that could not be computed, and so never come to the destination; kept with them.
        """
        return RefusedOfSpan(self, span, failed)

    def append(self, refused: Sequence[RefusedRow], span: BatchSpan) -> None:
        """Keeps the rows that a write of `span` refused. A replayed span replaces what its first try kept."""
        if not refused:
            self.forget(span)
            return
        table = _table(refused, span.upto)
        if open_table(self.location) is not None:
            # A span that is tried again may have grown, never shrunk: what it covers is everything after span.after.
            write_table(self.location, table, mode="overwrite", predicate=f"batch > {int(span.after)}")
        else:
            write_table(self.location, table, mode="append")

    def append_files(self, files: Sequence[str], span: BatchSpan, rows: Sequence[RefusedRow] = ()) -> None:
        """As `append`, of the rows of files that tasks wrote, and of further rows."""
        self.append(rows, span)
        if not files:
            return
        from deltalake.transaction import AddAction, RemoveAction

        create_table(self.location, refused_files.schema())
        delta = open_table(self.location)
        assert delta is not None
        actions: list[AddAction | RemoveAction] = [
            AddAction(*refused_files.add_arguments(name, span.upto)) for name in files
        ]
        delta.create_write_transaction(actions, mode="append", schema=delta.schema())

    def forget(self, span: BatchSpan) -> None:
        """Takes out what an earlier try of a span kept."""
        delta = open_table(self.location)
        if delta is None:
            return
        later = delta.to_pyarrow_dataset().count_rows(filter=_after(span.after))
        if later:
            delta.delete(f"batch > {int(span.after)}")

    def settle(self, keys: Collection[str], again: Sequence[RefusedRow] = (), *, batch: int = 0) -> None:
        """Takes out what is kept of some keys, in one commit. To be called by who has the destination's lease.

        Args:
            again: rows that were refused once more; they take the place of what is kept of their keys.
            batch: the applied batch, up to which `again` was refused.
        """
        gone = {*keys, *(row.key for row in again)}
        if not again and gone.isdisjoint(self.keys()["key"].to_pylist()):
            return
        import pyarrow as pa

        kept = self.read()
        stays = [key not in gone for key in kept["key"].to_pylist()]
        left = kept.filter(pa.array(stays, pa.bool_()))
        if again:
            new = _table(again, batch)
            left = pa.concat_tables([left.cast(new.schema), new]) if left.num_rows else new
        write_table(self.location, left, mode="overwrite")

    def read(self, *, limit: int | None = None) -> pa.Table:
        """The rows kept, by batch: columns batch (int64), key, row, reason (text), at (UTC)."""
        import pyarrow as pa

        delta = open_table(self.location)
        if delta is None:
            empty: Any = {name: pa.array([], pa.string()) for name in COLUMNS}
            return pa.table(empty)
        found = delta.to_pyarrow_table().sort_by("batch")
        return found if limit is None else found.slice(0, limit)

    def count(self) -> int:
        """How many rows are kept, from the metadata of their files."""
        delta = open_table(self.location)
        return 0 if delta is None else int(delta.to_pyarrow_dataset().count_rows())

    def keys(self) -> pa.Table:
        """Columns batch (int64) and key of the rows kept: what checks need, without the rows themselves."""
        import pyarrow as pa

        delta = open_table(self.location)
        if delta is None:
            return pa.table({"batch": pa.array([], pa.int64()), "key": pa.array([], pa.string())})
        return delta.to_pyarrow_dataset().to_table(columns=["batch", "key"])


class RefusedOfSpan(KeepsFiles):
    """Implements `upsert_platform.destination.KeepRefused` and `upsert_platform.destination.KeepsFiles`."""

    def __init__(self, store: RefusedStore, span: BatchSpan, failed: Sequence[RefusedRow]) -> None:
        self._store = store
        self._span = span
        self._failed = failed

    def __call__(self, refused: Sequence[RefusedRow]) -> None:
        """Keeps rows."""
        self._store.append([*self._failed, *refused], self._span)

    @property
    def open_file(self) -> Callable[[], RefusedFile]:
        """Opens a file, in a task."""
        return partial(refused_files.open_file, self._store.location, self._span.upto)

    def rows_of(self, files: Sequence[str]) -> Iterator[list[RefusedRow]]:
        """The rows of files, a few megabytes at a time."""
        return refused_files.rows_of(self._store.location, files)

    def keep_files(self, files: Sequence[str]) -> None:
        """Keeps the rows of files."""
        self._store.append_files(files, self._span, self._failed)

    def discard_files(self, files: Sequence[str]) -> None:
        """Removes files that are not to be kept."""
        refused_files.discard(self._store.location, files)


def key_frame(spark: SparkSession, kept: pa.Table, *, columns: Sequence[Column], key: Sequence[str]) -> DataFrame:
    """Keys of refused rows as values.

    Args:
        kept: of `RefusedStore.read`.
        columns: of the destination.
        key: names of its primary key columns.

    Returns:
        `k0`, `k1`, ... in declared types (null where the text gives none), `_keys` (the texts that gave them) and
        `_refused_in`, the last batch that was refused. One row per key.
    """
    from pyspark.sql import functions as F

    types = {column.name: column.type for column in columns}
    schema = ", ".join(f"{quote_name(name)} {spark_type(types[name])}" for name in key)  # type: ignore[arg-type]
    return (
        spark.createDataFrame(kept.select(["batch", "key"]))
        .select(F.from_json("key", schema).alias("k"), "key", "batch")
        .groupBy(*[F.col("k").getField(name).alias(f"k{index}") for index, name in enumerate(key)])
        .agg(F.max("batch").alias("_refused_in"), F.collect_set("key").alias("_keys"))
    )


def _table(refused: Sequence[RefusedRow], batch: int) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_batches([refused_files.record_batch(refused, batch)])


def _after(batch: int) -> Any:
    import pyarrow.compute as pc

    return pc.field("batch") > batch
