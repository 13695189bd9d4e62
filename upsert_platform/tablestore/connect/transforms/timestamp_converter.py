"""TimestampConverter: moments between texts, Unix times and Kafka Connect's own types, in UTC."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from upsert_platform.tablestore.connect.data import Data, Schema
from upsert_platform.tablestore.connect.transforms.date_format import DateFormat
from upsert_platform.tablestore.connect.transforms.record import Part, SinkRecord, failed, fields_of, with_fields

TARGETS: Final = ("string", "unix", "Date", "Time", "Timestamp")
PRECISIONS: Final = {"seconds": (1000, 1), "milliseconds": (1, 1), "microseconds": (1, 1000), "nanoseconds": (1, 10**6)}
"""Unit of Unix times to milliseconds in one of them, and how many of them are a millisecond."""
_LOGICAL: Final = "org.apache.kafka.connect.data."
_DAY: Final = 86_400_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES: Final = {
    "string": ("string", None), "unix": ("int64", None), "Date": ("int32", f"{_LOGICAL}Date"),
    "Time": ("int32", f"{_LOGICAL}Time"), "Timestamp": ("int64", f"{_LOGICAL}Timestamp"),
}  # fmt: skip


@dataclass(frozen=True)
class TimestampConverter:
    """``target.type``, ``format`` and ``unix.precision``.

    Attributes:
        field: which one is converted; None for the whole key or value.
        format: of texts; None where none are read or written.
    """

    part: Part
    field: str | None
    target: str
    format: DateFormat | None
    precision: str

    def apply(self, record: SinkRecord) -> SinkRecord:
        data = self.part.of(record)
        if data.value is None:
            return record
        if self.field is None:
            schema = None if data.schema is None else self._schema(data.schema)
            return self.part.put(record, Data(schema, self._converted(data.value, data.schema)))
        values = dict(fields_of(data, "TimestampConverter"))
        known = dict(data.schema.fields) if data.schema else {}
        if data.schema is None:
            values[self.field] = self._converted(values.get(self.field), None)
        elif self.field in known:
            values[self.field] = self._converted(values[self.field], known[self.field])
            known[self.field] = self._schema(known[self.field])
        return self.part.put(record, with_fields(data, values, known))

    def _schema(self, schema: Schema) -> Schema:
        kind, name = _TYPES[self.target]
        return replace(Schema(kind), optional=schema.optional, name=name)

    def _converted(self, value: Any, schema: Schema | None) -> Any:
        if value is None:
            return None
        milliseconds = self._milliseconds(value, schema)
        try:
            return self._of(milliseconds, has_schema=schema is not None)
        except (ValueError, OverflowError) as error:
            raise failed("TimestampConverter", str(error)) from None

    def _milliseconds(self, value: Any, schema: Schema | None) -> int:
        """A moment of whatever type it has, in milliseconds since 1970."""
        if isinstance(value, datetime):
            return (value - _EPOCH) // timedelta(milliseconds=1)
        if isinstance(value, str):
            if self.format is None:
                raise failed("TimestampConverter", "a text needs option 'format'")
            try:
                return self.format.parse(value)
            except ValueError as error:
                raise failed("TimestampConverter", str(error)) from None
        if isinstance(value, bool) or not isinstance(value, int):
            raise failed("TimestampConverter", f"a {type(value).__name__} is not a moment")
        name = schema.name if schema else None
        if name == f"{_LOGICAL}Date":
            return value * _DAY
        if name in (f"{_LOGICAL}Time", f"{_LOGICAL}Timestamp"):
            return value
        if schema is not None and schema.type != "int64":
            raise failed("TimestampConverter", f"an {schema.type} is not a moment")
        times, divisor = PRECISIONS[self.precision]
        return value * times // divisor if value >= 0 else -(-value * times // divisor)

    def _of(self, milliseconds: int, *, has_schema: bool) -> Any:
        match self.target:
            case "string":
                assert self.format is not None
                return self.format.format(milliseconds)
            case "unix":
                times, divisor = PRECISIONS[self.precision]
                # Java's TimeUnit cuts towards zero.
                scaled = abs(milliseconds) * divisor // times
                return scaled if milliseconds >= 0 else -scaled
            case "Date":
                days = milliseconds // _DAY
                return days if has_schema else _EPOCH + timedelta(days=days)
            case "Time":
                milliseconds %= _DAY
        return milliseconds if has_schema else _EPOCH + timedelta(milliseconds=milliseconds)
