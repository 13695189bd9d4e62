"""The lake: whether its folder can be written, and whether of two commits of one version just one is made."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from upsert_platform.changelog.damage import RESTORE, naming
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.live_files import live_files
from upsert_platform.changelog.parquet_files import open_parquet
from upsert_platform.changelog.tables import TableLocation, create_table, file_system
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.source import Source
from upsert_platform.sync.binding import Binding, changelog_of
from upsert_platform.sync.checkups.finding import Check, Finding, State

_ROUNDS: Final = 5
_AT_ONCE: Final = 4
_REMEDY: Final = (
    "check UPSERT_PLATFORM_HOME, the rights of the folder or bucket, and the store's credentials"
    " (UPSERT_PLATFORM_LAKE_OPTIONS)"
)
_LOOK: Final = f"look at the folder that is named; {RESTORE}"
_READ_BYTES: Final = 256 << 20
"""Of the files of a changelog that are read whole; of all others the footer is."""
_NOT_ATOMIC: Final = (
    "keep the lake in a store that creates a name once: a local or shared POSIX file system, or object storage with"
    " conditional puts (If-None-Match)"
)


def lake_check(lake: Lake) -> Check:
    """Writes a table of its own below the root and removes it again."""
    return Check("lake", lake.root, partial(_lake, lake), _REMEDY)


def changelog_checks(binding: Binding, lake: Lake) -> list[Check]:
    """One check per changelog: its log, and the data files that count."""
    return [
        Check("changelog", source.table.name, partial(_changelog, source, lake), _LOOK)
        for source in binding.sources.values()
    ]


def _changelog(source: Source, lake: Lake) -> Iterator[Finding]:
    """Opens a changelog, every commit that is still in its log, and every live file; reads files up to a bound."""
    store = changelog_of(source, lake)
    head = store.head()
    if head is None:
        yield Finding("changelog", source.table.name, State.OK, "is not there yet; the first sync makes it")
        return
    files = live_files(store.opened())
    wrong = [text for text in _damaged(store.location, [item.path for item in files]) if text]
    for text in wrong:
        yield Finding("changelog", source.table.name, State.FAULT, text)
    if not wrong:
        told = f"batch {head.batch}; its log and {len(files)} live file(s) can be read"
        yield Finding("changelog", source.table.name, State.OK, told)


def _damaged(location: TableLocation, paths: list[str]) -> Iterator[str]:
    """Yield one text per damaged commit or file."""
    from pyarrow import fs

    system, folder = file_system(location)
    for item in system.get_file_info(fs.FileSelector(f"{folder}_delta_log", allow_not_found=True)):
        if item.path.endswith(".json") and item.size == 0:
            yield f"{item.path}: the commit is empty, as after a machine that lost power; {RESTORE}"
    left = _READ_BYTES
    for path in paths:
        try:
            with naming(f"{location.uri}/{path}"), system.open_input_file(f"{folder}{path}") as stream:
                file = open_parquet(stream)
                if (left := left - stream.size()) >= 0:
                    for _ in file.iter_batches():
                        pass
        except ChangelogError as error:
            yield str(error)


def _lake(lake: Lake) -> Iterator[Finding]:
    from deltalake.exceptions import DeltaError

    root = lake.root
    place = TableLocation(f"{root.rstrip('/')}/.doctor-{uuid.uuid4().hex}", lake.options)
    try:
        try:
            winners = races(committer(place))
        finally:
            _remove(place)
    except (OSError, DeltaError) as error:
        yield Finding("lake", root, State.FAULT, f"cannot be written: {type(error).__name__}: {error}", _REMEDY)
        return
    wrong = [number for number in winners if number != 1]
    if wrong:
        told = (
            f"of {_AT_ONCE} commits of one version at once {wrong[0]} were made: runs would lose each other's batches"
        )
        yield Finding("lake", root, State.FAULT, told, _NOT_ATOMIC)
    else:
        yield Finding("lake", root, State.OK, "can be written; of commits of one version at once just one is made")


def races(create: Callable[[int], bool], *, rounds: int = _ROUNDS, at_once: int = _AT_ONCE) -> list[int]:
    """Return how many of several simultaneous creations of one name succeeded per round; 1 is correct.

    Args:
        create: creates the name of a round; whether this call created it.
    """
    barrier = threading.Barrier(at_once)

    def one(number: int) -> bool:
        barrier.wait(60)
        return create(number)

    with ThreadPoolExecutor(at_once) as threads:
        return [sum(threads.map(one, [number] * at_once)) for number in range(rounds)]


def committer(place: TableLocation) -> Callable[[int], bool]:
    """A function that commits version ``number + 1`` of a new table; False where another has made it."""
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from deltalake.exceptions import CommitFailedError

    create_table(place, pa.schema([pa.field("n", pa.int64())]))

    def commit(number: int) -> bool:
        table = DeltaTable(place.uri, version=number, storage_options=place.storage_options)
        try:
            table.create_write_transaction(
                [], mode="append", schema=table.schema(), commit_properties=CommitProperties(max_commit_retries=0)
            )
        except CommitFailedError:
            return False
        return True

    return commit


def _remove(place: TableLocation) -> None:
    if place.path is not None:
        shutil.rmtree(place.path, ignore_errors=True)
        return
    from pyarrow import fs

    system, folder = file_system(place)
    for item in system.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True)):
        if item.type is fs.FileType.File:
            system.delete_file(item.path)
