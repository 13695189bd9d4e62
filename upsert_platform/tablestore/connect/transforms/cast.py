"""Cast: fields, or a whole key or value, to another type, as Java's numbers are narrowed and its texts are read."""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from upsert_platform.tablestore.connect.data import Data, Schema
from upsert_platform.tablestore.connect.transforms.record import Part, SinkRecord, failed, fields_of, with_fields
from upsert_platform.tablestore.connect.values import text_of

_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TYPES: Final = {**{name: name for name in _BITS}, "float32": "float", "float64": "double", "boolean": "boolean",
                 "string": "string"}  # fmt: skip
CAST_TYPES: Final = tuple(_TYPES)
"""Types that a cast can give."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_FLOAT: Final = re.compile(r"\s*[+-]?(NaN|Infinity|((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)[fFdD]?)\s*")
_DAY: Final = 86_400_000
_LOGICAL: Final = {"org.apache.kafka.connect.data.Date": _DAY, "org.apache.kafka.connect.data.Time": 1,
                   "org.apache.kafka.connect.data.Timestamp": 1}  # fmt: skip
"""Milliseconds of one, of integers that are moments."""


@dataclass(frozen=True)
class Cast:
    """``spec``.

    Attributes:
        whole: type of the whole key or value; None to cast fields.
        fields: field to type.
    """

    part: Part
    whole: str | None
    fields: Mapping[str, str]

    def apply(self, record: SinkRecord) -> SinkRecord:
        data = self.part.of(record)
        if data.value is None:
            return record
        if self.whole is not None:
            schema = None if data.schema is None else replace(_cast_schema(data.schema, self.whole), optional=True)
            return self.part.put(record, Data(schema, _cast(data.value, self.whole, data.schema)))
        found = fields_of(data, "Cast")
        known = data.schema.fields if data.schema else {}
        values = {
            name: _cast(value, self.fields[name], known.get(name)) if name in self.fields else value
            for name, value in found.items()
        }
        schemas = {
            name: _cast_schema(schema, self.fields[name]) if name in self.fields else schema
            for name, schema in known.items()
        }
        return self.part.put(record, with_fields(data, values, schemas))


def _cast_schema(schema: Schema, wanted: str) -> Schema:
    default = None if schema.default is None else _cast(schema.default, wanted, schema)
    return Schema(_TYPES[wanted], optional=schema.optional, default=default)


def _cast(value: Any, wanted: str, schema: Schema | None) -> Any:
    if value is None:
        return None
    if not isinstance(value, bool | int | float | str | bytes | Decimal | datetime):
        raise failed("Cast", f"a {type(value).__name__} cannot be cast")
    if wanted == "string":
        return _text(value, schema)
    if isinstance(value, datetime):
        value = round(value.timestamp() * 1000)
    if isinstance(value, bytes):
        raise failed("Cast", f"bytes cannot be cast to {wanted}")
    if wanted == "boolean":
        return value.lower() == "true" if isinstance(value, str) else int(_clamped(value, 64)) != 0
    if wanted in _BITS:
        return _integer(value, _BITS[wanted], wanted)
    return _float(value, wanted)


def _text(value: Any, schema: Schema | None) -> str:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return format(value, "f")
        case datetime():
            return moment_text(round(value.timestamp() * 1000))
    if schema is not None and schema.name in _LOGICAL and isinstance(value, int):
        return moment_text(value * _LOGICAL[schema.name])
    return text_of(value) if not isinstance(value, int) or isinstance(value, bool) else str(value)


def moment_text(milliseconds: int) -> str:
    """A moment as Kafka Connect prints it: of the first day its time, at midnight its date, else both."""
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    time = f"{moment:%H:%M:%S}.{milliseconds % 1000:03}Z"
    if milliseconds < _DAY:
        return time
    date = f"{moment.year:04}-{moment:%m-%d}"
    return date if milliseconds % _DAY == 0 else f"{date}T{time}"


def _integer(value: bool | float | str | Decimal, bits: int, wanted: str) -> int:
    if isinstance(value, str):
        if _INTEGER.fullmatch(value) and len(value) <= 20:
            number = int(value)
            if -(1 << bits - 1) <= number < 1 << bits - 1:
                return number
        raise failed("Cast", f"'{value[:80]}' is not {wanted}")
    # Doubles are narrowed by way of int or long, and stop at their bounds; wider integers lose their upper bits.
    number = _clamped(value, 64 if bits == 64 else 32) if isinstance(value, float) else int(value)
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _clamped(value: float | Decimal, bits: int) -> int:
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        most = (1 << bits - 1) - 1
        return max(-most - 1, min(most, int(value) if math.isfinite(value) else int(math.copysign(most + 1, value))))
    return int(value)


def _float(value: Any, wanted: str) -> float:
    if isinstance(value, str):
        if not _FLOAT.fullmatch(value):
            raise failed("Cast", f"'{value[:80]}' is not {wanted}")
        value = value.strip().rstrip("fFdD") if not value.strip().endswith("Infinity") else value
    try:
        number = float(value)
    except OverflowError:
        number = math.copysign(math.inf, value)
    if wanted == "float32" and math.isfinite(number):
        try:
            (number,) = struct.unpack("<f", struct.pack("<f", number))
        except OverflowError:
            number = math.copysign(math.inf, number)
    return number
