"""PERCENTILE of groups: between the two values that are nearest to a share of a group, as Flink computes it."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Sequence
from decimal import Decimal
from itertools import accumulate

import pyarrow as pa

from upsert_platform.core.plan import Call
from upsert_platform.core.types import TypeName, arrow_type

Weighed = tuple[float, int]
"""A value, and how often it counts."""


def percentiles(lists: pa.ChunkedArray, call: Call) -> pa.Array:
    """The percentiles of each group's values: DOUBLE, or ARRAY<DOUBLE> for several shares; null without values.

    Args:
        lists: numbers, or texts of a double, a blank and how often it counts.
        call: whose separator is JSON: the shares from 0 to 1, in a list of their own where the result is an array.
    """
    given = json.loads(call.separator or "[]")
    shares: list[float] = given[0] if isinstance(given[0], list) else given
    found = [_of_shares(_weighed(values), shares) if values else None for values in lists.to_pylist()]
    if call.type.name is not TypeName.ARRAY:
        return pa.array([None if item is None else item[0] for item in found], arrow_type(call.type))
    return pa.array(found, arrow_type(call.type))


def _weighed(values: Sequence[float | Decimal | str]) -> list[Weighed]:
    """Values in ascending order, NaN behind all others."""
    given = []
    for value in values:
        number, _, count = value.partition(" ") if isinstance(value, str) else (value, "", "1")
        given.append((float(number), int(count)))
    return sorted(given, key=lambda item: (math.isnan(item[0]), item[0]))


def _of_shares(values: Sequence[Weighed], shares: Sequence[float]) -> list[float]:
    ends = list(accumulate(count for _, count in values))
    found = []
    for share in shares:
        place = share * (ends[-1] - 1) + 1
        below, above = math.floor(place), math.ceil(place)
        low, high = (values[bisect_left(ends, at)][0] for at in (below, above))
        same = low == high or (math.isnan(low) and math.isnan(high))
        found.append(low if same else (above - place) * low + (place - below) * high)
    return found
