"""GetRange: both directions, bounds, paging; ComputeSplitPointsBySize (section 5.1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tablestore import (
    INF_MAX,
    INF_MIN,
    BatchWriteRowRequest,
    ComparatorType,
    Condition,
    PutRowItem,
    Row,
    SingleColumnCondition,
    TableInBatchWriteRowItem,
)

from upsert_platform.local.tablestore import engine, plainbuffer
from upsert_platform.local.tablestore.messages import pb
from upsert_platform_tests.local.tablestore.conftest import error_of
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.local.tablestore.wire import call

MakeTable = Callable[..., str]
PAIRS = [(a, b) for a in "abc" for b in (1, 2)]


def fill(client: Any, table: str, rows: list[tuple[list[tuple[str, Any]], list[tuple[str, Any]]]]) -> None:
    for start in range(0, len(rows), 200):
        request = BatchWriteRowRequest()
        items = [PutRowItem(Row(key, columns), Condition("IGNORE")) for key, columns in rows[start : start + 200]]
        request.add(TableInBatchWriteRowItem(table, items))
        assert client.batch_write_row(request).is_all_succeed()


@pytest.fixture
def pairs(client: Any, make_table: MakeTable) -> str:
    table = make_table(("a", "STRING"), ("b", "INTEGER"))
    fill(client, table, [([("a", a), ("b", b)], [("n", i)]) for i, (a, b) in enumerate(PAIRS)])
    return table


def scan(client: Any, table: str, direction: str, start: list[Any], end: list[Any], **options: Any) -> Any:
    names = ("a", "b")
    begin = list(zip(names, start, strict=True))
    finish = list(zip(names, end, strict=True))
    _, following, rows, _ = client.get_range(table, direction, begin, finish, max_version=1, **options)
    return [tuple(value for _, value in row.primary_key) for row in rows], following


MIN, MAX = INF_MIN, INF_MAX


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ((MIN, MIN), (MAX, MAX), PAIRS),
        (("a", 1), ("c", 1), PAIRS[:4]),
        (("a", 2), ("c", 2), PAIRS[1:5]),
        (("b", MIN), ("b", MAX), PAIRS[2:4]),
        (("a", MAX), ("c", MIN), PAIRS[2:4]),
        (("a", MAX), ("b", MIN), []),
        (("a", 1), (MAX, MIN), PAIRS),
        (("aa", MIN), ("bb", MIN), PAIRS[2:4]),
    ],
    ids=str,
)
def test_bounds(client: Any, pairs: str, start: Any, end: Any, expected: list[Any]) -> None:
    assert scan(client, pairs, "FORWARD", start, end) == (expected, None)
    downwards = [pair for pair in reversed(PAIRS) if pair in expected]
    swapped = scan(client, pairs, "BACKWARD", end, start)[0]
    # Backwards the first bound is the inclusive one as well: the ends of the range change their sides.
    inclusive = [pair for pair in reversed([*expected, end]) if pair in PAIRS and pair != start]
    assert swapped == (inclusive if inclusive != downwards else downwards)


@pytest.mark.parametrize(("direction", "order"), [("FORWARD", 1), ("BACKWARD", -1)])
@pytest.mark.parametrize("limit", [1, 2, 5, 6, 7])
def test_paging(client: Any, pairs: str, direction: str, order: int, limit: int) -> None:
    ends = [[MIN, MIN], [MAX, MAX]][::order]
    gathered: list[Any] = []
    start: Any = ends[0]
    while start is not None:
        rows, following = scan(client, pairs, direction, start, ends[1], limit=limit)
        assert len(rows) <= limit
        gathered += rows
        start = None if following is None else [value for _, value in following]
    assert gathered == PAIRS[::order]


@pytest.mark.parametrize(
    ("direction", "start", "end", "limit"),
    [
        ("FORWARD", ("b", 1), ("a", 1), None),
        ("FORWARD", ("a", 1), ("a", 1), None),
        ("BACKWARD", ("a", 1), ("b", 1), None),
        ("FORWARD", ("a", 1), ("b", 1), 0),
        ("FORWARD", ("a", 1), ("b", 1), -1),
    ],
    ids=["forward and falling", "empty", "backward and rising", "limit 0", "limit -1"],
)
def test_refused_ranges(client: Any, pairs: str, direction: str, start: Any, end: Any, limit: int | None) -> None:
    refused = error_of(lambda: scan(client, pairs, direction, start, end, limit=limit))
    assert refused == (400, "OTSParameterInvalid")


def test_five_thousand_rows_at_once(client: Any, make_table: MakeTable) -> None:
    table = make_table(("a", "STRING"), ("b", "INTEGER"))
    fill(client, table, [([("a", "x"), ("b", i)], [("n", i)]) for i in range(5001)])
    rows, following = scan(client, table, "FORWARD", [MIN, MIN], [MAX, MAX])
    assert (len(rows), following) == (5000, [("a", "x"), ("b", 5000)])
    rows, following = scan(client, table, "FORWARD", [MIN, MIN], [MAX, MAX], limit=6000)
    assert (len(rows), following) == (5000, [("a", "x"), ("b", 5000)])
    last = SingleColumnCondition("n", 5000, ComparatorType.EQUAL, False)
    assert scan(client, table, "FORWARD", [MIN, MIN], [MAX, MAX], column_filter=last) == ([], following)


def test_four_megabytes_at_once(client: Any, make_table: MakeTable) -> None:
    table = make_table(("a", "STRING"), ("b", "INTEGER"))
    big = "x" * (1024 * 1024)
    for i in range(6):
        fill(client, table, [([("a", "x"), ("b", i)], [("n", big)])])
    rows, following = scan(client, table, "FORWARD", [MIN, MIN], [MAX, MAX])
    assert (len(rows), following) == (4, [("a", "x"), ("b", 4)])


def test_a_filter_hides_rows_and_the_range_goes_on(client: Any, pairs: str) -> None:
    last = SingleColumnCondition("n", 5, ComparatorType.EQUAL, False)
    assert scan(client, pairs, "FORWARD", [MIN, MIN], [MAX, MAX], column_filter=last)[0] == [("c", 2)]


def test_rows_without_the_columns_are_left_out(client: Any, pairs: str) -> None:
    client.put_row(pairs, Row([("a", "b"), ("b", 9)], [("m", 1)]))
    assert scan(client, pairs, "FORWARD", [MIN, MIN], [MAX, MAX], columns_to_get=["m"])[0] == [("b", 9)]


def test_split_points(server: ServerHandle, client: Any, make_table: MakeTable) -> None:
    table = make_table(("a", "STRING"), ("b", "INTEGER"))
    fill(client, table, [([("a", f"{i:03}"), ("b", i)], [("n", "x" * 1000)]) for i in range(100)])
    request = pb.ComputeSplitPointsBySizeRequest(table_name=table, split_size=25, split_size_unit_in_byte=1024)
    status, body = call(server, "ComputeSplitPointsBySize", request.SerializeToString())
    points = pb.ComputeSplitPointsBySizeResponse.FromString(body)
    keys = [plainbuffer.decode_change(point).key for point in points.split_points]
    assert (status, [column.name for column in points.schema]) == (200, ["a", "b"])
    assert [plainbuffer.decode_value(key[0].value) for key in keys] == ["026", "052", "078"]


def test_split_points_of_a_large_table_are_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described = pb.DescribeTableResponse()
    described.table_meta.table_name = "t"
    described.table_meta.primary_key.add(name="k", type=pb.STRING)
    described.reserved_throughput_details.capacity_unit.read = 0
    described.reserved_throughput_details.last_increase_time = 0
    described.table_options.time_to_live = -1
    store = engine.Engine(tmp_path)
    table = store.create_table(described, 0)
    store.begin()
    store.write_many(table, [(b"%05d" % number, 0, 90 + number % 20, b"row") for number in range(3000)])
    store.commit()
    exact = list(store.split_keys(table, 50_000))
    monkeypatch.setattr(engine, "_EXACT_ROWS", 500)
    estimated = list(store.split_keys(table, 50_000))
    store.close()
    assert len(exact) == len(estimated) == 5
    assert all(abs(int(one) - int(other)) < 50 for one, other in zip(exact, estimated, strict=True))
