"""Results of a statement as columns: their types, and the flatbuffers in which clients read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

LONG, BOOLEAN, DOUBLE, STRING, BINARY = 1, 2, 3, 4, 5


@dataclass(frozen=True, slots=True)
class Column:
    """A result column; ``None`` stands for null."""

    name: str
    kind: int
    values: Sequence[Any]


def kind_of(values: Sequence[Any]) -> int:
    """The type of a computed column, by its values; text when all are null."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int}:
        return LONG if kinds else STRING
    if kinds <= {int, float}:
        return DOUBLE
    return BINARY if kinds == {bytes} else STRING


def encode_columns(columns: Sequence[Column]) -> bytes:
    """``SQLResponseColumns`` of the protocol."""
    import flatbuffers
    from tablestore.flatbuffer.dataprotocol import SQLResponseColumn, SQLResponseColumns

    builder = flatbuffers.Builder(1024)
    encoded = []
    for column in columns:
        values = _encode_values(builder, column)
        name = builder.CreateString(column.name)
        builder.StartObject(2)  # no logic type beside the plain one; the Java SDK wants to be told
        plain = builder.EndObject()
        builder.StartObject(4)
        SQLResponseColumn.AddColumnName(builder, name)
        SQLResponseColumn.AddColumnType(builder, column.kind)
        SQLResponseColumn.AddColumnValue(builder, values)
        builder.PrependUOffsetTRelativeSlot(3, plain, 0)
        encoded.append(SQLResponseColumn.End(builder))
    vector = _offsets(builder, encoded)
    SQLResponseColumns.Start(builder)
    SQLResponseColumns.AddColumns(builder, vector)
    SQLResponseColumns.AddRowCount(builder, len(columns[0].values) if columns else 0)
    builder.Finish(SQLResponseColumns.End(builder))
    return bytes(builder.Output())


def _encode_values(builder: Any, column: Column) -> int:
    from tablestore.flatbuffer.dataprotocol import BytesValue, ColumnValues

    values = column.values
    nulls = _scalars(builder, 1, [value is None for value in values], builder.PrependBool)
    if column.kind == LONG:
        vector = _scalars(builder, 8, [int(value or 0) for value in values], builder.PrependInt64)
        add = ColumnValues.AddLongValues
    elif column.kind == BOOLEAN:
        vector = _scalars(builder, 1, [bool(value) for value in values], builder.PrependBool)
        add = ColumnValues.AddBoolValues
    elif column.kind == DOUBLE:
        vector = _scalars(builder, 8, [float(value or 0) for value in values], builder.PrependFloat64)
        add = ColumnValues.AddDoubleValues
    elif column.kind == STRING:
        texts = [builder.CreateString("" if value is None else str(value)) for value in values]
        vector = _offsets(builder, texts)
        add = ColumnValues.AddStringValues
    else:
        items = []
        for value in values:
            content = builder.CreateByteVector(bytes(value or b""))
            BytesValue.Start(builder)
            BytesValue.AddValue(builder, content)
            items.append(BytesValue.End(builder))
        vector = _offsets(builder, items)
        add = ColumnValues.AddBinaryValues
    ColumnValues.Start(builder)
    ColumnValues.AddIsNullvalues(builder, nulls)
    add(builder, vector)
    return int(ColumnValues.End(builder))


def _scalars(builder: Any, size: int, values: Sequence[Any], prepend: Callable[[Any], None]) -> int:
    builder.StartVector(size, len(values), size)
    for value in reversed(values):
        prepend(value)
    return int(builder.EndVector())


def _offsets(builder: Any, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())
