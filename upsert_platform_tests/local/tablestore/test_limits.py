"""Every limit of one request and its error (section 5.1)."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from tablestore import Condition, Row

from upsert_platform.local.tablestore.messages import pb
from upsert_platform_tests.local.tablestore.conftest import error_of
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.local.tablestore.wire import call

MakeTable = Callable[..., str]
KEY = [("k", "a")]
MIB = 1024 * 1024
REFUSED = (400, "OTSParameterInvalid")


@pytest.mark.parametrize(
    ("columns", "accepted"),
    [
        ([(f"c{i}", 1) for i in range(1024)], True),
        ([(f"c{i}", 1) for i in range(1025)], False),
        ([("c", "x" * 2 * MIB)], True),
        ([("c", "x" * (2 * MIB + 1))], False),
        ([("c", bytearray(2 * MIB + 1))], False),
        ([("a", "x" * (2 * MIB - 2)), ("b", "x" * (2 * MIB - 2))], True),
        ([("a", "x" * 2 * MIB), ("b", "x" * 2 * MIB)], False),
        ([("a" * 255, 1)], True),
        ([("a" * 256, 1)], False),
        ([("1a", 1)], False),
        ([("a-b", 1)], False),
        ([("", 1)], False),
        ([("k", 1)], False),
        ([("c", float("nan"))], False),
        ([("c", float("inf"))], False),
    ],
    ids=[
        "1024 columns",
        "1025 columns",
        "2 MB string",
        "2 MB + 1 string",
        "2 MB + 1 binary",
        "4 MB row",
        "more than 4 MB",
        "name of 255",
        "name of 256",
        "name 1a",
        "name a-b",
        "no name",
        "name of the key",
        "NaN",
        "infinity",
    ],
)
@pytest.mark.parametrize("operation", ["put", "update"])
def test_columns(client: Any, table: str, operation: str, columns: list[Any], accepted: bool) -> None:
    def write() -> None:
        if operation == "put":
            client.put_row(table, Row(KEY, columns))
        else:
            client.update_row(table, Row(KEY, {"put": columns}), Condition("IGNORE"))

    if accepted:
        write()
        assert len(client.get_row(table, KEY, max_version=1)[1].attribute_columns) == len(columns)
    else:
        assert error_of(write) == REFUSED
        assert client.get_row(table, KEY, max_version=1)[1] is None


@pytest.mark.parametrize(("size", "accepted"), [(0, True), (1024, True), (1025, False)])
@pytest.mark.parametrize("binary", [False, True], ids=["string", "binary"])
def test_key_values(client: Any, make_table: MakeTable, size: int, accepted: bool, binary: bool) -> None:
    table = make_table(("k", "BINARY" if binary else "STRING"))
    key = [("k", bytearray(size) if binary else "x" * size)]
    if accepted:
        client.put_row(table, Row(key, [("c", 1)]))
        assert client.get_row(table, key, max_version=1)[1].primary_key == key
    else:
        assert error_of(lambda: client.put_row(table, Row(key, [("c", 1)]))) == REFUSED


def test_columns_to_get(client: Any, table: str) -> None:
    client.get_row(table, KEY, columns_to_get=[f"c{i}" for i in range(128)], max_version=1)
    too_many = [f"c{i}" for i in range(129)]
    assert error_of(lambda: client.get_row(table, KEY, columns_to_get=too_many, max_version=1)) == REFUSED


def test_update_without_cells(client: Any, table: str) -> None:
    update = Row(KEY, {"put": []})
    assert error_of(lambda: client.update_row(table, update, Condition("IGNORE"))) == REFUSED


def test_body(server: ServerHandle) -> None:
    status, body = call(server, "ListTable", b"x" * (5 * MIB + 1))
    assert (status, pb.Error.FromString(body).code) == (413, "OTSRequestBodyTooLarge")


def test_a_body_that_is_no_message(server: ServerHandle) -> None:
    status, body = call(server, "PutRow", b"\xff\xff\xff")
    assert (status, pb.Error.FromString(body).code) == REFUSED


def test_unknown_operation(server: ServerHandle) -> None:
    status, body = call(server, "Frobnicate", b"")
    assert (status, pb.Error.FromString(body).code) == REFUSED


def test_only_posts(server: ServerHandle) -> None:
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(f"{server.endpoint}/ListTable", timeout=10)
    assert (raised.value.code, pb.Error.FromString(raised.value.read()).code) == (405, "OTSMethodNotAllowed")
