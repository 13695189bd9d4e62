"""Sends rows as a task does, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa

from upsert_platform.core.destination import OPERATION, SEQUENCE
from upsert_platform.core.types import arrow_type
from upsert_platform.maxcompute.client import Client
from upsert_platform.maxcompute.connection import Connection
from upsert_platform.maxcompute.control import ControlTable
from upsert_platform.maxcompute.ddl import prepare_table
from upsert_platform.maxcompute.maxstorage import MaxStorage
from upsert_platform.maxcompute.sending import wire_plan
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.maxcompute.tunnel import UpsertTunnel
from upsert_platform.maxcompute.tunnel_writer import TunnelJob
from upsert_platform.maxcompute.writer import TaskWriter, WriteJob


def batch(table: MaxComputeTable, rows: Sequence[tuple[str, tuple[Any, ...]]]) -> pa.RecordBatch:
    """A batch of a change frame: operation and values in declared order."""
    columns = [
        pa.array([values[index] for _, values in rows], arrow_type(column.type))  # type: ignore[arg-type]
        for index, column in enumerate(table.columns)
    ]
    names = [column.name for column in table.columns]
    columns += [pa.array([operation for operation, _ in rows], pa.string()), pa.array(range(len(rows)), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, names=[*names, OPERATION, SEQUENCE])


def open_job(table: MaxComputeTable, **changed: Any) -> tuple[WriteJob, MaxStorage, str]:
    """Makes the table, opens a write session on it, and gives what a task gets, the storage and the table's id."""
    connection = Connection.of(table.settings)
    client = Client(connection)
    actual = prepare_table(client, table)
    storage = MaxStorage(connection, client.tunnel_endpoint(), table.target)
    job = WriteJob(
        connection=connection,
        endpoint=storage.endpoint,
        target=table.target,
        session=storage.create_write_session(table.partitions.static_text),
        plan=wire_plan(table, actual),
        body_bytes=table.settings.body_bytes,
        compression="lz4",
        repeat_unsure=table.upserts,
    )
    client.close()
    return (
        WriteJob(**{**{name: getattr(job, name) for name in WriteJob.__slots__}, **changed}),
        storage,
        actual.table_id,
    )


def open_tunnel_job(table: MaxComputeTable, **changed: Any) -> tuple[TunnelJob, UpsertTunnel]:
    """Makes the table, opens an upsert session on it, and gives what a task gets and the tunnel."""
    connection = Connection.of(table.settings)
    with closing(Client(connection)) as client:
        actual = prepare_table(client, table)
        tunnel = UpsertTunnel(connection, client.tunnel_endpoint(), table.target)
    values = {
        "connection": connection,
        "endpoint": tunnel.endpoint,
        "target": table.target,
        "sessions": (((), tunnel.create("")),),
        "plan": wire_plan(table, actual),
        "bucket_bytes": 1 << 20,
        "buffer_bytes": 64 << 20,
        "concurrency": 2,
        "compression": None,
    }
    return TunnelJob(**{**values, **changed}), tunnel


def send(job: WriteJob, batches: Sequence[pa.RecordBatch], *, stream: str = "0", version: int = 1) -> TaskWriter:
    """Sends batches as one attempt of a task, and closes its stream."""
    writer = TaskWriter(job, stream_id=stream, version=version)
    try:
        for rows in batches:
            writer.add(rows)
        writer.finish()
    finally:
        writer.close()
    return writer


def append(table: MaxComputeTable, *tasks: Sequence[tuple[str, tuple[Any, ...]]]) -> None:
    """Sends rows as so many tasks, and commits them at once."""
    job, storage, _ = open_job(table)
    for number, rows in enumerate(tasks):
        send(job, [batch(table, rows)], stream=str(number))
    storage.commit(job.session, [(str(number), 1) for number in range(len(tasks))])
    storage.close()


def let_lease_end(control: ControlTable) -> None:
    """Makes the present lease one that has ended, as time would."""
    record = control.read()
    assert control.swap(record, replace(record, lease_expires=1)) is not None
