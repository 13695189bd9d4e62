"""ARRAY, MAP, MULTISET and ROW values as JSON text, and back without loss.

Tablestore has no nested types. Scalars inside keep the form that they have as columns: decimals and doubles are
numbers, dates and times ISO-8601 texts with exactly the declared fraction digits, bytes base64; a map is an object
whose names are the texts of its keys, a multiset an object of counts.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from upsert_platform.core.types import NESTED, LogicalType, TypeName

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
_DAY_MICROSECONDS = 86_400_000_000


def json_text(value: Any, logical: LogicalType) -> str:
    """The JSON text of one value, as `pyarrow` gives it to Python.

    Raises:
        ValueError: the value has no JSON form that can be read back (NaN, a null map key).
    """
    return _fragment(logical)(value)


def parse_json_text(text: str, logical: LogicalType) -> Any:
    """The inverse of `json_text`: a value that `pyarrow.array` accepts for the Arrow type of `logical`.

    Raises:
        ValueError: the text is not JSON, or not of this type.
    """
    return _from_json(json.loads(text, parse_float=Decimal), logical)


def microseconds_of_day_text(value: int, precision: int) -> str:
    """``HH:MM:SS`` and exactly `precision` fraction digits."""
    if not 0 <= value < _DAY_MICROSECONDS:
        raise ValueError(f"{value} microseconds is not a time of day")
    seconds, micros = divmod(value, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return text + _fraction(micros, precision)


def _fraction(micros: int, precision: int) -> str:
    return "." + f"{micros:06}000"[:precision] if precision else ""


def _timestamp_text(value: datetime, precision: int) -> str:
    return value.replace(tzinfo=None, microsecond=0).isoformat() + _fraction(value.microsecond, precision)


def _scalar_text(value: Any, logical: LogicalType) -> str:
    match logical.name:
        case TypeName.BOOLEAN:
            return "true" if value else "false"
        case TypeName.BINARY | TypeName.VARBINARY | TypeName.BYTES:
            return base64.b64encode(value).decode("ascii")
        case TypeName.DECIMAL:
            return format(value, "f")
        case TypeName.FLOAT | TypeName.DOUBLE:
            if not math.isfinite(value):
                raise ValueError(f"{value} has no JSON form")
            return repr(float(value))
        case TypeName.DATE:
            return str(value.isoformat())
        case TypeName.TIME:
            return microseconds_of_day_text(value, logical.precision or 0)
        case TypeName.TIMESTAMP:
            return _timestamp_text(value, logical.precision or 0)
        case TypeName.TIMESTAMP_LTZ:
            return _timestamp_text(value.astimezone(UTC), logical.precision or 0) + "Z"
    return str(value)


_BARE = {
    TypeName.BOOLEAN, TypeName.DECIMAL, TypeName.FLOAT, TypeName.DOUBLE,
    TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT,
}  # fmt: skip


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _fragment(logical: LogicalType) -> Callable[[Any], str]:
    """A function from a value, None included, to JSON text."""
    match logical.name:
        case TypeName.ARRAY:
            item = _fragment(_some(logical.element))
            return lambda value: "null" if value is None else "[" + ",".join(map(item, value)) + "]"
        case TypeName.MAP | TypeName.MULTISET:
            return _map_fragment(logical)
        case TypeName.ROW:
            parts = [(field.name, _quoted(field.name) + ":", _fragment(field.type)) for field in logical.fields]
            return lambda value: (
                "null"
                if value is None
                else "{" + ",".join(prefix + text(value[name]) for name, prefix, text in parts) + "}"
            )
    if logical.name in _BARE:
        return lambda value: "null" if value is None else _scalar_text(value, logical)
    return lambda value: "null" if value is None else _quoted(_scalar_text(value, logical))


def _map_fragment(logical: LogicalType) -> Callable[[Any], str]:
    key_type, value_text = _entry(logical)

    def entries(value: Any) -> str:
        if value is None:
            return "null"
        parts: dict[str, str] = {}
        for key, item in value.items() if isinstance(value, dict) else value:
            if key is None:
                raise ValueError("a null map key has no JSON form")
            parts[_quoted(_scalar_text(key, key_type))] = value_text(item)
        return "{" + ",".join(f"{name}:{text}" for name, text in parts.items()) + "}"

    return entries


def _entry(logical: LogicalType) -> tuple[LogicalType, Callable[[Any], str]]:
    key = _some(logical.element if logical.name is TypeName.MULTISET else logical.key)
    value = LogicalType(TypeName.INT) if logical.name is TypeName.MULTISET else _some(logical.element)
    if key.name in NESTED:
        raise ValueError(f"{logical}: a key of a nested type has no JSON form")
    return key, _fragment(value)


def _from_json(value: Any, logical: LogicalType) -> Any:
    if value is None:
        return None
    match logical.name:
        case TypeName.ARRAY:
            return [_from_json(item, _some(logical.element)) for item in _typed(value, list, logical)]
        case TypeName.MAP | TypeName.MULTISET:
            key, _ = _entry(logical)
            item_type = LogicalType(TypeName.INT) if logical.name is TypeName.MULTISET else _some(logical.element)
            pairs = _typed(value, dict, logical).items()
            return [(_scalar_from_text(name, key), _from_json(item, item_type)) for name, item in pairs]
        case TypeName.ROW:
            found = _typed(value, dict, logical)
            return {field.name: _from_json(found.get(field.name), field.type) for field in logical.fields}
        case TypeName.BOOLEAN:
            return _typed(value, bool, logical)
        case TypeName.TINYINT | TypeName.SMALLINT | TypeName.INT | TypeName.BIGINT:
            return _typed(value, int, logical)
        case TypeName.FLOAT | TypeName.DOUBLE:
            return float(_typed(value, (int, Decimal), logical))
        case TypeName.DECIMAL:
            return Decimal(_typed(value, (int, Decimal), logical))
    return _scalar_from_text(_typed(value, str, logical), logical)


def _scalar_from_text(text: str, logical: LogicalType) -> Any:
    match logical.name:
        case TypeName.BOOLEAN:
            return {"true": True, "false": False}[text]
        case TypeName.TINYINT | TypeName.SMALLINT | TypeName.INT | TypeName.BIGINT:
            return int(text)
        case TypeName.FLOAT | TypeName.DOUBLE:
            return float(text)
        case TypeName.DECIMAL:
            return Decimal(text)
        case TypeName.BINARY | TypeName.VARBINARY | TypeName.BYTES:
            return base64.b64decode(text, validate=True)
        case TypeName.DATE:
            return date.fromisoformat(text)
        case TypeName.TIME:
            return _microseconds(datetime.fromisoformat(f"1970-01-01T{_six_digits(text)}") - _EPOCH)
        case TypeName.TIMESTAMP:
            return datetime.fromisoformat(_six_digits(text))
        case TypeName.TIMESTAMP_LTZ:
            return datetime.fromisoformat(_six_digits(text.removesuffix("Z"))).replace(tzinfo=UTC)
    return text


def _six_digits(text: str) -> str:
    head, dot, fraction = text.partition(".")
    return f"{head}.{fraction[:6]:0<6}" if dot else text


def _microseconds(delta: timedelta) -> int:
    return delta // timedelta(microseconds=1)


def _typed(value: Any, kind: Any, logical: LogicalType) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{json.dumps(value, default=str)[:80]} is not of type {logical}")
    return value


def _some(logical: LogicalType | None) -> LogicalType:
    assert logical is not None
    return logical
