"""The official Tablestore SDK for Java and the platform write the same rows; the official Python SDK compares them."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from upsert_platform.core.destination import OPERATION, BatchSpan
from upsert_platform.core.types import spark_type
from upsert_platform.tablestore.destination import TablestoreDestination
from upsert_platform.tablestore.table import TablestoreTable
from upsert_platform_tests.interop.java import Java
from upsert_platform_tests.interop.tablestore_java import KEY, WAYS, Row, TablestoreJava, plain
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.tablestore.declared import change_batch, table_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

COLUMNS = {
    **{"name": "STRING NOT NULL", "number": "BIGINT NOT NULL", "raw": "BYTES NOT NULL"},
    **{"text": "STRING", "count": "BIGINT", "score": "DOUBLE", "flag": "BOOLEAN", "data": "BYTES"},
}
Stored = list[tuple[list[tuple[str, Any]], list[tuple[str, Any]]]]
"""Rows in the order of their keys: key columns, and cells in the order of their names."""


def _rows() -> list[Row]:
    """Edges of every type, and random rows; None is a cell that is absent."""
    rows: list[Row] = [
        {"name": "", "number": -(2**63), "raw": b"", "text": "", "count": 2**63 - 1, "score": -0.0, "data": b""},
        {"name": "é中\U0001f600\0", "number": 0, "raw": b"\0\xff", "text": "\U0001f600\r\n\t\0", "count": -(2**63)},
        {"name": "a", "number": 2**63 - 1, "raw": bytes(range(256)), "score": 5e-324, "flag": False},
        {"name": "a", "number": 1, "raw": b"a", "score": 1.7976931348623157e308, "flag": True, "data": bytes(5000)},
        {"name": "A", "number": 0, "raw": b"a", "text": "x" * 70_000},
    ]
    chance = random.Random(7)
    for number in range(120):
        some: Row = {
            "text": "".join(chance.choices('aZ9 é中\U0001f600"\\', k=chance.randrange(20))),
            "count": chance.randrange(-(2**63), 2**63),
            "score": chance.gauss(0, 1e6),
            "flag": chance.random() < 0.5,
            "data": chance.randbytes(chance.randrange(40)),
        }
        kept = {name: value for name, value in some.items() if chance.random() < 0.7}
        key = {"name": f"k{chance.randrange(40)}", "number": number - 60, "raw": chance.randbytes(3)}
        rows.append({**key, "flag": True, **kept})
    return rows


ROWS = _rows()
DELETED = ROWS[10:20]
CHANGED = [{**row, "text": "changed", "score": None, "flag": None} for row in ROWS[20:40]]


@pytest.fixture
def java_writer(tablestore_java: Java, tablestore: ServerHandle) -> Iterator[Callable[[str], TablestoreJava]]:
    opened: list[TablestoreJava] = []

    def make(table: str) -> TablestoreJava:
        opened.append(TablestoreJava(tablestore_java, tablestore, table))
        return opened[-1]

    yield make
    for writer in opened:
        writer.client.shutdown()


def stored(server: ServerHandle, table: str) -> Stored:
    """What the official Python SDK reads, which has to be the same by its synchronous and asynchronous client."""
    from tablestore import INF_MAX, INF_MIN, AsyncOTSClient, OTSClient

    address = (server.endpoint, server.access_key_id, server.access_key_secret, server.instance)
    bounds = ("FORWARD", [(name, INF_MIN) for name in KEY], [(name, INF_MAX) for name in KEY])

    def taken(answer: Any) -> Stored:
        _, following, rows, _ = answer
        assert following is None
        return [
            (
                [(name, plain(value)) for name, value in row.primary_key],
                sorted((name, plain(value)) for name, value, _ in row.attribute_columns),
            )
            for row in rows
        ]

    async def read_async() -> Stored:
        async with AsyncOTSClient(*address, region="cn-hangzhou") as client:
            return taken(await client.get_range(table, *bounds, max_version=1))

    found = taken(OTSClient(*address).get_range(table, *bounds, max_version=1))
    assert asyncio.run(read_async()) == found
    return found


def write(spark: SparkSession, table: TablestoreTable, rows: Sequence[Mapping[str, Any]], upto: int) -> None:
    import pyarrow as pa

    declared = ", ".join(f"`{column.name}` {spark_type(column.type)}" for column in table.columns if column.type)
    changes = pa.Table.from_batches([change_batch(table, rows)])
    destination = TablestoreDestination(table)
    destination.prepare()
    with destination.lease(owner="test", duration=timedelta(minutes=1)) as lease:
        report = destination.write(
            spark.createDataFrame(changes, f"{declared}, _op STRING, _seq BIGINT"),
            span=BatchSpan(upto - 1, upto, "changelog-1", f"run-{upto}"),
            lease=lease,
        )
    destination.close()
    assert report.upserts + report.deletes == len(rows)


@pytest.fixture(scope="module")
def ours(spark: SparkSession, tablestore: ServerHandle) -> tuple[str, Stored]:
    """A table that the platform wrote, changed and deleted from, and what it holds."""
    options = {"insert.mode": "update", "delete.mode": "row_and_column"}
    table = table_on(tablestore, COLUMNS, KEY, options)
    write(spark, table, ROWS, 1)
    write(spark, table, [*CHANGED, *({**row, OPERATION: "D"} for row in DELETED)], 2)
    return table.table_name, stored(tablestore, table.table_name)


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_those_that_the_java_sdk_writes(
    tablestore: ServerHandle, java_writer: Callable[[str], TablestoreJava], ours: tuple[str, Stored], way: str
) -> None:
    table, expected = ours
    theirs = f"java_{uuid.uuid4().hex[:12]}"
    writer = java_writer(theirs)
    writer.create()
    writer.apply(way, "update" if way == "UpdateRow" else "put", ROWS)
    writer.apply(way, "update", CHANGED)
    writer.apply(way, "delete", DELETED)
    assert len(expected) == len(ROWS) - len(DELETED)
    assert stored(tablestore, theirs) == expected
    assert writer.read() == java_writer(table).read()


def test_rows_that_are_put_are_those_of_the_java_sdk(
    spark: SparkSession, tablestore: ServerHandle, java_writer: Callable[[str], TablestoreJava]
) -> None:
    table = table_on(tablestore, COLUMNS, KEY)
    write(spark, table, ROWS, 1)
    write(spark, table, CHANGED, 2)
    writer = java_writer(f"java_{uuid.uuid4().hex[:12]}")
    writer.create()
    writer.apply("BatchWriteRow", "put", ROWS)
    writer.apply("BatchWriteRow", "put", CHANGED)
    assert writer.read() == java_writer(table.table_name).read()
    expected = {_key(row): _cells(row) for row in [*ROWS, *CHANGED]}
    assert {tuple(key): cells for key, cells in stored(tablestore, table.table_name)} == expected


def _key(row: Row) -> tuple[tuple[str, Any], ...]:
    return tuple((name, row[name]) for name in KEY)


def _cells(row: Row) -> list[tuple[str, Any]]:
    return sorted((name, value) for name, value in row.items() if name not in KEY and value is not None)
