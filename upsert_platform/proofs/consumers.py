"""The consumers of a table whose rows or declaration change, by the lineage of its columns.

They are the tables of the project that are made of it, by its topic or by look-ups, and those of other teams that its
contracts name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from upsert_platform.core.contracts import contracts_of
from upsert_platform.core.model import Insert, Project, Table
from upsert_platform.proofs.declared_changes import column_changes
from upsert_platform.sync.column_lineage import columns_read, lineage_of_insert
from upsert_platform.sync.connectors import topic_writers


@dataclass(frozen=True)
class Consumer:
    """A reader of what changes.

    Attributes:
        name: of a table that an insert writes, or the consumer of a contract.
        via: the declared table by which it reads; the changed table itself in a contract.
        reads: columns that it reads and that change.
        columns: its own columns that are made of those.
        breaks: why it cannot go on as it is; empty where it can.
    """

    name: str
    via: str
    reads: tuple[str, ...]
    columns: tuple[str, ...] = ()
    breaks: str = ""


@dataclass(frozen=True)
class Change:
    """The change of a table, as its consumers meet it.

    Attributes:
        columns: whose values change.
        stops: why no row of the table is written any more; empty where rows are written.
    """

    table: str
    columns: frozenset[str]
    stops: str = ""


def consumers_of(change: Change, project: Project, deployed: Project | None) -> list[Consumer]:
    """Return the consumers of a change, those that read it first before those that follow from them.

    Args:
        deployed: the project as it is deployed, whose columns and contracts consumers rely on.
    """
    before = None if deployed is None else deployed.tables.get(change.table)
    now = project.tables.get(change.table)
    broken = _broken(before, now)
    found = list(_by_contract(change, [table for table in (now, before) if table is not None], broken))
    found += _by_lineage(change, project, broken)
    return found


def _broken(before: Table | None, now: Table | None) -> dict[str, str]:
    """Return the columns on which nobody can rely as before, to the reason; "" is the reason for all of them."""
    if before is None or now is None:
        return {}
    added = {column.name for column in now.columns} - {column.name for column in before.columns}
    found = {name: text for name, text in column_changes(before, now).items() if name not in added}
    if before.primary_key != now.primary_key:
        found[""] = f"the key is ({', '.join(now.primary_key)}), and was ({', '.join(before.primary_key)})"
    return found


def _by_contract(change: Change, tables: Collection[Table], broken: dict[str, str]) -> Iterator[Consumer]:
    seen = set[str]()
    for table in tables:
        for contract in contracts_of(table):
            columns = contract.column_names
            reads = tuple(name for name in columns if name in change.columns or name in broken)
            if contract.consumer in seen or not (reads or change.stops):
                continue
            seen.add(contract.consumer)
            breaks = change.stops or _reason(broken, reads)
            yield Consumer(contract.consumer, change.table, reads, breaks=breaks)


def _by_lineage(change: Change, project: Project, broken: dict[str, str]) -> Iterator[Consumer]:
    waiting, seen = [(change, broken)], {change.table}
    while waiting:
        current, lost = waiting.pop(0)
        for via, insert in _readers(current.table, project):
            target = project.tables[insert.target]
            reads, columns = _reached(insert, target, via, current, lost)
            if insert.target in seen or not (reads or current.stops):
                continue
            seen.add(insert.target)
            yield Consumer(insert.target, via, reads, columns, current.stops or _reason(lost, reads))
            waiting.append((Change(insert.target, frozenset(columns)), {}))


def _readers(table: str, project: Project) -> Iterator[tuple[str, Insert]]:
    """Yield the inserts that read what a table holds, with the declared table by which they do."""
    read_as = [name for name, writers in topic_writers(project).items() if table in writers]
    for insert in project.inserts:
        lookups = insert.query.lookups if insert.query is not None else ()
        for via in (*(name for name in read_as if name in _tables(insert, project)), *lookups):
            if via in read_as or via == table:
                yield via, insert


def _tables(insert: Insert, project: Project) -> set[str]:
    """Return every table and query that an insert follows from, by the queries between."""
    queries = {query.name: query for query in project.queries()}
    found, waiting = set[str](), list(insert.tables)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += queries[name].tables if name in queries else ()
    return found


def _reached(
    insert: Insert, target: Table, via: str, change: Change, broken: dict[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the changed columns that an insert reads, and the columns of its table that are made of them."""
    made_of = lineage_of_insert(insert, target)
    shown = {name for pairs in made_of.values() for table, name in pairs if table == via}
    every = columns_read(insert, target).get(via)
    if every is None:  # it reads a query of the table, whose columns have other names
        return tuple(sorted(change.columns)), tuple(made_of)
    reads = {name for name in every if name in change.columns or name in broken}
    if reads - shown:  # of a filter, a join or a group: rows come and go
        return tuple(sorted(reads)), tuple(made_of)
    columns = (name for name, pairs in made_of.items() if any(pair[0] == via and pair[1] in reads for pair in pairs))
    return tuple(sorted(reads)), tuple(columns)


def _reason(broken: dict[str, str], reads: Collection[str]) -> str:
    return next((broken[name] for name in ("", *reads) if name in broken), "")
