"""Rows of two sides are compared key by key: every status, every rule that a destination has of its own, every type."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from upsert_platform.changelog import compared_rows
from upsert_platform.changelog.compared_rows import GROUP, REFUSED, ComparedRows, RowComparison
from upsert_platform.core.destination import FOUND, GONE, STATUS, WANTED

Row = tuple[Any, ...]


def expected(rows: list[Row], kind: pa.DataType, *, key: pa.DataType | None = None) -> pa.Table:
    """Of key, value, whether it is wanted, batch, and whether it was refused."""
    names = ["k0", "e0", WANTED, "_seq", REFUSED]
    kinds = [key or pa.int64(), kind, pa.bool_(), pa.int64(), pa.bool_()]
    return pa.table({name: pa.array([row[at] for row in rows], kinds[at]) for at, name in enumerate(names)})


def found(rows: list[Row], kind: pa.DataType, *, key: pa.DataType | None = None) -> pa.Table:
    keys, values = [row[0] for row in rows], [row[1] for row in rows]
    return pa.table({"k0": pa.array(keys, key or pa.int64()), "a0": pa.array(values, kind)})


def statuses(table: pa.Table) -> list[Row]:
    rows = zip(*(table.column(name).to_pylist() for name in ("k0", "e0", "a0", FOUND, STATUS)), strict=True)
    return sorted(rows, key=repr)


RULES: dict[str, tuple[RowComparison, list[Row], list[Row], set[tuple[Any, str | None]]]] = {
    "as it is": (
        RowComparison(1, 1),
        [(1, "a", True, 1, False), (2, "b", True, 1, False), (3, None, False, 1, False), (4, None, False, 1, False),
         (5, "e", True, 1, False), (6, "f", True, 1, True), (7, "g", True, 1, True), (None, "h", True, 1, False)],
        [(1, "a"), (2, "x"), (3, "c"), (6, "z"), (8, "i"), (None, "h")],
        {(1, None), (2, "stale"), (3, "extra"), (4, None), (5, "missing"), (6, "refused"), (7, "refused"),
         (8, "extra"), (None, None)},
    ),
    "nulls are left out": (
        RowComparison(1, 1, skips_nulls=True),
        [(1, None, True, 1, False), (2, "b", True, 1, False), (3, None, False, 1, False)],
        [(1, "x"), (2, None), (3, None)],
        {(1, None), (2, "stale"), (3, "extra")},
    ),
    "a deleted key keeps a bare row": (
        RowComparison(1, 1, keeps_deleted=True),
        [(1, None, False, 1, False), (2, None, False, 1, False)], [(1, None), (2, "b")], {(1, None), (2, "extra")},
    ),
    "rows and cells expire": (
        RowComparison(1, 1, expired=4),
        [(1, "a", True, 4, False), (2, "b", True, 5, False), (3, "c", True, 4, False), (4, "d", True, 5, False),
         (5, "e", True, 4, False)],
        [(3, None), (4, None), (5, "x")],
        {(1, "expired"), (2, "missing"), (3, None), (4, "stale"), (5, "stale")},
    ),
    "rows stay in other places": (
        RowComparison(1, 1, places=(0,)),
        [(1, "a", True, 1, False), (2, None, False, 1, False), (3, "c", True, 1, False), (4, None, True, 1, False)],
        [(1, "a"), (1, "b"), (2, "a"), (3, "b"), (4, None), (4, "d")],
        {(1, None), (2, "extra"), (3, "missing"), (4, None)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RULES)
def test_each_rule_gives_its_status(case: str) -> None:
    comparison, rows, others, wanted = RULES[case]
    compared = comparison.of(expected(rows, pa.string()), found(others, pa.string()))
    assert {(key, status) for key, *_, status in statuses(compared)} == wanted
    assert compared.num_rows == len(wanted)


def test_a_row_that_is_found_twice_is_one_too_many() -> None:
    rows = expected([(1, "a", True, 1, False)], pa.string())
    compared = RowComparison(1, 1).of(rows, found([(1, "a"), (1, "b"), (1, "a")], pa.string()))
    assert sorted(map(repr, statuses(compared))) == sorted(
        map(repr, [(1, "a", "a", True, None), (1, "a", "a", True, "extra"), (1, "a", "b", True, "extra")])
    )


NAN = float("nan")
MOMENT = pa.timestamp("us", tz="UTC")
FIRST_YEAR = -62_135_596_800_000_000
PAIR = pa.struct([("x", pa.int32()), ("y", pa.float64())])
VALUES: dict[str, tuple[pa.DataType, list[Any], list[tuple[Any, Any]]]] = {
    "text": (pa.string(), [None, "", "a", "a\0"], []),
    "bytes": (pa.binary(), [None, b"", b"\0"], []),
    "bool": (pa.bool_(), [None, True, False], []),
    "double": (pa.float64(), [None, 0.0, 0.1, 0.1 + 2**-55, NAN, float("inf")], [(0.0, -0.0)]),
    "float": (pa.float32(), [None, 0.0, 1.5, NAN], [(0.0, -0.0)]),
    "decimal": (pa.decimal128(38, 18), [None, Decimal("0.000000000000000001"), Decimal(1)], []),
    "date": (pa.date32(), [None, dt.date(1, 1, 1), dt.date(9999, 12, 31)], []),
    "moment": (MOMENT, [None, FIRST_YEAR - 1, FIRST_YEAR, 0], []),
    "time": (pa.time64("us"), [None, 0, 86_399_999_999], []),
    "list": (pa.list_(pa.float64()), [None, [], [None], [1.0, None], [None, 1.0], [NAN]], [([0.0], [-0.0])]),
    "moments": (pa.list_(MOMENT), [None, [FIRST_YEAR - 1], [FIRST_YEAR]], []),
    "row": (PAIR, [None, {"x": None, "y": None}, {"x": 1, "y": NAN}], [({"x": 1, "y": 0.0}, {"x": 1, "y": -0.0})]),
    "map": (
        pa.map_(pa.string(), pa.int32()),
        [None, [], [("a", None)], [("a", 1)], [("a", 1), ("b", 2)]],
        [([("a", 1), ("b", 2)], [("b", 2), ("a", 1)])],
    ),
    "maps": (
        pa.list_(pa.map_(pa.binary(), pa.float64())),
        [None, [None], [[(b"\xff", NAN)]], [[(b"\xfe", NAN)]]],
        [([[(b"\xff", NAN), (b"", 0.0)]], [[(b"", -0.0), (b"\xff", NAN)]])],
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_of_every_type_are_the_same_or_not(name: str) -> None:
    kind, values, alike = VALUES[name]
    pairs = [
        (one, other, one_at == other_at) for one_at, one in enumerate(values) for other_at, other in enumerate(values)
    ]
    pairs += [(one, other, True) for one, other in alike]
    compared = RowComparison(1, 1).of(
        expected([(at, one, True, 1, False) for at, (one, _, _) in enumerate(pairs)], kind),
        found([(at, other) for at, (_, other, _) in enumerate(pairs)], kind),
    )
    by_key = dict(zip(compared.column("k0").to_pylist(), compared.column(STATUS).to_pylist(), strict=True))
    assert by_key == {at: None if same else "stale" for at, (_, _, same) in enumerate(pairs)}


def test_a_zone_is_no_part_of_a_moment_nor_of_a_key() -> None:
    shanghai = pa.timestamp("us", tz="Asia/Shanghai")
    compared = RowComparison(1, 1).of(
        expected([(5, 7, True, 1, False)], MOMENT, key=MOMENT), found([(5, 7)], shanghai, key=shanghai)
    )
    assert compared.column(STATUS).to_pylist() == [None]


def test_keys_that_sql_calls_equal_are_one_key() -> None:
    compared = RowComparison(1, 1).of(
        expected(
            [(-0.0, 1, True, 1, False), (NAN, 2, True, 1, False), (None, 3, True, 1, False)],
            pa.int64(),
            key=pa.float64(),
        ),
        found([(0.0, 1), (NAN, 2), (None, 3)], pa.int64(), key=pa.float64()),
    )
    assert compared.column(STATUS).to_pylist() == [None] * 3


@pytest.mark.parametrize("at_once", [1, 7, 10**6])
def test_in_any_parts_the_result_is_that_of_a_model(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compared_rows, "_TASK_ROWS", at_once)
    chance = random.Random(5)
    one = {key: (chance.choice([None, "a", "b"]), chance.random() < 0.7) for key in chance.sample(range(300), 200)}
    other = {key: chance.choice([None, "a", "b"]) for key in chance.sample(range(300), 200)}
    rows = [
        {"k0": key, "e0": value, WANTED: wanted, "_seq": 1, GROUP: key % 40} for key, (value, wanted) in one.items()
    ]
    rows += [{"k0": key, "a0": value, GROUP: key % 40} for key, value in other.items()]
    rows.sort(key=lambda row: row[GROUP])
    kinds = [("k0", pa.int64()), ("e0", pa.string()), ("a0", pa.string()), (WANTED, pa.bool_()), ("_seq", pa.int64())]
    batches = pa.Table.from_pylist(rows, pa.schema([*kinds, (GROUP, pa.int32())])).to_batches(max_chunksize=13)
    task = ComparedRows(RowComparison(1, 1), ("k0", "e0", "a0", FOUND, STATUS))
    result = pa.Table.from_batches(list(task(iter(batches))))

    def status(key: int) -> str | None:
        value, wanted = one.get(key, (None, False))
        if not wanted:
            return "extra" if key in other else None
        return "missing" if key not in other else None if value == other[key] else "stale"

    model = [(key, one.get(key, (None,))[0], other.get(key), key in other, status(key)) for key in {**one, **other}]
    assert statuses(result) == sorted(model, key=repr)


def test_rows_whose_partition_may_be_gone_are_expired_and_their_cells_are_not() -> None:
    sides = expected([(key, "a", True, 1, False) for key in range(4)], pa.string())
    sides = sides.append_column(GONE, pa.array([True, False, True, None]))
    compared = RowComparison(1, 1).of(sides, found([(2, None)], pa.string()))
    told = {(row[0], row[4]) for row in statuses(compared)}
    assert told == {(0, "expired"), (1, "missing"), (2, "stale"), (3, "missing")}
