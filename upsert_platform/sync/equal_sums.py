"""Equality of two sets of rows by sums of hashes: no row of one side has to meet that of the other.

A join of all rows costs several times what reading them does; where nothing differs, which is nearly always, two
numbers tell it. Each row has two hashes of 64 bits over all columns and which of them are null; both sides have equal
counts and equal sums of them. Sums are exact, so rows in a wrong number do not cancel each other. Sets that differ have
equal sums with a chance of about 2^-128. Nothing is concluded from unequal sums: a join then says what differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from upsert_platform.core.destination import WANTED
from upsert_platform.core.internal_columns import internal

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

HASHES: Final = (internal("hash0"), internal("hash1"))
_ROWS: Final = internal("rows")
_COUNTED: Final = internal("counted")
_SIDE: Final = internal("side")
BUCKET: Final = internal("bucket")
_BUCKETS: Final = 4096


class EqualRows(NamedTuple):
    """Two sides that are equal.

    Attributes:
        rows: of the expected side, wanted or not.
        wanted: of them, and so of the other side.
    """

    rows: int
    wanted: int


class EqualBuckets(NamedTuple):
    """Buckets of keys, compared by their sums.

    Attributes:
        differing: buckets whose sides differ.
        equal: rows of all others.
    """

    differing: tuple[int, ...]
    equal: EqualRows


def bucket_of(key: Sequence[SparkColumn]) -> SparkColumn:
    """Return the bucket of a key: a number from 0 on."""
    from pyspark.sql import functions as F

    return F.pmod(F.xxhash64(F.lit(BUCKET), *key), F.lit(_BUCKETS)).cast("int")


def equal_buckets(expected: DataFrame, found: DataFrame) -> EqualBuckets:
    """Compare two sides bucket by bucket: frames of `with_hashes` with the column `BUCKET`.

    Args:
        expected: with the column `WANTED`, which says of a row whether the other side has to have it.
    """
    from pyspark.sql import functions as F

    left = expected.groupBy(BUCKET).agg(*_sums(F.col(WANTED)), F.lit(0).alias(_SIDE))
    right = found.groupBy(BUCKET).agg(*_sums(F.lit(True)), F.lit(1).alias(_SIDE))
    compared = [name for name in left.columns if name not in (BUCKET, _ROWS, _SIDE)]
    sums: dict[int, list[tuple[int, ...]]] = {}
    rows: dict[int, int] = {}
    nothing = (0,) * len(compared)
    for row in left.union(right).collect():
        sides = sums.setdefault(row[BUCKET], [nothing, nothing])
        sides[row[_SIDE]] = tuple(row[name] or 0 for name in compared)
        if row[_SIDE] == 0:
            rows[row[BUCKET]] = row[_ROWS]
    counted = compared.index(_COUNTED)
    differing = tuple(sorted(bucket for bucket, (one, other) in sums.items() if one != other))
    equal = set(sums).difference(differing)
    alike = EqualRows(sum(rows.get(item, 0) for item in equal), sum(sums[item][0][counted] for item in equal))
    return EqualBuckets(differing, alike)


def with_hashes(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """A frame with two hashes of some of its columns."""
    from pyspark.sql import functions as F

    cells = [part for name in names for part in (F.col(name).isNull(), F.col(name))]
    return frame.withColumns({name: F.xxhash64(F.lit(start), *cells) for start, name in enumerate(HASHES)})


def hashes_tell(expected: DataFrame, found: DataFrame, columns: Sequence[tuple[str, str]]) -> bool:
    """Return whether equal hashes mean equal rows: decimals are hashed without a scale, lists without their nulls.

    Args:
        columns: of both frames, in pairs.
    """
    from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

    kinds = [(expected.schema[one].dataType, found.schema[other].dataType) for one, other in columns]
    nested = (ArrayType, MapType, StructType, VariantType)
    return all(one == other and not isinstance(one, nested) for one, other in kinds)


def _sums(counted: SparkColumn) -> list[SparkColumn]:
    """Rows, those that are counted, and sums over these of the halves of hashes: a half's sum fits into 64 bits."""
    from pyspark.sql import functions as F

    sums = [F.count(F.lit(1)).alias(_ROWS), F.count(F.when(counted, 1)).alias(_COUNTED)]
    for name in HASHES:
        halves = F.shiftrightunsigned(name, 32), F.col(name).bitwiseAND(F.lit(0xFFFFFFFF))
        sums += [F.sum(F.when(counted, half)).alias(f"{name}{place}") for place, half in enumerate(halves)]
    return sums
