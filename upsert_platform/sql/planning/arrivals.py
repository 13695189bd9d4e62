"""The order in which rows that are only added arrive: that of the records that they are made of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from upsert_platform.core.plan import (
    Aggregate,
    Arrivals,
    ArrivedTopN,
    Expand,
    Expression,
    Field,
    Filter,
    Join,
    Lookup,
    Node,
    Over,
    Project,
    Scan,
    TopN,
    Union,
    Unnest,
    Window,
    column,
)
from upsert_platform.core.types import LogicalType, TypeName, quote_name, spark_type

_BOOLEAN: Final = LogicalType(TypeName.BOOLEAN, nullable=False)
_RECORD: Final = (
    Field("_timestamp", LogicalType(TypeName.TIMESTAMP_LTZ, precision=6)),
    Field("_topic", LogicalType(TypeName.STRING)),
    Field("_partition", LogicalType(TypeName.INT)),
    Field("_offset", LogicalType(TypeName.BIGINT)),
    Field("_row", LogicalType(TypeName.INT)),
)
"""Columns of every changelog that tell a record's place."""


_BATCH: Final = Field("_batch", LogicalType(TypeName.BIGINT))
"""The batch of the changelog that brought a record."""


def last_arrivals(node: Node, key: tuple[str, ...]) -> Node:
    """The last row of each key.

    Args:
        node: rows that are only added.

    Within one batch the record of the first table in FROM decides, then that of the next; what a later batch brings
    comes after everything. A row of SELECT DISTINCT comes with its first record, as in Flink.
    """
    found, orders = _Places(_taken(node)).add(node)
    return Arrivals(found, key, orders, first=False)


def arrived_values(node: Node, group: tuple[str, ...], argument: str, condition: str | None, *, first: bool) -> Node:
    """The first or last value of each group that is not null, of rows that are only added.

    Args:
        argument: the column; `condition` one that is true for rows that take part.
    """
    fields = {item.name: item for item in node.fields}
    there = Expression(
        f"{quote_name(argument)} IS NOT NULL", _BOOLEAN, ("not", ("is null", ("column", argument))), reads=(argument,)
    )
    rows: Node = Filter(node, there)
    if condition is not None:
        rows = Filter(rows, column(fields[condition]))
    kept = dict.fromkeys((*group, argument))
    found, orders = _Places(_taken(rows)).add(Project(rows, tuple((name, column(fields[name])) for name in kept)))
    return Arrivals(found, group, orders, first)


def first_rows(top: TopN, *, at: int, latest: bool) -> ArrivedTopN:
    """A limit of row numbers over rows that are only added, with the order of arrival as a part of its order.

    Args:
        at: how many columns of the order decide before it.
        latest: the row that arrived last comes first.
    """
    found, records = _Places(_taken(top.input), record=(_BATCH, *_RECORD)).add(top.input)
    return ArrivedTopN(found, top.partition, top.order, top.limit, top.rank, records, at, latest)


def placed(over: Over, *, at: int, latest: bool, by_arrival: bool) -> Over:
    """An OVER of rows that are only added, with the order of arrival as a part of its order."""
    found, records = _Places(_taken(over.input), record=(_BATCH, *_RECORD)).add(over.input)
    return replace(over, input=found, records=records, at=at, latest=latest, by_arrival=by_arrival)


def with_records(node: Node) -> tuple[Node, tuple[tuple[str, ...], ...]]:
    """Rows that are only added with the places of their records, batches among them, and the names of these."""
    return _Places(_taken(node), record=(_BATCH, *_RECORD)).add(node)


Orders = tuple[tuple[str, ...], ...]


@dataclass
class _Places:
    """Adds the places of records as columns, from the tables up."""

    taken: int
    names: list[str] = field(default_factory=list)
    record: tuple[Field, ...] = _RECORD

    def add(self, node: Node) -> tuple[Node, Orders]:
        """The same rows with further columns, and the names of those."""
        match node:
            case Scan():
                return self.add(Project(node, tuple((item.name, column(item)) for item in node.columns)))
            case Project(input=Scan() as scan):
                order = tuple(self._fresh(item.name) for item in self.record)
                placed = tuple((name, column(item)) for name, item in zip(order, self.record, strict=True))
                more = (item for item in self.record if item not in scan.columns)
                return Project(replace(scan, columns=(*scan.columns, *more)), (*node.columns, *placed)), (order,)
            case Project():
                inner, orders = self.add(node.input)
                return Project(inner, (*node.columns, *_kept(inner, orders))), orders
            case Filter() | Window() | Lookup() | Over() | Unnest():
                inner, orders = self.add(node.input)
                return replace(node, input=inner), orders
            case Expand():
                inner, orders = self.add(node.input)
                return Expand(inner, tuple((*columns, *_kept(inner, orders)) for columns in node.sets)), orders
            case Join():
                left, one = self.add(node.left)
                right, other = self.add(node.right)
                return replace(node, left=left, right=right), (*one, *other)
            case Aggregate():
                inner, orders = self.add(node.input)
                first = Arrivals(inner, node.group, orders, first=True, ttl=node.ttl)
                shown = tuple((item.name, column(item)) for item in node.fields)
                return Project(first, (*shown, *_kept(first, orders))), orders
            case Union():
                return self._union(node)
        raise AssertionError(node)

    def _union(self, node: Union) -> tuple[Node, Orders]:
        """Branches with as many records as that with the most; those that a branch lacks are null."""
        placed = [self.add(branch) for branch in node.branches]
        most = max(len(orders) for _, orders in placed)
        names = tuple(tuple(self._fresh(item.name) for item in self.record) for _ in range(most))
        branches = []
        for (inner, orders), branch in zip(placed, node.branches, strict=True):
            shown = tuple((item.name, column(item)) for item in branch.fields)
            given = dict(_kept(inner, orders))
            records = tuple(
                (new, given[orders[at][part]] if at < len(orders) else _null(item.type))
                for at, order in enumerate(names)
                for part, (new, item) in enumerate(zip(order, self.record, strict=True))
            )
            branches.append(Project(inner, (*shown, *records)))
        return Union(tuple(branches)), names

    def _fresh(self, wish: str) -> str:
        """A name that no column has: those of a plan do not begin so."""
        self.names.append(f"_p{self.taken + len(self.names)}{wish}")
        return self.names[-1]


def _taken(node: Node) -> int:
    """Return the number of record places that a plan uses already."""
    own = sum(len(record) for record in getattr(node, "records", ()))
    return own + sum(_taken(item) for item in node.inputs)


def _kept(node: Node, orders: Orders) -> tuple[tuple[str, Expression], ...]:
    fields = {item.name: item for item in node.fields}
    return tuple((name, column(fields[name])) for order in orders for name in order)


def _null(kind: LogicalType) -> Expression:
    return Expression(f"CAST(NULL AS {spark_type(kind)})", kind, ("literal", None, kind))
