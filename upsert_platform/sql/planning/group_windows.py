"""Windows of the older syntax: ``GROUP BY TUMBLE(ts, INTERVAL '10' MINUTE)``, with TUMBLE_START and the like beside it.

They are the window table functions in other words: the rows get the windows that they fall into, and the grouping is by
the start and the end of those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Node, Session, Window
from upsert_platform.core.types import TypeName
from upsert_platform.sql.planning.joins import with_columns
from upsert_platform.sql.planning.scope import Columns, Named, Names, length_of

_LENGTHS: Final = {"TUMBLE": ("size",), "HOP": ("slide", "size"), "SESSION": ("gap",)}
_PARTS: Final = {"START": 0, "END": 1, "ROWTIME": 2, "PROCTIME": 2}
_SHOWN: Final = ("start of the window", "end of the window", "time of the window")
"""Names by which expressions over the rows know the three columns; no statement can write them."""


@dataclass(frozen=True)
class GroupWindow:
    """The window of a GROUP BY.

    Attributes:
        call: TUMBLE, HOP or SESSION as it is written.
        columns: those in scope, with the window's.
        timed: TUMBLE_ROWTIME or the like is asked for.
    """

    call: exp.Anonymous
    node: Window | Session
    columns: Columns
    timed: bool

    def grouped(self, group: exp.Group) -> exp.Group:
        """The GROUP BY with the edges of the window in its place."""
        expressions: list[exp.Expr] = []
        for item in group.expressions:
            same = isinstance(item, exp.Anonymous) and _name(item) == _name(self.call)
            expressions += [_column(at, item) for at in range(2 + self.timed)] if same else [item]
        found = group.copy()
        found.set("expressions", expressions)
        return found

    def replaced(self, node: exp.Expr) -> exp.Expr:
        """An expression with TUMBLE_START and the like as columns.

        Raises:
            Fault: they are of another window than that of the GROUP BY.
        """

        def swap(item: exp.Expr) -> exp.Expr:
            part = _part_of(item)
            if part is None:
                return item
            assert isinstance(item, exp.Anonymous)
            kind = _name(item).partition("_")[0]
            own = [self.columns.bound(part) for part in self.call.expressions]
            if kind != _name(self.call) or [self.columns.bound(part) for part in item.expressions] != own:
                raise self.columns.fault(f"{_name(item)} is of another window than the {kind} of GROUP BY", item)
            return _column(part, item)

        return node.transform(swap)


def group_window(
    group: exp.Group | None, asked: Sequence[exp.Expr], rows: Node, columns: Columns, names: Names
) -> GroupWindow | None:
    """The window of a GROUP BY; None where there is none.

    Args:
        asked: select list and HAVING.
        rows: that are grouped.

    Raises:
        Fault: it is not a window that is supported, or TUMBLE_START and the like stand without one.
    """
    calls = [item for item in (group.expressions if group is not None else []) if _name(item) in _LENGTHS]
    if not calls:
        loose = next((item for root in asked for item in root.walk() if _part_of(item) is not None), None)
        if loose is not None:
            kind = _name(loose).partition("_")[0]
            raise columns.fault(f"{_name(loose)} belongs to a query with GROUP BY {kind}(...)", loose)
        return None
    call = calls[0]
    assert isinstance(call, exp.Anonymous)
    if len(calls) > 1:
        raise columns.fault("GROUP BY takes one window", calls[1])
    assert group is not None
    window = _window(call, rows, columns, names, [item for item in group.expressions if item is not call])
    own = [Named((), shown, field) for shown, field in zip(_SHOWN, window.fields[-3:], strict=True)]
    timed = any(_part_of(item) == _PARTS["ROWTIME"] for root in asked for item in root.walk())
    return GroupWindow(call, window, Columns((*columns.named, *own), columns.first_line, columns.outer), timed)


def _window(
    call: exp.Anonymous, rows: Node, columns: Columns, names: Names, others: Sequence[exp.Expr]
) -> Window | Session:
    """The rows with their windows.

    Args:
        others: what else is grouped by: each of its values has sessions of its own.
    """
    kind = _name(call)
    asked = _LENGTHS[kind]
    time, *lengths = call.expressions or [exp.Null()]
    found = columns.find(time) if isinstance(time, exp.Column) else None
    if found is None or found[1]:
        raise columns.fault(f"{kind} takes a column of time and {' and '.join(asked)} as intervals", call)
    if found[0].field.type.name not in (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ):
        raise columns.fault(f"{kind}: '{found[0].shown}' is {found[0].field.type}, not a TIMESTAMP", call)
    spans = [length_of(item) for item in lengths]
    if len(spans) != len(asked) or None in spans:
        taken = f"{kind} takes a column of time and {' and '.join(asked)}"
        raise columns.fault(f"{taken}, written INTERVAL '10' MINUTES, in seconds to weeks", call)
    step, size = spans[0] or 0, spans[-1] or 0
    if step <= 0 or size <= 0 or size % step:
        raise columns.fault(f"{kind}: the size is a whole multiple of the slide, both above zero", call)
    own = (names.fresh("window_start"), names.fresh("window_end"), names.fresh("window_time"))
    if kind == "SESSION":
        by = [columns.expression(item) for item in others]
        given = [(item.column or names.fresh("of"), item) for item in by]
        partition = tuple(dict.fromkeys(name for name, _ in given))
        return Session(with_columns(rows, given), partition, found[0].field.name, size, own)
    return Window(rows, kind.lower(), found[0].field.name, size, step, 0, own)


def _name(node: exp.Expr) -> str:
    return str(node.this).upper() if isinstance(node, exp.Anonymous) else ""


def _part_of(node: exp.Expr) -> int | None:
    """Return the window column that TUMBLE_START and the like name."""
    kind, _, part = _name(node).partition("_")
    return _PARTS.get(part) if kind in _LENGTHS else None


def _column(at: int, like: exp.Expr) -> exp.Column:
    found = exp.Column(this=exp.Identifier(this=_SHOWN[at], quoted=True))
    found.meta.update(like.meta)
    return found
