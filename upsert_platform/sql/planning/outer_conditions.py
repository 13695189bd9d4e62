"""Subqueries in the ON of an outer join: each becomes a column of the side that it reads, and lets no row of it go."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from upsert_platform.core.plan import Join, Node
from upsert_platform.sql.planning.scope import Columns, Relation
from upsert_platform.sql.planning.where_clause import WhereClause, is_list, taken_values
from upsert_platform.sql.reader import Fault

Side = tuple[Node, Columns]
Add = Callable[[Node, Columns], Side]
_BOTH_SIDES = (
    "a subquery in the ON of an outer join reads columns of one side alone: select what it gives in a subquery in the"
    " place of that side"
)


class OuterConditions(WhereClause):
    """Reads FROM with subqueries in ON."""

    @abstractmethod
    def inner(self) -> OuterConditions:
        """A planner of a subquery, which knows the same tables."""

    def asked_of_sides(
        self,
        left: Relation,
        left_columns: Columns,
        right: Relation,
        right_columns: Columns,
        parts: Sequence[exp.Expr],
        kind: str,
    ) -> tuple[tuple[Relation, Columns], tuple[Relation, Columns], list[exp.Expr]]:
        """The sides of an outer join with what the subqueries of its ON give, and the conditions over these columns.

        Args:
            kind: ``left``, ``right`` or ``full``. A condition on the side that is padded filters that side.

        Raises:
            Fault: a subquery reads columns of both sides, or what it asks is not supported.
        """
        sides: list[Side] = [(left.node, left_columns), (right.node, right_columns)]
        padded = {"left": 1, "right": 0}.get(kind)
        found: list[exp.Expr] = []
        for part in parts:
            if part.find(exp.Select) is None:
                found.append(part)
            elif padded is None or not self._filters(sides, padded, part):
                found.append(self._answered(sides, part.copy()))
        (one, one_columns), (other, other_columns) = sides
        return (replace(left, node=one), one_columns), (replace(right, node=other), other_columns), found

    def _filters(self, sides: list[Side], at: int, part: exp.Expr) -> bool:
        """Filter a side by a condition; return whether it reads no column of the other one, and can."""
        node, columns = sides[at]
        try:
            rows = self.where_rows(Relation(node, ()), list(columns.named), [part.copy()])
        except Fault:
            return False
        sides[at] = (rows.node, columns)
        return True

    def _answered(self, sides: list[Side], part: exp.Expr) -> exp.Expr:
        """A condition over columns of the sides, which get those that its subqueries need."""
        lists = [item for item in part.walk(prune=is_list) if is_list(item) and not isinstance(item, exp.Subquery)]
        chosen: tuple[list[exp.Expr], list[exp.Expr]] = ([], [])
        for item in lists:
            chosen[self._side(sides, item, self._listing(item), prefer=_beside(part, sides))].append(item)
        for at, own in enumerate(chosen):
            if own:
                node, columns, part = self._marks(*sides[at], part, chosen=own)
                sides[at] = (node, columns)
        number = sum(len(columns.named) for _, columns in sides)
        (part,), values = taken_values([part], f"condition {number}")
        for shown, item in values:
            add = self._valuing(shown, item)
            at = self._side(sides, item, add, prefer=_beside(part, sides))
            sides[at] = add(*sides[at])
        return part

    def _listing(self, item: exp.Expr) -> Add:
        alone = item.copy()
        return lambda node, columns: self._marks(node, columns, alone, chosen=[alone])[:2]

    def _valuing(self, shown: str, item: exp.Subquery) -> Add:
        return lambda node, columns: self.with_values(node, columns, [(shown, item)])

    def _side(self, sides: Sequence[Side], item: exp.Expr, add: Add, *, prefer: int) -> int:
        """The side of which alone a subquery, with what is compared with it, reads columns.

        Args:
            prefer: the side of one that reads none of either.

        Raises:
            Fault: it reads columns of both.
        """
        faults: list[Fault] = []
        for at in (prefer, 1 - prefer):
            try:
                add(*sides[at])
            except Fault as fault:
                faults.append(fault)
            else:
                return at
        (left, left_columns), (right, right_columns) = sides
        both = Columns([*left_columns.named, *right_columns.named], self.first_line)
        add(Join(left, right, "inner", (), ()), both)  # raises the reason if the sides are none
        raise self.fault(_BOTH_SIDES, item)


def _beside(part: exp.Expr, sides: Sequence[Side]) -> int:
    """The side of which a condition reads columns outside of its subqueries: the right one if it is that alone."""
    outside = [
        item for item in part.walk(prune=lambda item: isinstance(item, exp.Query)) if isinstance(item, exp.Column)
    ]
    right = sides[1][1]
    return 1 if outside and all(right.fits(item) for item in outside) else 0
