"""Sums of hashes over rows in Arrow, by which two sets of rows are compared without a row of one meeting the other's.

Each row has two hashes over all its columns. Two sets are equal where they have equally many rows and equal sums.
The sums are exact, so rows in a wrong number do not cancel each other. Of sets that differ they are equal with a chance
of 2^-64 where it takes two texts of the same hash, and of less elsewhere but for two values that change places in a row
of a thousand columns (2^-53). That is chance, and no signature: texts of one hash can be made. Nothing is concluded
from unequal sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from upsert_platform.changelog.row_hashes import hash_cells, mix

Hashes = npt.NDArray[np.uint64]
_BLOCK_ROWS = 1 << 14
"""Rows that are hashed at once: their hashes stay in the processor's cache."""
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@dataclass(slots=True)
class RowSums:
    """A set of rows as its row count and the sums of the row hashes."""

    rows: int = 0
    sums: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, batch: pa.RecordBatch, fields: pa.Schema) -> None:
        """Adds rows.

        Args:
            fields: the columns that count, in their order and types.
        """
        for start in range(0, batch.num_rows, _BLOCK_ROWS):
            self.add_hashes(*row_hashes(batch.slice(start, _BLOCK_ROWS), fields))

    def add_hashes(self, first: Hashes, second: Hashes) -> None:
        """Adds rows of which `row_hashes` are given."""
        for place, hashes in enumerate((first, second)):
            self.sums[place] += (int((hashes >> _HALF).sum()) << 32) + int((hashes & _LOW).sum())
        self.rows += len(first)

    def add_sums(self, other: RowSums) -> None:
        """Adds the rows of another set."""
        self.rows += other.rows
        self.sums = [one + more for one, more in zip(self.sums, other.sums, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """A form for JSON."""
        return {"rows": self.rows, "sums": self.sums}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(told["rows"], list(told["sums"]))


def row_hashes(batch: pa.RecordBatch, fields: pa.Schema) -> tuple[Hashes, Hashes]:
    """Two hashes of 64 bits per row, equal for rows that are equal in these columns: in their order, null with null."""
    factors, of_null = np.split(_factors(2 * len(fields)), 2, axis=1)
    found = np.zeros((2, batch.num_rows), np.uint64)
    with np.errstate(over="ignore"):
        for place, column in enumerate(fields):
            values = _in_type(batch.column(column.name), column.type)
            cells = hash_cells(values)
            nulls = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
            for side in range(2):
                found[side] += cells * factors[side, place]
                if nulls is not None:  # of the numbers one has the hash that nulls have
                    found[side] += nulls * of_null[side, place]
    return mix(found[0]), mix(found[1])


@lru_cache(maxsize=64)
def _factors(columns: int) -> npt.NDArray[np.uint64]:
    """Odd numbers, other ones for each place and each of the two hashes: the same values elsewhere are another row."""
    numbers = np.arange(1, 2 * columns + 1, dtype=np.uint64).reshape(2, columns)
    return np.asarray(mix(numbers) | np.uint64(1))


def _in_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values in a type; the zone in which moments are shown is no part of them."""
    if values.type == kind:
        return values
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp(kind.unit, tz=values.type.tz))
    return values.cast(kind)


def are_told_apart(kind: pa.DataType) -> bool:
    """Return whether rows whose values of a type differ have different hashes: nested values are left to others."""
    checks = (
        pa.types.is_string, pa.types.is_binary, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating,
        pa.types.is_decimal128, pa.types.is_date32, pa.types.is_timestamp,
    )  # fmt: skip
    return any(check(kind) for check in checks)
