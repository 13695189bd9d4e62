"""Functions that MaxCompute has under names or with meanings of its own, as DuckDB's.

The parser hands them on under names that no other dialect knows. What they compute is a macro; what the text of a query
decides is rewritten in the tree.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark

from upsert_platform.local.maxcompute.errors import semantic_error

_OWN: Final = (
    *("TO_CHAR", "TO_DATE", "DATEADD", "DATEDIFF", "DATETRUNC", "DATEPART", "LASTDAY", "WEEKDAY"),
    *("UNIX_TIMESTAMP", "FROM_UNIXTIME"),
)
_PREFIX: Final = "mc_"
_FORMATS: Final = {
    "yyyy": "%Y", "mm": "%m", "dd": "%d", "hh24": "%H", "hh": "%H", "mi": "%M", "ss": "%S", "ff3": "%g", "%": "%%",
}  # fmt: skip
_FORMAT_PART: Final = re.compile("yyyy|mm|dd|hh24|hh|mi|ss|ff3|%", re.IGNORECASE)


class MaxComputeSql(Spark):
    """Spark's dialect, except for functions that are MaxCompute's own."""

    class Parser(Spark.Parser):  # type: ignore[misc,valid-type]  # made by sqlglot's metaclass
        FUNCTIONS = {  # noqa: RUF012 - sqlglot's form
            **Spark.Parser.FUNCTIONS,
            **{
                name: lambda args, name=name: exp.Anonymous(this=f"{_PREFIX}{name.lower()}", expressions=args)
                for name in _OWN
            },
        }


def rewrite_functions(tree: exp.Expression, *, max_partition: Callable[[str], str]) -> exp.Expression:
    """The tree with what its text decides rewritten; the tree itself is changed.

    Args:
        max_partition: the greatest first partition value of a table, given the table's dotted name.

    Raises:
        ServiceError: a format or a table's name is not a constant.
    """

    def rewritten(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Anonymous):
            return node
        arguments = node.expressions
        match node.name.lower():
            case "mc_to_char" | "mc_to_date" if len(arguments) == 2:
                text = exp.Literal.string(_strftime(_constant(arguments[1], "a format")))
                return exp.Anonymous(this=node.this, expressions=[arguments[0], text])
            case "max_pt" if len(arguments) == 1:
                return exp.Literal.string(max_partition(_constant(arguments[0], "max_pt")))
            case "wm_concat":
                return _concatenation(arguments)
        return node

    return tree.transform(rewritten, copy=False)


def _constant(node: exp.Expression, what: str) -> str:
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise semantic_error(f"{what} takes a constant text, not {node.sql()}")
    return node.name


def _strftime(text: str) -> str:
    """A format such as ``yyyy-mm-dd hh:mi:ss.ff3`` as DuckDB's strftime takes it; other letters are themselves."""
    return _FORMAT_PART.sub(lambda match: _FORMATS[match[0].lower()], text)


def _concatenation(arguments: list[exp.Expression]) -> exp.Expression:
    """``wm_concat(separator, value)``, also with DISTINCT."""
    distinct = arguments[0] if arguments and isinstance(arguments[0], exp.Distinct) else None
    given = distinct.expressions if distinct is not None else arguments
    if len(given) != 2:
        raise semantic_error("wm_concat takes a separator and a value")
    separator, value = given
    text: exp.Expression = exp.Cast(this=value.copy(), to=exp.DataType.build("text"))
    if distinct is not None:
        text = exp.Distinct(expressions=[text])
    return exp.GroupConcat(this=text, separator=separator.copy())
