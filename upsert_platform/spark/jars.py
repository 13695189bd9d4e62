"""The jars that Spark and the local servers need, fetched once into a cache.

Every jar is named in ``jars.yaml`` with the SHA-256 of its bytes. A set is fetched by the Ivy that PySpark ships, into
a directory of its own named after its content, so that a later start costs a few file look-ups and no network.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from upsert_platform.core.errors import UpsertPlatformError

KAFKA_VERSION = "4.3.1"
KAFKA_VERSION_OLDER = "3.9.1"
REGISTRY_VERSION = "3.0.9"
MYSQL_VERSION = "8.0.31"
MINIMUM_JAVA = 17

_JAVA_REMEDY = f"install Java {MINIMUM_JAVA} or newer (a JRE suffices) and put it on PATH or name it in JAVA_HOME"
_FETCH_SECONDS = 900


class JavaMissingError(UpsertPlatformError):
    """No Java, or one that is too old; the message is one line with the remedy."""


class JarError(UpsertPlatformError):
    """A jar could not be fetched, or is not the one that is pinned."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """One pinned file.

    Attributes:
        coordinates: ``group:name:version``, or with ``:classifier:extension`` behind.
        sha256: hex digest of its bytes.
    """

    coordinates: str
    sha256: str

    @property
    def parts(self) -> tuple[str, str, str, str, str]:
        """Group, name, version, classifier (may be empty), extension."""
        group, name, version, *rest = self.coordinates.split(":")
        classifier, extension = rest if rest else ("", "jar")
        return group, name, version, classifier, extension

    @property
    def file_name(self) -> str:
        _, name, version, classifier, extension = self.parts
        return f"{name}-{version}{'-' if classifier else ''}{classifier}.{extension}"


def kafka_broker_jars(version: str = KAFKA_VERSION) -> list[Path]:
    """The class path of an Apache Kafka broker; versions other than the two pinned ones raise `JarError`."""
    return resolve(f"kafka-{version}")


def registry_archive() -> Path:
    """The archive (tar.gz) of the Apicurio schema registry."""
    return resolve(f"apicurio-registry-{REGISTRY_VERSION}")[0]


def mysql_archive() -> Path:
    """A jar that holds a MySQL server for Linux on x86-64, as the archive ``mysql-Linux-amd64.tar.gz``."""
    return resolve(f"mysql-server-{MYSQL_VERSION}")[0]


def cache_directory() -> Path:
    """``UPSERT_PLATFORM_CACHE``, or ``~/.cache/upsert_platform``."""
    named = os.environ.get("UPSERT_PLATFORM_CACHE")
    return Path(named).expanduser().absolute() if named else Path.home() / ".cache" / "upsert_platform"


def pinned_sets() -> Mapping[str, tuple[Artifact, ...]]:
    """Set name to its artifacts, as ``jars.yaml`` pins them."""
    return _pinned_sets()


@lru_cache(maxsize=1)
def _pinned_sets() -> dict[str, tuple[Artifact, ...]]:
    import yaml

    declared = yaml.safe_load(files("upsert_platform.spark").joinpath("jars.yaml").read_text("utf-8"))
    return {name: tuple(Artifact(*item) for item in pins.items()) for name, pins in declared.items()}


def resolve(name: str) -> list[Path]:
    """The files of a pinned set, fetched when the cache lacks them.

    Processes that need the same set wait for the first one. A set appears in the cache by one rename, so a fetch that
    was killed leaves nothing that looks complete.

    Raises:
        JarError: unknown set, a failed download, or bytes that differ from the pinned ones.
        JavaMissingError: a fetch is needed and there is no Java to run it.
    """
    sets = pinned_sets()
    if name not in sets:
        raise JarError(f"no jars are pinned for '{name}'; pinned are {', '.join(sorted(sets))}")
    artifacts = sets[name]
    digest = hashlib.sha256("\n".join(f"{item.coordinates} {item.sha256}" for item in artifacts).encode()).hexdigest()
    home = cache_directory() / "jars"
    directory = home / f"{name}-{digest[:12]}"
    if not _is_complete(directory, artifacts):
        home.mkdir(parents=True, exist_ok=True)
        with _exclusive(home / f".{directory.name}.lock"):
            if not _is_complete(directory, artifacts):
                _fetch(name, artifacts, directory)
    return [directory / item.file_name for item in artifacts]


def _is_complete(directory: Path, artifacts: tuple[Artifact, ...]) -> bool:
    return all((directory / item.file_name).is_file() for item in artifacts)


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield  # closing the file gives the lock back


def _fetch(name: str, artifacts: tuple[Artifact, ...], directory: Path) -> None:
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{name}-") as scratch:
        staging = Path(scratch) / "files"
        staging.mkdir()
        _run_ivy(name, artifacts, Path(scratch), staging)
        for item in artifacts:
            path = staging / item.file_name
            if not path.is_file():
                raise JarError(f"{item.coordinates} of the set '{name}' was not found in the repository")
            found = hashlib.sha256(path.read_bytes()).hexdigest()
            if found != item.sha256:
                raise JarError(f"{item.coordinates} has SHA-256 {found}, pinned is {item.sha256}; it was not installed")
        if directory.exists():  # a file of it was deleted
            shutil.rmtree(directory)
        staging.rename(directory)


def _run_ivy(name: str, artifacts: tuple[Artifact, ...], scratch: Path, staging: Path) -> None:
    descriptor = scratch / "ivy.xml"
    descriptor.write_text(_ivy_descriptor(artifacts), "utf-8")
    settings = os.environ.get("UPSERT_PLATFORM_IVY_SETTINGS") or str(files("upsert_platform.spark") / "ivysettings.xml")
    command = [
        *(str(java()), "-jar", str(_ivy_jar()), "-settings", settings, "-ivy", str(descriptor)),
        *("-cache", str(scratch / "ivy"), "-confs", "default", "-warn"),
        *("-retrieve", f"{staging}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise JarError(f"fetching '{name}' took longer than {_FETCH_SECONDS} s; {_FETCH_REMEDY}") from None
    if done.returncode != 0:
        raise JarError(f"fetching '{name}' failed: {_ivy_reason(done.stdout + done.stderr)}; {_FETCH_REMEDY}")


_FETCH_REMEDY = (
    "check the network, or name an Ivy settings file with your own repository in UPSERT_PLATFORM_IVY_SETTINGS, then "
    "try again"
)


def _ivy_reason(output: str) -> str:
    for line in output.splitlines():
        text = line.strip(" \t:")
        if re.search(r"not found|FAILED|Exception|UnknownHost|refused|timed out|error", text, re.IGNORECASE):
            return text
    return (output.strip().splitlines() or ["Ivy gave no reason"])[-1].strip()


def _ivy_descriptor(artifacts: tuple[Artifact, ...]) -> str:
    lines = [
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">',
        '<info organisation="upsert_platform" module="jars"/>',
        '<configurations><conf name="default"/></configurations><dependencies>',
    ]
    for item in artifacts:
        group, name, version, classifier, extension = item.parts
        qualifier = f" m:classifier={quoteattr(classifier)}" if classifier else ""
        lines.append(
            f'<dependency org={quoteattr(group)} name={quoteattr(name)} rev={quoteattr(version)} conf="default->*" '
            f'transitive="false"><artifact name={quoteattr(name)} type={quoteattr(extension)} '
            f"ext={quoteattr(extension)}{qualifier}/></dependency>"
        )
    return "\n".join([*lines, "</dependencies></ivy-module>"])


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")  # found without importing it
    places = spec.submodule_search_locations if spec is not None else None
    found = [jar for place in places or () for jar in Path(place).glob("jars/ivy-*.jar")]
    if not found:
        raise JarError("the installed pyspark has no Ivy jar; install the pyspark that the platform pins")
    return found[0]


def java() -> Path:
    """The ``java`` program, from ``JAVA_HOME`` or else ``PATH``.

    Raises:
        JavaMissingError: there is none, or it is older than Java 17.
    """
    return _checked_java(os.environ.get("JAVA_HOME") or None, os.environ.get("PATH", ""))


@lru_cache(maxsize=8)
def _checked_java(java_home: str | None, search_path: str) -> Path:
    if java_home is not None:
        program, origin = Path(java_home) / "bin" / "java", f"JAVA_HOME={java_home}"
        if not os.access(program, os.X_OK):
            raise JavaMissingError(f"{origin} holds no bin/java: {_JAVA_REMEDY}")
    else:
        on_path = shutil.which("java", path=search_path)
        if on_path is None:
            raise JavaMissingError(f"Java was not found: {_JAVA_REMEDY}")
        program, origin = Path(on_path), on_path
    version = re.search(r'(?:version |^JAVA_VERSION=)"(\d+)(?:\.(\d+))?', _told_version(program), re.MULTILINE)
    if version is None:
        raise JavaMissingError(f"{origin} does not tell its version: {_JAVA_REMEDY}")
    major = int(version[2] or 0) if version[1] == "1" else int(version[1])  # Java 8 calls itself 1.8
    if major < MINIMUM_JAVA:
        raise JavaMissingError(f"{origin} is Java {major}: {_JAVA_REMEDY}")
    return program


def _told_version(program: Path) -> str:
    """The file ``release`` of the program's folder, where there is one: starting Java takes a tenth of a second."""
    release = program.resolve().parent.parent / "release"
    if release.is_file():
        return release.read_text("utf-8", "replace")
    done = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    return done.stderr + done.stdout


def _fetch_what_everyone_needs() -> None:
    try:
        kafka_broker_jars()
    except UpsertPlatformError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    _fetch_what_everyone_needs()
