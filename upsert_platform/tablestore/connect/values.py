"""Field values to cells and primary key values (specification sections 3.1 and 3.2)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from upsert_platform.formats.java.double import format_double
from upsert_platform.tablestore import limits

Value = int | float | bool | str | bytes
"""A cell: INTEGER, DOUBLE, BOOLEAN, STRING, BINARY."""
P = ParamSpec("P")
T = TypeVar("T")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?")


class DirtyRecordError(ValueError):
    """A record that cannot become a row change; the message is the reason."""


class UndecodableError(DirtyRecordError):
    """A record that Connect's converters or transforms fail at; ``errors.tolerance`` is for these."""


def fate_of_record(make: Callable[P, T]) -> Callable[P, T]:
    """Decorates what makes something of one record: whatever goes wrong then is that record's fate, not its table's."""

    @wraps(make)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return make(*args, **kwargs)
        except DirtyRecordError:
            raise
        except Exception as error:
            raise DirtyRecordError(f"{type(error).__name__}: {error}") from error

    return guarded


class AutoIncrement:
    """Stands for the value that the service generates for an auto-increment key column."""

    def __repr__(self) -> str:
        return "AUTO_INCREMENT"


AUTO_INCREMENT = AutoIncrement()
KeyValue = int | str | bytes | AutoIncrement


def text_of(value: Any) -> str:
    """A JSON value as text: numbers and booleans as Java prints them, objects and arrays as JSON.

    The connector prints objects as Java maps (``{a=1}``), which cannot be read back; JSON is a deliberate difference.
    """
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(checked_integer(value))
        case float():
            return format_double(value)
        case str():
            return value
        case datetime():
            return moment_text(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=moment_text)


def moment_text(value: datetime) -> str:
    """A moment in UTC, to milliseconds; transforms make some in records without schema."""
    return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z"


def checked_integer(value: int) -> int:
    """An integer that fits the service. The connector wraps larger ones silently; here they make the record dirty."""
    if not limits.MIN_INTEGER <= value <= limits.MAX_INTEGER:
        raise DirtyRecordError(f"{value} is outside the 64 bits of an INTEGER")
    return value


def checked_double(value: float) -> float:
    """A double that the service takes."""
    if not math.isfinite(value):
        raise DirtyRecordError(f"{value} is not a DOUBLE that Tablestore takes")
    return value


def automatic(value: Any) -> Value:
    """Field conversion "identify types": numbers to DOUBLE, boolean, text; objects and arrays to JSON text."""
    match value:
        case bool() | str():
            return value
        case int() | float():
            try:
                return checked_double(float(value))
            except OverflowError:
                raise DirtyRecordError(f"{value} is beyond a DOUBLE") from None
    return text_of(value)


def structured(value: Any) -> Value:
    """A field of a record with a schema, in its own type."""
    match value:
        case dict() | list():
            raise DirtyRecordError("a nested struct, array or map has no column type")
        case Decimal():
            return format(value, "f").encode()
        case bool() | str() | bytes():
            return value
        case int():
            return checked_integer(value)
        case float():
            return checked_double(value)
    raise DirtyRecordError(f"a {type(value).__name__} has no column type")


_STRUCT_TYPES: dict[str, type] = {"string": str, "integer": int, "double": float, "boolean": bool, "binary": bytes}


def structured_as(value: Any, wanted: str) -> Value:
    """A field of a record with a schema that must be of the whitelist's type exactly."""
    found = structured(value)
    if type(found) is not _STRUCT_TYPES[wanted]:
        raise DirtyRecordError(f"the field is a {type(found).__name__}, the whitelist says {wanted}")
    return found


def converted(value: Any, wanted: str) -> Value:
    """A field of schemaless JSON in the whitelist's type (table of section 3.1)."""
    match wanted:
        case "string":
            return text_of(value)
        case "binary":
            return text_of(value).encode()
        case "boolean":
            if isinstance(value, bool):
                return value
            if value in ("true", "false"):
                return bool(value == "true")
            return _number(value, wanted) != 0
        case "integer":
            return checked_integer(int(_number(value, wanted)))
    try:
        return checked_double(float(_number(value, wanted)))
    except OverflowError:
        raise DirtyRecordError(f"{value} is beyond a DOUBLE") from None


def _number(value: Any, wanted: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise DirtyRecordError(f"{text_of(value)[:80]} is not {wanted}")
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise DirtyRecordError(f"'{value[:80]}' is not {wanted}")
    number = Decimal(repr(value) if isinstance(value, float) else value)
    if not number.is_finite() or number.adjusted() > 400:
        raise DirtyRecordError(f"{text_of(value)[:80]} is not {wanted} that Tablestore takes")
    return number


def key_value(value: Any, wanted: str, *, has_schema: bool) -> KeyValue:
    """A primary key value (section 3.2).

    Args:
        wanted: ``string``, ``integer``, ``binary`` or ``auto_increment``.
        has_schema: whether the field comes with a type of its own, which must then match exactly.
    """
    if wanted == "auto_increment":
        wanted = "integer"
    if has_schema:
        found = structured(value)
        if type(found) is not _STRUCT_TYPES[wanted]:
            raise DirtyRecordError(f"it is a {type(found).__name__}, the key column is {wanted}")
        assert isinstance(found, int | str | bytes)
    else:
        match wanted:
            case "binary":
                raise DirtyRecordError("JSON has no bytes for a binary key column")
            case "string":
                found = text_of(value)
            case _:
                number = _number(value, "integer key")
                if number != number.to_integral_value():
                    raise DirtyRecordError(f"{number} is not a whole number, and cutting it would merge keys")
                found = checked_integer(int(number))
    size = len(found.encode() if isinstance(found, str) else found) if isinstance(found, str | bytes) else 0
    if size > limits.MAX_PRIMARY_KEY_BYTES:
        raise DirtyRecordError(f"it has {size} bytes; Tablestore takes 1 KB")
    return found
