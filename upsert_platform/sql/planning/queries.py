"""A planned query as the source of an INSERT INTO: which of its columns are written, and what tells its rows apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from upsert_platform.core.plan import (
    Join,
    Lookup,
    Materialize,
    Merge,
    Node,
    Project,
    Query,
    Session,
    Temporal,
    column,
    expressions,
    lacking,
    lets_go,
    tells_apart,
)
from upsert_platform.core.types import quote_name
from upsert_platform.sql import query as folded
from upsert_platform.sql.lexer import Token
from upsert_platform.sql.planning import ranks
from upsert_platform.sql.planning.arrivals import last_arrivals
from upsert_platform.sql.planning.closing import final_rows, final_windows
from upsert_platform.sql.planning.from_clause import Find
from upsert_platform.sql.planning.pruning import prune
from upsert_platform.sql.planning.scope import Relation
from upsert_platform.sql.planning.select import plan_select
from upsert_platform.sql.reader import Fault
from upsert_platform.sql.rendered import Rendered

_ONE_ROW: Final = (
    "or choose one row of each key by ROW_NUMBER() OVER (PARTITION BY <the key> ORDER BY ...) with WHERE rn = 1"
)


def query_name(target: str) -> str:
    """Name of the query that an INSERT INTO reads; no table can have it."""
    return f"{target}$query"


def plan_query(
    tokens: tuple[Token, ...], find: Find, *, lateness: int | None = None, taken: Iterable[str] = ()
) -> PlannedQuery:
    """Plans a query that an insert reads.

    Args:
        lateness: how long after their end windows stay open, in microseconds; None where they never close.
        taken: names that no column of the plan gets.

    Raises:
        Fault: it cannot be kept up to date; with its line.
    """
    relation = plan_select(tokens, find, lateness=lateness, taken=taken)
    if relation.rank is not None:
        raise Fault(f"a ROW_NUMBER needs a limit: {ranks.REMEDY}", tokens[0].line)
    return PlannedQuery(relation)


@dataclass(frozen=True)
class SharedKey:
    """Rows of a query may have one key of the target.

    Attributes:
        reason: why.
        remedy: the ways to a key that tells the rows apart, and what does not follow.
    """

    reason: str
    remedy: str

    @property
    def refusal(self) -> str:
        """Return the error for a target whose upsert-materialize is turned off."""
        return f"{self.reason}; rows would overwrite each other, and none could be taken back: {self.remedy}"

    @property
    def warning(self) -> str:
        """Return the warning for a target that is upsert-materialized."""
        return (
            f"{self.reason}; of the rows of a key the one that arrived last is shown, and when it is taken back the one"
            " before it (upsert-materialize): the state holds all rows of the query, and rows that arrive in one batch"
            f" have no order. To do without, {self.remedy}"
        )


@dataclass(frozen=True)
class PlannedQuery:
    """A query before it is known what of it is written."""

    found: Relation

    def relation(self, name: str) -> folded.Relation:
        """Its result as a table of that name."""
        columns = tuple(
            (shown, Rendered(quote_name(field.name), field.type, simple=True, column=field.name))
            for shown, field in self.found.columns
        )
        return folded.Relation(name, columns)

    def without_key(self, find: Find, *, lateness: int | None) -> PlannedQuery:
        """The query for a target without a key, which cannot take rows back.

        Args:
            lateness: as in `plan_query`; windows that never close otherwise close at their end.

        Raises:
            Fault: rows change that belong to no window that closes.
        """
        return PlannedQuery(replace(self.found, node=final_rows(self.found.node, find, lateness or 0)))

    @property
    def final_windows(self) -> frozenset[str]:
        """Names of the ends of windows whose rows are given once they are closed."""
        return final_windows(self.found.node)

    def shared_key(self, primary_key: Sequence[str], key: Mapping[str, str | None]) -> SharedKey | None:
        """Return why the key of a target does not identify the rows of the result, or None if it does.

        Args:
            primary_key: of the target.
            key: its columns to columns of the result; constants left out.
        """
        node = self.found.node
        shown = {field.name: name for name, field in self.found.columns}
        given = {name for name in key.values() if name is not None}
        if node.appends or tells_apart(node, given):
            return None
        choices = [sorted(shown[name] for name in unique) for unique in node.keys if unique <= set(shown)]
        of = f"the primary key of the target is ({', '.join(primary_key)})"
        why = self._why(given, shown)
        if not choices:
            return SharedKey(
                f"nothing tells the rows of the query apart, and {of}",
                f"group by what fills it, or select the keys of the tables that are joined, {_ONE_ROW}{why}",
            )
        told = " or ".join(f"({', '.join(names)})" if names else "nothing: it has one row" for names in choices[:3])
        return SharedKey(
            f"the rows of the query are told apart by {told}, but {of}",
            f"group by the key's columns, or add what is missing to the key, {_ONE_ROW}{why}",
        )

    def _why(self, given: set[str], shown: Mapping[str, str]) -> str:
        """Return the columns of the target's key that add nothing, and those that do not follow from the others."""
        node = self.found.node
        computed = dict(node.columns) if isinstance(node, Project) else {}
        vague = [
            shown.get(name, name)
            for name in sorted(given)
            if (item := computed.get(name)) is not None and item.column is None and item.keeps is None
        ]
        missing = [shown.get(name, name) for name in lacking(node, given)]
        why = ""
        if vague:
            why += f"; {', '.join(vague)} may be the same for different rows"
        if missing:
            why += f"; {', '.join(missing)} does not follow from the key"
        return why

    def query(
        self,
        name: str,
        *,
        used: Mapping[str, str],
        key: tuple[str, ...],
        keyed: bool,
        statement: str,
        shared: bool = False,
        state_ttl: int | None = None,
    ) -> Query:
        """The query, with the columns that are written.

        Args:
            used: columns of the result to what the query calls them.
            key: of those names; without constants.
            keyed: the target has a key: of rows that are only added the last one of each wins.
            shared: rows may have one key: the one that arrived last is shown.
            state_ttl: after how many milliseconds without a change state is let go of; None for never.
        """
        pruned = prune(self.found.node, list(used))
        types = {field.name: field for field in pruned.fields}
        plan: Node = Project(pruned, tuple((new, column(types[old])) for old, new in used.items()))
        if plan.appends and keyed and not any(unique <= set(key) for unique in plan.keys):
            plan = last_arrivals(plan, key)
        if shared:
            plan = Materialize(plan, key)
        return Query(name, plan, () if plan.appends else key, statement, state_ttl)


