"""Functions of frames: results of Flink 2.2.1's streaming OVER, ordered by processing time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.engine.frames import Frames, distinct_values

ARRIVED = [1, 1, 1, 4, 4, None, 7]
"""In one partition, in this order."""


@pytest.mark.parametrize(
    ("preceding", "function", "expected"),
    [
        (2, "count", [1, 1, 1, 2, 2, 1, 2]),
        (2, "sum", [1, 1, 1, 5, 5, 4, 11]),
        (2, "avg", [1, 1, 1, 2, 2, 4, 5]),
        (6, "count", [1, 1, 1, 2, 2, 2, 3]),
        (6, "sum", [1, 1, 1, 5, 5, 5, 12]),
        (6, "avg", [1, 1, 1, 2, 2, 2, 4]),
        (1, "count", [1, 1, 1, 2, 1, 1, 1]),
        (0, "sum", [1, 1, 1, 4, 4, None, 7]),
    ],
)
def test_each_value_of_a_frame_counts_once(preceding: int, function: str, expected: list[int | None]) -> None:
    size = len(ARRIVED)
    places = np.arange(2 * size)
    first = places // size * size  # two partitions of the same rows
    frames = Frames(first, first + size, places, np.maximum(first, places - preceding), places + 1)
    codes = np.array([value or 0 for value in ARRIVED * 2])
    values = pa.array(ARRIVED * 2, pa.int32())
    found = distinct_values(values, LogicalType(TypeName.INT), frames, codes, function=function)
    assert found.to_pylist() == expected * 2
