"""Opens, creates and writes the Delta tables of the lake: the one place that knows how its storage is reached.

A lake below a path needs nothing. Behind a URI, delta-rs reads endpoint, region and credentials from the environment of
the process (``AWS_...``, ``AZURE_...``, ``GOOGLE_...``), and from the file that UPSERT_PLATFORM_LAKE_OPTIONS names:
lines ``name=value`` of its storage options. The file has to be there, under the same name, for Spark's workers too; so
no secret passes through Spark, its settings or its pages.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote

from upsert_platform.errors import EndpointError

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyarrow.fs import FileSystem

OPTIONS_VARIABLE: Final = "UPSERT_PLATFORM_LAKE_OPTIONS"


def storage_options(uri: str) -> dict[str, str] | None:
    """Options for delta-rs; None for a path, and where no file is named.

    Raises:
        EndpointError: the file cannot be read, or a line is not ``name=value``.
    """
    named = os.environ.get(OPTIONS_VARIABLE)
    return None if local_path(uri) is not None or not named else dict(_read_options(named))


@lru_cache(maxsize=4)
def _read_options(file: str) -> tuple[tuple[str, str], ...]:
    try:
        lines = Path(file).expanduser().read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise EndpointError(f"{OPTIONS_VARIABLE} names {file}, which cannot be read: {type(error).__name__}") from None
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise EndpointError(f"{file}:{number}: a line is name=value, an option of delta-rs' storage")
        found.append((name.strip(), value.strip()))
    return tuple(found)


def local_path(uri: str) -> str | None:
    """The folder that a path or a file URI names; None for a store elsewhere."""
    if "://" not in uri:
        return uri
    if uri.startswith("file://"):
        return unquote(uri.removeprefix("file://"))
    return None


def open_table(uri: str) -> DeltaTable | None:
    """The table as it is now, or None where there is none."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    local = local_path(uri)
    if local is not None and not Path(local, "_delta_log").is_dir():
        return None
    try:
        return DeltaTable(uri, storage_options=storage_options(uri))
    except TableNotFoundError:
        return None


def create_table(uri: str, schema: pa.Schema, configuration: dict[str, str] | None = None) -> None:
    """Creates a table where there is none; of two that do so at once one does, and the other finds it there."""
    from deltalake import CommitProperties, DeltaTable
    from deltalake.exceptions import CommitFailedError, DeltaError

    local = local_path(uri)
    if local is not None:
        Path(local).mkdir(parents=True, exist_ok=True)
    try:
        DeltaTable.create(
            uri,
            schema=schema,
            mode="ignore",
            configuration=configuration,
            storage_options=storage_options(uri),
            raise_if_key_not_exists=False,
            # The first version or none: a second creation would put its identity over that of the first.
            commit_properties=CommitProperties(max_commit_retries=0),
        )
    except (CommitFailedError, DeltaError):
        if open_table(uri) is None:
            raise


def write_table(
    uri: str, rows: pa.Table, *, mode: Literal["append", "overwrite"], predicate: str | None = None
) -> None:
    """Writes rows in one commit, creating the table where there is none.

    Args:
        predicate: of the rows that an overwrite takes the place of; all of them if None.
    """
    from deltalake import write_deltalake

    local = local_path(uri)
    if local is not None:
        Path(local).mkdir(parents=True, exist_ok=True)
    more: dict[str, Any] = {} if predicate is None else {"predicate": predicate}
    write_deltalake(uri, rows, mode=mode, storage_options=storage_options(uri), **more)


def file_system(uri: str) -> tuple[FileSystem, str]:
    """Where files of a table are written and read, and what their names are prefixed with there."""
    from pyarrow import fs

    local = local_path(uri)
    if local is not None:
        return fs.LocalFileSystem(), f"{local}/"
    from deltalake.fs import DeltaStorageHandler

    return fs.PyFileSystem(DeltaStorageHandler(uri, options=storage_options(uri))), ""
