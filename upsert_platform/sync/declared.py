"""A project as a code location shows it: read without secrets, with what is wrong beside what can be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from upsert_platform.changelog.lake import Lake
from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Project, Table
from upsert_platform.declarations.pipeline_source import AskedSource
from upsert_platform.sync.binding import bind_sound, load
from upsert_platform.sync.databases import describe
from upsert_platform.sync.endpoints import Endpoints
from upsert_platform.sync.faults import faults_of


@dataclass(frozen=True)
class Declared:
    """A project that may have errors, and variables that nobody sets where it is loaded.

    Attributes:
        faults: table to its errors; those of no table under `faults.PROJECT`.
        unset: names of variables that nobody sets here; the run that needs them refuses what they are part of.
    """

    project: Project
    faults: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    unset: tuple[str, ...] = ()


def declared(
    folder: Path,
    *,
    lake: Lake,
    endpoints: Endpoints,
    defaults: Mapping[str, Mapping[str, str]],
    discovered: Mapping[str, str] | None = None,
) -> Declared:
    """Reads a project folder for a code location.

    Tables of databases are those that the server told last: each run, and `upsert-platform validate`, asks it again.

    Args:
        endpoints: what resources are given.
        defaults: connector to options that complete its tables.
        discovered: further declarations, as `load_project` takes them.
    """

    def told(asked: AskedSource) -> tuple[list[Table], list[Problem]]:
        return describe(asked, lake=lake, kept=True)

    project, problems = load(folder, root=lake.root, endpoints=endpoints, lake=lake, ask=told, discovered=discovered)
    bound = bind_sound(project, problems, defaults=defaults)
    errors = [problem for problem in bound.errors if not problem.variable]
    unset = dict.fromkeys(problem.variable for problem in bound.errors if problem.variable)
    return Declared(bound.project, faults_of(bound.project, errors), tuple(unset))
