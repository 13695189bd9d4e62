"""Equality of keys, in one place: a null equals a null.

A key column holds null where an expression or a record gives none: such a row is set aside, for no table takes it, and
is to be found again by its key. Plain equality, which is how Spark joins by names, never finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OTHER: Final = "_upsert_other_key"
_ONE_SIDE: Final = ("left_semi", "left_anti")


def same_key(one: Sequence[Column], other: Sequence[Column]) -> Column:
    """Return whether the columns of two keys, in the same order, are the same key."""
    return reduce(and_, [left.eqNullSafe(right) for left, right in zip(one, other, strict=True)])


def join_by_key(left: DataFrame, right: DataFrame, names: Sequence[str], how: str) -> DataFrame:
    """Join two frames where their rows have the same key.

    Args:
        names: of the key columns, which both frames have.
        how: as Spark names it: ``inner``, ``left``, ``full_outer``, ``left_semi`` or ``left_anti``.

    Returns:
        The columns of `left`, and of `right` those that are not of the key; `left` alone of a semi or anti join.
    """
    from pyspark.sql import functions as F

    others = {name: f"{_OTHER}{place}" for place, name in enumerate(names)}
    renamed = right.withColumnsRenamed(others)
    # By name: both sides may come of one frame, whose columns Spark would take for each other.
    condition = same_key([F.col(_quoted(name)) for name in names], [F.col(item) for item in others.values()])
    joined = left.join(renamed, condition, how)
    if how in _ONE_SIDE:
        return joined
    if how == "full_outer":
        keys = {name: F.coalesce(_quoted(name), item).alias(name) for name, item in others.items()}
        joined = joined.select(*[keys.get(name, F.col(_quoted(name))) for name in joined.columns])
    return joined.drop(*others.values())


def without_null_keys(keys: DataFrame) -> DataFrame:
    """Return the keys that a table may hold: none of its rows has a null in its key."""
    from pyspark.sql import functions as F

    return keys.where(reduce(and_, [F.col(_quoted(name)).isNotNull() for name in keys.columns]))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
