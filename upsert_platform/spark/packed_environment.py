"""An archive with Python and all that tasks import, which executors unpack and run wherever they are.

A virtual environment cannot be moved: its interpreter is a link to that of the machine. So the archive holds the
interpreter itself, its standard library, the platform, and the packages that it needs as they are installed here. Left
out are Spark's jars, which executors have, and what only the driver imports. Executors need the operating system's
libraries of this machine: the same distribution, or a newer release of it, and the same processor.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import Final

from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.packages import installed_extras

_PACKAGE: Final = "upsert-platform"
_DRIVER_ONLY: Final = frozenset({"dagster", "dagster-postgres", "dagster-pyspark", "dagster-webserver"})
"""Requirements whose packages no task imports; what only they need is left out with them."""
_NOT_PACKED: Final = ("pyspark/jars/", "pyspark/examples/", "pyspark/data/", "pyspark/licenses/")
_NOT_OF_THE_LIBRARY: Final = frozenset(
    {"site-packages", "dist-packages", "test", "idlelib", "ensurepip", "tkinter", "turtledemo", "lib2to3", "pydoc_data"}
)
_COMPRESSION: Final = 3
"""Of 1 to 9: archives are sent over a local network, and higher levels take minutes."""
_LAUNCHER: Final = """#!/bin/sh
# Runs the interpreter beside it, with the packages beside it, wherever the archive was unpacked.
here="$(cd "$(dirname "$0")/.." && pwd -P)"
export PYTHONHOME="$here"
export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$here/lib/{name}/site-packages"
export LD_LIBRARY_PATH="$here/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec "$here/bin/{name}" "$@"
"""


class PackingError(UpsertPlatformError):
    """The environment cannot be packed; the message names what is missing."""


@dataclass(frozen=True, slots=True)
class Packed:
    """The result of packing an environment.

    Attributes:
        size: of the archive, in bytes.
    """

    path: Path
    files: int
    distributions: int
    size: int


def pack_environment(path: Path) -> Packed:
    """Writes the archive; one that is there is replaced when the new one is whole.

    Raises:
        PackingError: a package that is needed is not installed, or not by pip.
        OSError: the file cannot be written.
    """
    distributions = needed_distributions()
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    written = path.with_name(f".{path.name}.{os.getpid()}")
    count = 0
    try:
        with tarfile.open(written, "w:gz", compresslevel=_COMPRESSION, format=tarfile.PAX_FORMAT) as archive:
            _add_text(archive, "bin/python", _LAUNCHER.format(name=name))
            seen: set[str] = set()
            for source, target in _files(name, distributions):
                if target not in seen:
                    seen.add(target)
                    archive.add(source, target, recursive=False)
            count = len(seen) + 1
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)
    return Packed(path, count, len(distributions), path.stat().st_size)


def needed_distributions() -> list[metadata.Distribution]:
    """Return the platform and what its tasks need, with the packages of extras, as installed here.

    Raises:
        PackingError: one of them is not installed.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, metadata.Distribution] = {}
    waiting: list[tuple[str, frozenset[str]]] = [(_PACKAGE, installed_extras())]
    met: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        item = waiting.pop()
        if item in met:
            continue
        met.add(item)
        name, extras = item
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            raise PackingError(f"package '{name}' is not installed here, and tasks need it: install it") from None
        found[name] = distribution
        for requirement in map(Requirement, distribution.requires or ()):
            needed = canonicalize_name(requirement.name)
            wanted = requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)
            )
            if wanted and not (name == _PACKAGE and needed in _DRIVER_ONLY):
                waiting.append((needed, frozenset(requirement.extras)))
    return [found[name] for name in sorted(found)]


def _files(name: str, distributions: list[metadata.Distribution]) -> Iterator[tuple[Path, str]]:
    """Every file with its name in the archive."""
    yield from _interpreter(name)
    library = f"lib/{name}"
    for key in ("stdlib", "platstdlib"):
        root = Path(sysconfig.get_path(key, vars={"base": sys.base_prefix, "platbase": sys.base_exec_prefix}))
        for path in _library_files(root):
            yield path, f"{library}/{path.relative_to(root)}"
    packages = f"{library}/site-packages"
    own = Path(__file__).parents[1]
    for path in sorted(own.rglob("*")):
        if path.is_file() and not path.name.endswith((".pyc.tmp", ".jsa")):
            yield path, f"{packages}/{own.name}/{path.relative_to(own)}"
    for distribution in distributions:
        yield from ((path, f"{packages}/{place}") for path, place in _installed_files(distribution))


def _interpreter(name: str) -> Iterator[tuple[Path, str]]:
    program = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    yield program, f"bin/{name}"
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        folder = Path(str(sysconfig.get_config_var("LIBDIR")))
        for key in ("INSTSONAME", "LDLIBRARY"):
            library = folder / str(sysconfig.get_config_var(key))
            if library.is_file():
                yield library.resolve(), f"lib/{library.name}"


def _library_files(root: Path) -> Iterator[Path]:
    for folder, inner, files in os.walk(root):
        inner[:] = sorted(item for item in inner if item not in _NOT_OF_THE_LIBRARY and not item.startswith("config-"))
        yield from (Path(folder, item) for item in sorted(files))


def _installed_files(distribution: metadata.Distribution) -> Iterator[tuple[Path, str]]:
    """Files below site-packages, with compiled ones where there are."""
    if distribution.files is None:
        raise PackingError(
            f"package '{distribution.metadata['Name']}' does not say which files it has: install it by pip, into a"
            " virtual environment"
        )
    for item in distribution.files:
        text = item.as_posix()
        if text.startswith("..") or text.startswith(_NOT_PACKED) or text.endswith(".pth"):
            continue
        path = Path(str(distribution.locate_file(item)))
        if not path.is_file():
            continue
        yield path, text
        if path.suffix == ".py":
            compiled = path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
            if compiled.is_file():
                yield compiled, str(Path(text).parent / "__pycache__" / compiled.name)


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    data = text.encode()
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o755
    archive.addfile(entry, BytesIO(data))
