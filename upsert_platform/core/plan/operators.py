"""The operators of a plan: what each gives, by which columns its rows are told apart, and whether it only adds rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product

from upsert_platform.core.plan.columns import Call, Closing, Expression, Field, Key, Keys
from upsert_platform.core.plan.finals import Finals
from upsert_platform.core.plan.lookup import Lookup
from upsert_platform.core.plan.materialize import Materialize
from upsert_platform.core.plan.over import Over
from upsert_platform.core.plan.over_one import OverOne
from upsert_platform.core.plan.sessions import Session
from upsert_platform.core.plan.temporal import Temporal
from upsert_platform.core.plan.topn import TopN
from upsert_platform.core.plan.unnest import Unnest
from upsert_platform.core.types import LogicalType


@dataclass(frozen=True, slots=True)
class Scan:
    """Reads the changelog of a declared table, or of another query.

    Attributes:
        columns: those that the query uses, the key among them.
        key: the primary key; without one every row stands for itself.
        appended: whether rows are only ever added.
        signed: the changelog carries before-images, as that of a query does; then no index of rows is needed.
        versions: every record of an upsert topic is a row, with a column that is false for a delete.
    """

    table: str
    columns: tuple[Field, ...]
    key: tuple[str, ...]
    appended: bool
    signed: bool = False
    # Plans of other scans are what they were.
    versions: bool = field(default=False, repr=False)

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    @property
    def keys(self) -> Keys:
        return (frozenset(self.key),) if self.key else ()

    @property
    def appends(self) -> bool:
        return self.appended


@dataclass(frozen=True, slots=True)
class Project(OverOne):
    """Columns computed from the columns of each row."""

    input: Node
    columns: tuple[tuple[str, Expression], ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(name, expression.type) for name, expression in self.columns)

    @property
    def keys(self) -> Keys:
        shown: dict[str, list[str]] = {}
        for name, expression in self.columns:
            if expression.column is not None:
                shown.setdefault(expression.column, []).append(name)
        found: list[frozenset[str]] = []
        for key in self.input.keys:
            if all(name in shown for name in key):
                found += [frozenset(names) for names in product(*(shown[name] for name in sorted(key)))]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Filter(OverOne):
    """The rows for which a condition is true."""

    input: Node
    condition: Expression


@dataclass(frozen=True, slots=True)
class Window(OverOne):
    """A window table function: adds ``window_start``, ``window_end`` and ``window_time``.

    Attributes:
        kind: ``tumble``, ``hop`` or ``cumulate``.
        time: the column of event time, TIMESTAMP or TIMESTAMP_LTZ.
        size: length of a window in microseconds; of cumulate, the greatest length.
        step: of hop the slide, of cumulate the step; of tumble the size.
        offset: shift of every window's start from 1970, in microseconds.
        names: of the three columns.
        closing: when they close; None where none ever does.
    """

    input: Node
    kind: str
    time: str
    size: int
    step: int
    offset: int
    names: tuple[str, str, str]
    # It may be declared, changed and taken back while the state stays as it is.
    closing: Closing | None = field(default=None, repr=False)

    @property
    def added(self) -> tuple[Field, ...]:
        """The columns that it adds."""
        kind = next(item.type for item in self.input.fields if item.name == self.time)
        start, end, last = self.names
        plain = replace(kind, nullable=False, precision=3)
        edge = LogicalType(type(kind.name).TIMESTAMP, precision=3, nullable=False)
        return Field(start, edge), Field(end, edge), Field(last, plain)

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self.input.fields, *self.added)

    @property
    def copies(self) -> bool:
        """Return whether a row may fall into several windows."""
        return self.kind != "tumble"

    @property
    def edges(self) -> tuple[str, ...]:
        """Names of the columns of its start and its end."""
        return self.names[:2]

    @property
    def keys(self) -> Keys:
        if not self.copies:
            return self.input.keys
        return tuple(key | {self.names[0], self.names[1]} for key in self.input.keys)


@dataclass(frozen=True, slots=True)
class Watermark(Window):
    """Adds the watermark that stands as a batch begins, as a column of all its rows: null before there is one.

    It has the clock of a window, which `names` names three times, and no window.
    """

    @property
    def added(self) -> tuple[Field, ...]:
        kind = next(item.type for item in self.input.fields if item.name == self.time)
        return (Field(self.names[1], replace(kind, nullable=True, precision=3)),)

    @property
    def copies(self) -> bool:
        return False

    @property
    def edges(self) -> tuple[str, ...]:
        return ()

    @classmethod
    def of(cls, node: Node, time: str, name: str, closing: Closing) -> Watermark:
        """The watermark behind a column of event time."""
        return cls(node, "watermark", time, 0, 0, 0, (name, name, name), closing)


@dataclass(frozen=True, slots=True)
class Expand(OverOne):
    """Every row once per grouping of GROUPING SETS, with nulls in the place of what that does not group by.

    Attributes:
        sets: the columns of each copy: the same names and types, values of columns or constants.
    """

    input: Node
    sets: tuple[tuple[tuple[str, Expression], ...], ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(name, expression.type) for name, expression in self.sets[0])

    @property
    def keys(self) -> Keys:
        return ()


@dataclass(frozen=True, slots=True)
class Constants(Expand):
    """The rows of VALUES: a copy of the one row of its input for each.

    Attributes:
        unique: columns that tell them apart.
    """

    unique: tuple[Key, ...] = ()

    @property
    def keys(self) -> Keys:
        shown = {item.name for item in self.fields}
        return tuple(key for key in self.unique if key <= shown)


@dataclass(frozen=True, slots=True)
class Aggregate(OverOne):
    """GROUP BY; without calls SELECT DISTINCT, without columns one row for everything.

    Attributes:
        unique: those columns of the group that tell groups apart; all of them if left out.
        ttl: after how many milliseconds without a change a group is let go of; 0 for never, None as the query says.
    """

    input: Node
    group: tuple[str, ...]
    calls: tuple[Call, ...]
    unique: tuple[str, ...] | None = None
    # It may be declared, changed and taken back while the state stays as it is.
    ttl: int | None = field(default=None, repr=False)

    @property
    def fields(self) -> tuple[Field, ...]:
        types = {field.name: field for field in self.input.fields}
        return (*(types[name] for name in self.group), *(Field(call.name, call.type) for call in self.calls))

    @property
    def keys(self) -> Keys:
        return (frozenset(self.group if self.unique is None else self.unique),)

    @property
    def appends(self) -> bool:
        return not self.calls and self.input.appends and bool(self.group)


@dataclass(frozen=True, slots=True)
class Join:
    """A join by equality of columns.

    Attributes:
        kind: ``inner``, ``left``, ``right``, ``full``, ``semi`` or ``anti`` (the last two give the left side's rows).
        left_on: columns of the left side, each equal to the one of `right_on` at its place; nulls match nothing.
        ttls: of the rows of the left and of the right side, as `Aggregate.ttl`.
    """

    left: Node
    right: Node
    kind: str
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    ttls: tuple[int | None, int | None] = field(default=(None, None), repr=False)

    @property
    def fields(self) -> tuple[Field, ...]:
        left = _padded(self.left.fields) if self.kind in ("right", "full") else self.left.fields
        if self.kind in ("semi", "anti"):
            return left
        right = _padded(self.right.fields) if self.kind in ("left", "full") else self.right.fields
        return (*left, *right)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def keys(self) -> Keys:
        if self.kind in ("semi", "anti"):
            return self.left.keys
        found: list[frozenset[str]] = []
        # A side whose rows meet at most one row of the other keeps its own key; null-padded rows of the other do not.
        if self.kind in ("inner", "left") and any(key <= set(self.right_on) for key in self.right.keys):
            found += self.left.keys
        if self.kind in ("inner", "right") and any(key <= set(self.left_on) for key in self.left.keys):
            found += self.right.keys
        found += [
            left | right for left in self.left.keys for right in self.right.keys if self._tells_apart(left, right)
        ]
        return tuple(dict.fromkeys(found))

    def _tells_apart(self, left: frozenset[str], right: frozenset[str]) -> bool:
        """Return whether the keys of both sides together are a key: not if padded rows of both may be all null."""
        if self.kind != "full":
            return True
        nullable = {field.name for field in (*self.left.fields, *self.right.fields) if field.type.nullable}
        return not (left | right) <= nullable

    @property
    def appends(self) -> bool:
        return self.kind == "inner" and self.left.appends and self.right.appends


@dataclass(frozen=True, slots=True)
class GroupJoin(Join):
    """A join of two results of one grouping: nulls match nulls, as they are one group."""


@dataclass(frozen=True, slots=True)
class Union:
    """UNION ALL: the rows of all branches, by position; the first branch names the columns."""

    branches: tuple[Node, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        rows = zip(*(branch.fields for branch in self.branches), strict=True)
        return tuple(
            replace(first, type=replace(first.type, nullable=any(item.type.nullable for item in (first, *others))))
            for first, *others in rows
        )

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.branches

    @property
    def keys(self) -> Keys:
        return ()

    @property
    def appends(self) -> bool:
        return all(branch.appends for branch in self.branches)


@dataclass(frozen=True, slots=True)
class OuterRows(Union):
    """The pairs of an outer join, and the padded rows without one.

    Attributes:
        unique: columns that tell its rows apart.
    """

    unique: tuple[Key, ...] = ()

    @property
    def keys(self) -> Keys:
        shown = {item.name for item in self.fields}
        return tuple(key for key in self.unique if key <= shown)


@dataclass(frozen=True, slots=True)
class Merge(Union):
    """A union whose rows are told apart by a key: of branches that have the same key, the one changed last is shown.

    A branch whose rows are only added gives the last row of each key.
    """

    key: tuple[str, ...]

    @property
    def keys(self) -> Keys:
        return (frozenset(self.key),)

    @property
    def appends(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Arrivals(OverOne):
    """One row per key of rows that are only added: the first or the last, by the records that they are made of.

    Attributes:
        orders: per record that a row is made of its time, topic, partition, offset and row number there, as names of
            columns; the first record decides, between rows of one such record the next.
        first: the first row of a key stays, and the columns of `orders` with it. Otherwise a row takes the place of the
            one before it, and those columns are left out.
        ttl: as `Aggregate.ttl`, of a key.
    """

    input: Node
    key: tuple[str, ...]
    orders: tuple[tuple[str, ...], ...]
    first: bool
    ttl: int | None = field(default=None, repr=False)

    @property
    def fields(self) -> tuple[Field, ...]:
        hidden = set() if self.first else {name for order in self.orders for name in order}
        return tuple(field for field in self.input.fields if field.name not in hidden)

    @property
    def keys(self) -> Keys:
        return (frozenset(self.key),)

    @property
    def appends(self) -> bool:
        return self.first


Node = (
    Scan
    | Project
    | Filter
    | Window
    | Aggregate
    | TopN
    | Join
    | Lookup
    | Union
    | Arrivals
    | Expand
    | Materialize
    | Over
    | Unnest
    | Temporal
    | Session
    | Finals
)


@dataclass(frozen=True, slots=True)
class Query:
    """A node of the graph: a plan whose result is kept as a changelog of its own.

    Attributes:
        name: unique among tables and queries.
        key: columns by which the result's rows are told apart; empty for a result that is only added to.
        statement: as written, for messages and metadata.
        state_ttl: after how many milliseconds without a change state is let go of; None for never.
    """

    name: str
    plan: Node
    key: tuple[str, ...]
    statement: str = ""
    state_ttl: int | None = None

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables and queries that it reads, in the order of the statement."""
        return tuple(dict.fromkeys(scan.table for scan in scans(self.plan)))

    @property
    def lookups(self) -> tuple[str, ...]:
        """Names of the tables that it finds rows in as others arrive."""
        return tuple(dict.fromkeys(_lookups(self.plan)))


def scans(node: Node) -> list[Scan]:
    """All places of a plan that read a changelog."""
    if isinstance(node, Scan):
        return [node]
    return [found for item in node.inputs for found in scans(item)]


def lets_go(query: Query) -> bool:
    """Return whether a query lets go of state that nothing changes."""
    return bool(query.state_ttl) or any(_own_ttls(query.plan))


def _own_ttls(node: Node) -> list[int]:
    own = (node.ttl,) if isinstance(node, (Aggregate, Arrivals)) else node.ttls if isinstance(node, Join) else ()
    return [*(ttl for ttl in own if ttl), *(ttl for item in node.inputs for ttl in _own_ttls(item))]


def _lookups(node: Node) -> list[str]:
    own = [node.table] if isinstance(node, Lookup) else []
    return [*own, *(name for item in node.inputs for name in _lookups(item))]


def _padded(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    return tuple(replace(field, type=replace(field.type, nullable=True)) for field in fields)


def expressions(node: Node) -> list[Expression]:
    """All expressions of a plan."""
    own: list[Expression] = []
    if isinstance(node, Project):
        own = [expression for _, expression in node.columns]
    elif isinstance(node, Filter):
        own = [node.condition]
    return [*own, *(found for item in node.inputs for found in expressions(item))]
