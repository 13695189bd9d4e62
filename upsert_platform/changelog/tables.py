"""Opens, creates and writes the Delta tables of the lake: the one place that knows how its storage is reached.

A lake below a path needs nothing. Behind a URI, delta-rs reads endpoint, region and credentials from the environment of
the process (``AWS_...``, ``AZURE_...``, ``GOOGLE_...``), and from the storage options of a table's location. A location
travels to tasks as part of what they run, which Spark's settings, plans and pages do not show.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from pydantic import SecretStr

from upsert_platform.changelog.damage import RESTORE, naming
from upsert_platform.changelog.path_segment import other_case
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.redaction import remember_settings

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyarrow.fs import FileSystem

StorageOptions = tuple[tuple[str, SecretStr], ...]
"""Options of delta-rs' storage, name and value."""


@dataclass(frozen=True)
class TableLocation:
    """The address of a Delta table and the storage options that reach it.

    Attributes:
        uri: a path, or a URI that delta-rs opens.
    """

    uri: str
    options: StorageOptions = field(default=(), repr=False)

    def __post_init__(self) -> None:
        remember_settings({name: value.get_secret_value() for name, value in self.options})

    @staticmethod
    def of(place: TableLocation | str) -> TableLocation:
        """A location as it is; of a path or URI one without storage options."""
        return TableLocation(place) if isinstance(place, str) else place

    def below(self, name: str) -> TableLocation:
        """A folder of the table."""
        return replace(self, uri=f"{self.uri}/{name}")

    @property
    def path(self) -> str | None:
        """The folder on this machine; None for a store elsewhere."""
        return local_path(self.uri)

    @property
    def storage_options(self) -> dict[str, str] | None:
        """The options as delta-rs takes them, in plain text; None for a path."""
        return None if self.path is not None else {name: value.get_secret_value() for name, value in self.options}


def is_uri(place: str) -> bool:
    """Return whether a place is told by a URI, not by a path."""
    return "://" in place


def local_path(uri: str) -> str | None:
    """The folder that a path or a file URI names; None for a store elsewhere."""
    if not is_uri(uri):
        return uri
    if uri.startswith("file://"):
        return unquote(uri.removeprefix("file://"))
    return None


def _folder(location: TableLocation) -> Path | None:
    """Return the folder of a table on this machine, None for a store elsewhere.

    Raises:
        ChangelogError: the file system does not distinguish case, and the folder is that of another table.
    """
    if location.path is None:
        return None
    folder = Path(location.path)
    there = [item.name for item in folder.parent.iterdir()] if folder.exists() else []
    if (other := other_case(folder.name, there)) is not None:
        raise ChangelogError(
            f"the table at {folder} would be kept in {folder.parent / other}, which is another one's: this file system"
            " does not distinguish upper and lower case. Rename one of the two tables, or keep the lake on a file"
            " system that distinguishes case"
        )
    return folder


def open_table(location: TableLocation) -> DeltaTable | None:
    """The table as it is now, or None where there is none."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    local = _folder(location)
    if local is not None and not (local / "_delta_log").is_dir():
        return None
    try:
        with naming(f"{location.uri}/_delta_log"):
            found = DeltaTable(location.uri, storage_options=location.storage_options)
    except TableNotFoundError:
        return None
    if local is not None:
        _refuse_empty(local / "_delta_log" / f"{found.version():020}.json")
    return found


def _refuse_empty(commit: Path) -> None:
    """Raises ChangelogError for a commit without content, which delta-rs reads as one that changed nothing."""
    if commit.is_file() and commit.stat().st_size == 0:
        raise ChangelogError(
            f"{commit}: the commit is empty, as after a machine that lost power; what it committed is lost. {RESTORE}"
        )


def create_table(location: TableLocation, schema: pa.Schema, configuration: dict[str, str] | None = None) -> None:
    """Creates a table where there is none; of two that do so at once one does, and the other finds it there."""
    from deltalake import CommitProperties, DeltaTable
    from deltalake.exceptions import CommitFailedError

    local = _folder(location)
    try:
        with naming(location.uri, writes=True):
            if local is not None:
                local.mkdir(parents=True, exist_ok=True)
            DeltaTable.create(
                location.uri,
                schema=schema,
                mode="ignore",
                configuration=configuration,
                storage_options=location.storage_options,
                raise_if_key_not_exists=False,
                # The first version or none: a second creation would put its identity over that of the first.
                commit_properties=CommitProperties(max_commit_retries=0),
            )
    except (CommitFailedError, ChangelogError):
        if open_table(location) is None:
            raise


def write_table(
    location: TableLocation, rows: pa.Table, *, mode: Literal["append", "overwrite"], predicate: str | None = None
) -> None:
    """Writes rows in one commit, creating the table where there is none.

    Args:
        predicate: of the rows that an overwrite takes the place of; all of them if None.
    """
    from deltalake import write_deltalake

    local = _folder(location)
    more: dict[str, Any] = {} if predicate is None else {"predicate": predicate}
    with naming(location.uri, writes=True):
        if local is not None:
            local.mkdir(parents=True, exist_ok=True)
        write_deltalake(location.uri, rows, mode=mode, storage_options=location.storage_options, **more)


def file_system(location: TableLocation) -> tuple[FileSystem, str]:
    """Return the file system of a table's files and the prefix of their names in it."""
    from pyarrow import fs

    local = location.path
    if local is not None:
        return fs.LocalFileSystem(), f"{local}/"
    from upsert_platform.changelog.object_files import ObjectFiles

    return fs.PyFileSystem(ObjectFiles(location.uri, options=location.storage_options)), ""


@contextmanager
def creation_lock(location: TableLocation) -> Iterator[None]:
    """Lets one process of a machine create a table; behind a URI the store lets one do so."""
    local = location.path
    if local is None:
        yield
        return
    path = Path(local)
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
