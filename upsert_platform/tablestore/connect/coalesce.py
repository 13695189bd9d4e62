"""Row changes of one key to one: a request never holds a key twice (specification section 5.2)."""

from __future__ import annotations

from upsert_platform.tablestore import limits
from upsert_platform.tablestore.connect.change import RowChange
from upsert_platform.tablestore.connect.values import AUTO_INCREMENT
from upsert_platform.tablestore.encoder import RowOperation


def same_row(earlier: RowChange, later: RowChange) -> bool:
    """Return whether two changes are of one row. A generated key is a new row each time."""
    values = [value for _, value in later.key]
    if any(value is AUTO_INCREMENT for value in values):
        return False
    found = [value for _, value in earlier.key]
    return found == values and [type(value) for value in found] == [type(value) for value in values]


def merge(earlier: RowChange, later: RowChange) -> RowChange | None:
    """The change with the effect of both in turn.

    Returns:
        None where they must be sent in turn: together they have more columns than a request takes, or they are updates
        of which the second removes all that the first put. Of a row that was missing, the two leave its key alone,
        and one that only removes columns would leave nothing.
    """
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
