"""What the referee says of a table, status by status."""

from __future__ import annotations

import json
from typing import Any

import pytest

from upsert_platform.referee.errors import RefereeError
from upsert_platform.referee.formats import Side
from upsert_platform.referee.kinds import Odd, kind_of, text_of
from upsert_platform.referee.last_values import Form, LastValues
from upsert_platform.referee.selection import Condition, Selection
from upsert_platform.referee.topic import Record
from upsert_platform.referee.verdict import Target, Verdict, judge

FORM = Form(Side("json", {"id": "INT"}, ("id",)), Side("json", {"n": "INT", "s": "STRING"}, ("n", "s")), ("id",))
TARGET = Target({"key": "BIGINT", "text": "STRING", "number": "BIGINT"}, ("key",))
SELECTION = Selection({"key": "id", "text": "s", "number": "n"}, [Condition("s", "<>", "test")])
RECORDS = [
    (1, b'{"n":1,"s":"a"}'),
    (2, b'{"n":2,"s":"test"}'),
    (3, None),
    (4, b'{"n":4}'),
    (5, b'{"n":5,"s":"e","s":"f"}'),
    (6, b'{"n":6,"s":"f"}'),
]


def verdict_of(rows: list[list[Any]], **more: Any) -> Verdict:
    values = LastValues(FORM)
    values.add(Record("t", 0, at, 0, b'{"id":%d}' % key, value) for at, (key, value) in enumerate(RECORDS))
    return judge(values, rows, TARGET, SELECTION, **more)


GOOD: list[list[Any]] = [[1, "a", 1], [6, "f", 6]]
CASES: dict[str, tuple[list[list[Any]], dict[str, Any], dict[str, int]]] = {
    "equal": (GOOD, {}, {"equal_rows": 2}),
    "missing": ([GOOD[0]], {}, {"equal_rows": 1, "missing": 1}),
    "stale": ([GOOD[0], [6, "f", 7]], {}, {"equal_rows": 1, "stale": 1}),
    "null is not a value": ([GOOD[0], [6, "f", None]], {}, {"equal_rows": 1, "stale": 1}),
    "another type is not the value": ([GOOD[0], [6, "f", Odd("'6'")]], {}, {"equal_rows": 1, "stale": 1}),
    "extra: deleted, filtered out, never there": (
        [*GOOD, [3, "c", 3], [2, "test", 2], [9, "x", 9], [4, None, 4]], {}, {"equal_rows": 2, "extra": 4}),
    "twice": ([*GOOD, GOOD[0]], {}, {"equal_rows": 1, "twice": 1}),
    "refused": ([GOOD[0]], {"refused": [[6]]}, {"equal_rows": 1, "refused": 1}),
    "refused, but there": (GOOD, {"refused": [[6]]}, {"equal_rows": 2}),
    "moving": (
        [[1, "later", 2], [9, "new", 1]], {"later": lambda: [[1], [6], [9], [2], [77]]}, {"moving": 3}),
    "moving, but as it should be": (GOOD, {"later": lambda: [[1]]}, {"equal_rows": 2}),
    "left open": ([*GOOD, [5, "f", 5]], {}, {"equal_rows": 2, "open_keys": 1}),
    "a topic that lost its oldest records": (
        [*GOOD, [9, "x", 9], [3, "c", 3]], {"lost_records": True}, {"equal_rows": 2, "unknown": 1, "extra": 1}),
}  # fmt: skip
STATUSES = ("equal_rows", "missing", "extra", "stale", "twice", "refused", "open_keys", "moving", "unknown")


@pytest.mark.parametrize("name", CASES)
def test_statuses(name: str) -> None:
    rows, more, wanted = CASES[name]
    verdict = verdict_of(rows, **more)
    assert {status: getattr(verdict, status) for status in STATUSES if getattr(verdict, status)} == wanted
    assert verdict.equal == (not {"missing", "extra", "stale", "twice", "refused"} & wanted.keys())
    assert verdict.whole == (not {"open_keys", "unknown"} & wanted.keys())
    assert json.loads(verdict.to_json())["topic"]["records"] == len(RECORDS)


def test_difference_names_the_columns() -> None:
    verdict = verdict_of([GOOD[0], [6, "g", None]])
    assert [(item.status, item.key, item.detail) for item in verdict.differences] == [
        ("stale", '["6"]', "text: expected 'f', found 'g'; number: expected '6', found None")
    ]


def test_few_differences_are_kept_and_all_are_counted() -> None:
    verdict = verdict_of([*GOOD, *([number, "x", 1] for number in range(100, 200))], shown=3)
    assert (verdict.extra, len(verdict.differences)) == (100, 3)


def test_conditions_are_those_of_sql() -> None:
    row = {"a": 5, "b": None}
    holding = [("a", "=", 5), ("a", ">=", 5), ("a", "in", (4, 5)), ("b", "is null", None), ("a", "is not null", None)]
    failing = [("b", "=", None), ("b", "<>", 5), ("a", "<", 5), ("a", "in", (4,)), ("b", "is not null", None)]
    assert all(Condition(*item).holds(row) for item in holding)
    assert not any(Condition(*item).holds(row) for item in failing)
    with pytest.raises(RefereeError, match="'like' is beyond the referee"):
        Selection({}, [Condition("a", "like", "x")])


def test_texts_are_cut_to_what_the_type_has_room_for() -> None:
    from decimal import Decimal

    assert text_of(Decimal("1.005"), kind_of("DECIMAL(5, 2)")) == "1.01"
    assert text_of(Decimal("1E+3"), kind_of("DECIMAL(5, 0)")) == "1000"
    assert text_of(Decimal("1000"), kind_of("DECIMAL(5, 2)")) is None
    assert text_of(1_700_000_000_123_456_789, kind_of("TIMESTAMP(3)")) == "2023-11-14 22:13:20.123"
    assert text_of(-1, kind_of("TIMESTAMP_LTZ(9)")) == "1969-12-31 23:59:59.999999999Z"
    assert text_of(0.1, kind_of("FLOAT")) == repr(0.10000000149011612)
    assert text_of("a  ", kind_of("CHAR(5)")) == "a"
    with pytest.raises(RefereeError, match="INTERVAL"):
        kind_of("INTERVAL DAY")
