"""Avro's binary encoding read column by column, for all messages of a block at once.

A place is kept per message; each value moves the places of all messages on together. What the vectorised steps do not
cover (a broken message, an unusual number, text that is not UTF-8) gives up the block, and a smaller one is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

import numpy as np
import pyarrow as pa

from upsert_platform.core.types import TEXTS, LogicalType, TypeName, arrow_type
from upsert_platform.formats.avro.plan import Node
from upsert_platform.formats.java.time import DAY_NS

_MARGIN: Final = 16
"""Bytes behind the last message, so that a number cut off at the end is read without leaving the buffer."""
_STAMPS: Final = (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ)
_MOST_STEPS: Final = 20_000
"""Of a schema that is read in bulk: each makes some arrays as long as the block."""
_MICROS_BOUND: Final = (1 << 63) - 1


class GiveUpError(Exception):
    """The block holds something that is not read in bulk."""


def has_bulk_form(node: Node) -> bool:
    """Return whether records of this plan can be read in bulk: no arrays and maps, unions only with null, and not too
    many.
    """
    return _steps(node, {}) <= _MOST_STEPS


def _steps(node: Node, known: dict[int, float]) -> float:
    """Return the number of steps that decode a node, named types included; infinite if it has no bulk form."""
    if id(node) not in known:
        odd_union = node.kind == "union" and (
            len(node.children) != 2 or all(child.kind != "null" for child in node.children)
        )
        has_none = node.problem or node.kind in ("array", "map") or odd_union
        known[id(node)] = inf if has_none else 1 + sum(_steps(child, known) for child in node.children)
    return known[id(node)]


class AvroBulk:
    """Reads blocks of records."""

    def __init__(self, node: Node, schema: pa.Schema) -> None:
        self._node = node
        self._schema = schema

    def read(self, messages: Sequence[bytes]) -> tuple[pa.RecordBatch, np.ndarray | None] | None:
        """Reads a row per message; None if the block has to be read another way."""
        content = np.frombuffer(b"".join([*messages, bytes(_MARGIN)]), np.uint8)
        ends = np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)))
        starts = np.concatenate(([0], ends[:-1]))
        try:
            arrays, _ = _Block(content).fields(self._node, starts, ends)
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            batch.validate(full=True)
        except (GiveUpError, pa.ArrowInvalid):
            return None
        return batch, None


class _Block:
    def __init__(self, content: np.ndarray) -> None:
        self._content = content

    def fields(self, node: Node, at: np.ndarray, ends: np.ndarray) -> tuple[list[pa.Array], np.ndarray]:
        """The columns of a record's target, and the places after the record."""
        assert node.target is not None
        found: dict[int, pa.Array] = {}
        for child, place in zip(node.children, node.places, strict=True):
            array, at = self.value(child, at, ends)
            if place is not None:
                found[place] = array
        columns = [
            found[place] if place in found else pa.nulls(len(at), arrow_type(item.type))
            for place, item in enumerate(node.target.fields)
        ]
        return columns, at

    def value(self, node: Node, at: np.ndarray, ends: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """A column, and the places after its values."""
        if node.kind == "union":
            return self._nullable(node, at, ends)
        array, after = self._bare(node, at, ends)
        if (after > ends).any():
            raise GiveUpError
        return array, after

    def _bare(self, node: Node, at: np.ndarray, ends: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        match node.kind:
            case "null":
                kind = arrow_type(node.target) if node.target is not None else pa.null()
                return pa.nulls(len(at), kind), at
            case "boolean":
                self._check(at, ends)
                return pa.array(self._content[at] == 1), at + 1
            case "int" | "long":
                numbers, after = self._varints(at, ends, longest=5 if node.kind == "int" else 10)
                return _whole(numbers, node), after
            case "float" | "double":
                return self._floating(node, at, ends)
            case "bytes" | "string":
                sizes, start = self._varints(at, ends, longest=10)
                return self._contents(node, start, sizes, ends)
            case "fixed":
                return self._contents(node, at, np.full(len(at), node.size, np.int64), ends)
            case "enum":
                index, after = self._varints(at, ends, longest=5)
                if ((index < 0) | (index >= len(node.symbols))).any():
                    raise GiveUpError
                return pa.array(node.symbols, pa.string()).take(pa.array(index)), after
        return self._record(node, at, ends)

    def _record(self, node: Node, at: np.ndarray, ends: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        if node.target is None:
            for child in node.children:
                _, at = self.value(child, at, ends)
            return pa.nulls(len(at)), at
        columns, at = self.fields(node, at, ends)
        kinds = [pa.field(item.name, arrow_type(item.type)) for item in node.target.fields]
        return pa.StructArray.from_arrays(columns, fields=kinds), at

    def _nullable(self, node: Node, at: np.ndarray, ends: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        self._check(at, ends)
        branch = self._content[at]
        if (branch & 0xFD).any():  # anything but 0 and 2, the branches 0 and 1
            raise GiveUpError
        at = at + 1
        absent = 0 if node.children[0].kind == "null" else 2
        child = node.children[1 if absent == 0 else 0]
        if child.kind == "null":
            return self._bare(child, at, ends)
        present = branch != absent
        if present.all():
            return self.value(child, at, ends)
        rows = np.nonzero(present)[0]
        inner, after = self.value(child, at[rows], ends[rows])
        at[rows] = after
        index = pa.array(np.cumsum(present) - 1, mask=~present)
        return inner.take(index) if len(inner) else pa.nulls(len(at), inner.type), at

    def _check(self, at: np.ndarray, ends: np.ndarray) -> None:
        if (at >= ends).any():
            raise GiveUpError

    def _varints(self, at: np.ndarray, ends: np.ndarray, *, longest: int) -> tuple[np.ndarray, np.ndarray]:
        self._check(at, ends)
        byte = self._content[at]
        value = (byte & 0x7F).astype(np.uint64)
        at = at + 1
        more = np.nonzero(byte >= 0x80)[0]
        shift = 7
        while len(more):
            if shift == 7 * longest:
                raise GiveUpError
            byte = self._content[at[more]]
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            at[more] += 1
            more = more[byte >= 0x80]
            shift += 7
        if (at > ends).any() or (longest == 5 and shift > 28 and (value >> np.uint64(32)).any()):
            raise GiveUpError
        return (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64), at

    def _floating(self, node: Node, at: np.ndarray, ends: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        size = 4 if node.kind == "float" else 8
        if (at + size > ends).any():
            raise GiveUpError
        table = self._content[at[:, None] + np.arange(size)]
        values = table.view("<f4" if size == 4 else "<f8").ravel()
        wide = node.target is not None and node.target.name is TypeName.DOUBLE
        return pa.array(values.astype(np.float64) if wide else values), at + size

    def _contents(
        self, node: Node, start: np.ndarray, sizes: np.ndarray, ends: np.ndarray
    ) -> tuple[pa.Array, np.ndarray]:
        if (sizes < 0).any() or (sizes > ends - start).any():  # a sum of places could pass the end of 64 bits
            raise GiveUpError
        after = start + sizes
        if node.target is None:
            return pa.nulls(len(start)), after
        if node.target.name is TypeName.DECIMAL:
            return self._decimals(start, sizes, node.scale, node.target), after
        bounds = np.concatenate(([0], np.cumsum(sizes)))
        index = np.repeat(start - bounds[:-1], sizes) + np.arange(bounds[-1])
        kind = pa.string() if node.target.name in TEXTS else pa.binary()
        buffers = [None, pa.py_buffer(bounds.astype(np.int32).tobytes()), pa.py_buffer(self._content[index].tobytes())]
        return pa.Array.from_buffers(kind, len(start), buffers), after

    def _decimals(self, start: np.ndarray, sizes: np.ndarray, scale: int, logical: LogicalType) -> pa.Array:
        if scale != (logical.scale or 0) or len(sizes) == 0 or sizes.min() < 1 or sizes.max() > 16:
            raise GiveUpError
        negative = self._content[start] >= 0x80
        low = np.where(negative, np.uint64((1 << 64) - 1), np.uint64(0))
        high = low.copy()
        for place in range(int(sizes.max())):
            rows = np.nonzero(sizes > place)[0]
            byte = self._content[start[rows] + place].astype(np.uint64)
            high[rows] = high[rows] << np.uint64(8) | low[rows] >> np.uint64(56)
            low[rows] = low[rows] << np.uint64(8) | byte
        lanes = np.column_stack((low, high)).tobytes()
        return pa.Array.from_buffers(arrow_type(logical), len(start), [None, pa.py_buffer(lanes)])


def _whole(numbers: np.ndarray, node: Node) -> pa.Array:
    name = node.target.name if node.target is not None else TypeName.BIGINT
    match name:
        case TypeName.TINYINT:
            return pa.array(numbers.astype(np.int8))
        case TypeName.SMALLINT:
            return pa.array(numbers.astype(np.int16))
        case TypeName.INT:
            return pa.array(numbers.astype(np.int32))
        case TypeName.DATE:
            return pa.array(numbers.astype(np.int32)).cast(pa.date32())
        case TypeName.FLOAT:
            return pa.array(numbers.astype(np.float32))
        case TypeName.DOUBLE:
            return pa.array(numbers.astype(np.float64))
        case TypeName.TIME | TypeName.TIMESTAMP | TypeName.TIMESTAMP_LTZ:
            return _instants(numbers, node)
    return pa.array(numbers)


def _instants(numbers: np.ndarray, node: Node) -> pa.Array:
    assert node.target is not None
    if node.unit >= 1000:
        factor = node.unit // 1000
        if len(numbers) and max(-int(numbers.min()), int(numbers.max())) > _MICROS_BOUND // factor:
            raise GiveUpError
        numbers = numbers * factor
    else:
        numbers = numbers // (1000 // node.unit)
    if node.target.name is TypeName.TIME and ((numbers < 0) | (numbers >= DAY_NS // 1000)).any():
        raise GiveUpError
    micros = pa.array(numbers)
    return micros.cast(arrow_type(node.target)) if node.target.name in _STAMPS else micros
