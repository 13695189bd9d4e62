"""A destination in the memory of this process: the smallest one that keeps every promise, as an example."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

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
from upsert_platform.core.masking import NO_MASK
from upsert_platform.core.model import Column
from upsert_platform.core.types import parse_type
from upsert_platform.writing.judge import Judge, not_null_columns
from upsert_platform.writing.lease import LeaseStore, RenewedLease, Tenure
from upsert_platform.writing.outcomes import TaskStats, run_tasks
from upsert_platform.writing.refused_output import RefusedOutput

COLUMNS: Final = {"id": "BIGINT", "name": "STRING"}


class Place(LeaseStore):
    """What outlives a destination: rows by key, and the control record, which has its position and its lease."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, str | None]] = {}
        self.state, self.lease = DestinationState(), Tenure()
        self._lock = threading.Lock()

    def tenure(self) -> Tenure:
        return self.lease

    def swap(self, old: Tenure, new: Tenure, **values: Any) -> bool:
        with self._lock:
            if self.lease != old:
                return False
            self.lease, self.state = new, replace(self.state, **values)
            return True


@dataclass(slots=True)
class Sent(TaskStats):
    """What a writing task tells the driver: the rows, as JSON."""

    rows: str = "[]"


def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A writing task. Rows that are set aside never come here."""
    for batch in batches:
        rows = json.dumps(batch.select(["id", "name", OPERATION]).to_pylist())
        yield RefusedOutput("memory", open_file=None).end(Sent(rows=rows).to_json())


class MemoryDestination(Destination):
    """A table of `id` and `name`."""

    name, uri, kind, primary_key = "memory", "memory://", "memory", ("id",)

    def __init__(self, place: Place, columns: Mapping[str, str] = COLUMNS, *, fails: bool = False) -> None:
        self._place = place
        self.columns = tuple(Column(name, parse_type(kind)) for name, kind in columns.items())
        judge = Judge.of(self.columns, self.primary_key, fails=fails, mask=NO_MASK)
        self._judge = replace(judge, not_null=not_null_columns(self.columns, ()))  # the key's nulls too

    def prepare(self) -> None:
        """Nothing has to be created or compared."""

    def close(self) -> None:
        """Nothing is open."""

    def state(self) -> DestinationState:
        return self._place.lease.shown_in(self._place.state)

    def lease(self, *, owner: str, duration: timedelta) -> RenewedLease:
        return RenewedLease(self._place, "the place", owner=owner, duration=duration)

    def write(
        self, changes: DataFrame, *, span: BatchSpan, lease: Lease, keep_refused: KeepRefused = drop_nothing
    ) -> WriteReport:
        assert isinstance(lease, RenewedLease)
        written = run_tasks(changes, send, Sent, what=self.name, keep=keep_refused, judge=self._judge)
        lease.check()  # the rows came; nothing was written yet
        rows = [row for part in written.parts for row in json.loads(part.rows)]
        for row in rows:
            self._place.rows.pop(row["id"], None)
            if row[OPERATION] != OPERATION_DELETE:
                self._place.rows[row["id"]] = (row["id"], row["name"])
        written.keep_refused()
        lease.change(applied_batch=span.upto, changelog_id=span.changelog_id, commit=span.commit)
        deletes = sum(row[OPERATION] == OPERATION_DELETE for row in rows)
        return written.report(upserts=len(rows) - deletes, deletes=deletes)

    def read(self, spark: SparkSession, *, keys: DataFrame | None = None) -> DataFrame:
        found = spark.createDataFrame(list(self._place.rows.values()), "id BIGINT, name STRING")
        return found if keys is None else found.join(keys, "id", "left_semi")

    def record_verdict(self, verdict: Verdict) -> None:
        self._place.state = replace(self._place.state, last_verdict=verdict)
