"""Values that Spark can compare and group by: maps are their entries in the order of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from upsert_platform.core.internal_columns import internal
from upsert_platform.core.model import Column
from upsert_platform.core.types import LogicalType, TypeName

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

_ENTRY_KEY: Final = internal("entry_key")
_ENTRY_VALUE: Final = internal("entry_value")


def comparable(value: SparkColumn, column: Column) -> SparkColumn:
    """A value that Spark can compare: maps are their entries in the order of keys."""
    assert column.type is not None
    return _without_maps(value, column.type) if _holds_map(column.type) else value


def _holds_map(kind: LogicalType) -> bool:
    return any(part.name in (TypeName.MAP, TypeName.MULTISET) for part in kind.parts())


def _without_maps(value: SparkColumn, kind: LogicalType) -> SparkColumn:
    """A value with sorted lists of entries, key and value, in the place of maps."""
    from pyspark.sql import functions as F

    if not _holds_map(kind):
        return value
    if kind.name is TypeName.ROW:
        fields = [_without_maps(value.getField(field.name), field.type).alias(field.name) for field in kind.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    element = kind.element
    assert element is not None
    if kind.name is TypeName.ARRAY:
        return F.transform(value, lambda item: _without_maps(item, element))
    key = element if kind.name is TypeName.MULTISET else kind.key
    assert key is not None

    def entry(item: SparkColumn) -> SparkColumn:
        told = item["value"]
        if kind.name is TypeName.MAP:
            told = _without_maps(told, element)
        return F.struct(_without_maps(item["key"], key).alias(_ENTRY_KEY), told.alias(_ENTRY_VALUE))

    return F.array_sort(F.transform(F.map_entries(value), entry))
