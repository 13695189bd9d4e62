"""Metadata that change data messages carry beside the row, by the keys of ``METADATA FROM 'value.<key>'``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from upsert_platform.core.errors import DeclarationError, Problem
from upsert_platform.core.options import nearest
from upsert_platform.core.types import LogicalType, arrow_type, parse_type


@dataclass(frozen=True, slots=True)
class MetadataField:
    """One piece of metadata.

    Attributes:
        type: SQL type of the metadata column.
        field: of the message that it is taken from.
        read_as: SQL type that the field is read with.
        root: the field stands beside a payload, not in it.
        convert: from the column of the field to that of the metadata; a cast if None.
    """

    type: str
    field: str
    read_as: str
    root: bool = False
    convert: Callable[[Any], Any] | None = None


def _millis(array: Any) -> Any:
    import pyarrow as pa

    return array.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


def _seconds(array: Any) -> Any:
    import pyarrow as pa

    return array.cast(pa.timestamp("s", "UTC")).cast(pa.timestamp("us", "UTC"))


def _property(name: str) -> Callable[[Any], Any]:
    def convert(array: Any) -> Any:
        import pyarrow as pa

        found = [None if entries is None else dict(entries).get(name) for entries in array.to_pylist()]
        return pa.array(found, pa.string())

    return convert


def _source_millis(array: Any) -> Any:
    import pyarrow as pa

    return _millis(_property("ts_ms")(array).cast(pa.int64()))


_PROPERTIES: Final = "MAP<STRING, STRING>"
_STAMP: Final = "TIMESTAMP_LTZ(3)"
_NAMES: Final = "ARRAY<STRING>"
METADATA: Final[Mapping[str, Mapping[str, MetadataField]]] = {
    "debezium-json": {
        "schema": MetadataField("STRING", "schema", "STRING", root=True),
        "ingestion-timestamp": MetadataField(_STAMP, "ts_ms", "BIGINT", convert=_millis),
        "source.timestamp": MetadataField(_STAMP, "source", _PROPERTIES, convert=_source_millis),
        "source.database": MetadataField("STRING", "source", _PROPERTIES, convert=_property("db")),
        "source.schema": MetadataField("STRING", "source", _PROPERTIES, convert=_property("schema")),
        "source.table": MetadataField("STRING", "source", _PROPERTIES, convert=_property("table")),
        "source.properties": MetadataField(_PROPERTIES, "source", _PROPERTIES),
    },
    "canal-json": {
        "database": MetadataField("STRING", "database", "STRING"),
        "table": MetadataField("STRING", "table", "STRING"),
        "sql-type": MetadataField("MAP<STRING, INT>", "sqlType", "MAP<STRING, INT>"),
        "pk-names": MetadataField(_NAMES, "pkNames", _NAMES),
        "ingestion-timestamp": MetadataField(_STAMP, "ts", "BIGINT", convert=_millis),
        "event-timestamp": MetadataField(_STAMP, "es", "BIGINT", convert=_millis),
    },
    "maxwell-json": {
        "database": MetadataField("STRING", "database", "STRING"),
        "table": MetadataField("STRING", "table", "STRING"),
        "primary-key-columns": MetadataField(_NAMES, "primary_key_columns", _NAMES),
        "ingestion-timestamp": MetadataField(_STAMP, "ts", "BIGINT", convert=_seconds),
    },
    "ogg-json": {
        "table": MetadataField("STRING", "table", "STRING"),
        "primary-keys": MetadataField(_NAMES, "primary_keys", _NAMES),
        "ingestion-timestamp": MetadataField("TIMESTAMP_LTZ(6)", "current_ts", "TIMESTAMP(6)"),
        "event-timestamp": MetadataField("TIMESTAMP_LTZ(6)", "op_ts", "TIMESTAMP(6)"),
    },
}
"""By format, then by key without ``value.``."""


@dataclass(frozen=True, slots=True)
class MetadataPlan:
    """The metadata columns of a table.

    Attributes:
        columns: name and declared type of each, in order.
        fields: where each comes from.
    """

    columns: tuple[tuple[str, LogicalType], ...] = ()
    fields: tuple[MetadataField, ...] = ()

    def needed(self, *, root: bool) -> list[tuple[str, LogicalType]]:
        """Fields of the message to read, each once, with their types."""
        found = {one.field: parse_type(one.read_as) for one in self.fields if one.root is root}
        return list(found.items())

    def arrays(self, read: Mapping[str, Any]) -> list[Any]:
        """Metadata columns of declared types, from the columns of the fields."""
        made = []
        for (_, logical), one in zip(self.columns, self.fields, strict=True):
            array = read[one.field] if one.convert is None else one.convert(read[one.field])
            made.append(array.cast(arrow_type(logical)))
        return made

    def held(self, read: Mapping[str, Any]) -> tuple[list[Any], dict[int, str]]:
        """The columns of `arrays`, and which rows have metadata that its type does not hold, with the reason."""
        import pyarrow as pa

        try:
            return self.arrays(read), {}
        except pa.ArrowException:
            pass
        refused: dict[int, str] = {}
        count = len(next(iter(read.values())))
        for at in range(count):
            one = {name: array.slice(at, 1) for name, array in read.items()}
            for column, field in zip(self.columns, self.fields, strict=True):
                try:
                    MetadataPlan((column,), (field,)).arrays(one)
                except pa.ArrowException:  # its text shows the value
                    refused[at] = f"metadata '{column[0]}': {column[1]} does not hold it"
                    break
        kept = pa.array([None if at in refused else at for at in range(count)], pa.int64())
        return self.arrays({name: array.take(kept) for name, array in read.items()}), refused


def plan_metadata(format_id: str, columns: Sequence[tuple[str, LogicalType]]) -> MetadataPlan:
    """The plan of metadata columns, each given as its key (without ``value.``) and declared type.

    Raises:
        DeclarationError: the format has no such metadata.
    """
    known = METADATA.get(format_id, {})
    problems = [
        Problem(f"format '{format_id}' has no metadata 'value.{key}'{nearest(key, known)}")
        for key, _ in columns
        if key not in known
    ]
    if problems:
        raise DeclarationError(problems)
    return MetadataPlan(tuple(columns), tuple(known[key] for key, _ in columns))
