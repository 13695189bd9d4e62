"""Takes the rows of one key out of a changelog for good: out of its live files, and out of every other file there.

A file that is not live is one that a compaction or an erasure replaced, or one that a killed run left. It may belong to
a run that has not ended, too: the commit of that run would be of a batch that is there by now, or in the place of a
file that is gone, so it cannot come any more. Files with rows of later batches are left alone.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import read_rows, write_rows
from upsert_platform.changelog.declared_values import with_declared_keys
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.tables import TableLocation, file_system
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.types import LogicalType

if TYPE_CHECKING:
    import pyarrow as pa

_ATTEMPTS: Final = 5
"""How often files are rewritten anew when another run replaced them meanwhile."""
EVERY_BATCH: Final = 1 << 62
"""Greater than the number of any batch."""
_LEAST_BYTES: Final = 12
"""Of a Parquet file: its mark twice, and the length of its footer."""


@dataclass(frozen=True)
class KeyRows:
    """Finds the rows and quarantined records of one key.

    Attributes:
        key: one row: the primary key columns of a changelog.
        of_record: which raw keys (binary) are that key (boolean); null where nobody can tell.
        finer: columns of the key that files of earlier versions hold with more digits than are declared.
    """

    key: pa.RecordBatch
    of_record: Callable[[pa.Array], pa.Array]
    finer: Mapping[str, LogicalType] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of a file that `among` reads."""
        import pyarrow as pa

        system = rows.system_schema()
        names = (rows.BATCH, rows.KIND, rows.TOPIC, rows.RAW_KEY)
        return pa.schema([*(system.field(name) for name in names), *self.key.schema])

    def among(self, found: pa.RecordBatch, *, upto: int) -> pa.Array:
        """Return a mask (boolean, no nulls) of the rows of the key in batches up to one."""
        import pyarrow.compute as pc

        return pc.and_(self.of_any_batch(found), pc.fill_null(pc.less_equal(found.column(rows.BATCH), upto), False))

    def of_any_batch(self, found: pa.RecordBatch) -> pa.Array:
        """Return a mask (boolean, no nulls) of the rows of the key in any batch."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kinds = found.column(rows.KIND)
        mine = same_keys(with_declared_keys(found.select(self.key.schema.names), self.finer), self.key)
        change = pc.is_in(kinds, value_set=pa.array(rows.CHANGE_KINDS))
        mine = pc.and_(mine, pc.fill_null(change, False))
        quarantined = pc.fill_null(pc.equal(kinds, rows.KIND_QUARANTINED), False)
        if pc.any(quarantined).as_py():
            of_record = pc.fill_null(self.of_record(found.column(rows.RAW_KEY)), False)
            mine = pc.or_(mine, pc.and_(quarantined, of_record))
        return mine

    def untold(self, found: pa.RecordBatch) -> int:
        """Return the number of quarantined records whose key cannot be decoded, so that they may be of any key."""
        import pyarrow.compute as pc

        aside = found.filter(pc.fill_null(pc.equal(found.column(rows.KIND), rows.KIND_QUARANTINED), False))
        return int(self.of_record(aside.column(rows.RAW_KEY)).null_count) if aside.num_rows else 0


def same_keys(found: pa.RecordBatch, key: pa.RecordBatch) -> pa.Array:
    """Return a mask (boolean, no nulls) of the rows equal to one row; columns have the same order and types."""
    import pyarrow as pa
    import pyarrow.compute as pc

    same = pa.repeat(pa.scalar(True), found.num_rows)
    for column, wanted in zip(found.columns, key.columns, strict=True):
        same = pc.and_(same, pc.fill_null(pc.equal(column, wanted[0]), False))
    return same


@dataclass(frozen=True, slots=True)
class HeldRows:
    """The number of rows, quarantined records and deletes that files hold of a key.

    Attributes:
        rows: of batches up to the one that was asked for.
        later: of later batches.
        quarantined: of `rows`, records in quarantine.
        deletes: of `rows`, those that erasures committed.
        untold: records in quarantine whose key cannot be decoded; of any key, this one perhaps.
    """

    rows: int = 0
    later: int = 0
    quarantined: int = 0
    deletes: int = 0
    untold: int = 0

    def __add__(self, other: HeldRows) -> HeldRows:
        return HeldRows(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


def data_files(location: TableLocation) -> list[str]:
    """Every data file in a table's folder, whether the table has it or not."""
    from pyarrow import fs

    system, folder = file_system(location)
    found = system.get_file_info(fs.FileSelector(folder or "/", allow_not_found=True))
    return sorted(item.base_name for item in found if item.is_file and item.base_name.endswith(".parquet"))


