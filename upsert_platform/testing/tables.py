"""Destination tables in the memory of the test, which keep the promises of the platform's own ones."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from upsert_platform.core.capabilities import WritesInTask
from upsert_platform.core.connector import KeyReader
from upsert_platform.core.destination import (
    OPERATION,
    OPERATION_DELETE,
    BatchSpan,
    Destination,
    DestinationState,
    KeepRefused,
    Lease,
    Verdict,
    WriteReport,
    drop_nothing,
)
from upsert_platform.core.errors import DestinationError
from upsert_platform.core.masking import Mask
from upsert_platform.core.model import Column, Table
from upsert_platform.core.task_runner import RowsOfTask
from upsert_platform.core.types import arrow_type, quote_name, spark_type
from upsert_platform.kafka.table import KafkaTable
from upsert_platform.testing.topics import MemoryTopic, append_all
from upsert_platform.writing.judge import Judge
from upsert_platform.writing.lease import LeaseStore, RenewedLease, Tenure
from upsert_platform.writing.outcomes import TaskStats, run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Row = Mapping[str, Any]


@dataclass
class MemoryTable(LeaseStore):
    """The part of a table that outlives the runs of a test: its rows and its control record.

    Attributes:
        rows: by primary key; by their count in a table without one.
    """

    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    state: DestinationState = field(default_factory=DestinationState)
    lease: Tenure = field(default_factory=Tenure)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def of(table: Table) -> MemoryTable:
        """An empty table as it is declared."""
        return MemoryTable(table.physical_columns, table.primary_key)

    def tenure(self) -> Tenure:
        """The lease as it is stored."""
        return self.lease

    def swap(self, old: Tenure, new: Tenure, **values: Any) -> bool:
        """Stores a lease, and with it other values of the record, if the lease is still the old one."""
        with self._lock:
            if self.lease != old:
                return False
            self.lease, self.state = new, replace(self.state, **values)
            return True

    def swap_verdict(self, old: Verdict | None, new: Verdict) -> bool:
        """Keeps a verdict in the place of another one, if that is still the stored one."""
        with self._lock:
            if self.state.last_verdict != old:
                return False
            self.state = replace(self.state, last_verdict=new)
            return True

    def put(self, row: Row) -> None:
        """Puts a row over the one of its key."""
        self.rows[self._key(row) or (len(self.rows),)] = row

    def delete(self, row: Row) -> None:
        """Deletes the row of a key, if there is one."""
        self.rows.pop(self._key(row), None)

    def in_order(self) -> list[dict[str, Any]]:
        """The rows by primary key, nulls first; in the order of arrival without one."""
        found = self.rows.values()
        if self.primary_key:
            found = sorted(found, key=lambda row: [(row[name] is not None, row[name]) for name in self.primary_key])  # type: ignore[assignment]
        return [dict(row) for row in found]

    def schema(self) -> pa.Schema:
        """Declared columns in the types of change frames."""
        import pyarrow as pa

        return pa.schema([(column.name, arrow_type(column.type)) for column in self.columns if column.type])

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.primary_key)


@dataclass(slots=True)
class _Sent(TaskStats):
    """The rows that a writing task returns to the test's process, as a stream of Arrow in Base64."""

    rows: str = ""


