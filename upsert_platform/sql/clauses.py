"""The parts of a parsed statement that are read. Any other part is refused, for nothing that is written is passed over.

sqlglot parses the SQL of many systems: a node may hold a part that Flink has, or not, and that nothing here looks at.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

_OPERATORS: Final = (
    exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.And, exp.Or, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE,
    exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is, exp.SimilarTo, exp.Escape, exp.Dot, exp.Filter, exp.Extract,
    exp.IntervalSpan,
)  # fmt: skip
_SETS: Final = "this expression distinct with_ order limit offset"
_READ: Final[dict[type[exp.Expr], str]] = {
    **dict.fromkeys(_OPERATORS, "this expression"),
    # queries
    exp.Select: "with_ hint distinct expressions from_ joins where group having windows order limit offset",
    exp.Subquery: "this alias with_ joins order limit offset",
    exp.Union: _SETS,
    exp.Intersect: _SETS,
    exp.Except: _SETS,
    exp.Values: "expressions alias joins",
    exp.With: "expressions recursive",
    exp.CTE: "this alias",
    exp.Hint: "expressions",
    exp.Distinct: "expressions",
    exp.From: "this",
    exp.Where: "this",
    exp.Having: "this",
    exp.Group: "expressions all",
    exp.GroupingSets: "expressions",
    exp.Cube: "expressions",
    exp.Rollup: "expressions",
    exp.Tuple: "expressions",
    exp.Order: "expressions",
    exp.Ordered: "this desc nulls_first",
    exp.Limit: "expression",
    exp.Offset: "expression",
    exp.Fetch: "direction count limit_options",
    exp.LimitOptions: "percent rows with_ties",
    # tables
    exp.Table: "this alias db catalog joins version",
    exp.TableAlias: "this columns",
    exp.Version: "this kind expression",
    exp.Join: "this on side kind using method",
    exp.Lateral: "this alias ordinality",
    exp.Unnest: "expressions alias offset",
    # windows
    exp.Window: "this partition_by order spec alias over",
    exp.WindowSpec: "kind start start_side end end_side exclude",
    # expressions
    exp.Alias: "this alias",
    exp.Identifier: "this quoted",
    exp.Column: "this table db catalog",
    exp.Star: "",
    exp.Literal: "this is_string",
    exp.Boolean: "this",
    exp.Null: "",
    exp.HexString: "this",
    exp.Var: "this",
    exp.Paren: "this",
    exp.Neg: "this",
    exp.Not: "this",
    exp.Div: "this expression typed safe",
    exp.DPipe: "this expression safe",
    exp.JSON: "this",
    exp.Between: "this low high symmetric",
    exp.In: "this expressions query field unnest",
    exp.Exists: "this",
    exp.Like: "this expression negate",
    exp.Case: "this ifs default",
    exp.If: "this true",
    exp.Cast: "this to flink_type",
    exp.TryCast: "this to flink_type",
    exp.Interval: "this unit",
    exp.Floor: "this to",
    exp.Ceil: "this to",
    exp.Trim: "this expression position",
    exp.Substring: "this start length",
    exp.StrPosition: "this substr",
    exp.Overlay: "this expression from_ for_",
    exp.CurrentDate: "",
    exp.CurrentTime: "",
    exp.CurrentTimestamp: "",
    exp.Array: "expressions bracket_notation value_constructor",
    exp.Bracket: "this expressions",
    exp.Anonymous: "this expressions flink_type flink_clauses flink_on_empty flink_on_error",
}
"""Class of a node to what is read of it. What has no line is refused by name where it stands."""
READ: Final = {kind: frozenset(parts.split()) for kind, parts in _READ.items()}
_WORDS: Final = {
    "cluster": "CLUSTER BY", "connect": "CONNECT BY", "cross_apply": "CROSS APPLY", "distribute": "DISTRIBUTE BY",
    "except_": "* EXCEPT", "replace": "* REPLACE", "rename": "* RENAME", "order": "ORDER BY", "into": "INTO",
    "laterals": "LATERAL VIEW", "locks": "FOR UPDATE", "match": "MATCH_RECOGNIZE", "pivots": "PIVOT",
    "qualify": "QUALIFY", "sample": "TABLESAMPLE", "sort": "SORT BY", "when": "FOR SYSTEM_TIME AS OF",
    "system_time": "FOR SYSTEM_TIME AS OF", "by_name": "BY NAME", "prewhere": "PREWHERE",
    "ordinality": "WITH ORDINALITY", "materialized": "MATERIALIZED", "totals": "WITH TOTALS",
}  # fmt: skip


def unread_part(root: exp.Expr) -> tuple[exp.Expr, str] | None:
    """The first part of a statement that nothing reads: its node, and what SQL calls it; None where all are read."""
    for node in root.walk():
        known = READ.get(type(node))
        if known is None:
            continue
        for name, value in node.args.items():
            if value is not None and value is not False and value != [] and name not in known:
                return node, _named(node, name)
    return None


def _named(node: exp.Expr, part: str) -> str:
    if part == "this":
        return _WORDS.get(node.key, node.key.upper())
    return _WORDS.get(part, f"{part.strip('_').upper()} in {node.key.upper()}")
