"""PutRow, UpdateRow, DeleteRow, GetRow: what rows hold afterwards (section 5.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tablestore import (
    INF_MAX,
    INF_MIN,
    ComparatorType,
    CompositeColumnCondition,
    Condition,
    LogicalOperator,
    ReturnType,
    Row,
    SingleColumnCondition,
    metadata,
)

from upsert_platform_tests.local.tablestore.conftest import error_of

MakeTable = Callable[..., str]
KEY = [("k", "a")]
IGNORE, EXIST, NOT_EXIST = Condition("IGNORE"), Condition("EXPECT_EXIST"), Condition("EXPECT_NOT_EXIST")


def read(client: Any, table: str, key: list[tuple[str, Any]] = KEY, **options: Any) -> dict[str, Any] | None:
    options.setdefault("max_version", 1)
    row = client.get_row(table, key, **options)[1]
    return None if row is None else {name: value for name, value, _ in row.attribute_columns}


def test_put_replaces_the_row(client: Any, table: str) -> None:
    client.put_row(table, Row(KEY, [("a", 1), ("b", 2)]))
    client.put_row(table, Row(KEY, [("b", 3), ("c", 4)]))
    assert read(client, table) == {"b": 3, "c": 4}


def test_every_type(client: Any, make_table: MakeTable) -> None:
    table = make_table(("s", "STRING"), ("i", "INTEGER"), ("b", "BINARY"))
    key = [("s", "萧峰\0"), ("i", -(2**63)), ("b", bytearray(b"\0\xff"))]
    columns = [("B", bytearray(b"\0x")), ("D", -1.5), ("F", False), ("I", 2**63 - 1), ("S", "é\0"), ("T", True)]
    client.put_row(table, Row(key, columns))
    row = client.get_row(table, key, max_version=1)[1]
    assert row.primary_key == key
    assert [(name, value) for name, value, _ in row.attribute_columns] == columns


def test_columns_come_in_order_of_name(client: Any, table: str) -> None:
    client.put_row(table, Row(KEY, [("b", 1), ("a", 2), ("B", 3)]))
    assert list(read(client, table) or {}) == ["B", "a", "b"]


def test_put_without_columns_keeps_the_key(client: Any, table: str) -> None:
    client.put_row(table, Row(KEY, []))
    assert read(client, table) == {}


def test_update_merges(client: Any, table: str) -> None:
    client.put_row(table, Row(KEY, [("a", 1), ("b", 2), ("c", 3)]))
    client.update_row(table, Row(KEY, {"put": [("a", 9), ("d", 4)], "delete_all": ["b"]}), IGNORE)
    assert read(client, table) == {"a": 9, "c": 3, "d": 4}


def test_update_creates(client: Any, table: str) -> None:
    client.update_row(table, Row(KEY, {"put": [("a", 1)]}), IGNORE)
    assert read(client, table) == {"a": 1}


def test_deleting_columns_of_a_missing_row_creates_nothing(client: Any, table: str) -> None:
    client.update_row(table, Row(KEY, {"delete_all": [f"c{i}" for i in range(128)]}), IGNORE)
    assert read(client, table) is None


def test_a_row_without_columns_still_exists(client: Any, table: str) -> None:
    client.put_row(table, Row(KEY, [("a", 1)]))
    client.update_row(table, Row(KEY, {"delete_all": ["a"]}), EXIST)
    assert read(client, table) == {}
    client.put_row(table, Row(KEY, [("a", 1)]), EXIST)


def test_delete(client: Any, table: str) -> None:
    client.put_row(table, Row(KEY, [("a", 1)]))
    client.delete_row(table, Row(KEY), IGNORE)
    client.delete_row(table, Row(KEY), IGNORE)
    assert read(client, table) is None


def test_increment(client: Any, table: str) -> None:
    client.update_row(table, Row(KEY, {"increment": [("n", 5)]}), IGNORE)
    client.update_row(table, Row(KEY, {"increment": [("n", -7)]}), IGNORE)
    assert read(client, table) == {"n": -2}


def test_increment_beyond_64_bits_is_refused(client: Any, table: str) -> None:
    client.put_row(table, Row(KEY, [("n", 2**63 - 1)]), Condition("IGNORE"))
    change = Row(KEY, {"INCREMENT": [("n", 1)]})
    assert error_of(lambda: client.update_row(table, change, Condition("IGNORE"))) == (400, "OTSParameterInvalid")
    assert client.get_row(table, KEY, max_version=1)[1].attribute_columns[0][1] == 2**63 - 1


def test_increment_of_a_string_is_refused(client: Any, table: str) -> None:
    client.put_row(table, Row(KEY, [("n", "x")]))
    update = Row(KEY, {"increment": [("n", 1)]})
    assert error_of(lambda: client.update_row(table, update, IGNORE)) == (400, "OTSParameterInvalid")
    assert read(client, table) == {"n": "x"}


@pytest.mark.parametrize(
    ("condition", "exists", "passes"),
    [
        (IGNORE, True, True),
        (IGNORE, False, True),
        (EXIST, True, True),
        (EXIST, False, False),
        (NOT_EXIST, True, False),
        (NOT_EXIST, False, True),
    ],
    ids=["ignore/there", "ignore/absent", "exist/there", "exist/absent", "not-exist/there", "not-exist/absent"],
)
@pytest.mark.parametrize("operation", ["put", "update", "delete"])
def test_existence(client: Any, table: str, operation: str, condition: Any, exists: bool, passes: bool) -> None:
    if exists:
        client.put_row(table, Row(KEY, [("old", 1)]))
    calls = {
        "put": lambda: client.put_row(table, Row(KEY, [("new", 1)]), condition),
        "update": lambda: client.update_row(table, Row(KEY, {"put": [("new", 1)]}), condition),
        "delete": lambda: client.delete_row(table, Row(KEY), condition),
    }
    before = {"old": 1} if exists else None
    if not passes:
        assert error_of(calls[operation]) == (403, "OTSConditionCheckFail")
        assert read(client, table) == before
        return
    calls[operation]()
    expected = {"put": {"new": 1}, "update": {**(before or {}), "new": 1}, "delete": None}
    assert read(client, table) == expected[operation]


def single(name: str, value: Any, comparator: str, missing_passes: bool = False) -> Any:
    return SingleColumnCondition(name, value, comparator, missing_passes)


def combined(operator: str, *parts: Any) -> Any:
    condition = CompositeColumnCondition(operator)
    for part in parts:
        condition.add_sub_condition(part)
    return condition


CONDITIONS = [
    ("eq", single("n", 5, ComparatorType.EQUAL), True),
    ("eq other", single("n", 6, ComparatorType.EQUAL), False),
    ("ne", single("n", 6, ComparatorType.NOT_EQUAL), True),
    ("ne same", single("n", 5, ComparatorType.NOT_EQUAL), False),
    ("gt", single("n", 4, ComparatorType.GREATER_THAN), True),
    ("gt same", single("n", 5, ComparatorType.GREATER_THAN), False),
    ("ge same", single("n", 5, ComparatorType.GREATER_EQUAL), True),
    ("lt", single("n", 6, ComparatorType.LESS_THAN), True),
    ("lt same", single("n", 5, ComparatorType.LESS_THAN), False),
    ("le same", single("n", 5, ComparatorType.LESS_EQUAL), True),
    ("string order", single("s", "b", ComparatorType.LESS_THAN), True),
    ("double", single("d", 1.25, ComparatorType.GREATER_THAN), True),
    ("boolean", single("f", True, ComparatorType.EQUAL), True),
    ("other type", single("n", "5", ComparatorType.EQUAL), False),
    ("missing fails", single("gone", 1, ComparatorType.EQUAL), False),
    ("missing passes", single("gone", 1, ComparatorType.EQUAL, True), True),
    (
        "and",
        combined(LogicalOperator.AND, single("n", 5, ComparatorType.EQUAL), single("s", "a", ComparatorType.EQUAL)),
        True,
    ),
    (
        "and fails",
        combined(LogicalOperator.AND, single("n", 5, ComparatorType.EQUAL), single("s", "x", ComparatorType.EQUAL)),
        False,
    ),
    (
        "or",
        combined(LogicalOperator.OR, single("n", 9, ComparatorType.EQUAL), single("s", "a", ComparatorType.EQUAL)),
        True,
    ),
    ("not", combined(LogicalOperator.NOT, single("n", 9, ComparatorType.EQUAL)), True),
]


@pytest.mark.parametrize(("condition", "passes"), [c[1:] for c in CONDITIONS], ids=[c[0] for c in CONDITIONS])
def test_column_condition_and_filter(client: Any, table: str, condition: Any, passes: bool) -> None:
    client.put_row(table, Row(KEY, [("n", 5), ("s", "a"), ("d", 1.5), ("f", True)]))
    assert (read(client, table, column_filter=condition) is not None) is passes
    update = Row(KEY, {"put": [("done", 1)]})
    if passes:
        client.update_row(table, update, Condition("IGNORE", condition))
    else:
        failed = error_of(lambda: client.update_row(table, update, Condition("IGNORE", condition)))
        assert failed == (403, "OTSConditionCheckFail")
    assert ("done" in (read(client, table) or {})) is passes


def test_more_than_ten_filter_nodes(client: Any, table: str) -> None:
    parts = [single("n", i, ComparatorType.EQUAL) for i in range(10)]
    too_many = combined(LogicalOperator.OR, *parts)
    assert error_of(lambda: read(client, table, column_filter=too_many)) == (400, "OTSParameterInvalid")
    assert read(client, table, column_filter=combined(LogicalOperator.OR, *parts[:9])) is None


def test_returned_key(client: Any, table: str) -> None:
    returned = client.put_row(table, Row(KEY, [("a", 1)]), IGNORE, ReturnType.RT_PK)[1]
    assert returned.primary_key == KEY
    assert client.put_row(table, Row(KEY, [("a", 1)]), IGNORE)[1] is None


def test_auto_increment(client: Any, make_table: MakeTable) -> None:
    table = make_table(("k", "STRING"), ("id", "INTEGER", metadata.PK_AUTO_INCR))
    placeholder = [("k", "a"), ("id", metadata.PK_AUTO_INCR)]
    made = [
        client.put_row(table, Row(placeholder, [("n", n)]), IGNORE, ReturnType.RT_PK)[1].primary_key for n in range(5)
    ]
    generated = [key[1][1] for key in made]
    assert generated == sorted(set(generated))
    assert read(client, table, made[3]) == {"n": 3}
    refused = (400, "OTSParameterInvalid")
    assert error_of(lambda: client.put_row(table, Row(placeholder, [("n", 1)]), EXIST)) == refused
    assert error_of(lambda: client.delete_row(table, Row(placeholder), IGNORE)) == refused
    assert error_of(lambda: read(client, table, placeholder)) == refused


@pytest.mark.parametrize(
    ("columns", "expected"),
    [(["a"], {"a": 1}), (["a", "zz"], {"a": 1}), (["zz"], None), (["k"], {}), (["k", "b"], {"b": 2})],
    ids=["one", "one of two there", "none there", "key column", "key and column"],
)
def test_columns_to_get(client: Any, table: str, columns: list[str], expected: dict[str, int] | None) -> None:
    client.put_row(table, Row(KEY, [("a", 1), ("b", 2)]))
    assert read(client, table, columns_to_get=columns) == expected


def test_range_of_columns(client: Any, table: str) -> None:
    client.put_row(table, Row(KEY, [(name, 1) for name in "abcd"]))
    assert read(client, table, start_column="b", end_column="d") == {"b": 1, "c": 1}


def test_capacity_units(client: Any, table: str) -> None:
    consumed, _ = client.put_row(table, Row(KEY, [("c", "x" * 4096)]), NOT_EXIST)
    assert (consumed.read, consumed.write) == (1, 2)
    consumed, _ = client.delete_row(table, Row(KEY), IGNORE)
    assert (consumed.read, consumed.write) == (0, 1)
    consumed, _, _ = client.get_row(table, KEY, max_version=1)
    assert (consumed.read, consumed.write) == (1, 0)


def test_reads_cost_what_they_read_in_data_bytes(client: Any, table: str) -> None:
    """Names and values count, not how they are encoded: 4,096 bytes are one unit, one byte more is a second."""
    from tablestore import BatchGetRowRequest, TableInBatchGetRowItem

    key_bytes = sum(len(name) + len(value) for name, value in KEY)
    for more, units in ((0, 1), (1, 2)):
        text = "x" * (4096 - key_bytes - 2 - 8 + more)
        written, _ = client.put_row(table, Row(KEY, [("c", text), ("n", 7)]), IGNORE)
        assert written.write == units
        assert client.get_row(table, KEY, max_version=1)[0].read == units
        assert client.get_row(table, KEY, columns_to_get=["c", "n"], max_version=1)[0].read == units
        assert client.get_row(table, KEY, columns_to_get=["n"], max_version=1)[0].read == 1
        request = BatchGetRowRequest()
        request.add(TableInBatchGetRowItem(table, [KEY], max_version=1))
        found = client.batch_get_row(request).get_result_by_table(table)
        assert [row.consumed.read for row in found] == [units]
        below, above = [("k", INF_MIN)], [("k", INF_MAX)]
        assert client.get_range(table, "FORWARD", below, above, max_version=1)[0].read == units


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ([("x", "a")], "Validate PK name fail. Input: x, Meta: k."),
        ([("k", "a"), ("l", 1)], "Validate PK size fail. Input: 2, Meta: 1."),
        ([("k", 1)], "Validate PK type fail"),
    ],
    ids=["name", "size", "type"],
)
def test_a_key_that_does_not_fit(client: Any, table: str, key: list[tuple[str, Any]], text: str) -> None:
    from tablestore import OTSServiceError

    calls = (
        lambda: client.put_row(table, Row(key, [("c", 1)])),
        lambda: client.update_row(table, Row(key, {"put": [("c", 1)]}), IGNORE),
        lambda: client.delete_row(table, Row(key), IGNORE),
        lambda: client.get_row(table, key, max_version=1),
    )
    for call in calls:
        with pytest.raises(OTSServiceError) as raised:
            call()
        assert (raised.value.code, raised.value.message.startswith(text)) == ("OTSInvalidPK", True)
