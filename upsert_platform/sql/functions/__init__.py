"""Flink's scalar functions in Spark SQL. Every function is named here, or refused when it is declared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from upsert_platform.core.options import nearest
from upsert_platform.sql.functions import collections, conditional, json, numbers, text, times
from upsert_platform.sql.functions.signatures import ANY, FunctionFault, Overloads
from upsert_platform.sql.rendered import Rendered

__all__ = ["AGGREGATES", "VARYING", "WINDOWS", "FunctionFault", "call"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


AGGREGATES: Final = _words(
    "APPROX_COUNT_DISTINCT ARRAY_AGG AVG COLLECT COUNT CUME_DIST DENSE_RANK FIRST_VALUE GROUPING GROUPING_ID"
    " GROUP_ID JSON_ARRAYAGG JSON_OBJECTAGG LAG LAST_VALUE LEAD LISTAGG MAX MIN NTILE PERCENTILE PERCENT_RANK RANK"
    " ROW_NUMBER STDDEV STDDEV_POP STDDEV_SAMP SUM VARIANCE VAR_POP VAR_SAMP"
)
WINDOWS: Final = _words(
    "CUMULATE HOP HOP_END HOP_PROCTIME HOP_ROWTIME HOP_START SESSION SESSION_END SESSION_PROCTIME SESSION_ROWTIME"
    " SESSION_START TUMBLE TUMBLE_END TUMBLE_PROCTIME TUMBLE_ROWTIME TUMBLE_START"
)
VARYING: Final = _words(
    "CURRENT_DATE CURRENT_ROW_TIMESTAMP CURRENT_TIME CURRENT_TIMESTAMP LOCALTIME LOCALTIMESTAMP NOW PROCTIME RAND"
    " RAND_INTEGER UUID"
)
"""Functions that give another value when a batch is written again."""
_NOT_THERE: Final = {
    times.WATERMARK_FUNCTION: "it stands in the select list, WHERE or GROUP BY of INSERT INTO ... SELECT",
    "SOURCE_WATERMARK": "micro-batches have no watermarks",
    "HASH_CODE": "use MD5 or SHA256",
    "JSON_QUOTE": "use JSON_STRING",
    "JSON_UNQUOTE": "JSON_VALUE takes a text out of JSON",
    "PARSE_JSON": "JSON_VALUE and JSON_QUERY read JSON texts",
    "TRY_PARSE_JSON": "JSON_VALUE and JSON_QUERY read JSON texts",
    "CURRENT_DATABASE": "a project has one name space",
    "CURRENT_CATALOG": "a project has one name space",
}
"""Functions of Flink that are refused, with what to use instead."""
_CATALOGUE: Final[dict[str, Overloads]] = {
    name: overloads
    for room in (collections, conditional, json, numbers, text, times)
    for name, overloads in room.FUNCTIONS.items()
}
_WITH_CLAUSES: Final = ("JSON_VALUE", "JSON_QUERY", "JSON_EXISTS", "JSON_OBJECT", "JSON_ARRAY", "CAST", "TRY_CAST",
                        "EXTRACT", "TRIM", "POSITION")  # fmt: skip


def call(name: str, arguments: Sequence[Rendered], *, more: Sequence[str] = ()) -> Rendered:
    """Spark SQL of a function call.

    Args:
        more: names of functions that a project declares, for messages.

    Raises:
        FunctionFault: there is no such function, or it does not take these arguments.
    """
    upper, count = name.upper(), len(arguments)
    if upper in _NOT_THERE:
        raise FunctionFault(f"{upper} is not supported: {_NOT_THERE[upper]}")
    overloads = _CATALOGUE.get(upper)
    if overloads is None:
        raise FunctionFault(f"unknown function {upper}{nearest(upper, (*_CATALOGUE, *_WITH_CLAUSES, *more))}")
    handler = overloads.get(count) or overloads.get(ANY)
    if handler is None:
        taken = " or ".join(map(str, sorted(overloads)))
        raise FunctionFault(f"{upper} does not take {count} arguments but {taken}")
    found = handler(arguments)
    varies = upper in VARYING or (upper == "UNIX_TIMESTAMP" and not arguments)
    return replace(found, varies=found.varies or upper) if varies else found
