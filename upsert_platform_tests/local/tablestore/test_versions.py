"""Versions, time ranges and time to live (section 5.3)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from tablestore import CapacityUnit, Condition, ReservedThroughput, Row, TableOptions

from upsert_platform_tests.local.tablestore.conftest import error_of

MakeTable = Callable[..., str]
KEY = [("k", "a")]
IGNORE = Condition("IGNORE")
HOUR = 3_600_000


def versions(client: Any, table: str, **options: Any) -> list[tuple[str, Any, int]] | None:
    row = client.get_row(table, KEY, **options)[1]
    return None if row is None else row.attribute_columns


def test_the_clock_of_the_server_is_the_version(client: Any, table: str) -> None:
    before = int(time.time() * 1000)
    client.put_row(table, Row(KEY, [("a", 1)]))
    found = versions(client, table, max_version=1) or []
    assert before <= found[0][2] <= int(time.time() * 1000)


def test_the_newest_versions_are_kept(client: Any, make_table: MakeTable) -> None:
    table = make_table(max_version=3)
    now = int(time.time() * 1000)
    for offset in (1, 4, 2, 3, 0):
        client.update_row(table, Row(KEY, {"put": [("a", offset, now + offset)]}), IGNORE)
    expected = [("a", offset, now + offset) for offset in (4, 3, 2)]
    assert versions(client, table, max_version=9) == expected
    assert versions(client, table, max_version=2) == expected[:2]
    assert versions(client, table, max_version=None, time_range=(now + 2, now + 4)) == expected[1:]
    assert versions(client, table, max_version=None, time_range=now + 3) == expected[1:2]
    assert versions(client, table, max_version=None, time_range=now + 1) is None


def test_an_older_version_does_not_hide_a_newer_one(client: Any, table: str) -> None:
    now = int(time.time() * 1000)
    client.update_row(table, Row(KEY, {"put": [("a", "newer", now)]}), IGNORE)
    client.update_row(table, Row(KEY, {"put": [("a", "older", now - 1000)]}), IGNORE)
    assert versions(client, table, max_version=1) == [("a", "newer", now)]
    client.update_row(table, Row(KEY, {"put": [("a", "from tomorrow", now + HOUR)]}), IGNORE)
    client.update_row(table, Row(KEY, {"put": [("a", "by the clock")]}), IGNORE)
    assert versions(client, table, max_version=1) == [("a", "from tomorrow", now + HOUR)]


def test_a_put_drops_all_versions(client: Any, make_table: MakeTable) -> None:
    table = make_table(max_version=3)
    now = int(time.time() * 1000)
    client.put_row(table, Row(KEY, [("a", 2, now), ("a", 1, now - 5)]))
    assert versions(client, table, max_version=3) == [("a", 2, now), ("a", 1, now - 5)]
    client.put_row(table, Row(KEY, [("b", 1, now)]))
    assert versions(client, table, max_version=3) == [("b", 1, now)]


def test_delete_one_version(client: Any, make_table: MakeTable) -> None:
    table = make_table(max_version=3)
    now = int(time.time() * 1000)
    client.put_row(table, Row(KEY, [("a", n, now + n) for n in range(3)]))
    client.update_row(table, Row(KEY, {"delete": [("a", None, now + 1)]}), IGNORE)
    assert versions(client, table, max_version=3) == [("a", 2, now + 2), ("a", 0, now)]


def test_fewer_versions_after_an_update_of_the_table(client: Any, make_table: MakeTable) -> None:
    table = make_table(max_version=3)
    now = int(time.time() * 1000)
    client.put_row(table, Row(KEY, [("a", n, now + n) for n in range(3)]))
    client.update_table(table, TableOptions(-1, 1, 86_400), ReservedThroughput(CapacityUnit(0, 0)))
    assert versions(client, table, max_version=3) == [("a", 2, now + 2)]


@pytest.mark.parametrize(
    ("offset", "accepted"),
    [(-25 * HOUR, False), (-23 * HOUR, True), (23 * HOUR, True), (25 * HOUR, False)],
    ids=["25 h old", "23 h old", "in 23 h", "in 25 h"],
)
def test_versions_far_from_now(client: Any, table: str, offset: int, accepted: bool) -> None:
    version = int(time.time() * 1000) + offset
    write = Row(KEY, [("a", 1, version)])
    if accepted:
        client.put_row(table, write)
        assert versions(client, table, max_version=1) == [("a", 1, version)]
    else:
        assert error_of(lambda: client.put_row(table, write)) == (400, "OTSParameterInvalid")


def test_what_has_outlived_its_time_is_gone(client: Any, make_table: MakeTable) -> None:
    table = make_table(time_to_live=86_400, max_time_deviation=200_000)
    now = int(time.time() * 1000)
    client.put_row(table, Row(KEY, [("soon", 1, now - 86_400_000 + 1500), ("later", 1, now)]))
    assert len(versions(client, table, max_version=1) or []) == 2
    time.sleep(1.8)
    assert versions(client, table, max_version=1) == [("later", 1, now)]


def test_no_version_condition(client: Any, table: str) -> None:
    from upsert_platform.local.tablestore.messages import pb
    from upsert_platform.local.tablestore.selection import Selection
    from upsert_platform.local.tablestore.table import Table

    described = pb.DescribeTableResponse()
    described.table_options.max_versions = 1
    with pytest.raises(Exception, match="No version condition"):
        Selection(pb.GetRowRequest(), Table(1, described, created=0, stored_versions=1))
