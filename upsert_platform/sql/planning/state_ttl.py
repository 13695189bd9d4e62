"""The hint STATE_TTL: how long the state of one side of a join, or of a grouping, stays that nothing changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from sqlglot import exp

from upsert_platform.core.options import parse_duration
from upsert_platform.core.plan import Aggregate, Arrivals, Filter, Join, Node, Project
from upsert_platform.sql.hints import STATE_TTL
from upsert_platform.sql.planning.scope import Named

_WRITE = "write STATE_TTL('table' = '1 d'), with the table's alias if it has one"


@dataclass
class StateTtls:
    """The times that the hint of a SELECT gives, in milliseconds by the names of tables; 0 for never.

    Attributes:
        used: tables whose time was given to a state.
    """

    times: dict[str, int] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def of(self, qualifiers: Iterable[str]) -> int | None:
        """The time of a table by the names that it has in the query; None where the hint gives none."""
        for name in qualifiers:
            if name in self.times:
                self.used.add(name)
                return self.times[name]
        return None

    def of_sides(self, left: Iterable[Named], right: Iterable[Named]) -> tuple[int | None, int | None]:
        """The times of both sides of a join; of a side that is a join itself, none."""
        one, other = ({item.qualifiers for item in side} for side in (left, right))
        return self.of(*one) if len(one) == 1 else None, self.of(*other) if len(other) == 1 else None

    def unused(self) -> str | None:
        """Return what is wrong with the hint once all of the query is planned; None for nothing."""
        for name in self.times:
            if name not in self.used:
                return (
                    f"the hint STATE_TTL('{name}') says nothing: '{name}' is neither a side of a join of this SELECT"
                    f" nor the one table that it groups; {_WRITE}"
                )
        return None


def read_ttls(node: exp.Select) -> StateTtls | str:
    """The times of the hint of a SELECT, or what is wrong with it."""
    hint = node.args.get("hint")
    found: dict[str, int] = {}
    for call in hint.expressions if hint is not None else ():
        for item in call.expressions:
            sides = (item.this, item.expression) if isinstance(item, exp.EQ) else ()
            if not sides or not all(isinstance(side, exp.Literal) and side.is_string for side in sides):
                return f"the hint {STATE_TTL} is not complete: {_WRITE}"
            name, text = (side.name for side in sides)
            try:
                time = parse_duration(text)
            except ValueError:
                time = None
            if not isinstance(time, timedelta):
                return f"the hint {STATE_TTL}('{name}') takes a duration, such as '36 h', not '{text}'"
            if name in found:
                return f"the hint {STATE_TTL} names '{name}' twice: remove one"
            found[name] = time // timedelta(milliseconds=1)
    return StateTtls(found)


def with_ttl(node: Node, below: Node, ttl: int) -> Node:
    """A grouping whose state is let go of after a time.

    Args:
        below: the rows that are grouped.
    """
    if node is below:
        return node
    match node:
        case Aggregate():
            return replace(node, input=with_ttl(node.input, below, ttl), ttl=ttl)
        case Arrivals():
            return replace(node, ttl=ttl)
        case Join():
            sides = (with_ttl(side, below, ttl) for side in (node.left, node.right))
            left, right = sides
            return replace(node, left=left, right=right, ttls=(ttl, ttl))
        case Project() | Filter():
            return replace(node, input=with_ttl(node.input, below, ttl))
    return node
