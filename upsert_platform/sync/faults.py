"""The assignment of a project's errors to tables, so that the others go on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from upsert_platform.core.errors import DeclarationError, Problem
from upsert_platform.core.model import Project

PROJECT: Final = ""
"""Stands for errors that belong to no declared table."""
_NAMED: Final = re.compile(r"(?:^|[^\w])(?:table|INSERT INTO|INSERT OVERWRITE) '?([^\s':]+)'?:")
T = TypeVar("T")


def faults_of(project: Project, problems: Iterable[Problem]) -> dict[str, tuple[Problem, ...]]:
    """Table to its errors; those that name none are under `PROJECT`.

    An error belongs to the table that its message names, else to the one that declares something where it stands. It
    never belongs to a neighbour: a statement that cannot be read may be of any table.
    """
    places = {table.location: name for name, table in project.tables.items()}
    for name, table in project.tables.items():
        places |= {place: name for option in table.options if (place := table.options.location(option)) is not None}
        places |= {column.location: name for column in table.columns if column.location is not None}
    places |= {insert.location: insert.target for insert in project.inserts}
    found: dict[str, list[Problem]] = {}
    for problem in problems:
        if problem.severity != "error":
            continue
        named = _NAMED.search(problem.message)
        name = named[1] if named is not None and named[1] in project.tables else PROJECT
        if name == PROJECT and problem.location is not None:
            name = places.get(problem.location, PROJECT)
        found.setdefault(name, []).append(problem)
    return {name: tuple(items) for name, items in found.items()}


class Sound(dict[str, T]):
    """The usable part of a project, by name; access to another name raises its problem.

    Args:
        faults: as `faults_of` returns them.
        reads: table that is written to those that it reads.
    """

    def __init__(
        self,
        values: Mapping[str, T],
        faults: Mapping[str, tuple[Problem, ...]],
        reads: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        super().__init__({name: value for name, value in values.items() if name not in faults})
        self._faults = faults
        self._reads = reads or {}

    def __missing__(self, name: str) -> T:
        """Raises why a name is not there.

        Raises:
            DeclarationError: its declaration, or that of a table that it reads, has errors.
            KeyError: nobody declares it.
        """
        names = (name, *self._reads.get(name, ()))
        errors = [problem for item in names for problem in self._faults.get(item, ())]
        if not (errors or self._faults):
            raise KeyError(name)
        raise DeclarationError(errors or [problem for items in self._faults.values() for problem in items])
