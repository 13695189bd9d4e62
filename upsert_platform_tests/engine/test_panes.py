"""Rows put together by panes: windows hold the same, and as much is late, whatever the slide and the offset."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from upsert_platform.core.plan import Expression, Field, Scan, Window, column
from upsert_platform.core.types import LogicalType, TypeName, parse_type
from upsert_platform.engine import panes
from upsert_platform.engine.steps import WEIGHT, ProjectStep, Tally, WindowStep, take_steps

FIELDS = (Field("k", parse_type("STRING")), Field("n", parse_type("BIGINT")), Field("at", parse_type("TIMESTAMP(3)")))
SECOND = 1_000_000
WINDOWS = {
    "hop": ("hop", 10, 2, 0), "hop with an offset": ("hop", 10, 2, -1), "hop of odd length": ("hop", 7, 3, 2),
    "hop with gaps": ("hop", 2, 5, 0), "cumulate": ("cumulate", 6, 2, 1), "tumble": ("tumble", 4, 4, 0),
}  # fmt: skip


def window(name: str) -> Window:
    kind, size, step, offset = WINDOWS[name]
    scan = Scan("t", FIELDS, (), appended=True)
    return Window(scan, kind, "at", size * SECOND, step * SECOND, offset * SECOND, ("s", "e", "l"))


def rows(count: int, *, weights: tuple[int, ...] = (1,), seed: int = 3) -> pa.Table:
    rng = random.Random(seed)
    given: list[dict[str, Any]] = [
        {
            "k": rng.choice([None, "a", "b"]), "n": rng.choice([None, 1, 2]), WEIGHT: rng.choice(weights),
            "at": rng.choice([None, *[rng.randrange(-30 * SECOND, 30 * SECOND) for _ in range(9)]]),
        }
        for _ in range(count)
    ]  # fmt: skip
    kinds = [("k", pa.string()), ("n", pa.int64()), ("at", pa.timestamp("us")), (WEIGHT, pa.int64())]
    return pa.Table.from_pylist(given, schema=pa.schema(kinds))


def windows_of(name: str, table: pa.Table) -> list[tuple[Any, ...]]:
    """Each row in each of its windows, by arithmetic on whole numbers: key, number, start, end, weight."""
    kind, size, step, offset = (value * SECOND if isinstance(value, int) else value for value in WINDOWS[name])
    found = []
    for row in table.to_pylist():
        if row["at"] is None:
            continue
        at = _micros(row["at"])
        if kind == "cumulate":
            begin = (at - offset) // size * size + offset
            spans = [(begin, end) for end in range(begin + step, begin + size + 1, step) if at < end]
        else:
            last = (at - offset) // step * step + offset
            spans = [(start, start + size) for start in range(last, last - size, -step) if start <= at < start + size]
        found += [(row["k"], row["n"], start, end, row[WEIGHT]) for start, end in spans]
    return found


def _micros(moment: Any) -> int:
    return int(pa.scalar(moment, pa.timestamp("us")).cast(pa.int64()).as_py())


def counted(table: pa.Table) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for row in table.to_pylist():
        found[row.get("k"), row.get("n"), _micros(row["s"]), _micros(row["e"])] += row[WEIGHT]
    return found


def project(*names: str) -> ProjectStep:
    fields = {item.name: item for item in (*window("hop").fields,)}
    return ProjectStep(tuple((name, column(fields[name])) for name in names))


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("weights", [(1,), (1, -1), (2,)])
@pytest.mark.parametrize("closed", [None, 0, 5 * SECOND])
def test_windows_hold_the_same(name: str, weights: tuple[int, ...], closed: int | None) -> None:
    table, tally = rows(3000, weights=weights), Tally()
    steps = [WindowStep(window(name), closed), project("k", "n", "s", "e")]
    found = counted(take_steps(table, steps, tally, counts=True))
    every = windows_of(name, table)
    expected: Counter[tuple[Any, ...]] = Counter()
    for *where, weight in every:
        if closed is None or where[3] > closed:
            expected[tuple(where)] += weight
    assert +found == +expected
    assert -found == -expected
    assert tally.late == sum(1 for row in every if closed is not None and row[3] <= closed)


def test_few_rows_are_left_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [WindowStep(window("hop")), project("k", "s", "e")]
    table = rows(3000)
    together = take_steps(table, steps, Tally(), counts=True)
    assert together.num_rows < 1000
    assert take_steps(table, steps, Tally()).num_rows > 10_000  # whoever wants each row gets it
    monkeypatch.setattr(panes, "_ROWS", 10_000)
    assert take_steps(table, steps, Tally(), counts=True).num_rows > 10_000


@pytest.mark.parametrize(
    "steps",
    [
        [WindowStep(window("hop")), project("k", "at", "s")],
        [WindowStep(window("hop"))],
        [WindowStep(window("hop")), ProjectStep(project("k", "s").columns, kept=("n",))],
        [WindowStep(window("tumble")), project("k", "s")],
    ],
)
def test_rows_whose_times_are_read_stay(steps: list[Any]) -> None:
    table = rows(3000)
    assert take_steps(table, steps, Tally(), counts=True).equals(take_steps(table, steps, Tally()))


def test_numbers_that_are_equal_in_other_bytes_stay() -> None:
    number = Expression("n", LogicalType(TypeName.DOUBLE), ("column", "n"))
    steps = [WindowStep(window("hop")), ProjectStep((("n", number), *project("s").columns))]
    table = rows(3000)
    table = table.set_column(1, "n", table.column("n").cast(pa.float64()))
    assert take_steps(table, steps, Tally(), counts=True).equals(take_steps(table, steps, Tally()))
