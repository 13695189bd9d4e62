"""Section 4 and its cases in 8.7: records to time-series rows, and those rows in a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from upsert_platform.core.errors import DestinationError
from upsert_platform.core.model import Options
from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.connect.timeseries import TimeseriesPoint, timeseries_point
from upsert_platform.tablestore.connect.timeseries_options import TimeseriesTable, read_timeseries_table
from upsert_platform.tablestore.connect.timeseries_writer import TimeseriesWriter, create_timeseries_table
from upsert_platform.tablestore.connect.values import DirtyRecordError
from upsert_platform.tablestore.transport import Endpoint, Transport
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.tablestore.connect.records import PLACE, message, record
from upsert_platform_tests.tablestore.declared import table_on

pytestmark = pytest.mark.filterwarnings("ignore:numElems is deprecated:DeprecationWarning")  # in the SDK's encoder

OPTIONS = {
    "measurement": "m", "dataSource": "ds", "tags": "tag1, tag2", "time": "ts", "time.unit": "seconds",
}  # fmt: skip
BASE: dict[str, Any] = {
    "m": "cpu", "ds": "h1", "tag1": "a", "tag2": 2, "ts": 1_700_000_000, "Temp": 21, "f": 1.5, "ok": True, "s": "x",
    "o": {"a": 1}, "arr": [1], "nul": None,
}  # fmt: skip


def _read(**changed: str) -> tuple[TimeseriesTable | None, list[str]]:
    common = {name: changed.pop(name) for name in ("mapAll", "toLowerCase", "rowsPerBatch") if name in changed}
    given = {**OPTIONS, **{name.replace("_", "."): value for name, value in changed.items()}}
    options = {f"tablestore.timeseries.t.{name}": value for name, value in given.items() if value}
    options |= {f"tablestore.timeseries.{name}": value for name, value in common.items()}
    made, problems = read_timeseries_table(Options(options), "t", subject="connector 'c'", location=PLACE)
    return made, [str(problem) for problem in problems]


def _table(**changed: str) -> TimeseriesTable:
    made, problems = _read(**changed)
    assert made is not None, problems
    return made


def _point(value: Any, **changed: str) -> TimeseriesPoint | str:
    try:
        return timeseries_point(record("ignored", value), _table(**changed))
    except DirtyRecordError as error:
        assert str(error)
        return "dirty"


def test_74_the_whole_row() -> None:
    assert _point(BASE) == TimeseriesPoint(
        "cpu",
        "h1",
        {"tag1": "a", "tag2": "2"},
        1_700_000_000_000_000,
        {"temp": 21.0, "f": 1.5, "ok": True, "s": "x", "o": '{"a":1}', "arr": "[1]"},
    )


@pytest.mark.parametrize(
    ("unit", "stamp", "micros"),
    [
        ("MILLISECONDS", 1_700_000_000_123, 1_700_000_000_123_000),
        ("MICROSECONDS", 1_700_000_000_123, 1_700_000_000_123),
        ("NANOSECONDS", 1_700_000_000_123, 1_700_000_000),
        ("NANOSECONDS", 1_999, 1),
        ("Seconds", 1_700_000_000, 1_700_000_000_000_000),
        ("SECONDS", 1_700_000_000_123, 1_700_000_000_123_000_000),
        ("SECONDS", 2**62, "dirty"),
        ("SECONDS", -5, "dirty"),
        ("MICROSECONDS", 2**63 - 1, "dirty"),
    ],
)
def test_75_units(unit: str, stamp: int, micros: Any) -> None:
    found = _point({**BASE, "ts": stamp}, time_unit=unit)
    assert (found if isinstance(found, str) else found.time) == micros


DIRTY: list[tuple[str, Any]] = [
    ("76 text time", {**BASE, "ts": "1700000000"}), ("76 double time", {**BASE, "ts": 1.7e9}),
    ("76 null time", {**BASE, "ts": None}), ("76 boolean time", {**BASE, "ts": True}),
    ("77 null measurement", {**BASE, "m": None}), ("77 empty measurement", {**BASE, "m": ""}),
    ("77 source absent", {name: BASE[name] for name in BASE if name != "ds"}),
    ("79 only null fields", {name: BASE[name] for name in ("m", "ds", "ts", "nul")}),
    ("79 tombstone", None), ("79 array", [1]), ("79 JSON null", "null"),
    ("82 tag with =", {**BASE, "tag1": "a=b"}), ("82 tag with quotation mark", {**BASE, "tag1": 'a"b'}),
    ("4.2 long tags", {**BASE, "tag1": "x" * 513}),
    ("4.2 measurement with blank", {**BASE, "m": "a b"}), ("4.2 measurement with #", {**BASE, "m": "a#b"}),
    ("4.2 long measurement", {**BASE, "m": "x" * 129}), ("4.2 long source", {**BASE, "ds": "x" * 257}),
    ("4.2 reserved field", {**BASE, "_time": 1}), ("4.2 field starts with a digit", {**BASE, "1a": 1}),
    ("4.2 field with a dash", {**BASE, "a-b": 1}), ("4.1 two names in lower case", {**BASE, "temp": 1}),
    ("3.1 infinity", '{"m":"c","ds":"h","ts":1,"f":1e400}'),
]  # fmt: skip


@pytest.mark.parametrize("value", [case[1] for case in DIRTY], ids=[case[0] for case in DIRTY])
def test_dirty_records(value: Any) -> None:
    assert _point(value) == "dirty"


@pytest.mark.parametrize("empty", [None, ""])
def test_78_a_source_and_a_tag_may_be_empty(empty: str | None) -> None:
    found = _point({**BASE, "ds": empty, "tag1": empty})
    assert isinstance(found, TimeseriesPoint)
    assert (found.source, dict(found.tags)) == ("", {"tag2": "2"})


def test_4_1_the_topic_as_measurement_leaves_its_field() -> None:
    found = _point({"m": "x", "ts": 1}, measurement="<TOPIC>", dataSource="", tags="")
    assert found == TimeseriesPoint("t", "", {}, 1_000_000, {"m": "x"})


def test_81_and_4_1_listed_fields_have_their_type() -> None:
    found = _point(BASE, field_name="temp,F", field_type="integer,string")
    assert isinstance(found, TimeseriesPoint)
    assert (found.fields["temp"], found.fields["f"], found.fields["ok"]) == (21, "1.5", True)
    found = _point(BASE, field_name="temp", field_type="integer", mapAll="false")
    assert isinstance(found, TimeseriesPoint)
    assert found.fields == {"temp": 21}
    assert _point({**BASE, "Temp": "warm"}, field_name="temp", field_type="integer") == "dirty"


def test_1_2_names_keep_their_case_when_asked_for() -> None:
    assert _point(BASE, toLowerCase="false") == "dirty"
    lower = {name: value for name, value in BASE.items() if name != "Temp"}
    assert _point(lower, toLowerCase="false") == _point(lower)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mapAll": "false"}, "'tablestore.timeseries.mapAll' = 'false' needs"),
        ({"time_unit": "MINUTES"}, "takes SECONDS, MILLISECONDS, MICROSECONDS, NANOSECONDS"),
        ({"measurement": ""}, "option 'tablestore.timeseries.t.measurement' is missing"),
        ({"time": ""}, "option 'tablestore.timeseries.t.time' is missing"),
        ({"field_name": "a", "field_type": "decimal"}, "not 'decimal'"),
        ({"field_name": "a,b", "field_type": "double"}, "has 2 items and"),
        ({"rowsPerBatch": "201"}, "takes 1 to 200"),
        ({"toLowerCase": "maybe"}, "takes true or false"),
        ({"tag": "x"}, "unknown option 'tablestore.timeseries.t.tag'; did you mean 'tablestore.timeseries.t.tags'?"),
    ],
)
def test_80_rules_of_the_configuration(changed: dict[str, str], message: str) -> None:
    made, problems = _read(**changed)
    assert made is None
    assert any(message in problem for problem in problems), problems


@pytest.fixture
def writer_on() -> Iterator[Callable[..., TimeseriesWriter]]:
    opened: list[Any] = []

    def make(server: ServerHandle, table: str, *, deadline: float = 20, **options: int) -> TimeseriesWriter:
        settings = table_on(server, {"id": "INT"}, ["id"]).settings
        client, transport = Client.of(settings), Transport(Endpoint.of(settings), connections=5)
        with pytest.raises(DestinationError, match="does not exist"):
            create_timeseries_table(client, table, auto_create=False)
        create_timeseries_table(client, table, auto_create=True)
        create_timeseries_table(client, table, auto_create=True)
        writer = TimeseriesWriter(
            transport, table, time_for_request=lambda: 5.0, retry_deadline=timedelta(seconds=deadline), **options
        )
        opened.extend((writer, transport, client))
        return writer

    yield make
    for one in opened:
        one.close()


def _points(count: int, **changed: Any) -> list[TimeseriesPoint]:
    fields = {"d": 1.5, "i": 7, "b": True, "s": "é", "r": b"\x00"}
    return [TimeseriesPoint("cpu", "h1", {"host": "a"}, 1_000_000 + n, {**fields, **changed}) for n in range(count)]


def _stored(client: Any, table: str) -> dict[int, dict[str, Any]]:
    from tablestore.metadata import GetTimeseriesDataRequest, TimeseriesKey

    request = GetTimeseriesDataRequest(table, TimeseriesKey("cpu", "h1", {"host": "a"}), 0, 9_000_000, 5000)
    return {
        row.time_in_us: {
            name: bytes(value) if isinstance(value, bytearray) else value for name, value in row.fields.items()
        }
        for row in client.get_timeseries_data(request).rows
    }


def test_rows_are_stored_and_a_replay_changes_nothing(
    server: ServerHandle, sdk_client: Callable[[ServerHandle], Any], writer_on: Callable[..., TimeseriesWriter]
) -> None:
    writer = writer_on(server, "points")
    points = _points(450)
    for _ in range(2):
        assert writer.put(points) == {}
        assert _stored(sdk_client(server), "points") == {point.time: dict(point.fields) for point in points}


@pytest.mark.parametrize(
    "fault",
    [
        "cut-after:times=2",
        "error:code=OTSServerBusy,times=2",
        "bad-gateway:times=1",
        "row-error:code=OTSServerBusy,rows=3,times=2",
    ],
)
def test_passing_faults_lose_nothing(
    disturbed: ServerHandle,
    sdk_client: Callable[[ServerHandle], Any],
    writer_on: Callable[..., TimeseriesWriter],
    fault: str,
) -> None:
    table = "points_" + fault.partition(":")[0].replace("-", "_")
    writer = writer_on(disturbed, table)
    disturbed.faults(fault if fault.startswith("row") else f"{fault},operation=PutTimeseriesData")
    points = _points(20)
    assert writer.put(points) == {}
    assert len(_stored(sdk_client(disturbed), table)) == 20


def test_a_refused_request_is_bisected(
    disturbed: ServerHandle, sdk_client: Callable[[ServerHandle], Any], writer_on: Callable[..., TimeseriesWriter]
) -> None:
    writer = writer_on(disturbed, "bisected")
    disturbed.faults("error:code=OTSParameterInvalid,operation=PutTimeseriesData,times=5")
    refused = writer.put(_points(16))
    assert list(refused) == [0]
    assert refused[0].startswith("OTSParameterInvalid")
    assert len(_stored(sdk_client(disturbed), "bisected")) == 15


def test_requests_are_in_flight_together(disturbed: ServerHandle, writer_on: Callable[..., TimeseriesWriter]) -> None:
    writer = writer_on(disturbed, "together", rows_per_request=2, concurrency=5)
    disturbed.faults("delay:seconds=1,operation=PutTimeseriesData")
    started = time.monotonic()
    assert writer.put(_points(10)) == {}
    assert time.monotonic() - started < 4.5  # one after the other they take five seconds
    assert writer.requests == 5


def test_requests_keep_to_their_size(server: ServerHandle, writer_on: Callable[..., TimeseriesWriter]) -> None:
    writer = writer_on(server, "sized", bytes_per_request=3_000)
    points = [
        replace(point, fields={"s": "x" * size}) for point, size in zip(_points(4), (1000, 1000, 5000, 10), strict=True)
    ]
    assert writer.put(points) == {}
    assert writer.requests == 3


@pytest.mark.parametrize("rule", ["records", "bytes"])
def test_memory_of_a_task_is_bounded(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    from upsert_platform.tablestore.connect import points
    from upsert_platform_tests.tablestore.connect.test_writer import frame

    if rule == "records":
        monkeypatch.setattr(points, "_BLOCK_RECORDS", 4)
    else:
        monkeypatch.setattr(points, "_BLOCK_BYTES", 4 * len(message({**BASE, "ts": 1}) or b""))
    batch = frame([(None, {**BASE, "ts": number}) for number in range(9)])
    assert [len(block.records) for block in points._blocks(iter([batch]), _table())] == [4, 4, 1]


def test_records_of_one_row_are_in_blocks_of_their_own() -> None:
    from upsert_platform.tablestore.connect import points
    from upsert_platform_tests.tablestore.connect.test_writer import frame

    values = [{**BASE, "ts": 1}, {**BASE, "ts": 2}, {**BASE, "ts": 2, "f": 3}, {**BASE, "ts": 2, "tag1": "b"}]
    batch = frame([(None, value) for value in values])
    assert [len(block.records) for block in points._blocks(iter([batch]), _table())] == [2, 2]


def test_a_row_that_nobody_may_write_ends_the_write(
    disturbed: ServerHandle, writer_on: Callable[..., TimeseriesWriter]
) -> None:
    writer = writer_on(disturbed, "forbidden")
    disturbed.faults("row-error:code=OTSAuthFailed,rows=1")
    with pytest.raises(DestinationError, match=r"time-series table 'forbidden': .*OTSAuthFailed"):
        writer.put(_points(3))


def test_an_end_to_retries(disturbed: ServerHandle, writer_on: Callable[..., TimeseriesWriter]) -> None:
    writer = writer_on(disturbed, "ended", deadline=0.3)
    disturbed.faults("error:code=OTSServerUnavailable,operation=PutTimeseriesData")
    with pytest.raises(DestinationError, match=r"time-series table 'ended': .*OTSServerUnavailable"):
        writer.put(_points(1))
