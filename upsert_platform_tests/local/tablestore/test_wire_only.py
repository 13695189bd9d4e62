"""What the protocol has and the Python client does not send: asked for by hand."""

from __future__ import annotations

from typing import Any

import pytest
from tablestore import Condition, Row, TableOptions
from tablestore.plainbuffer.plain_buffer_builder import PlainBufferBuilder
from tablestore.plainbuffer.plain_buffer_coded_stream import PlainBufferCodedInputStream
from tablestore.plainbuffer.plain_buffer_stream import PlainBufferInputStream

from upsert_platform.local.tablestore import plainbuffer
from upsert_platform.local.tablestore.messages import filters, pb
from upsert_platform_tests.local.tablestore.conftest import error_of
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.local.tablestore.wire import call

KEY = [("k", "a")]


def columns_of(row: bytes) -> dict[str, Any] | None:
    if not row:
        return None
    cells = PlainBufferCodedInputStream(PlainBufferInputStream(row)).read_row()[1]
    return {name: value for name, value, _ in cells}


def read(server: ServerHandle, table: str, filter_: Any = None, **options: Any) -> tuple[int, dict[str, Any] | None]:
    request = pb.GetRowRequest(table_name=table, max_versions=1, **options)
    request.primary_key = bytes(PlainBufferBuilder.serialize_primary_key(KEY))
    if filter_ is not None:
        request.filter = filter_.SerializeToString()
    status, body = call(server, "GetRow", request.SerializeToString())
    return status, columns_of(pb.GetRowResponse.FromString(body).row) if status == 200 else None


def single(name: str, comparator: int, value: Any = 0, **options: Any) -> Any:
    content = filters.SingleColumnValueFilter(
        comparator=comparator,
        column_name=name,
        column_value=plainbuffer.encode_value(value),
        filter_if_missing=True,
        latest_version_only=True,
    )
    for field, part in options.items():
        setattr(content.value_trans_rule, field, part)
    return filters.Filter(type=filters.FT_SINGLE_COLUMN_VALUE, filter=content.SerializeToString())


def page(offset: int, limit: int) -> Any:
    content = filters.ColumnPaginationFilter(offset=offset, limit=limit)
    return filters.Filter(type=filters.FT_COLUMN_PAGINATION, filter=content.SerializeToString())


@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [(0, 2, ["a", "b"]), (1, 2, ["b", "c"]), (3, 9, ["d"]), (-1, 1, None), (0, 0, None)],
)
def test_pages_of_columns(
    server: ServerHandle, client: Any, table: str, offset: int, limit: int, expected: list[str] | None
) -> None:
    client.put_row(table, Row(KEY, [(name, 1) for name in "abcd"]))
    status, columns = read(server, table, page(offset, limit))
    assert (status, list(columns or {})) == ((200, expected) if expected else (400, []))


@pytest.mark.parametrize(
    ("condition", "passes"),
    [
        (single("a", filters.CT_EXIST), True),
        (single("zz", filters.CT_EXIST), False),
        (single("zz", filters.CT_NOT_EXIST), True),
        (single("a", filters.CT_EQUAL, 17, regex="t=([0-9]+)", cast_type=filters.VT_INTEGER), True),
        (single("a", filters.CT_GREATER_THAN, 16.5, regex="[0-9]+", cast_type=filters.VT_DOUBLE), True),
        (single("a", filters.CT_EQUAL, "t=", regex="t="), True),
        (single("a", filters.CT_EQUAL, 1, regex="none", cast_type=filters.VT_INTEGER), False),
    ],
    ids=["exists", "exists not", "absent", "cast to integer", "cast to double", "part of text", "no match"],
)
def test_comparators(server: ServerHandle, client: Any, table: str, condition: Any, passes: bool) -> None:
    client.put_row(table, Row(KEY, [("a", "t=17 C")]))
    assert read(server, table, condition) == (200, {"a": "t=17 C"} if passes else None)


def test_columns_after_modification(server: ServerHandle, client: Any, table: str) -> None:
    client.put_row(table, Row(KEY, [("n", 5), ("m", 1)]))
    request = pb.UpdateRowRequest(table_name=table)
    request.row_change = bytes(PlainBufferBuilder.serialize_for_update_row(KEY, {"INCREMENT": [("n", 3)]}))
    request.condition.row_existence = pb.EXPECT_EXIST
    request.return_content.return_type = pb.RT_AFTER_MODIFY
    request.return_content.return_column_names.append("n")
    status, body = call(server, "UpdateRow", request.SerializeToString())
    assert (status, columns_of(pb.UpdateRowResponse.FromString(body).row)) == (200, {"n": 8})


def test_a_read_without_version_condition(server: ServerHandle, table: str) -> None:
    request = pb.GetRowRequest(table_name=table)
    request.primary_key = bytes(PlainBufferBuilder.serialize_primary_key(KEY))
    status, body = call(server, "GetRow", request.SerializeToString())
    assert (status, pb.Error.FromString(body).code) == (400, "OTSParameterInvalid")


@pytest.mark.parametrize(("operation", "data"), [("PutRow", "delete"), ("DeleteRow", "put")])
def test_a_marker_that_does_not_fit(server: ServerHandle, table: str, operation: str, data: str) -> None:
    rows = {
        "put": PlainBufferBuilder.serialize_for_put_row(KEY, []),
        "delete": PlainBufferBuilder.serialize_for_delete_row(KEY),
    }
    request = pb.PutRowRequest(table_name=table, row=bytes(rows[data]))
    request.condition.row_existence = pb.IGNORE
    status, body = call(server, operation, request.SerializeToString())
    assert (status, pb.Error.FromString(body).code) == (400, "OTSParameterInvalid")


def test_a_table_without_updates(client: Any, make_table: Any) -> None:
    table = make_table(allow_update=False)
    assert client.describe_table(table).table_options.allow_update is False
    client.put_row(table, Row(KEY, [("a", 1)]))
    update = Row(KEY, {"put": [("a", 2)]})
    assert error_of(lambda: client.update_row(table, update, Condition("IGNORE"))) == (400, "OTSParameterInvalid")
    client.update_table(table, TableOptions(-1, 1, 86_400, True), None)
    client.update_row(table, update, Condition("IGNORE"))
