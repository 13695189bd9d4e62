"""Macros of the query engine: functions whose meaning depends on the type of a value have a form per type.

The parser's functions (``sql.functions``) call those that begin with ``mc_``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_PARTS: Final = {
    "year": ("yyyy", "year", "years"),
    "month": ("mm", "month", "months", "mon"),
    "day": ("dd", "day", "days"),
    "hour": ("hh", "hour", "hours"),
    "minute": ("mi", "minute", "minutes"),
    "second": ("ss", "second", "seconds"),
    "millisecond": ("ff3", "millisecond", "milliseconds"),
}


def _by_part(value: str, made: Callable[[str], str]) -> str:
    """SQL that chooses by a part such as ``'mm'``, and refuses others."""
    cases = " ".join(
        f"WHEN lower({value}) IN ({', '.join(repr(name) for name in names)}) THEN {made(part)}"
        for part, names in _PARTS.items()
    )
    return f"CASE {cases} ELSE error('''' || {value} || ''' is not a date part') END"


def _for_times(body: str) -> str:
    """The forms of a macro of ``(d, ...)`` for the types of ``d``: a moment is given back in the type that it has."""
    head, _, expression = body.partition(" AS ")
    rest = head[head.index("(d") + 2 :]
    forms = []
    for kind in ("DATE", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP", "VARCHAR"):
        given = {"VARCHAR": "TIMESTAMP_MS", "TIMESTAMP": "TIMESTAMP_NS"}.get(kind, kind)
        forms.append(f"(d {kind}{rest} AS CAST({expression.replace('$d', 'CAST(d AS TIMESTAMP)')} AS {given})")
    return f"CREATE MACRO {head[: head.index('(')]}{', '.join(forms)}"


_INTERVALS: Final = {
    part: f"to_{part}s(CAST(n AS {'BIGINT' if part in ('hour', 'minute') else 'INTEGER'}))" for part in _PARTS
}
_INTERVALS["second"], _INTERVALS["millisecond"] = "to_seconds(CAST(n AS DOUBLE))", "to_milliseconds(CAST(n AS DOUBLE))"

MACROS: Final = (
    "CREATE MACRO getdate() AS CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP_MS)",
    "CREATE MACRO to_millis(x) AS epoch_ms(x)",
    f"CREATE MACRO mc_unit(p) AS {_by_part('p', repr)}",
    f"CREATE MACRO mc_interval(n, p) AS {_by_part('p', lambda part: _INTERVALS[part])}",
    _for_times("mc_dateadd(d, n, p) AS $d + mc_interval(n, p)"),
    _for_times("mc_datetrunc(d, p) AS date_trunc(mc_unit(p), $d)"),
    _for_times("mc_lastday(d) AS last_day($d)"),
    "CREATE MACRO mc_datediff(a, b, p) AS date_diff(mc_unit(p), CAST(b AS TIMESTAMP), CAST(a AS TIMESTAMP)),"
    " (a, b) AS date_diff('day', CAST(b AS TIMESTAMP), CAST(a AS TIMESTAMP))",
    "CREATE MACRO mc_datepart(d, p) AS CAST(date_part(mc_unit(p), CAST(d AS TIMESTAMP)) AS BIGINT)",
    "CREATE MACRO mc_weekday(d) AS CAST(isodow(CAST(d AS TIMESTAMP)) - 1 AS BIGINT)",
    "CREATE MACRO mc_to_char(v) AS CAST(v AS VARCHAR), (v, f) AS strftime(CAST(v AS TIMESTAMP), f)",
    "CREATE MACRO mc_to_date(v) AS CAST(v AS DATE), (v, f) AS CAST(strptime(v, f) AS TIMESTAMP_MS)",
    "CREATE MACRO mc_unix_timestamp() AS CAST(floor(epoch(now())) AS BIGINT),"
    " (v) AS CAST(floor(epoch(CAST(v AS TIMESTAMP))) AS BIGINT)",
    "CREATE MACRO mc_from_unixtime(n) AS CAST(to_timestamp(n) AT TIME ZONE 'UTC' AS TIMESTAMP_MS)",
)
