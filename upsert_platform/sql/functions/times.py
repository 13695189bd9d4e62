"""Functions of dates and times. TIME is carried as microseconds of the day; the session's zone is UTC.

Fields of a timestamp come from milliseconds since 1970 as Java divides them: before 1970 a time that is not midnight
has the fields of the day after, and hours that are not positive. So Flink has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from upsert_platform.core.types import LogicalType, TypeName, spark_type
from upsert_platform.sql.casts import cast, day_of, parse_timestamp
from upsert_platform.sql.functions.signatures import FunctionFault, Handler, Overloads, argument, overloads
from upsert_platform.sql.intervals import Length, spark_interval
from upsert_platform.sql.rendered import (
    BIGINT,
    DATE,
    INT,
    STRING,
    STRINGS,
    TIMESTAMPS,
    Rendered,
    made,
    quote_text,
    truncate,
)

TIMESTAMP3: Final = LogicalType(TypeName.TIMESTAMP, precision=3)
TIMESTAMP6: Final = LogicalType(TypeName.TIMESTAMP, precision=6)
LTZ3: Final = LogicalType(TypeName.TIMESTAMP_LTZ, precision=3)
_TIME0: Final = LogicalType(TypeName.TIME, precision=0)
_DATE_FIELDS: Final = {
    "MILLENNIUM": "(YEAR({0}) + 999) DIV 1000", "CENTURY": "(YEAR({0}) + 99) DIV 100", "DECADE": "YEAR({0}) DIV 10",
    "YEAR": "YEAR({0})", "ISOYEAR": "EXTRACT(YEAROFWEEK FROM {0})", "QUARTER": "QUARTER({0})", "MONTH": "MONTH({0})",
    "WEEK": "WEEKOFYEAR({0})", "DAY": "DAYOFMONTH({0})", "DOY": "DAYOFYEAR({0})", "DOW": "DAYOFWEEK({0})",
    "ISODOW": "(WEEKDAY({0}) + 1)",
}  # fmt: skip
_TIME_FIELDS: Final = {"HOUR": (86_400_000, 3_600_000), "MINUTE": (3_600_000, 60_000), "SECOND": (60_000, 1_000)}
FIELDS: Final = (*_DATE_FIELDS, *_TIME_FIELDS, "EPOCH")
_MILLIS: Final = {"SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}
_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
UNITS: Final = (*_MILLIS, "WEEK", *_MONTHS)
_LETTERS_NOT_IN_SPARK: Final = set("YWwuecAnNBpgI")
"""Letters of java.time patterns that Spark refuses."""
_FULL: Final = quote_text(r"^\s*\d{1,4}-\d{1,2}-\d{1,2} \d{1,2}:\d{1,2}:\d{1,2}")
_FIRST_MILLI, _LAST_MILLI = -62_167_219_200_000, 253_402_300_799_999


def moment(value: Rendered, name: str) -> Rendered:
    """An argument that is a date, a time or a timestamp.

    Raises:
        FunctionFault: it is none.
    """
    if value.root not in (*TIMESTAMPS, TypeName.DATE, TypeName.TIME):
        raise FunctionFault(f"{name} takes a date or a time, not {value.type or 'NULL'}")
    return value


def _millis(value: Rendered) -> str:
    """Milliseconds since 1970, or of the day."""
    if value.root is TypeName.TIME:
        return f"({value.wrapped} DIV 1000)"
    return f"UNIX_MILLIS(CAST({value.sql} AS TIMESTAMP))"


def field_of(unit: str, value: Rendered) -> Rendered:
    """EXTRACT(unit FROM value).

    Raises:
        FunctionFault: there is no such field.
    """
    value = moment(value, "EXTRACT")
    if unit in _DATE_FIELDS and value.root is not TypeName.TIME:
        day = value.wrapped if value.root is TypeName.DATE else day_of(value.sql)
        return made(f"CAST({_DATE_FIELDS[unit].format(day)} AS BIGINT)", BIGINT, value)
    if unit in _TIME_FIELDS:
        if value.root is TypeName.DATE:  # Flink takes the number of the day for milliseconds, and gives a part of it
            return made(f"CASE WHEN {value.wrapped} IS NOT NULL THEN 0L END", BIGINT, value)
        span, size = _TIME_FIELDS[unit]
        return made(f"({_millis(value)} % {span} DIV {size})", BIGINT, value)
    if unit == "EPOCH":
        return made(f"({_millis(value)} DIV 1000)", BIGINT, value)
    raise FunctionFault(f"EXTRACT takes one of {', '.join(FIELDS)}, not {unit} of {value.type}")


def _field(name: str, unit: str) -> Handler:
    return lambda arguments: field_of(unit, moment(arguments[0], name))


def floor_to(value: Rendered, unit: str, *, up: bool) -> Rendered:
    """FLOOR(value TO unit) and CEIL(value TO unit).

    Raises:
        FunctionFault: there is no such unit.
    """
    name = "CEIL" if up else "FLOOR"
    value = moment(value, name)
    kind = value.type
    assert kind is not None
    if unit not in (*UNITS, "DECADE", "CENTURY", "MILLENNIUM") or value.root is TypeName.TIME:
        raise FunctionFault(f"{name} takes a date or timestamp TO one of {', '.join(UNITS)}, not {kind} TO {unit}")
    if unit in _MILLIS and value.root in TIMESTAMPS:
        size, millis = _MILLIS[unit], _millis(value)
        moved = f"{millis} + {size - 1}" if up else millis
        if up:  # the smallest part of a millisecond counts too
            moved = f"(UNIX_MICROS(CAST({value.sql} AS TIMESTAMP)) + 999) DIV 1000 + {size - 1}"
        sql = f"TIMESTAMP_MILLIS({moved} - PMOD({moved}, {size}))"
        return made(f"CAST({sql} AS {spark_type(kind)})", kind, value)
    if unit in ("HOUR", "MINUTE", "SECOND"):
        return made(value.sql, kind, value, simple=value.simple)
    day = value.sql if value.root is TypeName.DATE else day_of(value.sql)
    return made(f"CAST({_floor_day(day, unit, up=up)} AS {spark_type(kind)})", kind, value)


def _floor_day(day: str, unit: str, *, up: bool) -> str:
    """The first day of a unit; going up, of the next one unless it is that very day. Weeks begin on Sunday."""
    if unit == "DAY":
        return f"DATE_ADD({day}, {int(up)})"
    if unit == "WEEK":
        first = f"DATE_SUB({day}, DAYOFWEEK({day}) - 1)"
        return f"CASE WHEN {first} < {day} THEN DATE_ADD({first}, 7) ELSE {first} END" if up else first
    if unit in ("DECADE", "CENTURY", "MILLENNIUM"):
        years, shift = {"DECADE": (10, 0), "CENTURY": (100, 1), "MILLENNIUM": (1000, 1)}[unit]
        year = f"((YEAR({day}) - {shift}) DIV {years} + {int(up)}) * {years} + {shift}"
        return f"MAKE_DATE({year}, 1, 1)"
    first = f"TRUNC({day}, '{unit}')"
    if not up:
        return first
    return f"CASE WHEN {first} < {day} THEN ADD_MONTHS({first}, {_MONTHS[unit]}) ELSE {first} END"


def _unit(arguments: Sequence[Rendered], name: str) -> str:
    unit = (arguments[0].constant or "").upper()
    if unit not in UNITS:
        raise FunctionFault(f"{name} takes a unit ({', '.join(UNITS)}) and two values")
    return unit


def _add(arguments: Sequence[Rendered]) -> Rendered:
    unit = _unit(arguments, "TIMESTAMPADD")
    count = argument("i", arguments[1], "TIMESTAMPADD")
    return add(moment(arguments[2], "TIMESTAMPADD"), unit, count)


def add(value: Rendered, unit: str, count: Rendered) -> Rendered:
    """A number of units later. A date stays one unless hours or less are added."""
    kind = value.type
    assert kind is not None
    if value.root is TypeName.TIME:
        if unit not in _MILLIS:
            raise FunctionFault(f"to {kind}, only SECOND, MINUTE, HOUR and DAY are added")
        micros = _MILLIS[unit] * 1000
        return made(f"PMOD({value.wrapped} + {count.wrapped} * {micros}L, 86400000000)", kind, value, count)
    if unit in _MONTHS or unit == "WEEK" or unit == "DAY":
        if value.root is TypeName.DATE:
            days = {"DAY": 1, "WEEK": 7}.get(unit)
            moved = f"{count.wrapped} * {days or _MONTHS.get(unit)}"
            name = "DATE_ADD" if days else "ADD_MONTHS"
            return made(f"{name}({value.sql}, CAST({moved} AS INT))", kind, value, count)
    elif value.root is TypeName.DATE:
        value, kind = cast(value, TIMESTAMP6), TIMESTAMP6
    return made(f"CAST(TIMESTAMPADD({unit}, {count.sql}, {value.sql}) AS {spark_type(kind)})", kind, value, count)


def later(value: Rendered, length: Length) -> Rendered:
    """A value after an interval of fixed length. A date becomes a timestamp, as where hours are added."""
    kind = value.type
    assert kind is not None
    if value.root is TypeName.TIME:
        return made(f"PMOD({value.wrapped} + ({length.millis * 1000}L), 86400000000)", kind, value)
    if value.root is TypeName.DATE:
        value, kind = cast(value, TIMESTAMP6), TIMESTAMP6
    return made(f"{value.wrapped} + {spark_interval(length)}", kind, value, simple=False)


def _difference(arguments: Sequence[Rendered]) -> Rendered:
    """TIMESTAMPDIFF: units from the first to the second; what exceeds an INT wraps."""
    unit = _unit(arguments, "TIMESTAMPDIFF")
    first, second = (moment(item, "TIMESTAMPDIFF") for item in arguments[1:])
    if TypeName.TIME in (first.root, second.root):
        raise FunctionFault("TIMESTAMPDIFF takes dates and timestamps")
    if unit in _MONTHS:
        months = _months_between(second, first)
        return made(f"CAST(({months}) DIV {_MONTHS[unit]} AS INT)", INT, first, second)
    millis = f"({_millis(second)} - {_millis(first)})"
    if unit == "WEEK":
        return made(f"CAST(CAST({millis} DIV 1000 AS INT) DIV 604800 AS INT)", INT, first, second)
    return made(f"CAST({millis} DIV {_MILLIS[unit]} AS INT)", INT, first, second)


def _months_between(later: Rendered, earlier: Rendered) -> str:
    """Whole months; a month has passed when the day of the month, or the last one before it, has come."""
    one, other = (f"CAST({item.sql} AS DATE)" for item in (later, earlier))
    count = f"((YEAR({one}) - YEAR({other})) * 12 + MONTH({one}) - MONTH({other}))"
    forward = f"{count} - IF(ADD_MONTHS({other}, {count}) > {one}, 1, 0)"
    back = f"{count} + IF(ADD_MONTHS({one}, -{count}) > {other}, 1, 0)"
    whole = f"(CASE WHEN {one} >= {other} THEN {forward} ELSE {back} END)"
    if later.root is TypeName.DATE and earlier.root is TypeName.DATE:
        return whole
    times = f"PMOD({_millis(later)}, 86400000) < PMOD({_millis(earlier)}, 86400000)"
    return f"{whole} - IF(ADD_MONTHS({other}, {whole}) = {one} AND {times}, 1, 0)"


def _checked_pattern(value: Rendered, name: str) -> Rendered:
    """A pattern of java.time as a literal, without letters that Spark refuses."""
    value = argument("s", value, name)
    if value.constant is None:
        raise FunctionFault(f"{name} takes its pattern as a literal: one that a row brings may be no pattern")
    quoted = False
    for letter in value.constant:
        if letter == "'":
            quoted = not quoted
        elif not quoted and letter in _LETTERS_NOT_IN_SPARK:
            hint = "; 'yyyy' is the year" if letter == "Y" else ""
            raise FunctionFault(f"{name}: Spark has no pattern letter '{letter}'{hint}")
    return value


def _read_full(sql: str) -> str:
    """A text that begins with a date and a time of day; null if it is none."""
    return f"TRY_TO_TIMESTAMP(TRIM(REGEXP_EXTRACT({sql}, {_FULL}, 0)), 'y-M-d H:m:s')"


def _date_format(arguments: Sequence[Rendered]) -> Rendered:
    value, pattern = arguments[0], _checked_pattern(arguments[1], "DATE_FORMAT")
    if value.root is TypeName.TIME:
        raise FunctionFault("DATE_FORMAT of a TIME is not supported: CAST it AS STRING")
    if value.root in STRINGS or value.type is None:
        value = argument("s", value, "DATE_FORMAT")
        return made(f"DATE_FORMAT({_read_full(value.sql)}, {pattern.sql})", STRING, value)
    return made(f"DATE_FORMAT({moment(value, 'DATE_FORMAT').sql}, {pattern.sql})", STRING, value)


def _to_timestamp(arguments: Sequence[Rendered]) -> Rendered:
    value = argument("s", arguments[0], "TO_TIMESTAMP")
    if len(arguments) == 1:
        return made(f"({parse_timestamp(value.wrapped, TIMESTAMP3)})", TIMESTAMP3, value)
    pattern = _checked_pattern(arguments[1], "TO_TIMESTAMP")
    parsed = f"CAST(TRY_TO_TIMESTAMP({value.sql}, {pattern.sql}) AS TIMESTAMP_NTZ)"
    return made(truncate(parsed, TIMESTAMP3), TIMESTAMP3, value)


def _to_timestamp_ltz(arguments: Sequence[Rendered]) -> Rendered:
    value = arguments[0]
    if value.root in STRINGS:
        if len(arguments) > 2:
            raise FunctionFault("TO_TIMESTAMP_LTZ reads texts in UTC: convert other zones with CONVERT_TZ")
        return cast(_to_timestamp(arguments), LTZ3)
    value = argument("n", value, "TO_TIMESTAMP_LTZ")
    digits = arguments[1].constant if len(arguments) == 2 else "3"
    if len(arguments) > 2 or digits not in ("0", "3"):
        raise FunctionFault("TO_TIMESTAMP_LTZ takes a number and its precision, 0 (seconds) or 3 (milliseconds)")
    number = f"CAST({value.sql} AS BIGINT)"
    scale = 1 if digits == "3" else 1000
    guarded = f"{number} BETWEEN {_FIRST_MILLI // scale}L AND {_LAST_MILLI // scale}L"
    return made(f"(CASE WHEN {guarded} THEN TIMESTAMP_MILLIS({number} * {scale}) END)", LTZ3, value)


def _to_date(arguments: Sequence[Rendered]) -> Rendered:
    value = argument("s", arguments[0], "TO_DATE")
    if len(arguments) == 1:
        return cast(value, DATE, safe=True)
    pattern = _checked_pattern(arguments[1], "TO_DATE")
    return made(f"CAST(TRY_TO_TIMESTAMP({value.sql}, {pattern.sql}) AS DATE)", DATE, value)


def _unix_timestamp(arguments: Sequence[Rendered]) -> Rendered:
    value = argument("s", arguments[0], "UNIX_TIMESTAMP")
    if len(arguments) == 1:
        return made(f"UNIX_SECONDS({_read_full(value.sql)})", BIGINT, value)
    pattern = _checked_pattern(arguments[1], "UNIX_TIMESTAMP")
    return made(f"UNIX_SECONDS(TRY_TO_TIMESTAMP({value.sql}, {pattern.sql}))", BIGINT, value)


def _from_unixtime(arguments: Sequence[Rendered]) -> Rendered:
    """Seconds to text; milliseconds wrap where they exceed a BIGINT."""
    value = argument("n", arguments[0], "FROM_UNIXTIME")
    pattern = _checked_pattern(arguments[1], "FROM_UNIXTIME").sql if len(arguments) > 1 else "'yyyy-MM-dd HH:mm:ss'"
    millis = f"CAST({value.sql} AS BIGINT) * 1000L"
    guarded = f"CASE WHEN ABS({millis}) < 9000000000000000L THEN TIMESTAMP_MILLIS({millis}) END"
    return made(f"DATE_FORMAT({guarded}, {pattern})", STRING, value)


def _convert_tz(arguments: Sequence[Rendered]) -> Rendered:
    given = [argument("s", item, "CONVERT_TZ") for item in arguments]
    if any(item.constant is None for item in given[1:]):
        raise FunctionFault("CONVERT_TZ takes its zones as literals: one that a row brings may be no zone")
    local = f"CAST({_read_full(given[0].sql)} AS TIMESTAMP_NTZ)"
    later = f"CONVERT_TIMEZONE({given[1].sql}, 'UTC', {local}) + INTERVAL '1' HOUR"
    # An hour that comes twice, when clocks go back, is the second one.
    twice = f"CONVERT_TIMEZONE('UTC', {given[1].sql}, {later}) = {local}"
    converted = (
        f"CASE WHEN {twice} THEN CONVERT_TIMEZONE('UTC', {given[2].sql}, {later})"
        f" ELSE CONVERT_TIMEZONE({given[1].sql}, {given[2].sql}, {local}) END"
    )
    # From the year 10000 on, Spark writes a sign and Flink none.
    return made(f"TRIM(LEADING '+' FROM DATE_FORMAT({converted}, 'yyyy-MM-dd HH:mm:ss'))", STRING, *given)


_NOW: Final = truncate("CURRENT_TIMESTAMP()", LTZ3)
_TIME_OF_DAY: Final = "(UNIX_MICROS(CURRENT_TIMESTAMP()) DIV 1000000 * 1000000 % 86400000000)"
WATERMARK_FUNCTION: Final = "CURRENT_WATERMARK"
"""It stands for a column that `sql.planning` adds."""
CLOCKS: Final = {
    **dict.fromkeys(("NOW", "CURRENT_TIMESTAMP", "CURRENT_ROW_TIMESTAMP", "PROCTIME"), (_NOW, LTZ3)),
    "LOCALTIMESTAMP": (truncate("LOCALTIMESTAMP()", TIMESTAMP3), TIMESTAMP3),
    "CURRENT_DATE": ("CURRENT_DATE()", DATE),
    **dict.fromkeys(("CURRENT_TIME", "LOCALTIME"), (_TIME_OF_DAY, _TIME0)),
    "UNIX_TIMESTAMP": ("UNIX_TIMESTAMP()", BIGINT),
}
"""Functions that read the clock, with their Spark SQL and types: `core.plan.clock` says which time that is."""
_CLOCKS: Final = overloads({name: [("", *reading)] for name, reading in CLOCKS.items()})
FUNCTIONS: Final[dict[str, Overloads]] = {
    **_CLOCKS,
    **{
        name: {1: _field(name, unit)}
        for name, unit in (
            *((unit, unit) for unit in ("YEAR", "QUARTER", "MONTH", "WEEK", *_TIME_FIELDS)),
            ("DAYOFYEAR", "DOY"), ("DAYOFMONTH", "DAY"), ("DAYOFWEEK", "DOW"),
        )
    },
    "TIMESTAMPADD": {3: _add},
    "TIMESTAMPDIFF": {3: _difference},
    "DATE_FORMAT": {2: _date_format},
    "TO_TIMESTAMP": {1: _to_timestamp, 2: _to_timestamp},
    "TO_TIMESTAMP_LTZ": dict.fromkeys((1, 2, 3), _to_timestamp_ltz),
    "TO_DATE": {1: _to_date, 2: _to_date},
    "UNIX_TIMESTAMP": {**_CLOCKS["UNIX_TIMESTAMP"], 1: _unix_timestamp, 2: _unix_timestamp},
    "FROM_UNIXTIME": {1: _from_unixtime, 2: _from_unixtime},
    "CONVERT_TZ": {3: _convert_tz},
}  # fmt: skip
