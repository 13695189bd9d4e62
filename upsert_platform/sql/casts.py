"""CAST and TRY_CAST between Flink's types, as Spark SQL.

Between numbers nothing fails: integers wrap, doubles saturate, and what does not fit a DECIMAL is null. A text that is
no such value is null in TRY_CAST and fails in CAST. The session must not be in ANSI mode, see `evaluation`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from upsert_platform.core.types import LogicalType, TypeName, quote_name, spark_type
from upsert_platform.sql.constants import is_value
from upsert_platform.sql.numbers import as_decimal, is_exact
from upsert_platform.sql.rendered import (
    BINARIES,
    INTEGERS,
    NUMBERS,
    STRING,
    STRINGS,
    TIMESTAMPS,
    Rendered,
    fails_when,
    made,
    quote_text,
    same_type,
    truncate,
)  # fmt: skip

_N = TypeName
_MICROSECONDS_OF_DAY: Final = 86_400_000_000
_PLAIN_SCALE: Final = 6
"""Up to it Spark writes a decimal without an exponent."""
_NESTED: Final = (_N.ARRAY, _N.MAP, _N.MULTISET, _N.ROW)
_DATE: Final = r"^\s*0*(\d{1,4})\s*(?:-\s*(\d+)\s*(?:-\s*(\d+)\s*)?)?$"
_TIME: Final = r"^\s*\d{1,2}(:\d{1,2}(:\d{1,2}(\.\d{1,9})?)?)?\s*$"
_TIMESTAMP: Final = r"^(?!0000)\d{4}-\d{1,2}-\d{1,2}( \d{1,2}:\d{1,2}:\d{1,2}(\.\d{1,9})?)?$"
"""What Flink takes for such a value, which is not all that Spark would take."""
_PASSED_OVER: Final = r"^([ \n\t]*[+-]?[0-9]*\.?[0-9]*)([\x00-\x7F&&[^0-9.eE]][ \n\t]*|[eE])$"
"""A number with one more character behind it, which Flink passes over where digits and text are at most 18."""
_NO_NUMBER: Final = r"^[ \n\t]*[+-]?$"
_SHORT_DECIMAL: Final = 18


def can_cast(source: LogicalType, to: LogicalType) -> bool:
    """Return whether Flink has such a cast at all."""
    left, right = source.name, to.name
    if left in STRINGS or right in STRINGS:
        return not (left in STRINGS and right in _NESTED)
    if left in NUMBERS or left is _N.BOOLEAN:
        return right in NUMBERS or right is _N.BOOLEAN
    if left in BINARIES:
        return right in BINARIES
    if left is _N.DATE:
        return right in (_N.DATE, *TIMESTAMPS)
    if left is _N.TIME:
        return right in (_N.TIME, *TIMESTAMPS)
    if left in TIMESTAMPS:
        return right in (_N.DATE, _N.TIME, *TIMESTAMPS)
    if left is not right:
        return False
    if left is _N.ROW:
        return len(source.fields) == len(to.fields) and all(
            can_cast(one.type, other.type) for one, other in zip(source.fields, to.fields, strict=True)
        )
    pairs = ((source.key, to.key), (source.element, to.element))
    return all(one is None or other is None or can_cast(one, other) for one, other in pairs)


def cast(value: Rendered, to: LogicalType, *, safe: bool = False, implicit: bool = False) -> Rendered:
    """Casts as Flink does.

    Args:
        safe: TRY_CAST: null instead of a failure.
        implicit: as when a value is written to a column: lengths of CHAR and VARCHAR are not enforced, and a number
            that does not fit a DECIMAL fails, because nothing is lost without a word.
    """
    unbounded = implicit or to.name is _N.STRING
    if same_type(value.type, to) or (unbounded and value.root in STRINGS and to.name in STRINGS):
        return replace(value, type=to)
    if value.type is None:
        return made(f"CAST({value.sql} AS {spark_type(to)})", to, value)
    sql = _cast(value.sql, value.type, to, implicit=implicit)
    fails = None
    known = value.constant is not None and is_value(value.constant, to)
    if value.root in STRINGS and to.name not in (*STRINGS, *BINARIES) and not (safe or known):
        shown = f"CONCAT('a text cannot be cast to {_shown(to)}: ', SUBSTRING({value.sql}, 1, 100))"
        fails = f"CASE WHEN {value.wrapped} IS NOT NULL AND ({sql}) IS NULL THEN {shown} END"
    elif value.root in _NESTED and (lost := _lost(value.wrapped, value.type, to)) is not None:
        if safe:
            sql = f"CASE WHEN NOT COALESCE({lost}, FALSE) THEN {sql} END"
        else:
            fails = fails_when(lost, f"a text in a collection cannot be cast to {replace(to, nullable=True)}")
    elif implicit and to.name is _N.DECIMAL and value.root in NUMBERS and not _has_room(value, to):
        fails = fails_when(f"{value.wrapped} IS NOT NULL AND ({sql}) IS NULL", f"a number does not fit {to}")
    return made(sql, to, value, fails=fails)


def _lost(sql: str, source: LogicalType, to: LogicalType) -> str | None:
    """Return the condition that a text in a value is none of its new type: then the value has no cast. None: never."""
    if source.name in STRINGS:
        if to.name in (*STRINGS, *BINARIES):
            return None
        return f"({sql} IS NOT NULL AND ({_cast(sql, source, to)}) IS NULL)"
    if source.name is not to.name or source.name not in _NESTED:
        return None
    found: list[str] = []
    if source.name is _N.ROW:
        pairs = zip(source.fields, to.fields, strict=True)
        fields = [_lost(f"({sql}).{quote_name(old.name)}", old.type, new.type) for old, new in pairs]
        found = [field for field in fields if field is not None]
    else:
        elements = {_N.ARRAY: sql, _N.MAP: f"MAP_VALUES({sql})", _N.MULTISET: f"MAP_KEYS({sql})"}[source.name]
        for values, old, new in ((elements, source.element, to.element), (f"MAP_KEYS({sql})", source.key, to.key)):
            lost = _lost("_e", old, new) if old is not None and new is not None else None
            if lost is not None:
                found.append(f"EXISTS({values}, _e -> {lost})")
    return f"({' OR '.join(found)})" if found else None


def _has_room(value: Rendered, to: LogicalType) -> bool:
    """Return whether a DECIMAL takes every value of an exact number, rounded to its scale."""
    if value.type is None or not is_exact(value.type):
        return False
    room = (to.precision or 0) - (to.scale or 0) - whole_digits(value)
    return room > 0 or (room == 0 and (to.scale or 0) >= (as_decimal(value.type).scale or 0))


def whole_digits(value: Rendered) -> int:
    """The digits before the point that an exact number has at most."""
    assert value.type is not None
    given = as_decimal(value.type)
    by_type = (given.precision or 0) - (given.scale or 0)
    return by_type if value.most_whole is None else min(by_type, value.most_whole)


def _shown(to: LogicalType) -> str:
    return str(replace(to, nullable=True)).replace("'", "\\'")


def _cast(sql: str, source: LogicalType, to: LogicalType, *, implicit: bool = False) -> str:
    """Null where there is no such value."""
    left, right = source.name, to.name
    if right in STRINGS:
        text = to_text(sql, source)
        if right is _N.CHAR and not implicit:
            return f"RPAD(SUBSTRING({text}, 1, {to.length}), {to.length}, ' ')"
        return f"SUBSTRING({text}, 1, {to.length})" if right is _N.VARCHAR and not implicit else text
    if right is _N.DATE:
        if left in STRINGS:
            return _parse_date(sql)
        return day_of(sql) if left is _N.TIMESTAMP else f"CAST({sql} AS DATE)"
    if right in BINARIES and to.length and not implicit:
        cut = f"SUBSTRING(CAST({sql} AS BINARY), 1, {to.length})"
        return f"RPAD({cut}, {to.length}, X'00')" if right is _N.BINARY else cut
    if right is _N.TIME:
        return _to_time(sql, source, to)
    if right in TIMESTAMPS:
        return _to_timestamp(sql, source, to)
    if right in _NESTED:
        return _nested(sql, source, to, implicit=implicit)
    if right is _N.DECIMAL and left in STRINGS and (to.precision or 0) <= _SHORT_DECIMAL:
        return _parse_short_decimal(sql, to)
    if right in INTEGERS and left is _N.DECIMAL:
        return f"CAST(CAST({sql} AS BIGINT) AS {spark_type(to)})"
    return f"CAST({sql} AS {spark_type(to)})"


def to_text(sql: str, source: LogicalType) -> str:
    """The text that Flink's CAST makes of a value."""
    match source.name:
        case _N.CHAR | _N.VARCHAR | _N.STRING:
            return sql
        case _N.BOOLEAN:
            return f"UPPER(CAST({sql} AS STRING))"
        case _N.DECIMAL if (source.scale or 0) > _PLAIN_SCALE:
            return f"FORMAT_NUMBER({sql}, '0.{'0' * (source.scale or 0)}')"
        case _N.DATE:
            # From the year 10000 on, Flink writes the last four digits of the year.
            return f"RIGHT(DATE_FORMAT({sql}, 'yyyy-MM-dd'), 10)"
        case _N.TIMESTAMP | _N.TIMESTAMP_LTZ:
            digits = min(source.precision or 0, 9)
            return (
                f"RIGHT(DATE_FORMAT({sql}, '{_pattern('yyyy-MM-dd HH:mm:ss', digits)}'), {19 + digits + bool(digits)})"
            )
        case _N.TIME:
            return f"DATE_FORMAT(TIMESTAMP_MICROS({sql}), '{_pattern('HH:mm:ss', min(source.precision or 0, 9))}')"
        case _N.ARRAY:
            return f"CONCAT('[', ARRAY_JOIN(TRANSFORM({sql}, _e -> {_or_null('_e', source.element)}), ', '), ']')"
        case _N.MAP | _N.MULTISET:
            key, value = (
                (source.key, source.element) if source.name is _N.MAP else (source.element, LogicalType(_N.INT))
            )
            entry = f"CONCAT({_or_null('_e.key', key)}, '=', {_or_null('_e.value', value)})"
            return f"CONCAT('{{', ARRAY_JOIN(TRANSFORM(MAP_ENTRIES({sql}), _e -> {entry}), ', '), '}}')"
        case _N.ROW:
            fields = [_or_null(f"({sql}).{quote_name(field.name)}", field.type) for field in source.fields]
            return f"CASE WHEN ({sql}) IS NOT NULL THEN CONCAT('(', CONCAT_WS(', ', {', '.join(fields)}), ')') END"
    return f"CAST({sql} AS STRING)"


