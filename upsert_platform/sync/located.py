"""Projects as commands read them: a folder, with what the resources of a code location give its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from upsert_platform.changelog.lake import Lake
from upsert_platform.core.errors import DeclarationError, Problem
from upsert_platform.core.model import Project
from upsert_platform.sync.binding import Binding, bind, load
from upsert_platform.sync.endpoints import Endpoints
from upsert_platform.sync.faults import Sound


@dataclass(frozen=True)
class LocatedProject:
    """A project folder.

    Attributes:
        folder: that of the environment, or the demo, if None.
        lake: that of the environment if None.
        defaults: connector to options that complete its tables; those of the environment if None.
        discovered: file name to declarations of topics that were discovered.
    """

    folder: Path | None
    lake: Lake | None = None
    endpoints: Endpoints | None = None
    defaults: Mapping[str, Mapping[str, str]] | None = field(default=None, repr=False)
    discovered: Mapping[str, str] | None = field(default=None, repr=False)

    def load(self, **given: Any) -> tuple[Project, list[Problem]]:
        """Return its declarations, and the problems of their texts; further arguments are those of `binding.load`."""
        root = self.lake.root if self.lake is not None else None
        return load(
            self.folder, root=root, endpoints=self.endpoints, lake=self.lake, discovered=self.discovered, **given
        )

    def at(self, folder: Path) -> LocatedProject:
        """Return the project of another folder, completed by the same resources."""
        return replace(self, folder=folder)

    def bind(self, project: Project, problems: list[Problem]) -> Binding:
        """Join its declarations to their connectors, as `binding.bind` does."""
        return bind(project, problems, defaults=self.defaults)


def joined(bindings: Sequence[Binding]) -> Binding:
    """Return several projects as one.

    Raises:
        DeclarationError: two of them declare a table of the same name.
    """
    if len(bindings) == 1:
        return bindings[0]
    tables: dict[str, Any] = {}
    for binding in bindings:
        for name, table in binding.project.tables.items():
            if name in tables:
                folders = " and ".join(item.project.path for item in bindings if name in item.project.tables)
                told = (
                    f"table '{name}' is declared in {folders}, which are of one code location: name one with --project"
                )
                raise DeclarationError([Problem(told, table.location)])
            tables[name] = table
    inserts = tuple(insert for binding in bindings for insert in binding.project.inserts)
    return Binding(
        replace(bindings[0].project, tables=tables, inserts=inserts),
        _merged(binding.sources for binding in bindings),
        _merged(binding.targets for binding in bindings),
        tuple(problem for binding in bindings for problem in binding.warnings),
        _merged(binding.queries for binding in bindings),
        _merged(binding.key_readers for binding in bindings),
    )


def _merged(found: Any) -> Sound[Any]:
    return Sound({name: item for part in found for name, item in part.items()}, {})
