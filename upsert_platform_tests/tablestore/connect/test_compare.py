"""A table is compared with its records: what is wrong is told, what no record tells is left alone."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.masking import MASKED, Mask
from upsert_platform.core.model import Column, Options, Table
from upsert_platform.core.types import parse_type
from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.connect.compare import NOTHING, Expired, comparing_task
from upsert_platform.tablestore.connect.frame import BATCH
from upsert_platform.tablestore.connect.points import points_task
from upsert_platform.tablestore.connect.reading import scanning_task
from upsert_platform.tablestore.connect.schema import prepare_sink, sink_time_to_live
from upsert_platform.tablestore.connect.table import COLUMNS, ConnectSink, read_connect_sink
from upsert_platform.tablestore.connect.writer import records_task
from upsert_platform.tablestore.ranges import WHOLE
from upsert_platform.tablestore.task import TaskStats
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.tablestore.connect.test_writer import frame
from upsert_platform_tests.writing.leases import terms

pytestmark = pytest.mark.filterwarnings("ignore:numElems is deprecated:DeprecationWarning")  # in the SDK's encoder

KEYED = {
    "primarykey.mode": "record_key",
    "tablestore.{table}.primarykey.name": "pk0",
    "tablestore.{table}.primarykey.type": "string",
}
SERIES = {
    "tablestore.mode": "timeseries",
    "tablestore.timeseries.{table}.measurement": "m",
    "tablestore.timeseries.{table}.tags": "tag",
    "tablestore.timeseries.{table}.time": "ts",
    "tablestore.timeseries.{table}.time.unit": "SECONDS",
}


def sink_on(server: ServerHandle, options: Mapping[str, str]) -> ConnectSink:
    """A sink of topic ``t`` and a table of its own, which is created."""
    name = f"c_{uuid.uuid4().hex[:12]}"
    values = {
        "connector": "tablestore-connect",
        "topics": "t",
        "topics.assign.tables": f"t:{name}",
        "tablestore.endpoint": server.endpoint,
        "tablestore.instance.name": server.instance,
        "tablestore.access.key.id": server.access_key_id,
        "tablestore.access.key.secret": server.access_key_secret,
        "auto.create": "true",
        "errors.tolerance": "all",
        "runtime.error.tolerance": "all",
        **{option.replace("{table}", name): value.replace("{table}", name) for option, value in options.items()},
    }
    columns = tuple(Column(column, parse_type(kind)) for column, kind in COLUMNS.items())
    sink, problems = read_connect_sink(Table("c", columns, (), Options(values), SourceLocation("c.properties")))
    assert sink is not None, problems
    client = Client.of(sink.settings)
    prepare_sink(client, sink)
    prepare_sink(client, sink)
    client.close()
    return sink


def written(sink: ConnectSink, records: Sequence[tuple[Any, Any]]) -> pa.RecordBatch:
    """Writes records, which must be in order, and returns them."""
    batch = frame(records)
    lease = {"name": "c", "terms": terms()}
    if sink.points is not None:
        task = points_task(sink.points, sink.settings, **lease)
    else:
        task = records_task(sink.tables, sink.settings, table_name=sink.table_name, **lease)
    assert list(task(iter([batch])))
    return batch


def compared(
    sink: ConnectSink,
    batch: pa.RecordBatch,
    refused: Sequence[str] = (),
    *,
    of: Sequence[int] | None = None,
    expired: Expired = NOTHING,
) -> tuple[dict[str | None, int], list[tuple[Any, ...]]]:
    """How many rows have a status, and the rows that differ.

    Args:
        of: the changelog's batch of each record; 1 for all if None.
    """
    batch = batch.append_column(BATCH, pa.array(of or [1] * batch.num_rows, pa.int64()))
    rows = [row for found in comparing_task(sink, refused, expired)(iter([batch])) for row in found.to_pylist()]
    counts: Counter[str | None] = Counter()
    for row in rows:
        counts[row["status"]] += row["count"]
    return counts, [(row["key"], row["status"], row["difference"]) for row in rows if row["key"] is not None]


def test_rows_as_their_records_say_and_rows_that_differ(
    server: ServerHandle, sdk_client: Callable[[ServerHandle], Any]
) -> None:
    from tablestore import Row

    sink = sink_on(server, {**KEYED, "delete.mode": "row"})
    records = [({"pk0": "a"}, {"A": 1}), ({"pk0": "b"}, {"A": 1}), ({"pk0": "b"}, None), ({"pk0": "c"}, {"A": 2})]
    records += [({"pk0": "c"}, {"A": 3}), ({"pk0": "d"}, {"A": 4}), ({"pk0": "d"}, [1])]
    batch = written(sink, records)
    assert compared(sink, batch) == ({None: 4}, [])
    client = sdk_client(server)
    client.delete_row(sink.table_name, [("pk0", "a")])
    client.put_row(sink.table_name, Row([("pk0", "b")], [("x", 1)]))
    client.update_row(sink.table_name, Row([("pk0", "c")], {"PUT": [("A", 3), ("B", "more")]}), None)
    counts, wrong = compared(sink, batch)
    assert counts == {"missing": 1, "extra": 1, "stale": 1, None: 1}
    assert wrong == [
        ('{"0":"a"}', "missing", ""),
        ('{"0":"b"}', "extra", ""),
        ('{"0":"c"}', "stale", "A: expected '3', found 3; B: expected None, found 'more'"),
    ]
    refused = '{"topic":"t","partition":3,"offset":0}'
    assert compared(sink, batch, [refused])[0] == {"refused": 1, "extra": 1, "stale": 1, None: 1}


def test_cells_that_outlived_the_time_to_live_are_not_missed_and_others_are(
    server: ServerHandle, sdk_client: Callable[[ServerHandle], Any]
) -> None:
    from tablestore import Row

    sink = sink_on(server, {**KEYED, "insert.mode": "update", "delete.mode": "row"})
    records = [({"pk0": key}, {"A": 1}) for key in "abcd"] + [({"pk0": key}, {"B": 2}) for key in "bcd"]
    records += [({"pk0": "d"}, None), ({"pk0": "e"}, {"A": 1})]
    order = sorted(range(len(records)), key=lambda place: records[place][0]["pk0"])
    batch = written(sink, [records[place] for place in order])
    of = [(1, 1, 1, 1, 2, 2, 1, 1, 2)[place] for place in order]  # batch 1 was committed before the time to live
    client = sdk_client(server)
    assert compared(sink, batch, of=of, expired=Expired(1))[0] == {None: 5}
    client.delete_row(sink.table_name, [("pk0", "a")])  # wholly of batch 1
    client.update_row(sink.table_name, Row([("pk0", "b")], {"DELETE_ALL": ["A"]}), None)  # its other cell is younger
    client.delete_row(sink.table_name, [("pk0", "c")])
    client.put_row(sink.table_name, Row([("pk0", "d")], [("A", 1)]))  # deleted long ago: it cannot be there
    client.update_row(sink.table_name, Row([("pk0", "e")], {"PUT": [("A", 5)]}), None)
    counts, wrong = compared(sink, batch, of=of, expired=Expired(1))
    assert counts == {"expired": 1, None: 1, "missing": 1, "extra": 1, "stale": 1}
    assert [(key, status) for key, status, _ in wrong] == [
        ('{"0":"c"}', "missing"), ('{"0":"d"}', "extra"), ('{"0":"e"}', "stale"),
    ]  # fmt: skip
    assert compared(sink, batch, of=of)[0] == {"missing": 2, "stale": 2, "extra": 1}


def test_points_expire_by_the_time_that_they_carry(server: ServerHandle) -> None:
    day, now = 86_400, int(time.time())
    sink = sink_on(server, {**SERIES, "table.time-to-live": str(2 * day)})
    client = Client.of(sink.settings)
    assert sink_time_to_live(client, sink) == 2 * day
    client.close()
    points = [{"m": "cpu", "tag": "x", "ts": at, "f": 1} for at in (now - 3 * day, now - 2 * day + 600, now)]
    batch = written(sink, [(None, point) for point in points])
    assert compared(sink, batch)[0] == {"missing": 1, None: 2}
    assert compared(sink, batch, expired=Expired(0, 2 * day))[0] == {"expired": 1, None: 2}


def test_few_of_many_differing_rows_are_shown(server: ServerHandle, sdk_client: Callable[[ServerHandle], Any]) -> None:
    sink = sink_on(server, KEYED)
    batch = written(sink, [({"pk0": f"k{n:03}"}, {"A": n}) for n in range(250)])
    for n in range(30):
        sdk_client(server).delete_row(sink.table_name, [("pk0", f"k{n:03}")])
    counts, wrong = compared(sink, batch)
    assert counts == {"missing": 30, None: 220}
    assert len(wrong) == 20


def test_updates_say_nothing_of_cells_that_they_do_not_name(
    server: ServerHandle, sdk_client: Callable[[ServerHandle], Any]
) -> None:
    from tablestore import Row

    sink = sink_on(server, {**KEYED, "insert.mode": "update", "delete.mode": "column"})
    client = sdk_client(server)
    client.put_row(sink.table_name, Row([("pk0", "a")], [("old", 1), ("gone", 1)]))
    batch = written(sink, [({"pk0": "a"}, {"A": 1, "gone": None}), ({"pk0": "a"}, {"B": 2})])
    assert compared(sink, batch) == ({None: 1}, [])
    client.update_row(sink.table_name, Row([("pk0", "a")], {"PUT": [("gone", "back")]}), None)
    assert compared(sink, batch)[1] == [('{"0":"a"}', "stale", "gone: expected None, found 'back'")]


def test_points(server: ServerHandle, sdk_client: Callable[[ServerHandle], Any]) -> None:
    from tablestore import TimeseriesKey, TimeseriesRow

    sink = sink_on(server, SERIES)
    values = [{"m": "cpu", "tag": f"t{n % 2}", "ts": 1000 + n, "f": n} for n in range(6)]
    batch = written(sink, [(None, value) for value in values] + [(None, {"m": "cpu", "tag": "t1", "ts": 1005, "f": 9})])
    assert compared(sink, batch) == ({None: 6}, [])
    wrong = TimeseriesRow(TimeseriesKey("cpu", "", {"tag": "t0"}), {"f": 7.0}, 1_002_000_000)
    sdk_client(server).put_timeseries_data(sink.table_name, [wrong])
    assert [(status, difference) for _, status, difference in compared(sink, batch)[1]] == [
        ("stale", "f: expected 2.0, found 7.0")
    ]


def test_a_hundred_points_of_each_kind_are_found(
    server: ServerHandle, sdk_client: Callable[[ServerHandle], Any]
) -> None:
    """A point that no record tells of is not looked for: other programs may write the table too."""
    from tablestore import TimeseriesKey, TimeseriesRow

    sink = sink_on(server, SERIES)
    every = [(None, {"m": "cpu", "tag": f"t{n % 3}", "ts": 1000 + n, "f": n}) for n in range(300)]
    written(sink, every[:200])
    wrong = [
        TimeseriesRow(TimeseriesKey("cpu", "", {"tag": f"t{n % 3}"}), {"f": 0.5}, (1000 + n) * 1_000_000)
        for n in range(100)
    ]
    sdk_client(server).put_timeseries_data(sink.table_name, wrong)
    counts, examples = compared(sink, frame(every))
    assert counts == {None: 100, "stale": 100, "missing": 100}
    masked = replace(sink, mask=Mask(frozenset({"value"})))
    counts, hidden = compared(masked, frame(every))
    assert counts == {None: 100, "stale": 100, "missing": 100}
    assert {(key, difference) for key, _, difference in hidden} == {(MASKED, "")}
    assert len(hidden) == len(examples) > 0


def test_points_whose_tags_hold_commas(server: ServerHandle) -> None:
    sink = sink_on(server, SERIES)
    batch = written(sink, [(None, {"m": "cpu", "tag": "a,b", "ts": 1, "f": 2})])
    assert compared(sink, batch) == ({None: 1}, [])
    one = pa.RecordBatch.from_pylist([{"bounds": WHOLE}])
    rows = [row for found in scanning_task(sink)(iter([one])) for row in found.to_pylist()]
    assert [(row["tags"], row["cells"]) for row in rows] == [('{"tag": "a,b"}', '{"f":2.0}')]


def test_points_between_those_that_are_compared_are_not_read(
    server: ServerHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    from upsert_platform.tablestore.connect import point_reading

    sink = sink_on(server, SERIES)
    written(sink, [(None, {"m": "cpu", "tag": "a", "ts": 10 * n, "f": 10 * n}) for n in range(300)])
    read: list[int] = []
    points = point_reading._points

    def counted(data: bytes) -> list[Any]:
        found = list(points(data))
        read.append(len(found))
        return found

    monkeypatch.setattr(point_reading, "_points", counted)
    late = [{"m": "cpu", "tag": "a", "ts": ts, "f": ts} for ts in (0, 10, 11, 1500, 2989, 2990)]
    assert compared(sink, frame([(None, value) for value in late]))[0] == {None: 4, "missing": 2}
    assert sum(read) < 2 * len(late)


def test_rows_are_read_as_keys_and_text(server: ServerHandle) -> None:
    sink = sink_on(server, {**KEYED, "json.field.conversion": "auto"})
    written(sink, [({"pk0": "a"}, {"B": True, "A": 1.5}), ({"pk0": "b"}, {"A": "x"})])
    one = pa.RecordBatch.from_pylist([{"bounds": WHOLE}])
    rows = [row for batch in scanning_task(sink)(iter([one])) for row in batch.to_pylist()]
    assert rows == [{"pk0": "a", "cells": '{"A":1.5,"B":true}'}, {"pk0": "b", "cells": '{"A":"x"}'}]
    points = sink_on(server, SERIES)
    written(points, [(None, {"m": "cpu", "tag": "a", "ts": 1, "f": 2})])
    rows = [row for batch in scanning_task(points)(iter([one])) for row in batch.to_pylist()]
    assert rows == [
        {"m_name": "cpu", "data_source": "", "tags": '{"tag": "a"}', "time": 1_000_000, "cells": '{"f":2.0}'}
    ]


DROPPING = {
    "transforms": "drop,note",
    "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.drop.predicate": "tombstone",
    "predicates": "tombstone",
    "predicates.tombstone.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
    "transforms.note.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.note.offset.field": "at",
}


@pytest.mark.parametrize("options", [{**KEYED, "delete.mode": "row"}, SERIES, {}], ids=["rows", "points", "places"])
def test_records_that_a_transform_drops_are_counted_and_change_nothing(
    server: ServerHandle, options: Mapping[str, str]
) -> None:
    sink = sink_on(server, {**options, **DROPPING})
    value = {"m": "cpu", "tag": "x", "ts": 1, "A": 1}
    records = [({"pk0": "a"}, value), ({"pk0": "a"}, None), (None, None), ({"pk0": "b"}, {**value, "ts": 2})]
    batch = frame(records)
    lease = {"name": "c", "terms": terms()}
    if sink.points is not None:
        task = points_task(sink.points, sink.settings, **lease)
    else:
        task = records_task(sink.tables, sink.settings, table_name=sink.table_name, **lease)
    (found,) = [row for made in task(iter([batch])) for row in made.to_pylist()]
    stats = TaskStats.from_json(found["stats"])
    assert (stats.puts, stats.filtered, stats.refused) == (2, 2, 0)
    assert compared(sink, batch) == ({None: 2}, [])
    only = frame([(None, None)] * 3)
    (found,) = [row for made in task(iter([only])) for row in made.to_pylist()]
    assert TaskStats.from_json(found["stats"]).filtered == 3
