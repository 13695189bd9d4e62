"""Equal rows become one, whichever way is taken."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from upsert_platform.changelog.row_codes import code_rows
from upsert_platform.engine.keys import consolidate, match_rows, sum_rows

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "texts": (pa.string(), ["", "a", "\0", "long text of more than eight bytes", None]),
    "whole numbers": (pa.int64(), [-5, 0, 7, 1 << 40]),
    "small numbers with nulls": (pa.int8(), [-128, 127, None]),
    "extremes": (pa.int64(), [-(1 << 63), (1 << 63) - 1, 0]),
    "times": (pa.timestamp("us"), [datetime(1969, 12, 31, 23, 59, 59, 7), datetime(2024, 5, 1)]),  # noqa: DTZ001
    "days": (pa.date32(), [date(1960, 1, 1), date(2024, 2, 29)]),
    "truths": (pa.bool_(), [True, False, None]),
}


@pytest.mark.parametrize("first", COLUMNS)
@pytest.mark.parametrize("second", COLUMNS)
def test_weights_of_equal_rows_are_added(first: str, second: str) -> None:
    rng = random.Random(f"{first} {second}")
    kinds = (COLUMNS[first][0], COLUMNS[second][0])
    rows = [(rng.choice(COLUMNS[first][1]), rng.choice(COLUMNS[second][1]), rng.choice([-1, 1, 2])) for _ in range(60)]
    expected: Counter[Any] = Counter()
    for one, other, weight in rows:
        expected[one, other] += weight
    columns = [[row[at] for row in rows] for at in range(3)]
    table = pa.table([pa.array(values, kind) for values, kind in zip(columns, (*kinds, pa.int64()), strict=True)],
                     names=["a", "b", "_w"])  # fmt: skip
    for summed in (consolidate(table, weight="_w"), sum_rows(table, weight="_w")):
        if summed is None:  # one that does not fit into a number
            assert {first, second} & {"extremes", "whole numbers", "times"}
            continue
        assert summed.schema == table.schema
        found = {(row["a"], row["b"]): row["_w"] for row in summed.to_pylist()}
        assert found == {row: weight for row, weight in expected.items() if weight}
        assert len(found) == summed.num_rows


@pytest.mark.parametrize("seed", range(40))
def test_every_pair_of_equal_codes_is_found_once(seed: int) -> None:
    rng = random.Random(seed)
    most = rng.choice([1, 3, 30])
    left = [rng.randrange(most) for _ in range(rng.randrange(12))]
    right = [rng.randrange(most) for _ in range(rng.randrange(12))]
    if seed % 2:
        right = rng.sample(range(most), rng.randrange(most + 1))  # each once
    found = match_rows(np.array(left, np.int64), np.array(right, np.int64))
    pairs = list(zip(*(item.tolist() for item in found), strict=True))
    wanted = [(i, j) for i, one in enumerate(left) for j, other in enumerate(right) if one == other]
    assert sorted(pairs) == wanted
    assert [i for i, _ in pairs] == sorted(i for i, _ in pairs)


@pytest.mark.parametrize("seed", range(40))
def test_codes_are_equal_just_where_all_columns_are(seed: int) -> None:
    rng = random.Random(seed)
    sizes, widths = (rng.randrange(1, 6), rng.randrange(6)), [rng.choice([1, 2, 50]) for _ in range(3)]
    tables = [
        pa.table({str(at): pa.array([rng.randrange(width) or None for _ in range(size)], pa.int64())
                  for at, width in enumerate(widths)})
        for size in sizes
    ]  # fmt: skip
    codes = np.concatenate(code_rows(tables, [["0", "1", "2"]] * 2)).tolist()
    rows = [tuple(row.values()) for table in tables for row in table.to_pylist()]
    assert all((codes[i] == codes[j]) == (rows[i] == rows[j]) for i in range(len(rows)) for j in range(len(rows)))
    assert sorted(set(codes)) == list(range(len(set(rows))))