def _or_null(sql: str, kind: LogicalType | None) -> str:
    return f"COALESCE({to_text(sql, kind or STRING)}, 'NULL')"


def _pattern(seconds: str, digits: int) -> str:
    return f"{seconds}.{'S' * digits}" if digits else seconds


def day_of(sql: str) -> str:
    """The day that Flink counts a timestamp to.

    It divides milliseconds since 1970 without looking at their sign: before 1970, a time that is not midnight belongs
    to the day after. EXTRACT, FLOOR to months and years, and CAST of a TIMESTAMP AS DATE do so; CAST of a
    TIMESTAMP_LTZ AS DATE does not.
    """
    return f"DATE_FROM_UNIX_DATE(CAST(UNIX_MILLIS(CAST({sql} AS TIMESTAMP)) DIV 86400000 AS INT))"


def _parse_date(sql: str) -> str:
    """Year, month and day, the last two of which may be left out; what follows a blank is not looked at."""
    text = f"REGEXP_REPLACE({sql}, '(?s)^([^ ].*?) .*$', '$1')"
    year, month, day = (f"REGEXP_EXTRACT({text}, {quote_text(_DATE)}, {group})" for group in (1, 2, 3))
    parts = f"LPAD({year}, 4, '0'), '-', COALESCE(NULLIF({month}, ''), '1'), '-', COALESCE(NULLIF({day}, ''), '1')"
    return f"CASE WHEN {text} RLIKE {quote_text(_DATE)} THEN TRY_CAST(CONCAT({parts}) AS DATE) END"


