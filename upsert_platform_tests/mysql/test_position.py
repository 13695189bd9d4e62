from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upsert_platform.errors import ReplicationError
from upsert_platform.mysql.columns import MySqlColumn, MySqlTable
from upsert_platform.mysql.position import GtidSet, LogPosition, MariaDbGtids
from upsert_platform.mysql.progress import Progress


@given(st.lists(st.integers(1, 40)))
def test_a_set_holds_exactly_what_was_added(numbers: list[int]) -> None:
    found = GtidSet()
    for number in numbers:
        found = found.with_transaction(f"a:{number}")
    assert GtidSet.parse(str(found)) == found
    for number in range(1, 42):
        assert found.has(GtidSet.parse(f"a:{number}")) is (number in numbers)


def test_spans_with_a_hole_stay_apart() -> None:
    assert str(GtidSet.parse("B:1-3:5,\n a:7")) == "a:7,b:1-3:5"
    assert str(GtidSet.parse("b:1-3:5").with_transaction("b:4")) == "b:1-5"
    assert not GtidSet.parse("b:1-3:5-9").has(GtidSet.parse("b:2-6"))
    assert not GtidSet.parse("b:1-3").has(GtidSet.parse("c:1"))


@pytest.mark.parametrize("text", ["a", "a:x", "a:tag:1", "a:3-1", "a:1-"])
def test_what_is_not_a_set_is_told(text: str) -> None:
    with pytest.raises(ReplicationError, match="is not a set of global ids"):
        GtidSet.parse(text)


def test_mariadb_keeps_the_last_of_each_domain() -> None:
    found = MariaDbGtids.parse("0-1-7,2-1-3").with_transaction("0-5-8")
    assert str(found) == "0-5-8,2-1-3"
    with pytest.raises(ReplicationError, match="domain-server-number"):
        MariaDbGtids.parse("a:1")


def test_files_are_ordered_by_their_numbers() -> None:
    assert LogPosition("log.999999", 9).order() < LogPosition("log.1000000", 4).order()
    assert LogPosition("log.2", 4).order() < LogPosition("log.2", 5).order() < LogPosition("log.10", 4).order()
    with pytest.raises(ReplicationError, match="does not end with a number"):
        LogPosition("log", 4).order()


def test_a_position_is_kept_as_text() -> None:
    position = LogPosition("log.000001", 7, "0-1-7")
    assert LogPosition.from_json(position.to_json()) == position


def test_the_state_of_an_earlier_version_is_read() -> None:
    """As it was written before it told when a file was begun, and which values no log tells."""
    table = MySqlTable("shop", "t", (MySqlColumn("id", "int"),), ("id",))
    place = LogPosition("log.000002", 400, "0-1-7")
    told = json.loads(Progress("server-id 1", place, table, place, after=("5",)).to_json())
    assert (told.pop("begun"), told.pop("rewritten")) == (0, [])
    found = Progress.from_json(json.dumps(told))
    assert found == Progress("server-id 1", place, table, place, after=("5",))
    later = replace(found, begun=1_700_000_000, rewritten=("v (since log.000002:500)",))
    assert Progress.from_json(later.to_json()) == later
