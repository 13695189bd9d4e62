from __future__ import annotations

import json
import struct
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.columns import MySqlColumn, MySqlTable
from upsert_platform.mysql.position import GtidSet, LogPosition, MariaDbGtids, Prepared, holds_transactions
from upsert_platform.mysql.progress import Progress


@given(st.lists(st.integers(1, 40)))
def test_a_set_holds_exactly_what_was_added(numbers: list[int]) -> None:
    found = GtidSet()
    for number in numbers:
        found = found.with_transaction(f"a:{number}")
    assert GtidSet.parse(str(found)) == found
    for number in range(1, 42):
        assert found.has(GtidSet.parse(f"a:{number}")) is (number in numbers)


def test_sets_are_joined() -> None:
    joined = GtidSet.parse("a:1-3:9,b:1").union(GtidSet.parse("a:4-5,c:7"))
    assert str(joined) == "a:1-5:9,b:1,c:7"


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
    """As it was written before it told when a file was begun, which values no log tells, and all global ids."""
    table = MySqlTable("shop", "t", (MySqlColumn("id", "int"),), ("id",))
    place = LogPosition("log.000002", 400, "0-1-7")
    told = json.loads(Progress("server-id 1", place, table, place, after=("5",)).to_json())
    assert (told.pop("begun"), told.pop("rewritten"), told.pop("columns")) == (0, [], [])
    assert told["table"].pop("unique") == []
    found = Progress.from_json(json.dumps(told))
    assert found == Progress("server-id 1", place, table, place, after=("5",), columns=None)
    assert found.with_columns(table) == found
    assert told.pop("gtids") == "complete"
    assert Progress.from_json(json.dumps(told)).position == LogPosition("log.000002", 400)
    unique = replace(table, unique=(("id",), ("v", "w")))
    later = replace(
        found, begun=1_700_000_000, rewritten=("v (since log.000002:500)",), columns=("b",), table=unique, before=table
    ).with_columns(table)
    assert later.columns == ("b", "id")
    assert Progress.from_json(later.to_json()) == later


HELD = [
    ("a:1-5", "a:1-5", True),
    ("a:1-5,b:1-9", "a:2-3", True),
    ("a:1-5:7", "a:1-7", False),
    ("a:1-5", "b:1", False),
    ("0-1-9,1-1-3", "0-2-9", True),
    ("0-1-9", "0-1-10", False),
    ("0-1-9", "1-1-1", False),
    ("a:1-5", "", False),
    ("", "a:1", False),
    ("a:1-5", "0-1-3", False),
    ("0-1-3", "a:1-5", False),
]


@pytest.mark.parametrize(("own", "wanted", "held"), HELD)
def test_whether_a_server_has_what_was_read_of_another(own: str, wanted: str, held: bool) -> None:
    assert holds_transactions(own, wanted) is held


def test_a_set_as_a_server_is_asked_by_it() -> None:
    """Of each server its UUID and spans, whose second number is the one behind the last."""
    first, second = uuid.UUID(int=1), uuid.UUID(int=2)
    found = GtidSet.parse(f"{second}:9,{first}:1-5:7").to_bytes()
    wanted = struct.pack("<Q", 2) + first.bytes + struct.pack("<5Q", 2, 1, 6, 7, 8)
    assert found == wanted + second.bytes + struct.pack("<3Q", 1, 9, 10)


def test_transactions_that_wait_are_part_of_the_state() -> None:
    table = MySqlTable("shop", "t", (MySqlColumn("id", "int"),), ("id",))
    place = LogPosition("log.000001", 4, "a:1-5")
    waiting = (Prepared("X'61',X'',1", place, followed=True), Prepared("X'62',X'',1", None, followed=False))
    state = Progress("server", place, table, place, prepared=waiting)
    assert Progress.from_json(state.to_json()) == state
    earlier = json.loads(state.to_json())
    del earlier["prepared"]
    assert Progress.from_json(json.dumps(earlier)) == replace(state, prepared=())