def crosses(node: Node) -> bool:
    """Return whether every row of one side of a join is combined with every row of the other."""
    own = (
        isinstance(node, Join)
        and node.kind not in ("semi", "anti")
        and _compares_nothing(node)
        and not _has_one_row(node.left)
        and not _has_one_row(node.right)
    )
    return own or any(crosses(item) for item in node.inputs)


def _compares_nothing(node: Join) -> bool:
    """Return whether no column of the left side decides which rows match."""
    columns = dict(node.left.columns) if isinstance(node.left, Project) else {}
    natives = [columns[name].native if name in columns else None for name in node.left_on]
    return all(native is not None and native[0] == "literal" for native in natives)


def _has_one_row(node: Node) -> bool:
    return frozenset() in node.keys


def keeping(query: Query) -> tuple[str, ...]:
    """Return the parts of a query whose state stays, although it lets go of state that nothing changes."""
    return tuple(dict.fromkeys(_keeping(query.plan))) if lets_go(query) else ()


def _keeping(node: Node) -> list[str]:
    own: list[str] = []
    if isinstance(node, Temporal):
        own = ["temporal joins"]
    elif isinstance(node, Lookup) and not node.input.appends:
        own = ["lookup joins"]
    elif isinstance(node, Session):
        own = ["SESSION windows"]
    elif isinstance(node, Merge):
        own = ["several INSERT INTO one table"]
    return [*own, *(found for item in node.inputs for found in _keeping(item))]


def varying(query: Query) -> tuple[str, ...]:
    """Functions in a query that give another value each time."""
    return tuple(dict.fromkeys(item.varies for item in expressions(query.plan) if item.varies is not None))


def can_fail(query: Query) -> bool:
    """Return whether a computed column that a query uses has no value for some rows."""
    return any(item.fails is not None for item in expressions(query.plan))
