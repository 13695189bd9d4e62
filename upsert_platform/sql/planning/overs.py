"""OVER in a select list: aggregates, LAG and LEAD, and ranks, each over the rows before a row in its partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Expression, Field, Node, Order, Over, OverCall
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.planning.aggregates import result_type
from upsert_platform.sql.planning.arrivals import placed
from upsert_platform.sql.planning.joins import with_columns
from upsert_platform.sql.planning.lookups import is_processing_time
from upsert_platform.sql.planning.scope import Columns, Named, Names, as_type, common_type, length_of

_AGGREGATES: Final = ("COUNT", "SUM", "AVG", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE")
_EXTREMES: Final = ("MIN", "MAX")
"""Aggregates for which values count once in any case."""
_PLACES: Final = ("FIRST_VALUE", "LAST_VALUE")
_RANKS: Final = ("RANK", "DENSE_RANK")
_NEIGHBOURS: Final = ("LAG", "LEAD")
FUNCTIONS: Final = (*_AGGREGATES, *_RANKS, *_NEIGHBOURS)
_WINDOW: Final = ("partition_by", "order", "spec")
_BIGINT: Final = LogicalType(TypeName.BIGINT, nullable=False)
_FRAME: Final = "a frame is written ROWS or RANGE BETWEEN ... PRECEDING AND CURRENT ROW"


@dataclass(frozen=True)
class Overs:
    """A select list whose OVERs are columns.

    Attributes:
        columns: those in scope, with the results.
        known: each OVER as it is written, and its result.
    """

    node: Node
    columns: Columns
    known: tuple[tuple[exp.Expr, str], ...]

    def replaced(self, node: exp.Expr) -> exp.Expr:
        """An expression with OVERs as columns."""

        def swap(item: exp.Expr) -> exp.Expr:
            for known, shown in self.known:
                if item == known:
                    found = exp.Column(this=exp.Identifier(this=shown, quoted=True))
                    found.meta.update(item.meta)
                    return found
            return item

        return node.transform(swap)


def with_named_windows(node: exp.Select, columns: Columns) -> exp.Select:
    """A query with the windows of its WINDOW clause in the place of their names.

    A window that names another one adds to it what that one does not have.

    Raises:
        Fault: there is no such window, or both have one clause.
    """
    windows: dict[str, exp.Window] = {}
    for item in node.args.get("windows") or []:
        windows[item.name.upper()] = _whole(item, windows, columns)
    for item in list(node.walk(prune=lambda item: item is not node and isinstance(item, exp.Query))):
        if isinstance(item, exp.Window) and item.args.get("alias") is not None and item.arg_key != "windows":
            item.replace(_whole(item, windows, columns))
    node.set("windows", None)
    return node


def _whole(window: exp.Window, windows: Mapping[str, exp.Window], columns: Columns) -> exp.Window:
    """A window with what it takes over from the one that it names."""
    name = window.args.get("alias")
    if name is None:
        return window
    base = windows.get(name.name.upper(), exp.Window()).copy()
    if name.name.upper() not in windows:
        raise columns.fault(f"unknown window '{name.name}': no WINDOW clause before it declares it", window)
    own = [part for part in _WINDOW if window.args.get(part)]
    if own and ("partition_by" in own or base.args.get("spec") or any(base.args.get(part) for part in own)):
        raise columns.fault(
            f"a window that names '{name.name}' adds an ORDER BY or a frame where that has none: write the window out",
            window,
        )
    found = exp.Window(this=window.this)
    for part in _WINDOW:
        found.set(part, window.args.get(part) or base.args.get(part))
    found.meta.update(window.meta)
    return found


def over_rows(rows: Node, columns: Columns, names: Names, asked: Sequence[exp.Expr]) -> Overs | None:
    """Plans the OVERs of a select list; None where there are none but ROW_NUMBERs, which wait for their limit.

    Raises:
        Fault: a function or a frame that is not supported.
    """
    found: list[exp.Window] = []
    for root in asked:
        for item in root.walk(prune=lambda item: isinstance(item, exp.Select)):
            if isinstance(item, exp.Window) and _name(item.this) != "ROW_NUMBER" and item not in found:
                found.append(item)
    if not found:
        return None
    planner = _Planner(rows, columns, names)
    alike: dict[tuple[object, ...], list[exp.Window]] = {}
    for item in found:
        parts = (*(item.args.get("partition_by") or []), None, item.args.get("order"), None, item.args.get("spec"))
        alike.setdefault((_whole_rows(_name(item.this)), *parts), []).append(item)
    known = [
        pair
        for at, windows in enumerate(alike.values(), start=1)
        for pair in planner.add(windows, last=at == len(alike))
    ]
    own = [Named((), shown, field) for shown, field in planner.given]
    return Overs(planner.node, Columns((*columns.named, *own), columns.first_line, columns.outer), tuple(known))


class _Planner:
    """Stacks one OVER on the other."""

    def __init__(self, rows: Node, columns: Columns, names: Names) -> None:
        self.node = rows
        self.columns = columns
        self.names = names
        self.given: list[tuple[str, Field]] = []
        self.records: tuple[tuple[str, ...], ...] = ()
        """Of rows that are only added, although results of the OVERs below them change."""

    def add(self, windows: Sequence[exp.Window], *, last: bool) -> list[tuple[exp.Expr, str]]:
        """Calls over one window, each with the name of its result in expressions, which no statement can write."""
        columns, window = self.columns, windows[0]
        for item in windows:
            function = _name(item.this)
            if function not in FUNCTIONS:
                raise columns.fault(f"{function} OVER is not supported: there are {', '.join(FUNCTIONS)}", item)
            if item.args.get("order") is None:
                raise columns.fault(f"{function} OVER needs an ORDER BY, of event time or processing time", item)
        partition = tuple(dict.fromkeys(self._column(item) for item in window.args.get("partition_by") or []))
        terms = [
            (self._column(item.this), bool(item.args.get("desc")), bool(item.args.get("nulls_first")))
            for item in window.args["order"].expressions
        ]
        order = tuple(Order(*term) for term in terms)
        rows, preceding = self._frame(window, _name(window.this), order)
        calls = tuple(self._call(item, _name(item.this)) for item in windows)
        over = self._arranged(Over(self.node, partition, order, calls, rows, preceding), window)
        if not last and over.records and not over.appends:
            self.records, over = over.records, replace(over, passes=True)
        self.node = over
        known: list[tuple[exp.Expr, str]] = []
        for item, call in zip(windows, calls, strict=True):
            known.append((item, f"over {len(self.given)}"))
            self.given.append((known[-1][1], Field(call.name, call.type)))
        return known

    def _arranged(self, over: Over, window: exp.Window) -> Over:
        """With the order of arrival: of rows that are only added it decides between equals, as processing time does."""
        at = next((at for at, item in enumerate(over.order) if is_processing_time(over.input, item.column)), None)
        if not over.input.appends and not self.records:
            if at is not None:
                raise self.columns.fault(
                    "rows that change have no order of processing time: order them by a column of theirs", window
                )
            return over
        if at is None:
            return self._placed(over, at=len(over.order), latest=False, by_arrival=False)
        if not over.rows and over.preceding is not None:
            raise self.columns.fault("RANGE of an interval takes event time; of processing time write ROWS", window)
        rest = tuple(item for number, item in enumerate(over.order) if number != at)
        arriving = replace(over, order=rest, rows=True)
        return self._placed(arriving, at=at, latest=over.order[at].descending, by_arrival=True)

    def _placed(self, over: Over, *, at: int, latest: bool, by_arrival: bool) -> Over:
        """With the places of the rows' records, which an OVER below passes on."""
        if self.records:
            return replace(over, records=self.records, at=at, latest=latest, by_arrival=by_arrival)
        return placed(over, at=at, latest=latest, by_arrival=by_arrival)

    def _frame(self, window: exp.Window, function: str, order: tuple[Order, ...]) -> tuple[bool, int | None]:
        """Return whether the frame counts rows, and how far it reaches back."""
        spec = window.args.get("spec")
        if spec is None:
            return _whole_rows(function), None
        if _whole_rows(function):
            raise self.columns.fault(f"{function} takes no frame (ROWS, RANGE)", window)
        start, end = spec.args.get("start"), spec.args.get("end")
        if (
            spec.args.get("start_side") != "PRECEDING"
            or (end is not None and str(end).upper() != "CURRENT ROW")
            or spec.args.get("exclude")
        ):
            raise self.columns.fault(f"{_FRAME}; rows that follow are not looked at, as in Flink", window)
        rows = str(spec.args.get("kind")).upper() == "ROWS"
        if str(start).upper() == "UNBOUNDED":
            return rows, None
        if rows and isinstance(start, exp.Literal) and not start.is_string and start.name.isdigit():
            return True, int(start.name)
        length = length_of(start) if isinstance(start, exp.Expr) else None
        if rows or length is None:
            taken = "a number of rows" if rows else "INTERVAL '10' MINUTE, in seconds to weeks"
            raise self.columns.fault(f"{_FRAME}, with {taken} before PRECEDING", window)
        kinds = {item.name: item.type for item in self.node.fields}
        times = (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ)
        if len(order) != 1 or order[0].descending or kinds[order[0].column].name not in times:
            raise self.columns.fault("RANGE of an interval needs ORDER BY one column of time, ascending", window)
        return False, length

    def _call(self, window: exp.Window, function: str) -> OverCall:
        inner = window.this
        arguments = list(inner.expressions) if isinstance(inner, exp.Anonymous) else [inner.this, *inner.expressions]
        name = self.names.fresh(function.lower())
        if function in _RANKS:
            if arguments:
                raise self.columns.fault(f"{function} takes no argument", window)
            return OverCall(name, function.lower(), _BIGINT)
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = list(arguments[0].expressions)
            if function not in _AGGREGATES or function in _PLACES:
                raise self.columns.fault(f"{function} OVER takes no DISTINCT: remove it", window)
        if function in _NEIGHBOURS:
            return self._neighbour(window, function, arguments, name)
        if len(arguments) != 1:
            raise self.columns.fault(f"{function} takes one argument, not {len(arguments)}", window)
        if isinstance(arguments[0], exp.Star):
            if function != "COUNT" or distinct:
                raise self.columns.fault(f"{function} takes an expression, not *", window)
            return OverCall(name, "count", _BIGINT)
        argument = self.columns.expression(arguments[0])
        kind = result_type(function.lower(), argument.type)
        if kind is None:
            raise self.columns.fault(f"{function} does not take a value of type {argument.type}", window)
        distinct = distinct and function not in _EXTREMES
        return OverCall(name, function.lower(), kind, self._given(argument), distinct=distinct)

    def _neighbour(self, window: exp.Window, function: str, arguments: list[exp.Expr], name: str) -> OverCall:
        if not 1 <= len(arguments) <= 3:
            raise self.columns.fault(f"{function} takes a value, a number of rows and a default", window)
        value = self.columns.expression(arguments[0])
        offset = arguments[1] if len(arguments) > 1 else exp.Literal.number(1)
        if not isinstance(offset, exp.Literal) or offset.is_string or not offset.name.isdigit():
            raise self.columns.fault(f"the second argument of {function} is a number of rows", window)
        kind = replace(value.type, nullable=True)
        default: str | None = None
        if len(arguments) > 2:
            given = self.columns.expression(arguments[2])
            shared = common_type(given.type, value.type)
            if shared is None or replace(shared, nullable=True) != kind:
                raise self.columns.fault(
                    f"the default of {function} is {given.type}, its value {value.type}; CAST it", window
                )
            default = self._given(as_type(given, kind))
        return OverCall(name, function.lower(), kind, self._given(value), int(offset.name), default)

    def _column(self, node: exp.Expr) -> str:
        return self._given(self.columns.expression(node))

    def _given(self, expression: Expression) -> str:
        """The column of an expression, which is added where it is none."""
        name = expression.column or self.names.fresh("of")
        self.node = with_columns(self.node, [(name, expression)])
        return name


def _whole_rows(function: str) -> bool:
    """Return whether a function looks at the whole partition instead of a frame."""
    return function in (*_NEIGHBOURS, *_RANKS)


def _name(node: exp.Expr) -> str:
    return str(node.this).upper() if isinstance(node, exp.Anonymous) else node.key.upper()