def held_rows(location: TableLocation, path: str, key: KeyRows, *, upto: int) -> HeldRows:
    """Reads what a file of a changelog holds of a key; nothing of one that is gone, or was never ended."""
    import pyarrow as pa
    import pyarrow.compute as pc

    held = HeldRows()
    try:
        for batch in read_rows(location, [path], schema=key.schema):
            every = batch.filter(key.of_any_batch(batch))
            mine = every.filter(pc.less_equal(every.column(rows.BATCH), upto))
            held += HeldRows(
                mine.num_rows,
                every.num_rows - mine.num_rows,
                _count(mine.column(rows.KIND), rows.KIND_QUARANTINED),
                _count(mine.column(rows.TOPIC), rows.DELETE_TOPIC),
                key.untold(batch),
            )
    except ChangelogError as error:  # made of what the file system, or Arrow, said
        is_unended_now = isinstance(error.__cause__, pa.ArrowInvalid) and is_unended(location, path)
        if not isinstance(error.__cause__, FileNotFoundError) and not is_unended_now:
            raise
    return held


def _count(values: pa.Array, wanted: str) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(pc.equal(values, wanted)).as_py() or 0)


def is_unended(location: TableLocation, path: str) -> bool:
    """Return whether a file lacks its end: whoever wrote it was killed, or has not come to it. Nobody can read its
    rows.
    """
    system, folder = file_system(location)
    try:
        with system.open_input_file(f"{folder}{path}") as stream:
            size = stream.size()
            return size < _LEAST_BYTES or stream.read_at(4, size - 4) != b"PAR1"
    except FileNotFoundError:
        return False


def erase_rows(store: ChangelogStore, key: KeyRows, *, upto: int) -> tuple[HeldRows, int]:
    """Rewrites the live files that hold a key, in one commit beside whatever is appended meanwhile.

    Args:
        upto: rows of later batches stay.

    Returns:
        What was left out, and of how many files.

    Raises:
        ChangelogError: other runs replaced these files again and again.
    """
    schema = rows.arrow_schema(store.table)
    for _ in range(_ATTEMPTS):
        every = {item.path: held_rows(store.location, item.path, key, upto=upto) for item in store.files()}
        held = [path for path, found in every.items() if found.rows]
        if not held:
            return _sum(every.values()), 0
        kept = _without(store, held, schema, key, upto=upto)
        files = write_rows(kept, location=store.location, schema=schema)
        if store.replace(files, replaced=held):
            return _sum(every.values()), len(held)
    raise ChangelogError(
        f"files of the changelog of '{store.table.name}' were replaced by other runs again and again; run it again when"
        " these have ended"
    )


def _sum(found: Iterable[HeldRows]) -> HeldRows:
    return functools.reduce(operator.add, found, HeldRows())


def _without(
    store: ChangelogStore, paths: Sequence[str], schema: pa.Schema, key: KeyRows, *, upto: int
) -> Iterator[pa.RecordBatch]:
    import pyarrow.compute as pc

    for batch in read_rows(store.location, paths, schema=schema):
        stays = batch.filter(pc.invert(key.among(batch, upto=upto)))
        if stays.num_rows:
            yield stays


def delete_dead_files(store: ChangelogStore, key: KeyRows, *, upto: int) -> int:
    """Deletes the files that hold a key and are not live. Versions of the table before it end there.

    How many they were is returned, without those that held nothing of it but its delete.

    Args:
        upto: a file with rows of the key of later batches may be one that a run is about to commit, and stays.
    """
    live = {item.path for item in store.files()}
    system, folder = file_system(store.location)
    deleted = 0
    for path in data_files(store.location):
        if path in live:
            continue
        found = held_rows(store.location, path, key, upto=upto)
        if found.rows and not found.later:
            with suppress(FileNotFoundError):
                system.delete_file(f"{folder}{path}")
            deleted += found.rows > found.deletes
    return deleted


def still_held(location: TableLocation, key: KeyRows, *, upto: int) -> list[str]:
    """Files in a table's folder that hold a key, live or not, or may hold it, each with how; empty if none does.

    Args:
        upto: the batch of the delete.
    """
    told = []
    for path in data_files(location):
        held = held_rows(location, path, key, upto=upto)
        where = f"{location.uri}/{path}"
        if held.rows:
            told.append(f"{where}: rows of the key ({held.rows}), which a run that has not ended may commit")
        if held.later:
            told.append(
                f"{where}: rows of the key ({held.later}) of later batches: it was produced or replayed while this ran"
            )
        if is_unended(location, path):
            told.append(
                f"{where}: a file without an end, which may hold it: a run is writing it, or was killed; job 'compact'"
                " deletes what killed runs left"
            )
    return told
