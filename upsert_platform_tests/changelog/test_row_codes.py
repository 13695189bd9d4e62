"""Numbers of rows: equal exactly for equal rows, in the order in which rows first appear.

The model compares rows as Python's dictionaries do, once NaN, null and -0.0 have names.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from upsert_platform.changelog import row_codes
from upsert_platform.changelog.row_codes import code_rows

_TEXTS = [None, "", "a", "b" * 40, "b" * 41, "ä", "\0"]
_VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [None, 0, 1, -1, 2**63 - 1, -(2**63)],
    pa.int8(): [None, 0, 1, -128],
    pa.float64(): [None, 0.0, -0.0, math.nan, -math.nan, math.inf, 1.5],
    pa.float32(): [None, 0.0, -0.0, math.nan, 1.5],
    pa.string(): _TEXTS,
    pa.binary(): [None if text is None else text.encode() for text in _TEXTS],
    pa.bool_(): [None, True, False],
    pa.decimal128(38, 2): [None, Decimal("0.00"), Decimal("1.00"), Decimal("-" + "9" * 36 + ".99")],
    pa.date32(): [None, datetime.date(1970, 1, 1), datetime.date(2026, 1, 1)],
    pa.time64("us"): [None, datetime.time(0), datetime.time(1)],
    pa.timestamp("us", tz="UTC"): [None, datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)],
    pa.null(): [None],
    pa.list_(pa.int64()): [None, [], [1], [1, None]],
    pa.struct([("a", pa.float64())]): [None, {"a": None}, {"a": 0.0}, {"a": math.nan}],
    pa.large_binary(): [None, b"", b"a"],
    pa.decimal256(50, 0): [None, Decimal(0), Decimal("9" * 50)],
}


def _named(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((name, _named(item)) for name, item in value.items())
    return tuple(map(_named, value)) if isinstance(value, list) else value


def _model(rows: Sequence[tuple[Any, ...]]) -> list[int]:
    known: dict[Any, int] = {}
    return [known.setdefault(tuple(map(_named, row)), len(known)) for row in rows]


def _table(rng: np.random.Generator, count: int, kinds: Sequence[pa.DataType]) -> pa.Table:
    columns = [
        pa.array([_VALUES[kind][place] for place in rng.integers(0, len(_VALUES[kind]), count)], kind) for kind in kinds
    ]
    return pa.table(columns, names=[f"c{number}" for number in range(len(kinds))])


@pytest.mark.parametrize("seed", range(40))
def test_of_every_type(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = [list(_VALUES)[place] for place in rng.integers(0, len(_VALUES), rng.integers(1, 5))]
    table = _table(rng, int(rng.integers(0, 60)), kinds).slice(int(rng.integers(0, 3)))
    (codes,) = code_rows([table], [table.column_names])
    assert codes.tolist() == _model([tuple(row.values()) for row in table.to_pylist()])


@pytest.mark.parametrize("seed", range(12))
def test_of_many_rows_of_which_a_few_are_equal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = 5_000
    table = _table(rng, count, [list(_VALUES)[place] for place in rng.integers(0, 7, 2)])
    numbers = np.arange(count)
    repeated = rng.integers(0, count, int(rng.choice([0, 1, 60, 2_000])))
    numbers[repeated] = rng.integers(0, count, len(repeated))
    table = table.append_column("number", pa.array(numbers)).take(pa.array(rng.permutation(count)))
    (codes,) = code_rows([table], [table.column_names])
    assert codes.tolist() == _model([tuple(row.values()) for row in table.to_pylist()])
    by_hashes = row_codes._codes_by_hashes([table.column("number").combine_chunks()])
    if by_hashes is not None:
        assert by_hashes.tolist() == _model([(number,) for number in table.column("number").to_pylist()])
    else:
        assert len(repeated) == 2_000


def test_rows_that_share_a_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"a": list(range(100)), "b": ["x"] * 100})
    monkeypatch.setattr(row_codes, "hash_columns", lambda _, rows: np.minimum(np.arange(rows, dtype=np.uint64), 97))
    assert row_codes._codes_by_hashes([table.column("a").combine_chunks(), table.column("b").combine_chunks()]) is None
    assert code_rows([table], [["a", "b"]])[0].tolist() == list(range(100))


def test_rows_of_one_hash_that_are_equal_and_rows_that_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"a": [1, 2, 1, 3, 2], "b": [None, math.nan, None, 0.0, math.nan]})
    arrays = [table.column(name).combine_chunks() for name in table.column_names]
    found = row_codes._codes_by_hashes(arrays)
    assert found is not None
    assert found.tolist() == [0, 1, 0, 2, 1]
    shared = np.array([7, 7, 7, 8, 7], np.uint64)
    monkeypatch.setattr(row_codes, "hash_columns", lambda _, rows: shared[:rows])
    assert row_codes._codes_by_hashes(arrays) is None
    assert code_rows([table], [["a", "b"]])[0].tolist() == [0, 1, 0, 2, 1]
