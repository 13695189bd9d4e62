"""The algebra of section 5.2: changes of one key, merged, do what they do one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.tablestore.connect.change import RowChange
from upsert_platform.tablestore.connect.coalesce import coalesce, merge
from upsert_platform.tablestore.connect.values import AUTO_INCREMENT
from upsert_platform.tablestore.encoder import RowOperation

KEY = (("id", "k"),)
_CELLS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9), max_size=3)


@st.composite
def changes(draw: st.DrawFn) -> RowChange:
    operation = draw(st.sampled_from(RowOperation))
    if operation is RowOperation.DELETE:
        return RowChange(operation, KEY)
    cells = draw(_CELLS)
    if operation is RowOperation.PUT:
        return RowChange(operation, KEY, cells)
    removed = tuple(name for name in draw(st.lists(st.sampled_from("abc"), unique=True)) if name not in cells)
    if not cells and not removed:
        removed = ("a",)
    return RowChange(operation, KEY, cells, removed)


def apply(row: Mapping[str, Any] | None, change: RowChange) -> Mapping[str, Any] | None:
    """The reference: section 5.3. An update that only removes columns of a missing row creates nothing."""
    match change.operation:
        case RowOperation.DELETE:
            return None
        case RowOperation.PUT:
            return dict(change.cells)
    if row is None and not change.cells:
        return None
    return {**{name: value for name, value in (row or {}).items() if name not in change.removed}, **change.cells}


@settings(max_examples=1000)
@given(st.none() | _CELLS, st.lists(changes(), min_size=1, max_size=5))
def test_merged_changes_do_what_they_do_one_by_one(
    row: Mapping[str, Any] | None, given_changes: list[RowChange]
) -> None:
    expected = found = row
    for change in given_changes:
        expected = apply(expected, change)
    for change in coalesce(given_changes):
        found = apply(found, change)
    assert found == expected


def test_85_put_update_delete_update() -> None:
    merged = coalesce(
        [
            RowChange(RowOperation.PUT, KEY, {"a": 1}),
            RowChange(RowOperation.UPDATE, KEY, {"b": 2}),
            RowChange(RowOperation.DELETE, KEY),
            RowChange(RowOperation.UPDATE, KEY, {"c": 3}, ("a",)),
        ]
    )
    assert merged == [RowChange(RowOperation.PUT, KEY, {"c": 3})]


def test_5_2_the_update_that_no_single_change_expresses() -> None:
    first = RowChange(RowOperation.UPDATE, KEY, {"a": 1})
    second = RowChange(RowOperation.UPDATE, KEY, {}, ("a",))
    assert merge(first, second) is None
    assert coalesce([first, second]) == [first, second]


def test_keys_are_told_apart_by_type_and_generated_keys_never_meet() -> None:
    number = RowChange(RowOperation.PUT, (("id", 1),))
    text = RowChange(RowOperation.PUT, (("id", "1"),))
    generated = RowChange(RowOperation.PUT, (("id", "x"), ("n", AUTO_INCREMENT)))
    assert coalesce([number, text, number, generated, generated]) == [number, text, generated, generated]
