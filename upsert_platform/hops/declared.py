"""A project as a code location shows it: read without secrets, with what is wrong beside what can be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from upsert_platform.changelog.lake import Lake
from upsert_platform.declarations.pipeline_source import AskedSource
from upsert_platform.errors import Problem
from upsert_platform.hops.binding import bind_sound, load
from upsert_platform.hops.databases import describe
from upsert_platform.hops.endpoints import Endpoints
from upsert_platform.hops.faults import faults_of
from upsert_platform.model import Project, Table


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


def declared(folder: Path, *, lake: Lake, endpoints: Endpoints, defaults: Mapping[str, Mapping[str, str]]) -> Declared:
    """Reads a project folder for a code location.

    Tables of databases are those that the server told last: each run, and `upsert-platform validate`, asks it again.

    Args:
        endpoints: what resources are given.
        defaults: connector to options that complete its tables.
    """

    def told(asked: AskedSource) -> tuple[list[Table], list[Problem]]:
        return describe(asked, lake=lake, kept=True)

    project, problems = load(folder, root=lake.root, endpoints=endpoints, lake=lake, ask=told)
    bound = bind_sound(project, problems, defaults=defaults)
    errors = [problem for problem in bound.errors if not problem.variable]
    unset = dict.fromkeys(problem.variable for problem in bound.errors if problem.variable)
    return Declared(bound.project, faults_of(bound.project, errors), tuple(unset))
