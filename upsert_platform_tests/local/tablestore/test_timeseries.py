"""The timeseries model through the official client (section 4)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tablestore import metadata
from tablestore.encoder import OTSProtoBufferEncoder
from tablestore.timeseries_condition import (
    AttributeMetaQueryCondition,
    CompositeMetaQueryCondition,
    DataSourceMetaQueryCondition,
    MeasurementMetaQueryCondition,
    MetaQueryCompositeOperator,
    MetaQuerySingleOperator,
    TagMetaQueryCondition,
)

from upsert_platform.local.tablestore.messages import timeseries as messages
from upsert_platform_tests.local.tablestore.conftest import error_of
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.local.tablestore.wire import call

pytestmark = pytest.mark.filterwarnings("ignore:numElems is deprecated")
FIELDS = {"long_field": -1, "string_field": "数值", "bool_field": True, "double_field": 0.5, "b": bytearray(b"\0\xff")}
TAGS = {"tag1": "t1", "tag2": "标签"}
CPU = metadata.TimeseriesKey("cpu", "host1", TAGS)


def create(client: Any, **options: Any) -> str:
    name = f"ts_{uuid.uuid4().hex}"
    meta = metadata.TimeseriesTableMeta(name)
    meta.timeseries_table_options = metadata.TimeseriesTableOptions(options.pop("ttl", -1))
    for field, value in options.items():
        setattr(meta, field, value)
    client.create_timeseries_table(metadata.CreateTimeseriesTableRequest(meta))
    return name


@pytest.fixture
def series(client: Any) -> Iterator[str]:
    name = create(client)
    yield name
    client.delete_timeseries_table(name)


def put(client: Any, table: str, *rows: tuple[Any, dict[str, Any], int]) -> None:
    """The official client's own way; it has no way to hand out failed rows."""
    client.put_timeseries_data(table, [metadata.TimeseriesRow(*row) for row in rows])


def failures(server: ServerHandle, table: str, *rows: tuple[Any, dict[str, Any], int]) -> list[tuple[int, str]]:
    """Index and code of the rows that the server refuses."""
    encoder = OTSProtoBufferEncoder("utf-8")
    request = encoder.encode_request("PutTimeseriesData", table, [metadata.TimeseriesRow(*row) for row in rows])
    status, body = call(server, "PutTimeseriesData", request.SerializeToString())
    assert status == 200, body
    answer = messages.PutTimeseriesDataResponse.FromString(body)
    return [(failed.row_index, failed.error_code) for failed in answer.failed_rows]


def get(client: Any, table: str, key: Any = CPU, **options: Any) -> Any:
    options.setdefault("endTimeInUs", 2**60)
    return client.get_timeseries_data(metadata.GetTimeseriesDataRequest(table, key, **options))


def test_table(client: Any) -> None:
    name = create(
        client, ttl=172_800, timeseries_keys=["a", "b"], field_primary_keys=[("gid", "INTEGER"), ("uid", "STRING")]
    )
    found = client.describe_timeseries_table(name).table_meta
    assert (found.status, found.timeseries_keys, found.timeseries_table_options.time_to_live) == (
        "CREATED",
        ["a", "b"],
        172_800,
    )
    assert found.field_primary_keys == [("gid", "INTEGER"), ("uid", "STRING")]
    assert name in [meta.timeseries_table_name for meta in client.list_timeseries_table()]
    changed = metadata.TimeseriesTableMeta(name, metadata.TimeseriesTableOptions(172_801))
    client.update_timeseries_table(changed)
    assert client.describe_timeseries_table(name).table_meta.timeseries_table_options.time_to_live == 172_801
    client.delete_timeseries_table(name)
    assert error_of(lambda: client.describe_timeseries_table(name)) == (404, "OTSObjectNotExist")


def test_a_row_of_every_type(client: Any, series: str) -> None:
    put(client, series, (CPU, FIELDS, 1_000))
    (row,) = get(client, series).rows
    key = row.timeseries_key
    assert (key.measurement_name, key.data_source, key.tags, row.time_in_us) == ("cpu", "host1", TAGS, 1_000)
    assert row.fields == FIELDS


def test_fields_of_the_same_time_are_merged(client: Any, series: str) -> None:
    put(client, series, (CPU, {"a": 1, "b": 1}, 5), (CPU, {"b": 2, "c": 3}, 5))
    assert get(client, series).rows[0].fields == {"a": 1, "b": 2, "c": 3}


