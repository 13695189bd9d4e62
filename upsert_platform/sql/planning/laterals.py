"""LATERAL (SELECT ...): for each row the first rows, or all, that a subquery gives for it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Node, Project, column
from upsert_platform.sql.planning import ranks
from upsert_platform.sql.planning.aggregates import has_aggregate
from upsert_platform.sql.planning.joins import conjuncts, join_rows, padded, split_pairs
from upsert_platform.sql.planning.matches import EVERY_ROW
from upsert_platform.sql.planning.outer_conditions import OuterConditions
from upsert_platform.sql.planning.scope import Columns, Named, Rank, Relation
from upsert_platform.sql.planning.where_clause import around_of, bare

_CLAUSES: Final = {
    "group": "GROUP BY", "having": "HAVING", "distinct": "DISTINCT", "with_": "WITH", "offset": "OFFSET",
    "windows": "WINDOW", "hint": "a hint",
}  # fmt: skip


class LateralJoin(OuterConditions):
    """Reads FROM with LATERAL."""

    @abstractmethod
    def inner(self) -> LateralJoin:
        """A planner of a subquery, which knows the same tables."""

    def _lateral(self, left: Relation, named: list[Named], join: exp.Join) -> tuple[Relation, list[Named]]:
        """Joins each row with the first rows, or all, that a subquery gives for it.

        The columns that the subquery sets equal to those around it divide its rows among the rows of the left side.
        """
        node = join.this
        side, on = (join.side or "").upper(), join.args.get("on")
        always = on is None or (isinstance(on, exp.Boolean) and bool(on.this))
        if side not in ("", "LEFT") or not always or join.args.get("using") or node.args.get("ordinality"):
            raise self.fault("LATERAL stands in CROSS JOIN LATERAL (...) or LEFT JOIN LATERAL (...) ON TRUE", join)
        select = bare(node.this)
        if not isinstance(select, exp.Select):
            raise self.fault(
                "LATERAL takes a subquery: LATERAL (SELECT ... WHERE t.k = around.k ORDER BY ... LIMIT n)", join
            )
        for clause, word in _CLAUSES.items():
            if select.args.get(clause):
                raise self.fault(
                    f"LATERAL (SELECT ...) with {word} is not supported:"
                    " join a subquery that groups by the columns compared",
                    join,
                )
        where = select.args.get("where")
        inner = self.inner()
        relation, inside, parts, _ = inner.from_rows(select, conjuncts(where.this if where else None))
        own, outer = Columns(inside, self.first_line), Columns(named, self.first_line)
        around = around_of(parts, own)
        pairs, rest = split_pairs(around, outer, own)
        if rest:
            raise self.fault("LATERAL compares by = alone with the columns around it", rest[0])
        relation = inner.where_rows(
            relation, inside, [part for part in parts if not any(part is one for one in around)]
        )
        items = inner.items_of(select, own)
        if any(has_aggregate(value) or isinstance(value, exp.Window) for _, value in items):
            raise self.fault("LATERAL (SELECT ...) takes no aggregates and no OVER: join a subquery that groups", join)
        order = [
            (item, str(number)) for number, item in enumerate((select.args.get("order") or exp.Order()).expressions)
        ]
        shown = dict(items)
        given = [(self.names.fresh(name), own.expression(value)) for name, value in items]
        keys = [(self.names.fresh("by"), own.expression(other)) for _, other in pairs]
        terms: list[tuple[str, bool, bool]] = []
        for item, number in order:
            at, value = self.place_of(item.this, len(items)), item.this
            if at is not None:
                value = items[at][1]
            elif isinstance(value, exp.Column) and len(value.parts) == 1 and value.name in shown:
                value = shown[value.name]
            name = self.names.fresh(f"order{number}")
            keys.append((name, own.expression(value)))
            terms.append((name, bool(item.args.get("desc")), bool(item.args.get("nulls_first"))))
        rows: Node = Project(relation.node, (*given, *keys))
        by = [name for name, _ in keys[: len(pairs)]]
        limit = select.args.get("limit")
        if (limit is None) != (not terms):
            raise self.fault("LATERAL (SELECT ...) has ORDER BY and LIMIT together, or neither", join)
        if limit is not None:
            number = limit.expression
            if not isinstance(number, exp.Literal) or not number.name.isdigit() or number.name == "0":
                raise self.fault("LIMIT takes a number above 0", join)
            rank = Rank("", tuple(by), tuple(terms), 0)
            rows = ranks.limit_rows(rows, rank, int(number.name), self.names, shown_as=None)
        fields = {item.name: item for item in rows.fields}
        compared = [(outer.expression(one), column(fields[name])) for (one, _), name in zip(pairs, by, strict=True)]
        kind = "left" if side else "inner"
        joined = join_rows(left.node, rows, kind, compared or [EVERY_ROW], self.names, fault=self.fault("", join))
        result = Relation(rows, tuple((name, fields[new]) for (name, _), (new, _) in zip(items, given, strict=True)))
        alias = node.args.get("alias")
        renamed = [part.name for part in alias.columns] if isinstance(alias, exp.TableAlias) else []
        others = self._named(result, renamed, join).named((node.alias,) if node.alias else ())
        scope = [*padded(named, joined), *padded(others, joined)]
        return Relation(joined, tuple((item.shown, item.field) for item in scope)), scope
