"""Change rows of a changelog, read by Arrow in the process or task that asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import read_rows
from upsert_platform.changelog.declared_values import cut_keys, with_declared_keys
from upsert_platform.changelog.latest import TASK_ROWS
from upsert_platform.changelog.live_files import deal
from upsert_platform.changelog.parquet_files import part_of
from upsert_platform.changelog.rows import ORDER
from upsert_platform.core.destination import FAILED
from upsert_platform.core.types import LogicalType, TypeName

if TYPE_CHECKING:
    import pyarrow as pa

    from upsert_platform.changelog.counting_rows import Drawn
    from upsert_platform.changelog.live_files import LiveFile
    from upsert_platform.changelog.store import ChangelogStore
    from upsert_platform.changelog.tables import TableLocation
    from upsert_platform.core.model import Table

ALL_FIELDS: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})
_UNSURE: Final = (TypeName.FLOAT, TypeName.DOUBLE, TypeName.ARRAY, TypeName.MAP, TypeName.MULTISET, TypeName.ROW)
"""Types whose equal values may differ in their bytes: zeros, NaN, entries of maps."""


def change_rows(
    store: ChangelogStore, files: Sequence[LiveFile], *, columns: Sequence[str], after: int, upto: int
) -> pa.Table:
    """Return the rows of `ChangelogStore.read` for the batches after `after` up to `upto`, as an Arrow table. No JVM.

    Args:
        files: those that may hold such rows; the caller knows that they are small.
        columns: of the rows; what orders rows, and `_kind`, are there too.
    """
    paths = [item.path for item in files]
    return changes_of_files(store.table, store.location, paths, columns=columns, after=after, upto=upto)


def changes_of_files(
    table: Table,
    location: TableLocation,
    paths: Sequence[str],
    *,
    columns: Sequence[str],
    after: int,
    upto: int,
    parts: Mapping[str, Sequence[str]] = ALL_FIELDS,
) -> pa.Table:
    """The rows of `change_batches` as one table, for a task that was told which files to read."""
    import pyarrow as pa

    found = change_batches(table, location, paths, columns=columns, after=after, upto=upto, parts=parts)
    return pa.Table.from_batches(found, schema=_schema(table, columns, parts=parts))


def change_batches(
    table: Table,
    location: TableLocation,
    paths: Sequence[str],
    *,
    columns: Sequence[str],
    after: int,
    upto: int,
    ordered: bool = True,
    parts: Mapping[str, Sequence[str]] = ALL_FIELDS,
) -> Iterator[pa.RecordBatch]:
    """The rows of `change_rows`, part by part.

    Args:
        table: as declared.
        location: of its changelog, with the files below it.
        ordered: whether what orders rows is there too; reading it costs as much as some columns.
        parts: of columns of type ROW the fields that are wanted, where not all are.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = _schema(table, columns, ordered=ordered, parts=parts)
    place = schema.get_field_index(rows.KIND)
    coded = schema.set(place, pa.field(rows.KIND, pa.dictionary(pa.int32(), pa.string())))  # a few values, many times
    kinds = pa.array(rows.CHANGE_KINDS, pa.string())
    finer = cut_keys(table)
    for found in read_rows(location, paths, schema=coded):
        batch, kind = found.column(rows.BATCH), found.column(place)
        wanted = pc.and_(pc.greater(batch, after), pc.less_equal(batch, upto))
        changes = pc.is_in(kind.dictionary, value_set=kinds)
        if kind.null_count or not pc.all(changes, min_count=0).as_py():
            wanted = pc.and_(wanted, pc.fill_null(changes.take(kind.indices), False))
        part = found.set_column(place, schema.field(place), kind.dictionary_decode())
        chosen = part if pc.all(wanted, min_count=0).as_py() else part.filter(wanted)
        yield with_declared_keys(chosen, finer)


@dataclass(frozen=True)
class ChangesOfFiles:
    """The function for ``mapInArrow`` that gets numbers of shares of a changelog's files and yields their changes.

    Attributes:
        shares: paths of the files of each share, relative to the changelog.
        columns: of the changes, beside their kind and those that order them.
        upto: the last batch of which changes are yielded.
        drawn: which keys are yielded; None: all of them. With it, `columns` have the primary key.
    """

    location: TableLocation
    table: Table
    shares: tuple[tuple[str, ...], ...]
    columns: tuple[str, ...]
    upto: int
    drawn: Drawn | None = None

    @classmethod
    def of(
        cls, store: ChangelogStore, *, columns: Sequence[str], upto: int, tasks: int, drawn: Drawn | None = None
    ) -> ChangesOfFiles:
        """Return the function for all files of a changelog; without a share where there is none.

        Args:
            tasks: at least so many shares, if there are files enough.
        """
        files = [item for item in store.files() if item.may_hold(after=0, upto=upto)]
        rows_of_task = TASK_ROWS * (1 if drawn is None else drawn.one_in)
        count = min(len(files), max(tasks, -(-store.about_rows(upto=upto) // rows_of_task)))
        shares = tuple(tuple(item.path for item in hand) for hand in deal(files, count)) if files else ()
        return cls(store.location, store.table, shares, tuple(columns), upto, drawn)

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for part in change_batches(
                    self.table, self.location, self.shares[number], columns=self.columns, after=0, upto=self.upto
                ):
                    yield part if self.drawn is None else self.drawn.of(part, self.table.primary_key)


def _schema(
    table: Table, columns: Sequence[str], *, ordered: bool = True, parts: Mapping[str, Sequence[str]] = ALL_FIELDS
) -> pa.Schema:
    import pyarrow as pa

    known = rows.arrow_schema(table)
    order = ORDER if ordered else ()
    names = dict.fromkeys([*columns, rows.BATCH, rows.KIND, *order])
    return pa.schema([part_of(known.field(name), parts.get(name)) for name in names])


def change_times(store: ChangelogStore, *, after: int, upto: int) -> Iterator[pa.Array]:
    """Times of the records of all changes in the batches after `after` and up to `upto`, part by part. No JVM.

    In microseconds, UTC; null where a record has none.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    known = rows.arrow_schema(store.table)
    schema = pa.schema([known.field(name) for name in (rows.BATCH, rows.KIND, rows.TIMESTAMP)])
    kinds = pa.array(rows.CHANGE_KINDS, pa.string())
    paths = [item.path for item in store.files() if item.may_hold(after=after, upto=upto)]
    for part in read_rows(store.location, paths, schema=schema):
        batch = part.column(rows.BATCH)
        wanted = pc.and_(pc.greater(batch, after), pc.less_equal(batch, upto))
        yield part.filter(pc.and_(wanted, pc.is_in(part.column(rows.KIND), value_set=kinds))).column(rows.TIMESTAMP)


def can_be_told_apart(kind: LogicalType | None) -> bool:
    """Return whether equal values of a type are the same bytes, as keys have to be that Arrow compares."""
    return kind is not None and kind.name not in _UNSURE


def computed_rows(changes: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Divide a change frame into the rows that could be computed, without `FAILED`, and the others."""
    import pyarrow.compute as pc

    if FAILED not in changes.column_names:
        return changes, changes.slice(0, 0)
    if changes.column(FAILED).null_count == changes.num_rows:
        return changes.drop_columns([FAILED]), changes.slice(0, 0)
    computed = pc.is_null(changes.column(FAILED))
    return changes.filter(computed).drop_columns([FAILED]), changes.filter(pc.invert(computed))