def test_timelines_and_times_are_apart(client: Any, series: str) -> None:
    other = metadata.TimeseriesKey("cpu", "host2", TAGS)
    put(client, series, *[(CPU, {"n": n}, n) for n in range(10)], (other, {"n": 99}, 3))
    rows = get(client, series, beginTimeInUs=3, endTimeInUs=6).rows
    assert [row.fields["n"] for row in rows] == [3, 4, 5]
    assert [row.fields["n"] for row in get(client, series, other).rows] == [99]


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_pages(client: Any, series: str, backward: bool) -> None:
    put(client, series, *[(CPU, {"n": n}, n) for n in range(19)])
    gathered: list[int] = []
    token = None
    for expected in (10, 9):
        page = get(client, series, limit=10, nextToken=token, backward=backward)
        assert len(page.rows) == expected
        gathered += [row.fields["n"] for row in page.rows]
        token = page.nextToken
    assert token is None
    assert gathered == sorted(range(19), reverse=backward)


def test_chosen_fields(client: Any, series: str) -> None:
    put(client, series, (CPU, {"a": 1, "b": 2}, 1), (CPU, {"c": 3}, 2))
    rows = get(client, series, fieldsToGet={"a": 1}).rows
    assert [row.fields for row in rows] == [{"a": 1}]


def test_key_columns_of_its_own(client: Any) -> None:
    name = create(client, timeseries_keys=["a"], field_primary_keys=[("gid", "INTEGER")])
    key = metadata.TimeseriesKey(tags={"a": "x"})
    put(client, name, (key, {"gid": 1, "v": 1.5}, 7), (key, {"gid": 2, "v": 2.5}, 7))
    rows = get(client, name, key).rows
    assert [(row.timeseries_key.tags, row.fields) for row in rows] == [
        ({"a": "x"}, {"gid": 1, "v": 1.5}),
        ({"a": "x"}, {"gid": 2, "v": 2.5}),
    ]
    assert error_of(lambda: put(client, name, (key, {"v": 1.0}, 7))) == (400, "OTSParameterInvalid")
    client.delete_timeseries_table(name)


@pytest.mark.parametrize(
    ("key", "fields", "at"),
    [
        (metadata.TimeseriesKey("", "s", {}), {"a": 1}, 1),
        (metadata.TimeseriesKey("m" * 129, "s", {}), {"a": 1}, 1),
        (metadata.TimeseriesKey("a b", "s", {}), {"a": 1}, 1),
        (metadata.TimeseriesKey("a#b", "s", {}), {"a": 1}, 1),
        (metadata.TimeseriesKey("m", "s" * 257, {}), {"a": 1}, 1),
        (metadata.TimeseriesKey("m", "s", {"t": "v" * 512}), {"a": 1}, 1),
        (metadata.TimeseriesKey("m", "s", {"t": "a=b"}), {"a": 1}, 1),
        (metadata.TimeseriesKey("m", "s", {"é": "a"}), {"a": 1}, 1),
        (CPU, {"Upper": 1}, 1),
        (CPU, {"1a": 1}, 1),
        (CPU, {"_time": 1}, 1),
        (CPU, {"a": 1}, -1),
        (CPU, {f"f{i}": 1 for i in range(1025)}, 1),
    ],
    ids=[
        "no name",
        "name of 129",
        "blank in name",
        "hash in name",
        "source of 257",
        "long tags",
        "= in tag",
        "tag name",
        "upper case field",
        "field starts with a digit",
        "reserved field",
        "negative time",
        "1025 fields",
    ],
)
def test_a_row_outside_the_limits_fails_alone(
    server: ServerHandle, client: Any, series: str, key: Any, fields: dict[str, Any], at: int
) -> None:
    good = metadata.TimeseriesKey("good", "", {})
    failed = failures(server, series, (good, {"a": 1}, 1), (key, fields, at), (good, {"a": 2}, 2))
    assert failed == [(1, "OTSParameterInvalid")]
    assert [row.fields["a"] for row in get(client, series, good).rows] == [1, 2]


def test_two_hundred_rows_and_no_more(server: ServerHandle, client: Any, series: str) -> None:
    rows = [(CPU, {"a": n}, n) for n in range(201)]
    assert failures(server, series, *rows[:200]) == []
    assert error_of(lambda: put(client, series, *rows)) == (400, "OTSParameterInvalid")


def test_old_points_are_gone(client: Any) -> None:
    name = create(client, ttl=86_400)
    now = int(time.time() * 1e6)
    put(client, name, (CPU, {"a": 1}, now - 86_401_000_000), (CPU, {"a": 2}, now))
    assert [row.fields["a"] for row in get(client, name).rows] == [2]
    client.delete_timeseries_table(name)


