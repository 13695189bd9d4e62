"""Rows that a destination refused for good, kept in the lake: a Delta table per destination, written without a JVM."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.changelog import refused_files
from upsert_platform.changelog.damage import naming
from upsert_platform.changelog.progress import FOLDER, remove_counts
from upsert_platform.changelog.tables import TableLocation, create_table, open_table
from upsert_platform.core.destination import BatchSpan, KeepsFiles, Progress, RefusedFile, RefusedRow
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.model import Column
from upsert_platform.core.types import quote_name, spark_type

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

KEYS: Final = internal("keys")
"""Column of `key_frame`: the texts that gave a key."""
REFUSED_IN: Final = internal("refused_in")
"""Column of `key_frame`: the last batch that was refused."""
COLUMNS: Final = ("batch", "key", "row", "reason", "at")
_READ_ROWS: Final = 1000
_EXAMPLES: Final = 20


class RefusedStore:
    """The refused rows of one destination. What is changed of them is read a few megabytes at a time.

    Args:
        location: of the Delta table; a path by itself will do.
    """

    def __init__(self, location: TableLocation | str) -> None:
        self.location = TableLocation.of(location)

    def of(self, span: BatchSpan, *, failed: Sequence[str] = (), progress: Progress | None = None) -> RefusedOfSpan:
        """Keeps the rows that a write of a span refuses: a `KeepRefused` that takes rows, or files of tasks.

        Args:
            failed: files of rows of the span that could not be computed, and so never come to the destination; they
                are kept with the others.
            progress: takes the counts of the tasks.
        """
        return RefusedOfSpan(self, span, failed, progress)

    def again(self, batch: int, *, progress: Progress | None = None) -> RefusedAgain:
        """Keeps rows that were refused once more, in the place of what is kept of their keys.

        Args:
            batch: the applied batch, up to which they were refused.
            progress: takes the counts of the tasks.
        """
        return RefusedAgain(self, batch, progress)

    def remove_unused(self, *, hours: int) -> int:
        """Deletes files that the table has not needed for so many hours, and those that killed runs left; how many.

        A file of a write that has not ended is younger: writes are to be shorter than that.
        """
        before = time.time() - hours * 3600
        removed = remove_counts(self.location.below(FOLDER), before=before)
        delta = open_table(self.location)
        if delta is not None:
            if delta.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True):
                removed += len(delta.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True))
            return removed
        unused = refused_files.older_than(self.location, before)  # of writes that died before any row was kept
        for path in unused:
            refused_files.delete(self.location, path)
        return removed + len(unused)

    def append(self, refused: Sequence[RefusedRow], span: BatchSpan) -> None:
        """Keeps the rows that a write of `span` refused. A replayed span replaces what its first try kept."""
        self.append_files([self.write_file(refused, span.upto)] if refused else (), span)

    def append_files(self, files: Sequence[str], span: BatchSpan) -> None:
        """As `append`, of the rows of files that tasks wrote."""
        # A span that is tried again may have grown, never shrunk: what it covers is everything after span.after.
        self._change(_after(span.after), files)

    def forget(self, span: BatchSpan) -> None:
        """Takes out what an earlier try of a span kept."""
        self._change(_after(span.after), ())

    def settle(self, keys: Collection[str], again: Sequence[str] = ()) -> None:
        """Takes out what is kept of some keys, in one commit. To be called by who has the destination's lease.

        Args:
            again: files of rows that were refused once more; they take the place of what is kept of their keys.
        """
        import pyarrow as pa

        gone = {*keys, *(row.key for rows in refused_files.rows_of(self.location, again) for row in rows)}
        if gone:
            self._change(_among(pa.array(sorted(gone), pa.string())), again)

    def write_file(self, rows: Sequence[RefusedRow], batch: int) -> str:
        """Writes rows to a file, for `append_files` and `settle`; there are some."""
        file = refused_files.open_file(self.location, batch)
        file.write(rows)
        name = file.close()
        assert name is not None
        return name

    def _change(self, leaves: refused_files.Leaves, files: Sequence[str]) -> None:
        """Takes out rows and adds those of files, in one commit."""
        if files:
            create_table(self.location, refused_files.schema())
        delta = open_table(self.location)
        if delta is None:
            return
        from deltalake.transaction import AddAction, RemoveAction

        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = []
        added = {arguments[0]: arguments for arguments in map(refused_files.add_arguments, files)}
        for path, last in _live_files(delta):
            if added.pop(path, None) is not None:  # a transaction that is tried again keeps its files again
                continue
            if last is not None and last <= leaves.after:
                continue
            left = refused_files.without(self.location, path, leaves)
            if left is None:
                continue
            actions.append(RemoveAction(path, True, now, partition_values={}))
            actions += [AddAction(*refused_files.add_arguments(left))] if left else []
        actions += [AddAction(*arguments) for arguments in added.values()]
        if actions:
            with naming(f"{self.location.uri}/_delta_log", writes=True):
                delta.create_write_transaction(actions, mode="append", schema=delta.schema())

    def read(self, *, limit: int | None = None, key: str | None = None) -> pa.Table:
        """The rows kept, by batch: columns batch (int64), key, row, reason (text), at (UTC).

        Args:
            limit: only so many of them, the first ones.
            key: only those of this key.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        delta = open_table(self.location)
        if delta is None:
            empty: Any = {name: pa.array([], pa.string()) for name in COLUMNS}
            return pa.table(empty)
        found, count = [refused_files.schema().empty_table()], 0
        for path, _ in _live_files(delta):
            for part in refused_files.batches_of(self.location, path):
                chosen = part if key is None else part.filter(pc.equal(part["key"], key))
                found.append(chosen)
                count += chosen.num_rows
                if limit is not None and count > 2 * limit + _READ_ROWS:
                    found = [pa.concat_tables(found).sort_by("batch").slice(0, limit)]
                    count = limit
        return pa.concat_tables(found).sort_by("batch").slice(0, limit)

    def count(self) -> int:
        """Return the number of rows kept, read from the metadata of their files.

        Raises:
            ChangelogError: a file is gone or damaged; it is named.
        """
        delta = open_table(self.location)
        files = () if delta is None else _live_files(delta)
        return sum(refused_files.count_of(self.location, path) for path, _ in files)

    def keys(self) -> pa.Table:
        """Columns batch (int64) and key of the rows kept: what checks need, without the rows themselves."""
        import pyarrow as pa

        columns = ["batch", "key"]
        delta = open_table(self.location)
        parts = [
            part
            for path, _ in (() if delta is None else _live_files(delta))
            for part in refused_files.batches_of(self.location, path, columns)
        ]
        return pa.concat_tables([refused_files.schema().empty_table().select(columns), *parts])


