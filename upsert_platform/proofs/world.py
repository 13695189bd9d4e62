"""The world of a plan: the declarations, the heads of the lake and the positions of the tables that it was made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from typing import Any, Self

from upsert_platform.changelog.lake import Lake
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.model import Table, is_secret_option
from upsert_platform.engine.store import QueryStore
from upsert_platform.proofs.declared_changes import declarations_of, meaning
from upsert_platform.proofs.inputs import queries_of
from upsert_platform.sync.binding import Binding, Target


@dataclass(frozen=True)
class Position:
    """A batch of a changelog, or of the result of a query; empty before the first.

    Attributes:
        commit: identity of its commit.
    """

    changelog: str = ""
    batch: int = 0
    commit: str = ""

    def __str__(self) -> str:
        return f"batch {self.batch} of commit '{self.commit}'" if self.batch else "no batch"


@dataclass(frozen=True)
class World:
    """The declarations and positions that a plan depends on.

    Attributes:
        declarations: table that an insert writes to a digest of the declarations behind it.
        lake: changelog or query to its head; one that does not fit its declaration is left out.
        tables: table that an insert writes to its applied batch; a table that cannot be asked is left out.
    """

    declarations: Mapping[str, str]
    lake: Mapping[str, Position]
    tables: Mapping[str, Position]

    def data(self) -> dict[str, Any]:
        """Return the form in JSON."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """Return the inverse of `data`.

        Raises:
            KeyError, TypeError: it is no such form.
        """
        lake, tables = ({name: Position(**item) for name, item in data[part].items()} for part in ("lake", "tables"))
        return cls(dict(data["declarations"]), lake, tables)


def world_of(binding: Binding, lake: Lake, tables: Sequence[str]) -> World:
    """Return where the lake and the tables are now. No JVM."""
    heads: dict[str, Position] = {}
    positions: dict[str, Position] = {}
    for name in tables:
        target = binding.targets[name]
        for read in _read(target, binding):
            with suppress(UpsertPlatformError):  # the plan refuses a table whose changelog does not fit
                heads[read] = heads.get(read) or _head(read, binding, lake)
        with suppress(UpsertPlatformError), closing(target.open()) as destination:
            state = destination.state()
            positions[name] = Position(state.changelog_id, state.applied_batch, state.commit)
    return World({name: _digest(binding.targets[name], binding) for name in tables}, heads, positions)


def _read(target: Target, binding: Binding) -> Iterator[str]:
    """Yield the changelogs and queries behind a table."""
    queries = queries_of(target, binding)
    yield from queries
    for name in queries:
        yield from (table for table in binding.queries[name].query.tables if table not in binding.queries)
    if not queries:
        yield target.insert.source


def _head(name: str, binding: Binding, lake: Lake) -> Position:
    if name in binding.queries:
        query = binding.queries[name].query
        head = QueryStore(lake.query(name), query, any_plan=True).head()
    else:
        head = binding.changelog(name, lake).head()
    return Position() if head is None or not head.batch else Position(head.changelog_id, head.batch, head.run)


def _digest(target: Target, binding: Binding) -> str:
    """Return the identity of the declarations behind a table; values of secret options are no part of it."""
    project = binding.project
    tables = [_told(project.tables[name]) for name in declarations_of(target, binding) if name in project.tables]
    text = json.dumps([tables, repr(meaning(target.insert))], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _told(table: Table) -> list[Any]:
    columns = [
        [item.name, str(item.type), item.kind.value, item.metadata_key, item.virtual, item.expression]
        for item in table.columns
    ]
    options = {name: value for name, value in {**table.options, **table.platform}.items() if not is_secret_option(name)}
    return [table.name, columns, table.primary_key, table.partitioned_by, table.watermark, sorted(options.items())]


def moved(before: World, now: World, *, own: str) -> Iterator[str]:
    """Yield what is not where a plan saw it, in words.

    Args:
        own: the beginning of the names of commits that the plan itself has made: an apply that was killed goes on.
    """
    for name, digest in before.declarations.items():
        if now.declarations.get(name) != digest:
            yield f"the declarations behind table '{name}' are others"
    for name, position in before.lake.items():
        found = now.lake.get(name, Position())
        if found != position and not found.commit.startswith(own):
            yield f"'{name}' of the lake was at {position}, and is at {found}"
    for name, position in before.tables.items():
        found = now.tables.get(name, Position())
        # A table at a head that its plan leads to was written by it already.
        written = found.commit.startswith(own) or (not position.batch and found in before.lake.values())
        if found != position and not written:
            yield f"table '{name}' had applied {position}, and has applied {found}"