def test_tags_as_text_and_a_damaged_body(server: ServerHandle, client: Any, series: str) -> None:
    put(client, series, (CPU, {"a": 1}, 1))
    request = messages.GetTimeseriesDataRequest(table_name=series, begin_time=0, end_time=10)
    request.time_series_key.measurement, request.time_series_key.source = "cpu", "host1"
    request.time_series_key.tags = '["tag1=t1","tag2=标签"]'
    status, body = call(server, "GetTimeseriesData", request.SerializeToString())
    assert (status, messages.GetTimeseriesDataResponse.FromString(body).rows_data != b"") == (200, True)
    wrong = messages.PutTimeseriesDataRequest(table_name=series)
    wrong.rows_data.type, wrong.rows_data.rows_data = messages.RST_FLAT_BUFFER, b"\xff" * 20
    assert call(server, "PutTimeseriesData", wrong.SerializeToString())[0] == 400
    wrong.rows_data.flatbuffer_crc32c = 1
    assert call(server, "PutTimeseriesData", wrong.SerializeToString())[0] == 400


def test_values_of_tags_may_hold_commas(server: ServerHandle, client: Any, series: str) -> None:
    tags = {"a b": "x,y", "c": "], é"}
    key = metadata.TimeseriesKey("cpu", "", tags)
    assert failures(server, series, (key, {"f": 1}, 1)) == []
    found = client.query_timeseries_meta(metadata.QueryTimeseriesMetaRequest(series)).timeseriesMetas
    assert [meta.timeseries_key.tags for meta in found] == [tags]
    request = messages.GetTimeseriesDataRequest(table_name=series, begin_time=0, end_time=10)
    request.time_series_key.measurement = "cpu"
    request.time_series_key.tags = '["a b=x,y", "c=], é"]'
    status, body = call(server, "GetTimeseriesData", request.SerializeToString())
    assert (status, messages.GetTimeseriesDataResponse.FromString(body).rows_data != b"") == (200, True)
    request.time_series_key.tags = '["a b=x",y"]'
    assert call(server, "GetTimeseriesData", request.SerializeToString())[0] == 400


def test_timelines(client: Any, series: str) -> None:
    mem = metadata.TimeseriesKey("mem", "host2", {"tag1": "t2"})
    put(client, series, (CPU, {"a": 1}, 1), (mem, {"a": 1}, 1), (CPU, {"a": 1}, 2))
    described = metadata.TimeseriesMeta(mem, {"room": "7", "rack": "b"})
    client.update_timeseries_meta(metadata.UpdateTimeseriesMetaRequest(series, [described]))
    equal, prefix = MetaQuerySingleOperator.OP_EQUAL, MetaQuerySingleOperator.OP_GREATER_EQUAL

    def query(condition: Any = None, **options: Any) -> Any:
        return client.query_timeseries_meta(metadata.QueryTimeseriesMetaRequest(series, condition, **options))

    def found(condition: Any) -> list[str]:
        return [meta.timeseries_key.measurement_name for meta in query(condition).timeseriesMetas]

    everything = query(getTotalHits=True)
    assert everything.totalHits == 2
    by_name = {meta.timeseries_key.measurement_name: meta for meta in everything.timeseriesMetas}
    assert by_name["cpu"].timeseries_key.tags == TAGS
    assert by_name["mem"].attributes == {"room": "7", "rack": "b"}
    assert found(MeasurementMetaQueryCondition(equal, "cpu")) == ["cpu"]
    assert found(DataSourceMetaQueryCondition(prefix, "host2")) == ["mem"]
    assert found(TagMetaQueryCondition(equal, "tag1", "t2")) == ["mem"]
    assert found(AttributeMetaQueryCondition(equal, "room", "7")) == ["mem"]
    both = [MeasurementMetaQueryCondition(equal, "cpu"), DataSourceMetaQueryCondition(equal, "host2")]
    assert found(CompositeMetaQueryCondition(MetaQueryCompositeOperator.OP_AND, both)) == []
    assert found(CompositeMetaQueryCondition(MetaQueryCompositeOperator.OP_OR, both)) == ["cpu", "mem"]
    assert found(CompositeMetaQueryCondition(MetaQueryCompositeOperator.OP_NOT, both[:1])) == ["mem"]
    first = query(limit=1)
    second = query(limit=1, nextToken=first.nextToken)
    assert [len(first.timeseriesMetas), len(second.timeseriesMetas), second.nextToken] == [1, 1, None]
    client.delete_timeseries_meta(metadata.DeleteTimeseriesMetaRequest(series, [mem]))
    assert found(None) == ["cpu"]
    assert len(get(client, series, mem).rows) == 1