def _parse_short_decimal(sql: str, to: LogicalType) -> str:
    """A text as a DECIMAL that fits 64 bits: Flink's parser ends at the first letter, and does not look at it."""
    kind = spark_type(to)
    number = f"REGEXP_EXTRACT({sql}, {quote_text(_PASSED_OVER)}, 1)"
    digits = f"CASE WHEN {number} RLIKE '[0-9]' THEN {number} ELSE '0' END"
    odd = f"OCTET_LENGTH({sql}) BETWEEN 1 AND {_SHORT_DECIMAL} AND {sql} RLIKE {quote_text(_PASSED_OVER)}"
    nothing = f"{sql} RLIKE {quote_text(_NO_NUMBER)}"
    return f"CASE WHEN {odd} AND NOT {nothing} THEN CAST({digits} AS {kind}) ELSE CAST({sql} AS {kind}) END"


def parse_timestamp(sql: str, to: LogicalType) -> str:
    """A text as Flink's TO_TIMESTAMP and CAST read it; null if it is not a timestamp."""
    value = f"TRY_CAST({sql} AS {spark_type(to)})"
    return f"CASE WHEN {sql} RLIKE {quote_text(_TIMESTAMP)} THEN {truncate(value, to)} END"


def _to_timestamp(sql: str, source: LogicalType, to: LogicalType) -> str:
    if source.name in STRINGS:
        return parse_timestamp(sql, to)
    if source.name is _N.TIME:
        return truncate(f"CAST(TIMESTAMP_MICROS({sql}) AS {spark_type(to)})", to)
    plain = f"CAST({sql} AS {spark_type(to)})"
    if source.name is _N.DATE or (source.precision or 0) <= (to.precision or 0):
        return plain
    return truncate(plain, to)