class _InStore(KeepsFiles):
    """Files beside the rows of a store."""

    def __init__(self, store: RefusedStore, batch: int, progress: Progress | None) -> None:
        self._store = store
        self._batch = batch
        self.progress = progress

    def __call__(self, refused: Sequence[RefusedRow]) -> None:
        """Keeps rows."""
        self.keep_files([self._store.write_file(refused, self._batch)] if refused else ())

    @property
    def open_file(self) -> Callable[[], RefusedFile]:
        """Opens a file, in a task."""
        return partial(refused_files.open_file, self._store.location, self._batch)

    def rows_of(self, files: Sequence[str]) -> Iterator[list[RefusedRow]]:
        """The rows of files, a few megabytes at a time."""
        return refused_files.rows_of(self._store.location, files)

    def discard_files(self, files: Sequence[str]) -> None:
        """Removes files that are not to be kept."""
        refused_files.discard(self._store.location, files)


class RefusedOfSpan(_InStore):
    """Implements `upsert_platform.core.destination.KeepRefused` and `upsert_platform.core.destination.KeepsFiles`."""

    def __init__(self, store: RefusedStore, span: BatchSpan, failed: Sequence[str], progress: Progress | None) -> None:
        super().__init__(store, span.upto, progress)
        self._span = span
        self._failed = tuple(failed)
        self._kept = False

    def keep_files(self, files: Sequence[str]) -> None:
        """Keeps the rows of files; again, with others or the same, where a transaction is tried again."""
        self._store.append_files([*self._failed, *files], self._span)
        self._kept = True

    def give_up(self) -> None:
        """Removes the files of rows that could not be computed, if nothing was kept. Idempotent."""
        if not self._kept:
            self.discard_files(self._failed)
        self._failed = ()


class RefusedAgain(_InStore):
    """Implements `upsert_platform.core.destination.KeepRefused` and `upsert_platform.core.destination.KeepsFiles`.

    Attributes:
        keys: of the rows that were kept so far.
        examples: some of those rows.
    """

    def __init__(self, store: RefusedStore, batch: int, progress: Progress | None) -> None:
        super().__init__(store, batch, progress)
        self.keys: set[str] = set()
        self.examples: list[RefusedRow] = []

    def keep_files(self, files: Sequence[str]) -> None:
        """Keeps the rows of files."""
        for rows in self.rows_of(files):
            self.keys.update(row.key for row in rows)
            self.examples += rows[: _EXAMPLES - len(self.examples)]
        self._store.settle((), files)


def key_frame(spark: SparkSession, kept: pa.Table, *, columns: Sequence[Column], key: Sequence[str]) -> DataFrame:
    """Keys of refused rows as values.

    Args:
        kept: of `RefusedStore.read`.
        columns: of the destination.
        key: names of its primary key columns.

    Returns:
        `k0`, `k1`, ... in declared types (null where the text gives none), `KEYS` (the texts that gave them) and
        `REFUSED_IN`, the last batch that was refused. One row per key.
    """
    from pyspark.sql import functions as F

    types = {column.name: column.type for column in columns}
    schema = ", ".join(f"{quote_name(name)} {spark_type(types[name])}" for name in key)  # type: ignore[arg-type]
    return (
        spark.createDataFrame(kept.select(["batch", "key"]))
        .select(F.from_json("key", schema).alias("k"), "key", "batch")
        .groupBy(*[F.col("k").getField(name).alias(f"k{index}") for index, name in enumerate(key)])
        .agg(F.max("batch").alias(REFUSED_IN), F.collect_set("key").alias(KEYS))
    )


def _live_files(delta: DeltaTable) -> Iterator[tuple[str, int | None]]:
    """The data files of the table, each with its greatest batch where that is known."""
    import pyarrow as pa

    found = pa.RecordBatchReader.from_stream(delta.get_add_actions(flatten=True)).read_all()
    last = found["max.batch"].to_pylist() if "max.batch" in found.column_names else [None] * found.num_rows
    yield from zip(found["path"].to_pylist(), last, strict=True)


def _after(batch: int) -> refused_files.Leaves:
    def later(batches: pa.Array) -> pa.Array:
        import pyarrow.compute as pc

        return pc.greater(batches, batch)

    return refused_files.Leaves("batch", later, after=batch)


def _among(keys: pa.Array) -> refused_files.Leaves:
    def found(texts: pa.Array) -> pa.Array:
        import pyarrow.compute as pc

        return pc.is_in(texts, value_set=keys)

    return refused_files.Leaves("key", found)
