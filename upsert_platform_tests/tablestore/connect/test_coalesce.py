"""The algebra of section 5.2: changes of one key, merged, do what they do one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.tablestore.connect.change import RowChange
from upsert_platform.tablestore.connect.coalesce import merge, same_row
from upsert_platform.tablestore.connect.values import AUTO_INCREMENT
from upsert_platform.tablestore.encoder import RowOperation

pytestmark = pytest.mark.whole_runs

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


def merged(given_changes: Sequence[RowChange]) -> list[RowChange]:
    """Changes of one row, as few as possible."""
    waiting: list[RowChange] = []
    for change in given_changes:
        together = merge(waiting[-1], change) if waiting else change
        waiting = [*waiting, change] if together is None else [*waiting[:-1], together]
    return waiting


@settings(max_examples=1000)
@given(st.none() | _CELLS, st.lists(changes(), min_size=1, max_size=5))
def test_merged_changes_do_what_they_do_one_by_one(
    row: Mapping[str, Any] | None, given_changes: list[RowChange]
) -> None:
    expected = found = row
    for change in given_changes:
        expected = apply(expected, change)
    for change in merged(given_changes):
        found = apply(found, change)
    assert found == expected


def test_85_put_update_delete_update() -> None:
    given_changes = [
        RowChange(RowOperation.PUT, KEY, {"a": 1}),
        RowChange(RowOperation.UPDATE, KEY, {"b": 2}),
        RowChange(RowOperation.DELETE, KEY),
        RowChange(RowOperation.UPDATE, KEY, {"c": 3}, ("a",)),
    ]
    assert merged(given_changes) == [RowChange(RowOperation.PUT, KEY, {"c": 3})]


def test_5_2_the_update_that_no_single_change_expresses() -> None:
    first = RowChange(RowOperation.UPDATE, KEY, {"a": 1})
    second = RowChange(RowOperation.UPDATE, KEY, {}, ("a",))
    assert merge(first, second) is None
    assert merged([first, second]) == [first, second]


@pytest.mark.parametrize("operation", [RowOperation.PUT, RowOperation.UPDATE])
def test_92_merged_changes_have_no_more_columns_than_a_request_takes(operation: RowOperation) -> None:
    first = RowChange(operation, KEY, {f"a{n}": n for n in range(1000)})
    fits = RowChange(RowOperation.UPDATE, KEY, {f"b{n}": n for n in range(24)})
    assert merge(first, fits) is not None
    assert merge(first, RowChange(RowOperation.UPDATE, KEY, {**fits.cells, "c": 1})) is None


def test_keys_are_told_apart_by_type_and_generated_keys_never_meet() -> None:
    number = RowChange(RowOperation.PUT, (("id", 1),))
    text = RowChange(RowOperation.PUT, (("id", "1"),))
    generated = RowChange(RowOperation.PUT, (("id", "x"), ("n", AUTO_INCREMENT)))
    assert same_row(number, number)
    assert not same_row(number, text)
    assert not same_row(generated, generated)
