"""Metadata columns of Kafka tables: what a record carries besides key and value.

Keys and types: Flink's Kafka connector, "Available Metadata".
"""

from __future__ import annotations

from typing import Final

from upsert_platform.core.model import Column, ColumnKind
from upsert_platform.core.options import nearest
from upsert_platform.core.types import LogicalType, TypeName

_TEXT: Final = (TypeName.STRING, TypeName.VARCHAR, TypeName.CHAR)
_WHOLE: Final = (TypeName.INT, TypeName.BIGINT)
_METADATA: Final[dict[str, tuple[TypeName, ...]]] = {
    "topic": _TEXT,
    "partition": _WHOLE,
    "headers": (TypeName.MAP,),
    "header-list": (TypeName.ARRAY,),
    "leader-epoch": _WHOLE,
    "offset": (TypeName.BIGINT,),
    "timestamp": (TypeName.TIMESTAMP_LTZ, TypeName.TIMESTAMP),
    "timestamp-type": _TEXT,
}
WRITABLE: Final = ("topic", "headers", "header-list", "timestamp")
"""Metadata that a record can be given when it is written; others are VIRTUAL on written tables."""
FORMAT_PREFIX: Final = "value."
"""Begins keys of metadata that the value format reads out of the message (change data formats)."""


def metadata_key(column: Column) -> str:
    """The key that a metadata column reads."""
    return column.metadata_key or column.name


def format_metadata_key(column: Column) -> str | None:
    """The key without ``value.`` of a column that the value format fills, or None."""
    key = metadata_key(column)
    return key.removeprefix(FORMAT_PREFIX) if key.startswith(FORMAT_PREFIX) else None


def metadata_problem(column: Column) -> str | None:
    """Return the problem of a metadata column, or None."""
    assert column.kind is ColumnKind.METADATA and column.type is not None
    key = metadata_key(column)
    if format_metadata_key(column) is not None:
        return None  # checked with the format
    kinds = _METADATA.get(key)
    if kinds is None:
        return (
            f"column '{column.name}' reads metadata '{key}', which Kafka records do not have{nearest(key, _METADATA)}"
        )
    if column.type.name not in kinds or not _shape_fits(key, column.type):
        wanted = {
            "headers": "MAP<STRING, BYTES>",
            "header-list": "ARRAY<ROW<key STRING, value BYTES>>",
        }.get(key, " or ".join(kind.value for kind in kinds))
        return f"column '{column.name}' of type {column.type} cannot hold metadata '{key}'; declare it as {wanted}"
    return None


def _shape_fits(key: str, declared: LogicalType) -> bool:
    if key == "headers":
        return _is(declared.key, _TEXT) and _is(declared.element, (TypeName.BYTES, TypeName.VARBINARY))
    if key == "header-list":
        row = declared.element
        return (
            row is not None
            and row.name is TypeName.ROW
            and len(row.fields) == 2
            and _is(row.fields[0].type, _TEXT)
            and _is(row.fields[1].type, (TypeName.BYTES, TypeName.VARBINARY))
        )
    return True


def _is(declared: LogicalType | None, kinds: tuple[TypeName, ...]) -> bool:
    return declared is not None and declared.name in kinds
