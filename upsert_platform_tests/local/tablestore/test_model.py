"""Random sequences of writes leave what a plain model leaves: PUT replaces, UPDATE merges, DELETE removes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tablestore.plainbuffer.plain_buffer_builder import PlainBufferBuilder
from tablestore.plainbuffer.plain_buffer_coded_stream import PlainBufferCodedInputStream
from tablestore.plainbuffer.plain_buffer_stream import PlainBufferInputStream

from upsert_platform.local.tablestore.engine import Engine
from upsert_platform.local.tablestore.faults import Faults
from upsert_platform.local.tablestore.instance import Instance
from upsert_platform.local.tablestore.messages import pb
from upsert_platform.local.tablestore.operations import OPERATIONS

Model = dict[str, dict[str, int]]
keys = st.sampled_from(["a", "b", "c"])
names = st.sampled_from(["x", "y", "z"])
puts = st.lists(st.tuples(names, st.integers(0, 9)), unique_by=lambda item: item[0], max_size=3)
write = st.one_of(
    st.tuples(st.just("put"), keys, puts),
    st.tuples(st.just("update"), keys, puts.filter(bool)),
    st.tuples(st.just("drop"), keys, st.lists(names, unique=True, min_size=1)),
    st.tuples(st.just("add"), keys, puts.filter(bool)),
    st.tuples(st.just("delete"), keys, st.just([])),
)


@pytest.fixture(scope="module")
def instance() -> Iterator[Instance]:
    with tempfile.TemporaryDirectory() as directory:
        instance = Instance("model", Engine(Path(directory), synchronous="OFF"), Faults())
        request = pb.CreateTableRequest()
        request.table_meta.table_name = "t"
        request.table_meta.primary_key.add(name="k", type=pb.STRING)
        request.reserved_throughput.capacity_unit.read = 0
        run(instance, "CreateTable", request)
        yield instance
        instance.engine.close()


def run(instance: Instance, name: str, request: Any) -> bytes:
    return OPERATIONS[name].handle(instance, request.SerializeToString())


def send(instance: Instance, batch: list[tuple[str, str, Any]]) -> None:
    request = pb.BatchWriteRowRequest()
    table = request.tables.add(table_name="t")
    for kind, key, columns in batch:
        pk = [("k", key)]
        if kind == "put":
            row = table.rows.add(type=pb.PUT, row_change=bytes(PlainBufferBuilder.serialize_for_put_row(pk, columns)))
        elif kind == "delete":
            row = table.rows.add(type=pb.DELETE, row_change=bytes(PlainBufferBuilder.serialize_for_delete_row(pk)))
        else:
            operation = {"update": "PUT", "drop": "DELETE_ALL", "add": "INCREMENT"}[kind]
            data = PlainBufferBuilder.serialize_for_update_row(pk, {operation: columns})
            row = table.rows.add(type=pb.UPDATE, row_change=bytes(data))
        row.condition.row_existence = pb.IGNORE
    answer = pb.BatchWriteRowResponse.FromString(run(instance, "BatchWriteRow", request))
    assert all(row.is_ok for row in answer.tables[0].rows)


def expect(model: Model, kind: str, key: str, columns: Any) -> None:
    if kind == "put":
        model[key] = dict(columns)
    elif kind == "update":
        model.setdefault(key, {}).update(columns)
    elif kind == "drop":
        for name in columns:
            model.get(key, {}).pop(name, None)
    elif kind == "add":
        row = model.setdefault(key, {})
        row.update({name: row.get(name, 0) + value for name, value in columns})
    else:
        model.pop(key, None)


def stored(instance: Instance) -> Model:
    request = pb.GetRangeRequest(table_name="t", direction=pb.FORWARD, max_versions=1)
    bounds = {"inclusive_start_primary_key": "", "exclusive_end_primary_key": "zzz"}
    for field, value in bounds.items():
        setattr(request, field, bytes(PlainBufferBuilder.serialize_primary_key([("k", value)])))
    rows = pb.GetRangeResponse.FromString(run(instance, "GetRange", request)).rows
    if not rows:
        return {}
    read = PlainBufferCodedInputStream(PlainBufferInputStream(rows)).read_rows()
    return {row.primary_key[0][1]: {name: value for name, value, _ in row.attribute_columns} for row in read}


@settings(deadline=None, max_examples=150)
@given(st.lists(st.lists(write, min_size=1, max_size=6), max_size=4))
def test_sequences(instance: Instance, batches: list[list[tuple[str, str, Any]]]) -> None:
    instance.engine.connection.execute(f"DELETE FROM {instance.engine.tables['t'].rows}")
    model: Model = {}
    for batch in batches:
        send(instance, batch)
        for change in batch:
            expect(model, *change)
    assert stored(instance) == model
