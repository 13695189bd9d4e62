"""Refuses replays of tables whose rows may only come in the order in which they were read."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Final

from upsert_platform.core.capabilities import StoresOtherValues
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.plan import (
    Aggregate,
    Arrivals,
    ArrivedTopN,
    Materialize,
    Merge,
    Node,
    Over,
    Query,
    Scan,
    TopN,
    scans,
)
from upsert_platform.sync.binding import Binding
from upsert_platform.sync.following import tables_behind

_NO_KEY: Final = "it has no key"


def check_keys(binding: Binding, table: str) -> None:
    """Refuses a replay where rows of several keys, or of several inserts, would be ordered by the batch of the replay.

    Raises:
        ChangelogError: a table stores several keys as one, or a query takes the row that came last.
    """
    check_order([source.query for source in binding.queries.values()], table)
    for name, target in tables_behind(binding, table).items():
        with closing(target.open()) as destination:
            if not isinstance(destination, StoresOtherValues) or not destination.state().applied_batch:
                continue
            if destination.folded_key():
                raise ChangelogError(
                    f"table '{name}' stores several values of {', '.join(destination.folded_key())} as one, so rows of"
                    " different keys are one row there, whose order a replay would change; replay it into a new table"
                )


def check_order(queries: Iterable[Query], table: str) -> None:
    """Refuses a table whose records may only come in the order in which they were read.

    Args:
        queries: all of the project.

    Raises:
        ChangelogError: a query takes the last of its rows per key.
    """
    for query in queries:
        why = _why_in_order(query.plan, table)
        if why is not None:
            raise ChangelogError(
                f"records of '{table}' cannot be replayed: {why}, and '{query.name.removesuffix('$query')}' shows the"
                " row of a key that came last, which a replayed record would be. Send the records anew, where they"
                " still count"
            )


def _why_in_order(node: Node, table: str) -> str | None:
    """Return why rows of a table are taken in their order of arrival, or None if they are not."""
    if isinstance(node, Arrivals) and table in _tables(node):
        return _NO_KEY
    ranked = isinstance(node, ArrivedTopN) or (isinstance(node, Over) and bool(node.records))
    if ranked and any(_is_row_by_row(item, table) for item in node.inputs):
        return "its rows are ranked by their arrival"
    if isinstance(node, Materialize) and any(_is_row_by_row(item, table) for item in node.inputs):
        return "several of its rows share a key there"
    if isinstance(node, Merge):
        for branch in node.branches:
            if branch.appends and table in _tables(branch):
                return _NO_KEY
            if _is_row_by_row(branch, table):
                return "several INSERTs fill one table, one of them row by row from it"
    return next((why for item in node.inputs if (why := _why_in_order(item, table)) is not None), None)


def _tables(node: Node) -> set[str]:
    return {scan.table for scan in scans(node)}


def _is_row_by_row(node: Node, table: str) -> bool:
    """Return whether rows are made of single records of a table: not groups, say, which do change when a record comes
    back.
    """
    if isinstance(node, Scan):
        return node.table == table
    return not isinstance(node, (Aggregate, TopN)) and any(_is_row_by_row(item, table) for item in node.inputs)
