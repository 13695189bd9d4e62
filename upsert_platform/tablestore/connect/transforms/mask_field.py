"""MaskField: values of fields become empty ones of their type, or a replacement."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from upsert_platform.tablestore.connect.data import INTEGERS, Schema
from upsert_platform.tablestore.connect.transforms.record import Part, SinkRecord, failed, fields_of, with_fields

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_FLOAT: Final = re.compile(r"\s*[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?)\s*")


@dataclass(frozen=True)
class MaskField:
    """Null stays null. Without a schema a field that is missing becomes null.

    Attributes:
        replacement: text of what numbers and texts become; None for their empty value.
    """

    part: Part
    fields: tuple[str, ...]
    replacement: str | None

    def apply(self, record: SinkRecord) -> SinkRecord:
        data = self.part.of(record)
        if data.value is None:
            return record
        values = dict(fields_of(data, "MaskField"))
        known = data.schema.fields if data.schema else {}
        for name in self.fields:
            if data.schema is None or name in known:
                values[name] = self._masked(values.get(name), known.get(name))
        return self.part.put(record, with_fields(data, values, known))

    def _masked(self, value: Any, schema: Schema | None) -> Any:
        if value is None:
            return None
        if self.replacement is None:
            return _empty(value)
        try:
            return _replaced(value, self.replacement, schema)
        except (ValueError, OverflowError, InvalidOperation):
            raise failed(
                "MaskField", f"the replacement '{self.replacement}' does not fit a {type(value).__name__}"
            ) from None


def _empty(value: Any) -> Any:
    match value:
        case bool():
            return False
        case int():
            return 0
        case float():
            return 0.0
        case str():
            return ""
        case Decimal():
            return Decimal(0)
        case datetime():
            return _EPOCH
        case list():
            return []
        case dict():
            return {}
    raise failed("MaskField", f"a {type(value).__name__} cannot be masked")


def _replaced(value: Any, replacement: str, schema: Schema | None) -> Any:
    match value:
        case bool():
            pass
        case int() if schema is None or schema.name is None:
            beyond = INTEGERS[schema.type if schema else "int64"]
            # A number with a fraction is cut.
            number = int(replacement) if _INTEGER.fullmatch(replacement) else int(Decimal(replacement.strip()))
            if not -beyond <= number < beyond:
                raise ValueError
            return number
        case float():
            if not _FLOAT.fullmatch(replacement):
                raise ValueError
            return float(replacement.strip().rstrip("fFdD"))
        case str():
            return replacement
        case Decimal():
            return Decimal(replacement)
    raise failed("MaskField", f"a {type(value).__name__} cannot be masked with a replacement")
