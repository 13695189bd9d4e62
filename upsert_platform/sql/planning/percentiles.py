"""PERCENTILE(value, share [, frequency]): what its arguments are for a plan."""

from __future__ import annotations

import json
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Expression
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.planning.scope import Columns, as_type
from upsert_platform.sql.rendered import INTEGERS, NUMBERS

_DOUBLE: Final = LogicalType(TypeName.DOUBLE)


def percentile_of(arguments: list[exp.Expr], columns: Columns, node: exp.Expr) -> tuple[str, Expression]:
    """The shares as JSON (a list of one list where the result is an array), and what is listed of each row.

    That is a number, or a text of one and of how often it counts where a frequency is given; null for a row that does
    not count.

    Raises:
        Fault: the arguments are others than those of Flink, or the share is no constant.
    """
    if not 2 <= len(arguments) <= 3:
        raise columns.fault("PERCENTILE takes a number, a share from 0 to 1 and, if wanted, a frequency", node)
    shares = _shares(arguments[1], columns, node)
    value = columns.expression(arguments[0])
    if value.type.name not in NUMBERS:
        raise columns.fault(f"PERCENTILE takes a number, not {value.type}", node)
    if len(arguments) < 3:
        return shares, value
    count = columns.expression(arguments[2])
    if count.type.name not in INTEGERS:
        raise columns.fault(f"the frequency of PERCENTILE is a whole number, not {count.type}", node)
    number = as_type(value, _DOUBLE).sql
    text = f"CASE WHEN ({count.sql}) > 0 THEN CONCAT(CAST({number} AS STRING), ' ', CAST({count.sql} AS STRING)) END"
    reads = tuple(sorted({*value.reads, *count.reads}))
    varies = value.varies or count.varies
    return shares, Expression(text, LogicalType(TypeName.STRING), varies=varies, reads=reads)


def percentile_type(shares: str) -> LogicalType:
    """The type of the result, DOUBLE or an array of them."""
    return LogicalType(TypeName.ARRAY, element=_DOUBLE) if isinstance(json.loads(shares)[0], list) else _DOUBLE


def _shares(node: exp.Expr, columns: Columns, call: exp.Expr) -> str:
    several = isinstance(node, exp.Array)
    given = list(node.expressions) if several else [node]
    found = [float(item.name) for item in given if isinstance(item, exp.Literal) and not item.is_string]
    if not found or len(found) < len(given) or any(share > 1 for share in found):
        raise columns.fault(
            "the share of PERCENTILE is a number from 0 to 1, or ARRAY[...] of such numbers, written out", call
        )
    return json.dumps([found] if several else found)
