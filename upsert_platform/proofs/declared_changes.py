"""Compares the declarations behind a table with those that are deployed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from upsert_platform.core.model import Insert, Project, Table, shown_option, shown_statement
from upsert_platform.proofs.inputs import queries_of
from upsert_platform.sync.binding import Binding, QuerySource, Target


def declarations_of(target: Target, binding: Binding) -> list[str]:
    """Return the declared tables that a table follows from, itself first, each once."""
    found = [target.table.name]
    if not isinstance(target.source, QuerySource):
        found.append(target.insert.source)
    for name in queries_of(target, binding):
        query = binding.queries[name].query
        found += [table for table in (*query.tables, *query.lookups) if table not in binding.queries]
    return list(dict.fromkeys(found))


def declared_changes(deployed: Project, binding: Binding, target: Target) -> Iterator[str]:
    """Yield what differs in the declarations of a table, of its insert, and of the tables that it reads."""
    project, name = binding.project, target.table.name
    for table in declarations_of(target, binding):
        if table not in project.tables:
            continue
        if table not in deployed.tables:
            yield f"table '{table}' is new"
            continue
        for line in _differences(deployed.tables[table], project.tables[table]):
            yield f"table '{table}': {line}"
    before = [insert for insert in deployed.inserts if insert.target == name]
    now = [insert for insert in project.inserts if insert.target == name]
    if before and list(map(meaning, before)) != list(map(meaning, now)):
        yield f"INSERT INTO {name}: {shown_statement(' '.join(now[0].sql.split())) if now else 'is gone'}"


def meaning(insert: Insert) -> tuple[Any, ...]:
    """Return what an insert computes, however it is written."""
    plan = None if insert.query is None else (insert.query.key, repr(insert.query.plan))
    return insert.source, insert.projections, insert.predicate, insert.overwrite, plan


def column_changes(before: Table, now: Table) -> dict[str, str]:
    """Return what changed of the columns of a table: name to a text that begins with the name."""
    old, new = ({column.name: column for column in table.columns} for table in (before, now))
    found = {name: f"column '{name}' {new[name].type} is added" for name in sorted(new.keys() - old.keys())}
    found |= {name: f"column '{name}' {old[name].type} is removed" for name in sorted(old.keys() - new.keys())}
    for name in sorted(old.keys() & new.keys()):
        if str(old[name].type) != str(new[name].type):
            found[name] = f"column '{name}' is {new[name].type}, and was {old[name].type}"
        elif (old[name].expression, old[name].metadata_key) != (new[name].expression, new[name].metadata_key):
            found[name] = f"column '{name}' is computed otherwise"
    return found


def _differences(before: Table, now: Table) -> Iterator[str]:
    """Yield what differs in the declarations of a table."""
    yield from column_changes(before, now).values()
    for what, one, other in (
        ("primary key", before.primary_key, now.primary_key),
        ("partition columns", before.partitioned_by, now.partitioned_by),
        ("watermark", before.watermark, now.watermark),
    ):
        if one != other:
            yield f"{what} {_shown(other)}, and was {_shown(one)}"
    yield from _options({**before.options, **before.platform}, {**now.options, **now.platform})


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(value)})"
    return str(value) if value is not None else "none"


def _options(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(before.keys() | now.keys()):
        one, other = before.get(name), now.get(name)
        if one == other:
            continue
        old, new = (None if value is None else shown_option(name, value) for value in (one, other))
        yield f"option '{name}' is {_quoted(new)}, and was {_quoted(old)}"


def _quoted(value: str | None) -> str:
    return "not declared" if value is None else f"'{value}'"
