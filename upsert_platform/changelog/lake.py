"""Locations: the lake with its tables, and the environment file that the local stack writes beside it."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from upsert_platform.changelog.path_segment import path_segment
from upsert_platform.changelog.tables import StorageOptions, TableLocation, is_uri, local_path
from upsert_platform.core.errors import EndpointError

HOME_VARIABLE: Final = "UPSERT_PLATFORM_HOME"
PROJECT_VARIABLE: Final = "UPSERT_PLATFORM_PROJECT"
OPTIONS_VARIABLE: Final = "UPSERT_PLATFORM_LAKE_OPTIONS"
"""Names a file with lines ``name=value``: storage options of a lake behind a URI."""
DEFAULT_HOME: Final = ".upsert_platform"
SET_ASIDE: Final = "reset"
"""Folder of the lake with what resets moved out of the way, a folder per moment."""


def home() -> str:
    """The lake's root: a path made absolute, or a URI as given."""
    value = os.environ.get(HOME_VARIABLE) or DEFAULT_HOME
    return value if is_uri(value) else str(Path(value).expanduser().absolute())


def lake_folder(root: str) -> Path:
    """The folder for what stays on this machine: the lake's root, or that of a lake without a name behind a URI."""
    return Path(DEFAULT_HOME).absolute() if is_uri(root) else Path(root)


def check_writable(root: str) -> None:
    """Refuses a lake below a folder that cannot be written, before anything costly is begun.

    Raises:
        EndpointError: a file cannot be made there. Of a store elsewhere nothing is asked.
    """
    path = local_path(root)
    if path is None:
        return
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise EndpointError(
            f"the lake cannot be written: {path}: {error.strerror or error}. Name a folder that can be written in"
            f" {HOME_VARIABLE}"
        ) from None


@dataclass(frozen=True)
class Lake:
    """The folder below which the platform keeps its Delta tables.

    Attributes:
        root: a path, or a URI that delta-rs opens.
        options: of its storage; `at` reads those that the environment names.
    """

    root: str
    options: StorageOptions = field(default=(), repr=False)

    @staticmethod
    def at(root: str) -> Lake:
        """A lake as the environment describes it: behind a URI with the options of UPSERT_PLATFORM_LAKE_OPTIONS.

        Raises:
            EndpointError: the file of options cannot be read, or a line is not ``name=value``.
        """
        named = os.environ.get(OPTIONS_VARIABLE)
        return Lake(root) if local_path(root) is not None or not named else Lake(root, _read_options(named))

    def changelog(self, table: str) -> TableLocation:
        """The Delta table that holds the changelog of a declared table."""
        return self._table("changelogs", table)

    def databases(self) -> TableLocation:
        """The folder with what servers of databases told of their tables."""
        return self._folder("databases")

    def query(self, query: str) -> TableLocation:
        """The Delta table that holds the result and the state of a query."""
        return self._table("queries", query.removesuffix("$query"))

    def replay(self, table: str, part: str) -> TableLocation:
        """A Delta table of a replay into a new table of that name: its changelog, or its refused rows."""
        return self._table("replays", table, part)

    def replays(self) -> TableLocation:
        """The folder with the tables of replays into new tables."""
        return self._folder("replays")

    def proof(self, table: str, run: str) -> Lake:
        """The lake of a proof of a table: it lasts as long as the proof."""
        return Lake(self._table("proofs", table, run).uri, self.options)

    def proofs(self) -> TableLocation:
        """The folder with the lakes of proofs: below each table one for each run."""
        return self._folder("proofs")

    def set_aside(self) -> TableLocation:
        """The folder with what resets moved out of the way, a folder per moment."""
        return self._folder(SET_ASIDE)

    def erasures(self) -> TableLocation:
        """The Delta table that tells which keys were erased, when and by whom."""
        return self._folder("erasures")

    def paused(self) -> TableLocation:
        """The folder with a file per table that is paused."""
        return self._folder("paused")

    def refused(self, table: str) -> TableLocation:
        """The Delta table that holds rows which a destination refused."""
        return self._table("refused", table)

    def _table(self, kind: str, *names: str) -> TableLocation:
        """The one place where a name becomes part of a path: below the folder of its kind, and in no other table."""
        return self._folder("/".join((kind, *map(path_segment, names))))

    def _folder(self, path: str) -> TableLocation:
        return TableLocation(f"{self.root.rstrip('/')}/{path}", self.options)


def default_lake() -> Lake:
    """The lake that the environment names, with the options of its storage.

    Raises:
        EndpointError: the file of options cannot be read, or a line is not ``name=value``.
    """
    return Lake.at(home())


def _read_options(file: str) -> StorageOptions:
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
        found.append((name.strip(), SecretStr(value.strip())))
    return tuple(found)


def project_path() -> Path:
    """The project folder: UPSERT_PLATFORM_PROJECT, or the demo project that ships with the package."""
    value = os.environ.get(PROJECT_VARIABLE)
    return Path(value).expanduser() if value else Path(__file__).parent.parent / "demo" / "project"


def local_variables(root: str) -> dict[str, str]:
    """KEY=VALUE lines of the environment file that ``local up`` writes for its default folder, if there is one."""
    path = lake_folder(root) / "local" / "local.env"
    if not path.is_file():
        return {}
    pairs = (line.split("=", 1) for line in path.read_text("utf-8").splitlines() if "=" in line and line[0] != "#")
    return {name.strip(): value.strip() for name, value in pairs}