def _send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A writing task, wherever it runs."""
    import pyarrow as pa

    from upsert_platform.writing.refused_output import RefusedOutput

    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        text = base64.b64encode(sink.getvalue()).decode()
        yield RefusedOutput("memory", open_file=None).end(_Sent(rows=text).to_json())


class MemoryDestination(Destination, WritesInTask):
    """A declared table whose rows the test holds. Nulls of NOT NULL columns and of the key are refused as anywhere."""

    kind = "memory"

    def __init__(self, table: Table, held: MemoryTable) -> None:
        self.name, self.uri = table.name, f"memory://{table.name}"
        self.columns, self.primary_key = held.columns, held.primary_key
        self._held = held
        fails = table.options.get("on-error", "").strip().lower() == "fail"
        self._mask = Mask.of(table)
        self._judge = Judge.of(held.columns, held.primary_key, fails=fails, mask=self._mask, keys_too=True)
        most = table.options.get("max.refused.rows", "").strip()
        self._most_refused = int(most) if most else None

    def close(self) -> None:
        """Nothing is open."""

    def prepare(self) -> None:
        """Nothing has to be created or compared."""

    def state(self) -> DestinationState:
        """The control record."""
        return self._held.lease.shown_in(self._held.state)

    def lease(self, *, owner: str, duration: timedelta) -> RenewedLease:
        """The table for one writer."""
        return RenewedLease(self._held, f"table '{self.name}'", owner=owner, duration=duration)

    def write(
        self,
        changes: DataFrame | RowsOfTask,
        *,
        span: BatchSpan,
        lease: Lease,
        keep_refused: KeepRefused = drop_nothing,
    ) -> WriteReport:
        """Applies a change frame and records its span."""
        assert isinstance(lease, RenewedLease)
        what = f"table '{self.name}'"
        written = run_tasks(
            changes, _send, _Sent, what=what, keep=keep_refused, judge=self._judge, most=self._most_refused,
            mask=self._mask,
        )  # fmt: skip
        lease.check()
        blocks = [block for part in written.parts if part.rows for block in _blocks(part.rows)]
        self._accept(blocks)
        if span.replaces:
            self._held.rows.clear()
        upserts = deletes = 0
        for block in blocks:
            for operation, row in zip(block.column(OPERATION).to_pylist(), self._declared(block), strict=True):
                if operation == OPERATION_DELETE:
                    self._held.delete(row)
                    deletes += 1
                else:
                    self._held.put(row)
                    upserts += 1
        written.keep_refused()
        lease.change(applied_batch=span.upto, changelog_id=span.changelog_id, commit=span.commit)
        return written.report(upserts=upserts, deletes=deletes)

    def _accept(self, blocks: Sequence[pa.RecordBatch]) -> None:
        """Refuses rows, or keeps them elsewhere too, before they are put."""

    def _declared(self, block: pa.RecordBatch) -> list[dict[str, Any]]:
        import pyarrow as pa

        schema = self._held.schema()
        found: list[dict[str, Any]] = pa.Table.from_batches([block]).select(schema.names).cast(schema).to_pylist()
        return found

    def read(self, spark: SparkSession, *, keys: DataFrame | None = None) -> DataFrame:
        """The rows as a DataFrame."""
        import pyarrow as pa

        ddl = ", ".join(
            f"{quote_name(column.name)} {spark_type(column.type)}" for column in self.columns if column.type
        )
        rows = pa.Table.from_pylist([dict(row) for row in self._held.rows.values()], schema=self._held.schema())
        found = spark.createDataFrame(rows, schema=ddl)
        if keys is None:
            return found
        return found.join(
            keys.select(*map(quote_name, self.primary_key)).distinct(), list(self.primary_key), "left_semi"
        )

    def record_verdict(self, verdict: Verdict) -> None:
        """Keeps the result of a check beside the applied batch."""
        self._held.state = replace(self._held.state, last_verdict=verdict)

    def swap_verdict(self, old: Verdict | None, new: Verdict) -> bool:
        """Keeps the result of a check in the place of another one, and returns whether that was still there."""
        return self._held.swap_verdict(old, new)

    def writes_in_task(self) -> bool:
        """Always."""
        return True

    def key_reader(self, *, since: int, most: int) -> Callable[[pa.Table], pa.Table | None]:
        """The rows of keys, as they are now."""
        del since, most
        return partial(_rows_of_keys, dict(self._held.rows), self._held.schema(), self.primary_key)


class MemoryTopicDestination(MemoryDestination):
    """A declared topic that an insert writes: its rows, and the records that others of the project read."""

    kind = "kafka"

    def __init__(self, kafka: KafkaTable, held: MemoryTable, topic: MemoryTopic) -> None:
        super().__init__(kafka.table, held)
        self._kafka, self._topic = kafka, topic

    def _accept(self, blocks: Sequence[pa.RecordBatch]) -> None:
        """Encodes the rows and appends them to the topic.

        Raises:
            DestinationError: the format cannot hold a row.
        """
        from upsert_platform.kafka.sink.encode import RecordEncoder
        from upsert_platform.kafka.sink.written_metadata import RecordMetadata

        encoder, metadata = RecordEncoder(self._kafka), RecordMetadata(self._kafka)
        for block in blocks:
            encoded = encoder.encode(block)
            times, headers = metadata.timestamps(block, encoded.refused), metadata.headers(block)
            if encoded.refused:
                reason = Mask.of(self._kafka.table).reason(next(iter(encoded.refused.values())))
                raise DestinationError(
                    f"table '{self.name}': {len(encoded.refused)} rows cannot be written as its formats are declared,"
                    f' the first: {reason}; correct the rows, or use servers="local", where they go to quarantine'
                )
            pairs = zip(encoded.keys.to_pylist(), encoded.values.to_pylist(), strict=True)
            append_all(self._topic, pairs, timestamps=times, headers=headers)


@dataclass
class MemoryKeyReader(KeyReader):
    """Finds rows of a table that the test holds."""

    held: MemoryTable

    def open(self) -> AbstractContextManager[Callable[[pa.Table], Iterator[pa.RecordBatch]]]:
        """Connects to nothing."""
        return nullcontext(partial(_batches_of_keys, dict(self.held.rows), self.held.schema(), self.held.primary_key))

    def __getstate__(self) -> dict[str, Any]:
        """The rows as they are, for a task in another process: a lock stays here."""
        plain = replace(self.held, _lock=None)  # type: ignore[arg-type]
        return {"held": plain}


def _batches_of_keys(
    rows: Mapping[tuple[Any, ...], Row], schema: pa.Schema, key: Sequence[str], wanted: pa.Table
) -> Iterator[pa.RecordBatch]:
    yield from _rows_of_keys(rows, schema, key, wanted).to_batches()


def _rows_of_keys(
    rows: Mapping[tuple[Any, ...], Row], schema: pa.Schema, key: Sequence[str], wanted: pa.Table
) -> pa.Table:
    import pyarrow as pa

    asked = wanted.select(list(key)).cast(pa.schema([schema.field(name) for name in key])).to_pylist()
    found = [rows.get(tuple(row[name] for name in key)) for row in asked]
    return pa.Table.from_pylist([dict(row) for row in found if row is not None], schema=schema)


def _blocks(text: str) -> list[pa.RecordBatch]:
    import pyarrow as pa

    with pa.ipc.open_stream(base64.b64decode(text)) as stream:
        return list(stream)
