"""Sections 8.1 to 8.4: what null values, null fields and modes do, as row changes and applied to a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from upsert_platform.tablestore.connect.change import row_change
from upsert_platform_tests.tablestore.connect.records import envelope, outcome, record, short, table

FIXTURE = {"A": "test", "B": 1, "C": b"test"}
SCHEMA: dict[str, str | tuple[str, str]] = {"A": "string", "B": "int32", "C": "bytes"}
KEY = {"pk0": "k"}
ALL_NULL = envelope(SCHEMA, {"A": None, "B": None, "C": None})
SOME_NULL = envelope(SCHEMA, {"A": "update", "B": None, "C": None})
NORMAL = envelope(SCHEMA, {"A": "x", "B": 2, "C": b"y"})
DIRTY, DELETE, EMPTY = "dirty", ("DELETE", {}, ()), ("PUT", {}, ())
REMOVED = ("UPDATE", {}, ("A", "B", "C"))
PARTLY = ("UPDATE", {"A": "update"}, ("B", "C"))
SKIPPED = ("UPDATE", {"A": "update"}, ())

CASES = [
    ("01", "put", "none", None, EMPTY, {}),
    ("02", "put", "column", None, EMPTY, {}),
    ("03", "put", "row", None, DELETE, None),
    ("04", "put", "row_and_column", None, DELETE, None),
    ("05", "update", "none", None, DIRTY, FIXTURE),
    ("06", "update", "column", None, DIRTY, FIXTURE),
    ("07", "update", "row", None, DELETE, None),
    ("08", "update", "row_and_column", None, DELETE, None),
    ("09", "put", "none", ALL_NULL, EMPTY, {}),
    ("10", "put", "row", ALL_NULL, EMPTY, {}),
    ("11", "put", "column", ALL_NULL, EMPTY, {}),
    ("12", "put", "row_and_column", ALL_NULL, EMPTY, {}),
    ("13", "update", "none", ALL_NULL, DIRTY, FIXTURE),
    ("14", "update", "row", ALL_NULL, DIRTY, FIXTURE),
    ("15", "update", "column", ALL_NULL, REMOVED, {}),
    ("16", "update", "row_and_column", ALL_NULL, REMOVED, {}),
    ("17", "put", "none", SOME_NULL, ("PUT", {"A": "update"}, ()), {"A": "update"}),
    ("18", "put", "row", SOME_NULL, ("PUT", {"A": "update"}, ()), {"A": "update"}),
    ("19", "put", "column", SOME_NULL, ("PUT", {"A": "update"}, ()), {"A": "update"}),
    ("20", "put", "row_and_column ", SOME_NULL, ("PUT", {"A": "update"}, ()), {"A": "update"}),
    ("21", "update", "none", SOME_NULL, SKIPPED, {**FIXTURE, "A": "update"}),
    ("22", "update", "row", SOME_NULL, SKIPPED, {**FIXTURE, "A": "update"}),
    ("23", "update", "column", SOME_NULL, PARTLY, {"A": "update"}),
    ("24", "update", "row_and_column", SOME_NULL, PARTLY, {"A": "update"}),
]


def applied(row: Mapping[str, Any] | None, change: Any) -> Mapping[str, Any] | None:
    """What the service makes of a row (section 5.3)."""
    if change == "dirty":
        return row
    operation, cells, removed = change
    if operation == "DELETE":
        return None
    kept = {} if operation == "PUT" or row is None else {name: row[name] for name in row if name not in removed}
    return {**kept, **cells}


@pytest.mark.parametrize(
    ("case", "insert", "delete", "value", "change", "row"),
    CASES,
    ids=[f"8-{case[0]}-{case[1]}-{case[2]}" for case in CASES],
)
def test_8_1_to_8_3(case: str, insert: str, delete: str, value: Any, change: Any, row: Any) -> None:
    made = table(primarykey_mode="record_key", insert_mode=insert, delete_mode=delete)
    assert outcome(made, KEY, value) == change, case
    assert applied(FIXTURE, change) == row


@pytest.mark.parametrize(("insert", "operation"), [("put", "PUT"), ("update", "UPDATE")])
@pytest.mark.parametrize("delete", ["none", "row", "column", "row_and_column"])
def test_2_4_d_a_full_value_is_written_whatever_the_delete_mode(insert: str, operation: str, delete: str) -> None:
    made = table(primarykey_mode="record_key", insert_mode=insert, delete_mode=delete)
    assert outcome(made, KEY, NORMAL) == (operation, {"A": "x", "B": 2, "C": b"y"}, ())


@pytest.mark.parametrize("value", [None, "null", envelope(SCHEMA, None), {"schema": None, "payload": None}])
def test_2_4_a_every_kind_of_null_value_is_a_tombstone(value: Any) -> None:
    assert outcome(table(primarykey_mode="record_key", delete_mode="row"), KEY, value) == DELETE


@pytest.mark.parametrize(
    ("insert", "delete", "change"),
    [
        ("put", "none", ("PUT", {"A": "update"}, ())),
        ("update", "none", ("UPDATE", {"A": "update"}, ())),
        ("update", "row_and_column", ("UPDATE", {"A": "update"}, ("B",))),
    ],
)
def test_2_6_rule_5_nulls_without_a_schema_count_as_with_one(insert: str, delete: str, change: Any) -> None:
    made = table(primarykey_mode="record_key", insert_mode=insert, delete_mode=delete)
    assert outcome(made, KEY, {"A": "update", "B": None}) == change


@pytest.mark.parametrize("value", [{}, {"pk0": "other"}])
@pytest.mark.parametrize(
    ("insert", "delete", "change"),
    [("put", "none", EMPTY), ("put", "row", EMPTY), ("update", "none", DIRTY), ("update", "row_and_column", DIRTY)],
)
def test_2_6_rule_6_an_empty_object(value: Any, insert: str, delete: str, change: Any) -> None:
    made = table(primarykey_mode="record_key", insert_mode=insert, delete_mode=delete)
    assert outcome(made, KEY, value) == change


@pytest.mark.parametrize(
    ("insert", "delete", "change"),
    [
        ("put", "row", DELETE),
        ("update", "row_and_column", DELETE),
        ("put", "none", ("PUT", {"x": "1"}, ())),
        ("update", "none", DIRTY),
        ("update", "column", DIRTY),
    ],
)
def test_2_6_rule_10_fields_of_the_key_do_not_make_a_value_less_null(insert: str, delete: str, change: Any) -> None:
    made = table(primarykey_mode="record_key", insert_mode=insert, delete_mode=delete)
    assert outcome(made, {"pk0": "k", "x": 1}, None) == change


def test_67_a_tombstone_leaves_no_trace_in_later_records() -> None:
    made = table(primarykey_mode="record_key", delete_mode="row")
    changes = [outcome(made, KEY, value) for value in (None, {"A": "v"}, None)]
    assert changes == [DELETE, ("PUT", {"A": "v"}, ()), DELETE]


WHITELIST = "A:string,B:integer"
TYPED: dict[str, str | tuple[str, str]] = {"A": "string", "B": "int64", "C": "bytes"}


@pytest.mark.parametrize(
    ("case", "insert", "value", "change", "row"),
    [
        (
            "27",
            "put",
            envelope(TYPED, {"A": "a", "B": 1, "C": b"c"}),
            ("PUT", {"A": "a", "B": 1}, ()),
            {"A": "a", "B": 1},
        ),
        ("28", "put", {"A": "a", "B": 1, "C": "c"}, ("PUT", {"A": "a", "B": 1}, ()), {"A": "a", "B": 1}),
        ("29", "put", envelope(TYPED, {"A": None, "B": None, "C": None}), EMPTY, {}),
        ("30", "update", envelope(TYPED, {"A": "update", "B": None}), SKIPPED, {**FIXTURE, "A": "update"}),
        ("31", "put", envelope({"A": "string", "C": "bytes"}, {"A": None, "C": b"x"}), EMPTY, {}),
        ("32", "update", envelope({"A": "string"}, {"A": "update"}), SKIPPED, {**FIXTURE, "A": "update"}),
        ("2.4e put", "put", {"C": "other"}, EMPTY, {}),
        ("2.4e update", "update", {"C": "other"}, DIRTY, FIXTURE),
    ],
)
def test_8_4_whitelist(case: str, insert: str, value: Any, change: Any, row: Any) -> None:
    made = table(primarykey_mode="record_key", insert_mode=insert, whitelist=WHITELIST)
    assert outcome(made, KEY, value) == change, case
    assert applied(FIXTURE, change) == row


@pytest.mark.parametrize(("case", "insert", "kept"), [("25", "put", {}), ("26", "update", {"C": b"test"})])
def test_8_4_insert_mode(case: str, insert: str, kept: dict[str, Any]) -> None:
    value = envelope({"A": "string", "B": "int32"}, {"A": "test", "B": 1})
    change = outcome(table(primarykey_mode="record_key", insert_mode=insert), KEY, value)
    assert applied({"C": b"test"}, change) == {"A": "test", "B": 1, **kept}, case


def test_never_an_update_without_cells(subtests_of_modes: Callable[[], list[tuple[str, str]]]) -> None:
    for insert, delete in subtests_of_modes():
        made = table(primarykey_mode="record_key", insert_mode=insert, delete_mode=delete)
        for value in (None, {}, {"A": None}, {"A": 1}, {"A": None, "B": 1}, ALL_NULL, SOME_NULL):
            try:
                change = row_change(record(KEY, value), made)
            except ValueError:
                continue
            operation, cells, removed = short(change)
            assert operation != "UPDATE" or cells or removed


@pytest.fixture
def subtests_of_modes() -> Callable[[], list[tuple[str, str]]]:
    deletes = ("none", "row", "column", "row_and_column")
    return lambda: [(insert, delete) for insert in ("put", "update") for delete in deletes]


PAGE = Path(__file__).parents[3] / "docs" / "from-kafka-connect.md"
SHOWN = {
    "row without columns": (EMPTY,),
    "row without them": (("PUT", {"A": "update"}, ()),),
    "row deleted": (DELETE,),
    "dirty": (DIRTY,),
    "their columns stay": (SKIPPED,),
    "columns deleted": (REMOVED, PARTLY),
}


def test_the_page_says_what_each_pair_of_modes_does() -> None:
    rows = re.findall(
        r"^\| (put|update) \| (\w+) \| (.+?) \| (.+?) \| (.+?) \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert len(rows) == len({row[:2] for row in rows}) == 8
    for insert, delete, *shown in rows:
        made = table(primarykey_mode="record_key", insert_mode=insert, delete_mode=delete)
        for text, value in zip(shown, (None, ALL_NULL, SOME_NULL), strict=True):
            assert outcome(made, KEY, value) in SHOWN[text], (insert, delete, text)
