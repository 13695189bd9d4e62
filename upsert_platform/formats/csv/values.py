"""Fields of a CSV record to column values, as Flink's CSV reader converts them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.formats.base import Columns
from upsert_platform.formats.csv.text import CsvDialect, CsvSyntaxError, split_record
from upsert_platform.formats.java.base64 import decode_base64
from upsert_platform.formats.java.jackson import decode_wide, find_encoding
from upsert_platform.formats.java.text import (
    BLANKS,
    fit_decimal,
    parse_decimal,
    parse_double,
    parse_float,
    parse_integer,
    shorten,
)
from upsert_platform.formats.java.time import days_from_date, parse_timestamp
from upsert_platform.formats.json.values import FieldError, to_micros
from upsert_platform.formats.options import CsvSettings

Convert = Callable[[str], Any]
_BITS: Final = {TypeName.TINYINT: 8, TypeName.SMALLINT: 16, TypeName.INT: 32, TypeName.BIGINT: 64}
_DATE = re.compile(r"([^-]{4})-(\d{1,2})-(\d{1,2})")
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{0,9}))?)?")
_GREGORIAN_FROM: Final = days_from_date(1582, 10, 15)


def record_reader(columns: Columns, settings: CsvSettings, *, exact: bool = False) -> Callable[[bytes], list[Any]]:
    """A function from a message to its row, by Flink's rules; raises ValueError when it cannot be read.

    Args:
        exact: keep what Arrow cannot: timestamps in nanoseconds, TIME in milliseconds, rows as lists.
    """
    dialect = CsvDialect.of(settings)
    converts = [convert_field(logical, settings, exact=exact) for _, logical in columns]
    names = [name for name, _ in columns]

    def read(message: bytes) -> list[Any]:
        try:
            text = _read_text(message)
        except UnicodeDecodeError:
            raise CsvSyntaxError("not UTF-8") from None
        fields = split_record(text, dialect, len(names))
        if len(fields) < len(names) and not settings.ignore_parse_errors:
            raise CsvSyntaxError(f"{len(fields)} fields where {len(names)} are declared")
        row = [_named(convert, name, value) for convert, name, value in zip(converts, names, fields, strict=False)]
        return row + [None] * (len(names) - len(row))

    return read


def _read_text(message: bytes) -> str:
    encoding, mark = find_encoding(message)
    return message[mark:].decode() if encoding == "utf-8" else decode_wide(message[mark:], encoding)


def _named(convert: Convert, name: str, value: str) -> Any:
    try:
        return convert(value)
    except ValueError as error:
        raise FieldError(f"field {name}: {error}") from None


def convert_field(logical: LogicalType, settings: CsvSettings, *, exact: bool) -> Convert:
    """A function from a field's text to the value of a type."""
    if logical.name is TypeName.ARRAY:
        assert logical.element is not None
        element = _nullable(logical.element, settings, exact=exact)
        return lambda text: [element(item) for item in _elements(text, settings)]
    if logical.name is TypeName.ROW:
        return _row(logical, settings, exact=exact)
    return _nullable(logical, settings, exact=exact)


def _elements(text: str, settings: CsvSettings) -> list[str]:
    return text.split(settings.array_element_delimiter) if text.strip(BLANKS) else []


def _row(logical: LogicalType, settings: CsvSettings, *, exact: bool) -> Convert:
    parts = [_nullable(item.type, settings, exact=exact) for item in logical.fields]
    names = [item.name for item in logical.fields]

    def convert(text: str) -> Any:
        items = _elements(text, settings)
        if not items:
            return None
        if len(items) < len(parts) and not settings.ignore_parse_errors:
            raise ValueError(f"{len(items)} fields where the ROW has {len(parts)}")
        values = [part(item) for part, item in zip(parts, items, strict=False)]
        values += [None] * (len(parts) - len(values))
        return values if exact else dict(zip(names, values, strict=True))

    return convert


def _nullable(logical: LogicalType, settings: CsvSettings, *, exact: bool) -> Convert:
    convert = _scalar(logical, exact=exact)
    literal, ignore = settings.null_literal, settings.ignore_parse_errors

    def read(text: str) -> Any:
        if text == literal:
            return None
        try:
            return convert(text)
        except ValueError:
            if ignore:
                return None
            raise

    return read


def _scalar(logical: LogicalType, *, exact: bool) -> Convert:
    match logical.name:
        case TypeName.CHAR | TypeName.VARCHAR | TypeName.STRING:
            return str
        case TypeName.BOOLEAN:
            return lambda text: text.strip(BLANKS).lower() == "true"
        case TypeName.TINYINT | TypeName.SMALLINT | TypeName.INT | TypeName.BIGINT:
            bits = _BITS[logical.name]
            return lambda text: parse_integer(text.strip(BLANKS), bits)
        case TypeName.FLOAT:
            return parse_float
        case TypeName.DOUBLE:
            return parse_double
        case TypeName.DECIMAL:
            precision, scale = logical.precision or 0, logical.scale or 0
            return lambda text: fit_decimal(parse_decimal(text), precision, scale)
        case TypeName.BINARY | TypeName.VARBINARY | TypeName.BYTES:
            return decode_base64
        case TypeName.DATE:
            return parse_sql_date
        case TypeName.TIME:
            unit = 1 if exact else 1000
            return lambda text: parse_iso_time(text, logical.precision or 0) * unit
    assert logical.name in (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ), logical
    local_zone = logical.name is TypeName.TIMESTAMP_LTZ

    def timestamp(text: str) -> int:
        text = text if local_zone else text.strip(BLANKS)
        nanos = parse_timestamp(text, standard="SQL", local_zone=local_zone)
        return nanos if exact else to_micros(nanos)

    return timestamp


def parse_sql_date(text: str) -> int:
    """Reads a date as ``java.sql.Date.valueOf``: one or two digits, any day to 31, the Julian calendar before 1582.

    Returns:
        Days since 1970-01-01 of the date with the same year, month and day in the Gregorian calendar.

    Raises:
        ValueError: another form, or a day that the Gregorian calendar does not have.
    """
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"'{shorten(text)}' is not a date yyyy-MM-dd")
    year, month, day = parse_integer(match[1], 32), int(match[2]), int(match[3])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise ValueError(f"'{shorten(text)}' is not a day of the calendar")
    days = days_from_date(year, month, 1) + day - 1
    if days >= _GREGORIAN_FROM:
        return days
    return _from_julian(year, month, day, text)


def _from_julian(year: int, month: int, day: int, text: str) -> int:
    last = (31, 29 if year % 4 == 0 else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]
    if day > last:  # lenient: the days beyond the month's end go on in the next
        month, day = month + 1, day - last
    if (year, month) == (1582, 10) and 5 <= day <= 14:  # days that were left out are counted on
        day += 10
    year = year or 1  # the year before 1 is 1 too, of the era before
    if month == 2 and day == 29 and (year % 4 or (year % 100 == 0 and year % 400)):
        raise ValueError(f"'{shorten(text)}' is not a day of the Gregorian calendar")
    return days_from_date(year, month, day)


def parse_iso_time(text: str, precision: int) -> int:
    """Reads ``HH:mm[:ss[.f]]`` strictly, into milliseconds of the day, cut to the precision (at most 3)."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"'{shorten(text)}' is not a time HH:mm:ss")
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    millis = int((match[4] or "").ljust(3, "0")[:3])
    step = 10 ** (3 - min(precision, 3))
    return ((hour * 60 + minute) * 60 + second) * 1000 + millis // step * step
