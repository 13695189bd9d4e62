"""Profiles of where Spark runs, each with its settings and overrides.

Settings come, each winning over those before, from the profile, from the file that UPSERT_SPARK_SETTINGS names, and
from whoever opens the session (a Spark resource, a run's configuration).
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from upsert_platform.core.errors import EndpointError

PROFILE_VARIABLE: Final = "UPSERT_SPARK_PROFILE"
SETTINGS_VARIABLE: Final = "UPSERT_SPARK_SETTINGS"
"""Names a file in the form of spark-defaults.conf: on each line a name and a value, apart by blanks or ``=``."""
ENVIRONMENT: Final = "environment"
"""The folder into which executors unpack the archive of `upsert-platform package`."""
_SECRET: Final = re.compile(r"secret|password|token|access[.]?key|credential", re.IGNORECASE)


class Profile(StrEnum):
    """A place where Spark runs."""

    LOCAL = "local"
    STANDALONE = "standalone"
    YARN = "yarn"
    KUBERNETES = "kubernetes"
    CONNECT = "connect"


MASTERS: Final[Mapping[Profile, str]] = {
    Profile.LOCAL: "local[N]",
    Profile.STANDALONE: "spark://HOST:7077",
    Profile.YARN: "yarn",
    Profile.KUBERNETES: "k8s://https://HOST:6443",
}
"""The form of `spark.master` in each profile."""
_ON_A_CLUSTER: Final = {
    # Cores decide how work is dealt, so they are counted when most executors are there.
    "spark.scheduler.minRegisteredResourcesRatio": "0.8",
    "spark.submit.deployMode": "client",
}
_OF: Final[Mapping[Profile, Mapping[str, str]]] = {
    Profile.STANDALONE: {},
    Profile.YARN: {"spark.master": "yarn"},
    Profile.KUBERNETES: {"spark.kubernetes.executor.deleteOnTermination": "true"},
}


@dataclass(frozen=True)
class SparkPlace:
    """The place where a session runs.

    Attributes:
        given: settings on top of the profile's, name to value.
    """

    profile: Profile
    given: Mapping[str, str]

    @property
    def is_cluster(self) -> bool:
        """Return whether executors are processes of their own."""
        return self.profile is not Profile.LOCAL

    @property
    def settings(self) -> dict[str, str]:
        """Return the profile's settings merged with the given ones."""
        brought = {**_ON_A_CLUSTER, **_OF.get(self.profile, {})} if self.is_cluster else {}
        return {**brought, **self.given}

    @property
    def master(self) -> str | None:
        """The cluster's master, or None where none is named."""
        return self.settings.get("spark.master")

    @property
    def python(self) -> str:
        """The program that executors run Python with: what is named, the archive's, or this one."""
        named = self.given.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
        if named is None and self.archive is not None:
            return f"./{ENVIRONMENT}/bin/python"
        return named or sys.executable

    @property
    def archive(self) -> str | None:
        """The archive with Python's packages that executors unpack, of those in `spark.archives`."""
        for item in self.given.get("spark.archives", self.given.get("spark.yarn.dist.archives", "")).split(","):
            path, _, folder = item.strip().partition("#")
            if folder == ENVIRONMENT:
                return path
        return None


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as they may be shown."""
    return {name: "***" if _SECRET.search(name) else value for name, value in settings.items()}


def spark_place(settings: Mapping[str, str] | None = None, *, profile: str | None = None) -> SparkPlace:
    """Return the place of Spark: by name, else by UPSERT_SPARK_PROFILE, else by the form of `spark.master`.

    Args:
        settings: on top of those of the file that UPSERT_SPARK_SETTINGS names.

    Raises:
        EndpointError: there is no profile of that name, or the file cannot be read.
    """
    given = {**_settings_of_file(), **(settings or {})}
    named = profile or os.environ.get(PROFILE_VARIABLE)
    return SparkPlace(profile_named(named) if named else profile_of(given.get("spark.master", "local")), given)


def profile_named(name: str) -> Profile:
    """The profile of a name.

    Raises:
        EndpointError: there is none.
    """
    known = [item.value for item in Profile]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise EndpointError(f"there is no Spark profile '{name}'; {hint}Profiles are {', '.join(known)}")
    return Profile(name)


def profile_of(master: str) -> Profile:
    """The profile that a master belongs to."""
    begins = {"spark://": Profile.STANDALONE, "yarn": Profile.YARN, "k8s://": Profile.KUBERNETES}
    return next((found for text, found in begins.items() if master.startswith(text)), Profile.LOCAL)


def _settings_of_file() -> dict[str, str]:
    named = os.environ.get(SETTINGS_VARIABLE)
    if not named:
        return {}
    try:
        lines = Path(named).expanduser().read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise EndpointError(
            f"{SETTINGS_VARIABLE} names {named}, which cannot be read: {type(error).__name__}"
        ) from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.fullmatch(r"\s*(spark\.[^\s=]+)(?:\s*=\s*|\s+)(.*?)\s*", line)
        if match is None:
            raise EndpointError(f"{named}:{number}: a line is a name that begins with 'spark.', and its value")
        found[match[1]] = match[2]
    return found
