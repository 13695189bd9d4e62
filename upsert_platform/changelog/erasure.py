"""Takes the rows of one key out of a changelog for good: out of its live files, and out of every other file there.

A file that is not live is one that a compaction or an erasure replaced, or one that a killed run left. It may belong to
a run that has not ended, too: the commit of that run would be of a batch that is there by now, or in the place of a
file that is gone, so it cannot come any more. Files with rows of later batches are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import read_rows, write_here
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.tables import TableLocation, file_system
from upsert_platform.errors import ChangelogError

if TYPE_CHECKING:
    import pyarrow as pa

_ATTEMPTS: Final = 5
"""How often files are rewritten anew when another run replaced them meanwhile."""


@dataclass(frozen=True)
class KeyRows:
    """Tells the rows of one key, and the quarantined records of it.

    Attributes:
        key: one row: the primary key columns of a changelog.
        of_record: which raw keys (binary) are that key (boolean, no nulls).
    """

    key: pa.RecordBatch
    of_record: Callable[[pa.Array], pa.Array]

    @property
    def schema(self) -> pa.Schema:
        """What `among` needs of a file."""
        import pyarrow as pa

        system = rows.system_schema()
        return pa.schema([*(system.field(name) for name in (rows.BATCH, rows.KIND, rows.RAW_KEY)), *self.key.schema])

    def among(self, found: pa.RecordBatch, *, upto: int) -> pa.Array:
        """Which rows are those of the key, of batches up to one (boolean, no nulls)."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kinds = found.column(rows.KIND)
        mine = same_keys(found.select(self.key.schema.names), self.key)
        change = pc.is_in(kinds, value_set=pa.array(rows.CHANGE_KINDS))
        mine = pc.and_(mine, pc.fill_null(change, False))
        quarantined = pc.fill_null(pc.equal(kinds, rows.KIND_QUARANTINED), False)
        if pc.any(quarantined).as_py():
            mine = pc.or_(mine, pc.and_(quarantined, self.of_record(found.column(rows.RAW_KEY))))
        return pc.and_(mine, pc.fill_null(pc.less_equal(found.column(rows.BATCH), upto), False))


def same_keys(found: pa.RecordBatch, key: pa.RecordBatch) -> pa.Array:
    """Which rows have the values of one row (boolean, no nulls): columns in the same order, of the same types."""
    import pyarrow as pa

    wanted = tuple(column[0].as_py() for column in key.columns)
    if any(value is None for value in wanted):
        return pa.array([False] * found.num_rows, pa.bool_())
    values = zip(*(column.to_pylist() for column in found.columns), strict=True)
    return pa.array([row == wanted for row in values], pa.bool_())


@dataclass(frozen=True, slots=True)
class HeldRows:
    """What a file holds of a key.

    Attributes:
        rows: of batches up to the one that was asked for.
        later: of later batches.
        quarantined: of `rows`, records in quarantine.
    """

    rows: int = 0
    later: int = 0
    quarantined: int = 0


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

    count = every = quarantined = 0
    try:
        for batch in read_rows(location, [path], schema=key.schema):
            mine = key.among(batch, upto=upto)
            count += int(pc.sum(mine).as_py() or 0)
            every += int(pc.sum(key.among(batch, upto=1 << 62)).as_py() or 0)
            aside = pc.and_(mine, pc.equal(batch.column(rows.KIND), rows.KIND_QUARANTINED))
            quarantined += int(pc.sum(aside).as_py() or 0)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        if isinstance(error, pa.ArrowInvalid) and not _is_unended(location, path):
            raise
    return HeldRows(count, every - count, quarantined)


def _is_unended(location: TableLocation, path: str) -> bool:
    """Whether a file lacks its end: whoever wrote it was killed, or has not come to it. Nobody can read its rows."""
    system, folder = file_system(location)
    with system.open_input_file(f"{folder}{path}") as stream:
        size = stream.size()
        return size < 8 or stream.read_at(4, size - 4) != b"PAR1"


def erase_rows(store: ChangelogStore, key: KeyRows, *, upto: int) -> tuple[int, int]:
    """Rewrites the live files that hold a key, in one commit beside whatever is appended meanwhile.

    Args:
        upto: rows of later batches stay.

    Returns:
        How many rows were left out, and of how many files.

    Raises:
        ChangelogError: other runs replaced these files again and again.
    """
    schema = rows.arrow_schema(store.table)
    for _ in range(_ATTEMPTS):
        live = [item.path for item in store.files()]
        held = {path: found.rows for path in live if (found := held_rows(store.location, path, key, upto=upto)).rows}
        if not held:
            return 0, 0
        kept = _without(store, list(held), schema, key, upto=upto)
        files = write_here(kept, location=store.location, schema=schema)
        if store.replace(files, replaced=list(held)):
            return sum(held.values()), len(held)
    raise ChangelogError(
        f"files of the changelog of '{store.table.name}' were replaced by other runs again and again; run it again when"
        " these have ended"
    )


def _without(
    store: ChangelogStore, paths: Sequence[str], schema: pa.Schema, key: KeyRows, *, upto: int
) -> Iterator[pa.RecordBatch]:
    import pyarrow.compute as pc

    for batch in read_rows(store.location, paths, schema=schema):
        stays = batch.filter(pc.invert(key.among(batch, upto=upto)))
        if stays.num_rows:
            yield stays


def delete_dead_files(store: ChangelogStore, key: KeyRows, *, upto: int) -> int:
    """Deletes the files that hold a key and are not live; how many. Versions of the table before it end there.

    Args:
        upto: a file with rows of the key of later batches may be one that a run is about to commit, and stays.
    """
    live = {item.path for item in store.files()}
    system, folder = file_system(store.location)
    deleted = 0
    for path in data_files(store.location):
        if path in live:
            continue
        if _is_broken(store.location, path):
            continue
        found = held_rows(store.location, path, key, upto=upto)
        if found.rows and not found.later:
            with suppress(FileNotFoundError):
                system.delete_file(f"{folder}{path}")
            deleted += 1
    return deleted


def _is_broken(location: TableLocation, path: str) -> bool:
    try:
        return _is_unended(location, path)
    except FileNotFoundError:
        return True


def still_held(location: TableLocation, key: KeyRows, *, upto: int) -> Mapping[str, int]:
    """Files in a table's folder that hold a key, live or not, and how many of its rows."""
    found = {path: held_rows(location, path, key, upto=upto).rows for path in data_files(location)}
    return {path: count for path, count in found.items() if count}
