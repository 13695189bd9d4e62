"""Row changes of one key to one: a request never holds a key twice (specification section 5.2)."""

from __future__ import annotations

from collections.abc import Iterable

from upsert_platform.tablestore import limits
from upsert_platform.tablestore.connect.change import RowChange
from upsert_platform.tablestore.connect.values import AUTO_INCREMENT
from upsert_platform.tablestore.encoder import RowOperation


def coalesce(changes: Iterable[RowChange]) -> list[RowChange]:
    """One change per key with the effect of all, in the order in which keys were met first.

    A sequence of updates that only removes columns of a missing row is the one exception that this cannot express in
    one change: applied one by one it leaves a row with its key alone when some update put a cell, merged it leaves
    none. `merge` then returns None and both are kept, to be sent in two requests.
    """
    merged: dict[tuple[object, ...], list[RowChange]] = {}
    for number, change in enumerate(changes):
        # A generated key is a new row each time, so such changes never meet.
        key = tuple((type(value), number if value is AUTO_INCREMENT else value) for _, value in change.key)
        waiting = merged.setdefault(key, [])
        together = merge(waiting[-1], change) if waiting else change
        if together is None:
            waiting.append(change)
        else:
            waiting[-1:] = [together]
    return [change for waiting in merged.values() for change in waiting]


def same_row(earlier: RowChange, later: RowChange) -> bool:
    """Whether two changes are of one row. A generated key is a new row each time."""
    values = [value for _, value in later.key]
    if any(value is AUTO_INCREMENT for value in values):
        return False
    found = [value for _, value in earlier.key]
    return found == values and [type(value) for value in found] == [type(value) for value in values]


def merge(earlier: RowChange, later: RowChange) -> RowChange | None:
    """The change with the effect of both in turn; None where no single change has it, or it has too many columns."""
    if later.operation is not RowOperation.UPDATE:
        return later
    match earlier.operation:
        case RowOperation.PUT:
            kept = {name: value for name, value in earlier.cells.items() if name not in later.removed}
            return _within_limits(RowChange(RowOperation.PUT, later.key, {**kept, **later.cells}))
        case RowOperation.DELETE:
            if later.cells:
                return RowChange(RowOperation.PUT, later.key, later.cells)
            return earlier
    cells = {name: value for name, value in earlier.cells.items() if name not in later.removed}
    cells.update(later.cells)
    removed = [*(name for name in earlier.removed if name not in later.cells), *later.removed]
    if not cells and earlier.cells:
        return None
    return _within_limits(RowChange(RowOperation.UPDATE, later.key, cells, tuple(dict.fromkeys(removed))))


def _within_limits(change: RowChange) -> RowChange | None:
    return change if len(change.cells) + len(change.removed) <= limits.MAX_COLUMNS_PER_ROW else None
