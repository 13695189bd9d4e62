"""InsertField: what Kafka knows of a record, or a fixed text, as fields of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from upsert_platform.tablestore.connect.data import Schema
from upsert_platform.tablestore.connect.transforms.record import Part, SinkRecord, failed, fields_of, with_fields

TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"
INSERTED: Final = ("topic", "partition", "offset", "timestamp", "static")
"""What can be inserted, as the options ``<what>.field`` name it."""


@dataclass(frozen=True)
class Inserted:
    """A field that is inserted; with a schema it is optional unless its name was given with ``!``."""

    what: str
    name: str
    optional: bool


@dataclass(frozen=True)
class InsertField:
    """Fields of a record's place, time, or a fixed text. Null stays null.

    Attributes:
        static: the fixed text.
    """

    part: Part
    inserted: tuple[Inserted, ...]
    static: str | None

    def apply(self, record: SinkRecord) -> SinkRecord:
        data = self.part.of(record)
        if data.value is None:
            return record
        values = dict(fields_of(data, "InsertField"))
        schemas = dict(data.schema.fields) if data.schema else {}
        for item, value, schema in self._found(record):
            if data.schema is not None and item.name in schemas:
                raise failed("InsertField", f"there is a field '{item.name}' already")
            if value is None and (data.schema is None or item.optional):
                continue
            values[item.name] = value
            schemas[item.name] = schema
        return self.part.put(record, with_fields(data, values, schemas))

    def _found(self, record: SinkRecord) -> Iterator[tuple[Inserted, Any, Schema]]:
        for item in self.inserted:
            match item.what:
                case "topic":
                    yield item, record.topic, Schema("string", item.optional)
                case "partition":
                    yield item, record.partition, Schema("int32", item.optional)
                case "offset":
                    yield item, record.offset, Schema("int64", item.optional)
                case "timestamp":
                    if record.timestamp is None and not item.optional:
                        raise failed("InsertField", f"the record has no time for the required field '{item.name}'")
                    yield item, record.timestamp, Schema("int64", item.optional, TIMESTAMP)
                case _:
                    yield item, self.static, Schema("string", item.optional)
