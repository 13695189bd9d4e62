"""Lines of JSON to change frames of a table: what is not exactly a row of its columns is refused, with the rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.changelog import rows
from upsert_platform.core.destination import OPERATION, OPERATION_DELETE, OPERATION_UPSERT
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.masking import MASKED, Mask
from upsert_platform.core.model import Column
from upsert_platform.core.options import nearest
from upsert_platform.core.types import BYTES, TEXTS, TypeName
from upsert_platform.formats import build_decoder
from upsert_platform.kafka.table import KafkaTable
from upsert_platform.sync.shown_rows import JSON_OPTIONS, PLACE

if TYPE_CHECKING:
    import pyarrow as pa

_CLOCKS: Final = (TypeName.DATE, TypeName.TIME, TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ)
_WHOLE: Final = (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT)
_NUMBERS: Final = (*_WHOLE, TypeName.DECIMAL, TypeName.FLOAT, TypeName.DOUBLE)


class LineReader:
    """Reads lines into change frames of a table.

    Args:
        deletes: every line is a tombstone.
    """

    def __init__(self, table: KafkaTable, *, deletes: bool) -> None:
        self._columns = {column.name: column for column in (*table.table.physical_columns, *table.written_metadata)}
        self._others = {column.name for column in table.table.columns} - set(self._columns)
        self._key = table.primary_key
        self.mask = Mask.of(table.table)
        self._upserts = table.is_upsert
        self._deletes = deletes
        if deletes and not table.is_upsert:
            raise UpsertPlatformError(
                f"table '{table.name}' of connector 'kafka' has no tombstones: leave out --delete"
            )
        fields = [(column.name, column.type) for column in self._columns.values() if column.type is not None]
        self._decoder = build_decoder("json", fields, JSON_OPTIONS)

    def read(self, block: Sequence[tuple[int, bytes]]) -> tuple[list[int], pa.RecordBatch, list[tuple[int, str]]]:
        """The numbers of lines that gave a row, their change frame, and the other lines with the reason."""
        import pyarrow as pa

        numbers, messages, operations = [], [], []
        refused: list[tuple[int, str]] = []
        for number, line in block:
            try:
                operation, message = self._one(line)
            except ValueError as error:
                refused.append((number, str(error)))
                continue
            numbers.append(number)
            messages.append(message)
            operations.append(operation)
        decoded = self._decoder.decode(messages)
        refused += [(numbers[index], self.mask.reason(reason)) for index, reason in decoded.errors.items()]
        places = decoded.message.to_pylist()
        taken = pa.array([operations[index] for index in places], pa.string())
        frame = decoded.rows.append_column(OPERATION, taken)
        return [numbers[index] for index in places], frame, refused

    def _one(self, line: bytes) -> tuple[str, bytes]:
        """The operation of a line, and its columns as JSON.

        Raises:
            ValueError: the line is not such an object; names the column and the rule.
        """
        row = _object(line)
        kind = row.pop(rows.KIND, None) if rows.KIND not in self._columns else None
        if kind is not None and kind not in (rows.KIND_INSERT, rows.KIND_UPDATE_AFTER, rows.KIND_DELETE):
            raise ValueError(f"'{rows.KIND}' is {json.dumps(kind)}: a row to send is +I, +U or -D")
        deletes = self._deletes or kind == rows.KIND_DELETE
        if deletes and not self._upserts:
            raise ValueError(f"'{rows.KIND}' is -D, but a table of connector 'kafka' has no tombstones")
        for name in PLACE:
            if name not in self._columns:
                row.pop(name, None)
        for name, value in row.items():
            self._check(name, value)
        wanted = {name: value for name, value in row.items() if not deletes or name in self._key}
        return OPERATION_DELETE if deletes else OPERATION_UPSERT, _dumped(wanted).encode()

    def _check(self, name: str, value: Any) -> None:
        column = self._columns.get(name)
        if column is None:
            if name in self._others:
                raise ValueError(f"column '{name}' is not written: it is computed, or metadata that is only read")
            raise ValueError(f"the table has no column '{name}'{nearest(name, self._columns)}")
        if value == MASKED and name in self.mask.columns:
            raise ValueError(f"column '{name}' is masked, and {MASKED} is what stands for its value: give the value")
        if value is not None and not _fits(column, value):
            raise ValueError(f"column '{name}' is {column.type} and does not take {_named(value)}")


class _Number(float):
    """A number with the digits that it was written with."""

    text: str

    def __new__(cls, text: str) -> _Number:
        found = super().__new__(cls, text)
        found.text = text
        return found


def _object(line: bytes) -> dict[str, Any]:
    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        named = dict(found)
        if len(named) < len(found):
            names = [name for name, _ in found]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"column '{twice}' stands twice")
        return named

    def constant(text: str) -> Any:
        raise ValueError(f"{text} is not JSON; write it as a text")

    try:
        found = json.loads(line.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant, parse_float=_Number)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"a line is a JSON object of columns, not {_named(found)}")
    return found


def _dumped(value: Any) -> str:
    """JSON with the digits that numbers were written with: `json.dumps` would round them to doubles."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_dumped(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(_dumped, value))}]"
    return value.text if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)


def _fits(column: Column, value: Any) -> bool:
    """Return whether a value has JSON's kind for a type; the format would convert some values of other kinds."""
    assert column.type is not None
    kind = column.type.name
    if kind is TypeName.BOOLEAN:
        return isinstance(value, bool)
    if kind in _NUMBERS:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        special = kind in (TypeName.FLOAT, TypeName.DOUBLE) and value in ("NaN", "Infinity", "-Infinity")
        return special or (number and (kind not in _WHOLE or isinstance(value, int)))
    if kind in (*TEXTS, *BYTES, *_CLOCKS):
        return isinstance(value, str)
    return isinstance(value, list if kind is TypeName.ARRAY else dict)


def _named(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    names = {str: "a text", dict: "an object", list: "a list", int: "a whole number", type(None): "null"}
    return names.get(type(value), "a number with a fraction")
