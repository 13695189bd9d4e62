"""The clock of a batch: PROCTIME(), NOW() and their like have one value in all of its rows and tasks.

The driver takes the time when it plans the batch, and writes it into expressions before tasks get them: as a literal
into the form that Arrow evaluates, and into Spark SQL, whose own clock is that of each of its queries. So a batch of
several stages has one time, whichever of the two computes a stage, and a task that is tried again has the same.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Final

from upsert_platform.core.plan.columns import Expression, Native
from upsert_platform.core.types import LogicalType, TypeName

_DAY: Final = 86_400_000
_READINGS: Final = {
    "CURRENT_TIMESTAMP": "TIMESTAMP_MILLIS({now}L)",
    "LOCALTIMESTAMP": "CAST(TIMESTAMP_MILLIS({now}L) AS TIMESTAMP_NTZ)",
    "CURRENT_DATE": "CAST(TIMESTAMP_MILLIS({now}L) AS DATE)",
    "UNIX_TIMESTAMP": "({now}L DIV 1000)",
}
"""The functions of Spark by which `sql.functions.times` reads the clock. The session's zone is UTC."""
_TOKENS: Final = re.compile(rf"'(?:[^'\\]|\\.)*'|`[^`]*`|\b({'|'.join(_READINGS)})\(\)", re.DOTALL)
"""Texts and names in quotes, in which nothing is a function; and readings of the clock."""


def now_in_milliseconds() -> int:
    """Return the time of a batch that is planned now, in milliseconds since 1970."""
    return int(time.time() * 1000)


def clock(kind: LogicalType) -> Native:
    """The form of a reading of the clock that has not been taken yet.

    Args:
        kind: what it gives: a TIMESTAMP or TIMESTAMP_LTZ of milliseconds, a DATE, a TIME of whole seconds, or a BIGINT,
            the seconds since 1970.
    """
    return ("clock", kind)


def text_at(sql: str, now: int) -> str:
    """Spark SQL whose readings of the clock give a time.

    Args:
        now: milliseconds since 1970.
    """
    return _TOKENS.sub(lambda found: _READINGS[found[1]].format(now=now) if found[1] else found[0], sql)


def form_at(native: Native, now: int) -> Native:
    """As `text_at`, of a form: literals take the place of readings."""
    if native[0] == "clock":
        return ("literal", _reading(native[1], now), native[1])
    if native[0] == "literal":
        return native
    return tuple(form_at(item, now) if isinstance(item, tuple) else item for item in native)


def expression_at(expression: Expression, now: int) -> Expression:
    """As `text_at`, of an expression."""
    form = None if expression.form is None else form_at(expression.form, now)
    return replace(expression, sql=text_at(expression.sql, now), form=form)


def _reading(kind: LogicalType, now: int) -> int:
    """Return the value that Arrow takes for the type: days, seconds, or microseconds."""
    match kind.name:
        case TypeName.DATE:
            return now // _DAY
        case TypeName.TIME:
            return now % _DAY // 1000 * 1_000_000
        case TypeName.BIGINT:
            return now // 1000
    return now * 1000
