"""Records through the writing task into a real server."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.core.errors import RecordError
from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.connect import writer
from upsert_platform.tablestore.connect.change import row_key
from upsert_platform.tablestore.connect.frame import ERROR, KEY, REASON, RECORD_COLUMNS, judging_task
from upsert_platform.tablestore.connect.options import ConnectTable
from upsert_platform.tablestore.connect.writer import blocks_of_records, records_task
from upsert_platform.tablestore.schema import create_table, wait_until_ready
from upsert_platform.tablestore.task import TaskStats
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.tablestore.connect.records import message, table
from upsert_platform_tests.tablestore.declared import table_on
from upsert_platform_tests.tablestore.disturbance import FAULTS
from upsert_platform_tests.writing.leases import terms

SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.int64()),
     ("key", pa.binary()), ("value", pa.binary())]
)  # fmt: skip


def frame(records: Sequence[tuple[Any, Any]]) -> pa.RecordBatch:
    """Records of topic ``t``, partition 3, offsets from 0."""
    rows = [("t", 3, offset, 1_000, message(key), message(value)) for offset, (key, value) in enumerate(records)]
    columns = zip(*rows, strict=True) if rows else [()] * len(RECORD_COLUMNS)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


@pytest.fixture
def write(sdk_client: Callable[[ServerHandle], Any]) -> Callable[..., tuple[TaskStats, list[dict[str, Any]], Any]]:
    """Creates a table, writes records of a configuration into it, reads it back."""
    names: dict[tuple[str, str], str] = {}

    def run(
        server: ServerHandle,
        made: ConnectTable,
        records: Sequence[tuple[Any, Any]],
        *,
        into: str = "",
        **options: str,
    ) -> tuple[TaskStats, list[dict[str, Any]], Any]:
        name = into or f"c_{uuid.uuid4().hex[:12]}"
        used = table_on(server, {"id": "INT"}, ["id"], options).settings
        if (server.endpoint, name) not in names:
            from tablestore.metadata import PK_AUTO_INCR

            kinds = [
                (column, "INTEGER", PK_AUTO_INCR) if kind == "auto_increment" else (column, kind.upper())
                for column, kind in made.primary_key
            ]
            client = Client.of(used)
            create_table(client, name, kinds)
            probe = [(kind[0], 0 if kind[1] == "INTEGER" else "") for kind in kinds]
            wait_until_ready(client, name, probe=probe, seconds=5)
            client.close()
            names[server.endpoint, name] = name
        task = records_task({"t": made}, used, name=name, table_name=name, terms=terms())
        outcomes = [row for batch in task(iter([frame(records)])) for row in batch.to_pylist()]
        stats = [TaskStats.from_json(row["stats"]) for row in outcomes if row["stats"]]
        return stats[0], [row for row in outcomes if row["stats"] is None], _read(sdk_client(server), name, made)

    return run


def _read(client: Any, name: str, made: ConnectTable) -> dict[Any, dict[str, Any]]:
    from tablestore.metadata import INF_MAX, INF_MIN

    start, end = ([(column, bound) for column in made.key_names] for bound in (INF_MIN, INF_MAX))
    _, _, rows, _ = client.get_range(name, "FORWARD", start, end, max_version=1)
    return {
        tuple(value for _, value in row.primary_key): {column: value for column, value, _ in row.attribute_columns}
        for row in rows
    }


def test_kafka_mode_keeps_every_record(server: ServerHandle, write: Callable[..., Any]) -> None:
    made = table(key_format="string", value_format="string", primarykey_mode="kafka")
    records = [("a", "1"), ("a", None), (None, None), (None, "")]
    stats, refused, found = write(server, made, records)
    assert (stats.puts, stats.refused, stats.merged) == (3, 1, 0)
    assert found == {
        ("t_3", 0): {"key": "a", "value": "1"},
        ("t_3", 1): {"key": "a"},
        ("t_3", 3): {"value": ""},
    }
    assert json.loads(refused[0]["key"]) == {"topic": "t", "partition": 3, "offset": 2}
    assert "no column to write" in refused[0]["reason"]


def test_a_refused_record_can_be_replayed_from_its_text(server: ServerHandle, write: Callable[..., Any]) -> None:
    made = table(primarykey_mode="record_key")
    stats, refused, found = write(server, made, [({"pk0": "a"}, b"\xff{"), ({"pk0": "b"}, {"A": 1})])
    assert (stats.refused, found) == (1, {("b",): {"A": "1"}})
    whole = json.loads(refused[0]["row"])
    assert base64.b64decode(whole["value"]) == b"\xff{"
    assert base64.b64decode(whole["key"]) == b'{"pk0": "a"}'
    assert (whole["offset"], whole["timestamp"]) == (0, 1000)


def test_on_error_fail_stops_at_a_dirty_record(server: ServerHandle, write: Callable[..., Any]) -> None:
    with pytest.raises(RecordError, match="primary key column 'pk0' is absent"):
        write(server, table(primarykey_mode="record_key"), [({"x": 1}, {"A": 1})], **{"on-error": "fail"})


def test_85_one_change_per_row_and_every_record_counted(server: ServerHandle, write: Callable[..., Any]) -> None:
    made = table(primarykey_mode="record_key", insert_mode="update", delete_mode="row_and_column")
    a, b = {"pk0": "a"}, {"pk0": "b"}
    records = [(a, {"A": 1, "B": 2}), (a, {"B": None, "C": 3}), (a, None), (a, {"D": 4}), (b, {"A": 1}), (b, {})]
    stats, refused, found = write(server, made, records)
    assert found == {("a",): {"D": "4"}, ("b",): {"A": "1"}}
    assert (stats.puts, stats.updates, stats.merged, stats.refused, stats.requests) == (1, 1, 3, 1, 1)
    assert "nothing to write" in refused[0]["reason"]


def test_5_2_two_requests_in_turn_where_one_change_will_not_do(server: ServerHandle, write: Callable[..., Any]) -> None:
    made = table(primarykey_mode="record_key", insert_mode="update", delete_mode="column")
    stats, _, found = write(server, made, [({"pk0": "a"}, {"A": 1}), ({"pk0": "a"}, {"A": None})])
    assert (stats.updates, stats.requests, found) == (2, 2, {("a",): {}})


def _sizes(made: ConnectTable, records: Sequence[tuple[Any, Any]]) -> list[int | None]:
    """Encoded rows of every block; None where the next block waits for the last."""
    return [
        None if block is None else len(block.encoded)
        for block in blocks_of_records(iter([frame(records)]), {"t": made})
    ]


def test_5_2_a_block_waits_for_the_last_where_both_change_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    updates = table(**{"primarykey_mode": "record_key", "insert_mode": "update", "delete_mode": "column"})
    one, other = {"pk0": "a"}, {"pk0": "b"}
    assert _sizes(updates, [(one, {"A": 1}), (one, {"A": None}), (other, {"A": 1})]) == [1, None, 2]
    puts = table(**{"primarykey_mode": "record_key"})
    assert _sizes(puts, [(one, {"A": 1}), (one, {"A": 2}), (other, {"A": 1})]) == [2]
    monkeypatch.setattr(writer, "_MERGED_BYTES", 30)
    assert _sizes(puts, [(one, {"A": 1})] * 2 + [(other, {"A": 1})]) == [2]
    assert _sizes(puts, [(one, {"A": 1})] * 3 + [(other, {"A": 1})]) == [1, None, 2]
    monkeypatch.setattr(writer, "_BLOCK_RECORDS", 2)
    assert _sizes(puts, [(one, {"A": 1}), (other, {"A": 1}), (other, {"A": 2})]) == [2, None, 1]


def test_memory_of_a_block_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_BLOCK_BYTES", 2_000)
    made = table(**{"primarykey_mode": "record_key"})
    assert _sizes(made, [({"pk0": f"k{n}"}, {"A": "x" * 600}) for n in range(9)]) == [4, 4, 1]


def test_types_may_differ_from_row_to_row(server: ServerHandle, write: Callable[..., Any]) -> None:
    made = table(primarykey_mode="record_key", json_field_conversion="auto")
    values = [1, "x", True, {"a": 1}, 2.5]
    _, _, found = write(server, made, [({"pk0": str(n)}, {"A": value}) for n, value in enumerate(values)])
    assert [found[(str(n),)]["A"] for n in range(5)] == [1.0, "x", True, '{"a":1}', 2.5]


def test_8_generated_keys_are_new_rows(server: ServerHandle, write: Callable[..., Any]) -> None:
    made = table(
        primarykey_mode="record_key", key="pk0:string,n:auto_increment", **{"auto_increment_repeated-rows": "true"}
    )
    stats, _, found = write(server, made, [({"pk0": "a"}, {"A": 1}), ({"pk0": "a"}, {"A": 2})])
    assert (stats.puts, stats.merged) == (2, 0)
    assert sorted(row["A"] for row in found.values()) == ["1", "2"]
    assert len({key[1] for key in found}) == 2


def test_a_merged_row_that_the_service_refuses_brings_all_its_records(
    disturbed: ServerHandle, write: Callable[..., Any]
) -> None:
    made = table(primarykey_mode="record_key")
    disturbed.faults("row-error:code=OTSInvalidPK,rows=1,times=1")
    records = [({"pk0": "a"}, {"A": 1}), ({"pk0": "b"}, {"A": 1}), ({"pk0": "b"}, {"A": 2}), ({"pk0": "c"}, {"A": 1})]
    stats, refused, found = write(disturbed, made, records)
    assert [json.loads(row["key"])["offset"] for row in refused] == [1, 2]
    assert (stats.puts, stats.refused, stats.merged) == (2, 2, 0)
    assert sorted(found) == [("a",), ("c",)]


def test_85_90_lost_answers_and_replays_converge(disturbed: ServerHandle, write: Callable[..., Any]) -> None:
    made = table(primarykey_mode="record_key", delete_mode="row")
    records = [({"pk0": f"k{n // 3}"}, None if n % 5 == 4 else {"A": n}) for n in range(3000)]
    name = f"c_{uuid.uuid4().hex[:12]}"
    stats, _, first = write(disturbed, made, records, into=name)
    disturbed.faults("cut-after:operation=BatchWriteRow,times=2")
    again, _, second = write(disturbed, made, records, into=name)
    assert first == second
    assert again.requests > stats.requests
    expected: dict[tuple[str], Mapping[str, Any]] = {}
    for key, value in records:
        expected.pop((key["pk0"],), None)
        if value is not None:
            expected[(key["pk0"],)] = {"A": str(value["A"])}
    assert first == expected


def test_85_the_order_of_a_rows_records_outlasts_faults(disturbed: ServerHandle, write: Callable[..., Any]) -> None:
    made = table(primarykey_mode="record_key", insert_mode="update", delete_mode="row_and_column")
    # Deleted, changed and cut columns of 400 rows; what will not merge is written in several requests, one by one.
    values: list[Any] = [{"A": 1, "B": 1}, {"A": None}, None, {"B": 2}, {"B": None}, {"C": 3, "A": 2}, {"A": None}]
    records = [({"pk0": f"k{n:03}"}, value) for n in range(400) for value in values[: 1 + n % len(values)]]
    last = [{"A": "1", "B": "1"}, {"B": "1"}, None, {"B": "2"}, {}, {"C": "3", "A": "2"}, {"C": "3"}]
    disturbed.faults(*FAULTS)
    stats, refused, found = write(disturbed, made, records)
    assert (refused, stats.retried_rows > 0) == ([], True)
    rows = {(f"k{n:03}",): last[n % len(last)] for n in range(400)}
    assert found == {key: row for key, row in rows.items() if row is not None}


def _judged(made: ConnectTable, records: Sequence[tuple[Any, Any]]) -> list[dict[str, Any]]:
    task = judging_task(partial(row_key, tables={"t": made}))
    return [row for batch in task(iter([frame(records)])) for row in batch.to_pylist()]


def test_records_of_a_row_have_one_key() -> None:
    made = table(primarykey_mode="record_key", key="a:string,b:integer")
    keys = [{"a": "x", "b": 1}, {"b": "1", "a": "x"}, {"a": "x", "b": 2}, {"a": "x"}, {"a": "1", "b": 1}]
    found = [row[KEY] for row in _judged(made, [(key, {"A": 1}) for key in keys])]
    assert found[0] == found[1]
    assert found[3] is None
    assert len({found[0], found[2], found[4]}) == 3


def test_1_4_what_the_converters_cannot_read_is_told_from_what_is_dirty() -> None:
    made = table(primarykey_mode="record_key", key_format="string", **{"value_converter_schemas_enable": "true"})
    good = {"schema": {"type": "struct", "fields": []}, "payload": {}}
    values = [good, {"A": 1}, '{"A":', b"\xff", {"schema": {"type": "int32"}, "payload": 1}, None]
    found = _judged(made, [("k", value) for value in values])
    expected = [None, "UndecodableError", "UndecodableError", "UndecodableError", "DirtyRecordError", None]
    assert [row[ERROR] for row in found] == expected
    assert "'value.converter.schemas.enable' = 'true'" in found[1][REASON]


@pytest.mark.parametrize("side", ["key", "value"])
def test_3_3_half_a_surrogate_pair_is_no_text(side: str) -> None:
    made = table(primarykey_mode="record_key")
    bad = '{"pk0": "k\\ud800", "A": 1}'
    whole = '{"pk0": "k\\ud83d\\ude00", "A": 1}'
    for text, error in ((bad, "DirtyRecordError"), (whole, None)):
        (row,) = _judged(made, [(text, {"A": 1}) if side == "key" else ({"pk0": "k"}, text)])
        assert row[ERROR] == error


_VALUES = st.none() | st.dictionaries(st.sampled_from("ABC"), st.none() | st.integers(0, 3), max_size=3)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("xyz"), _VALUES), min_size=1, max_size=30),
    st.sampled_from(["put", "update"]),
    st.sampled_from(["none", "row", "column", "row_and_column"]),
)
def test_every_record_is_in_exactly_one_place(records: list[tuple[str, Any]], insert: str, delete: str) -> None:
    made = table(primarykey_mode="record_key", insert_mode=insert, delete_mode=delete)
    ordered = sorted(records, key=lambda found: found[0])
    batch = frame([({"pk0": key}, value) for key, value in ordered])

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch.slice(0, 3)
        yield batch.slice(3)

    blocks = [block for block in blocks_of_records(batches(), {"t": made}) if block is not None]
    total = sum(block.source_rows for block in blocks)
    placed = sum(len(block.rows) + len(block.refused) + block.merged for block in blocks)
    assert total == placed == len(records)