def _to_time(sql: str, source: LogicalType, to: LogicalType) -> str:
    """TIME is carried as microseconds of the day."""
    if source.name in STRINGS:
        minutes = f"CASE WHEN INSTR({sql}, ':') > 0 THEN '' ELSE ':0' END"
        parsed = f"UNIX_MICROS(TRY_CAST(CONCAT('1970-01-01 ', TRIM({sql}), {minutes}) AS TIMESTAMP))"
        micros = f"(CASE WHEN {sql} RLIKE {quote_text(_TIME)} THEN {parsed} END)"
    elif source.name in TIMESTAMPS:
        micros = f"PMOD(UNIX_MICROS(CAST({sql} AS TIMESTAMP)), {_MICROSECONDS_OF_DAY})"
    else:
        micros = f"CAST({sql} AS BIGINT)"
    step = int(10 ** (6 - min(to.precision or 0, 6)))
    return micros if step == 1 else f"{micros} DIV {step} * {step}"


def _nested(sql: str, source: LogicalType, to: LogicalType, *, implicit: bool) -> str:
    """Part by part, where the parts differ in more than Spark's own cast of them."""
    if to.name is _N.ARRAY and source.element and to.element:
        return f"TRANSFORM({sql}, _e -> {_cast('_e', source.element, to.element, implicit=implicit)})"
    if to.name is _N.MAP and source.key and to.key and source.element and to.element:
        values = f"TRANSFORM_VALUES({sql}, (_k, _v) -> {_cast('_v', source.element, to.element, implicit=implicit)})"
        if same_type(source.key, to.key):
            return values
        return f"TRANSFORM_KEYS({values}, (_k, _v) -> {_cast('_k', source.key, to.key, implicit=implicit)})"
    if to.name is _N.ROW:
        fields = ", ".join(
            f"{quote_text(new.name)}, {_cast(f'({sql}).{quote_name(old.name)}', old.type, new.type, implicit=implicit)}"
            for old, new in zip(source.fields, to.fields, strict=True)
        )
        return f"CASE WHEN ({sql}) IS NOT NULL THEN NAMED_STRUCT({fields}) END"
    return f"CAST({sql} AS {spark_type(to)})"
