"""A destination in the memory of this process: the smallest one that keeps every promise, as an example."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from upsert_platform.destination import (
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
from upsert_platform.errors import LeaseHeldError
from upsert_platform.model import Column
from upsert_platform.types import parse_type
from upsert_platform.writing.lease import RenewedLease, Tenure, held_message, lost_message
from upsert_platform.writing.outcomes import Judge, TaskStats, run_tasks
from upsert_platform.writing.refused_output import OUTCOME_SCHEMA

COLUMNS: Final = {"id": "BIGINT", "name": "STRING"}


@dataclass
class Place:
    """What outlives a destination: rows by key, position, lease."""

    rows: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    state: DestinationState = field(default_factory=DestinationState)
    tenure: Tenure = field(default_factory=lambda: Tenure("", 0.0))
    epoch: int = 0


@dataclass(slots=True)
class Sent(TaskStats):
    """The rows of a task, as JSON."""

    rows: str = ""


def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A writing task; this one only tells its rows to the driver. Rows that are set aside never come here."""
    for batch in batches:
        told = Sent(rows=json.dumps(batch.select(["id", "name", OPERATION]).to_pylist()))
        nothing = pa.nulls(1, pa.string())
        yield pa.RecordBatch.from_arrays([pa.array([told.to_json()]), *[nothing] * 4], schema=OUTCOME_SCHEMA)


class MemoryLease(RenewedLease):
    """A lease in a `Place`."""

    def __init__(self, place: Place, *, owner: str, duration: timedelta) -> None:
        super().__init__("the place", duration=duration)
        if place.tenure.expires > time.time():
            raise LeaseHeldError(held_message(self.what, place.tenure))
        self._place, self._identity, asked_at = place, uuid.uuid4().hex, time.monotonic()
        place.epoch += 1
        self._epoch = place.epoch
        place.tenure = Tenure(self._identity, self.expiry(), owner)
        self.extended(asked_at)
        self.keep()

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def identity(self) -> str:
        return self._identity

    def check(self) -> None:
        super().check()
        if self._place.tenure.identity != self._identity:
            raise self.lose(lost_message(self.what, self._place.tenure))

    def _renew(self) -> None:
        self.check()
        self._place.tenure = replace(self._place.tenure, expires=self.expiry())

    def _release(self) -> None:
        if self._place.tenure.identity == self._identity:
            self._place.tenure = replace(self._place.tenure, expires=0.0)


class MemoryDestination(Destination):
    """A table of `id` and `name`."""

    name, uri, kind, primary_key = "memory", "memory://", "memory", ("id",)

    def __init__(self, place: Place, columns: Mapping[str, str] = COLUMNS, *, fails: bool = False) -> None:
        self._place = place
        self.columns = tuple(Column(name, parse_type(kind)) for name, kind in columns.items())
        self._judge = Judge.of(self.columns, self.primary_key, fails=fails)

    def close(self) -> None:
        pass

    def prepare(self) -> None:
        pass

    def state(self) -> DestinationState:
        held = self._place.tenure.expires > time.time()
        ends = datetime.fromtimestamp(self._place.tenure.expires, UTC)
        return replace(
            self._place.state,
            holder=self._place.tenure.holder if held else None,
            lease_expires=ends if held else None,
        )

    @contextmanager
    def lease(self, *, owner: str, duration: timedelta) -> Iterator[Lease]:
        lease = MemoryLease(self._place, owner=owner, duration=duration)
        try:
            yield lease
        finally:
            lease.give_back()

    def write(
        self, changes: DataFrame, *, span: BatchSpan, lease: Lease, keep_refused: KeepRefused = drop_nothing
    ) -> WriteReport:
        lease.check()
        written = run_tasks(changes, send, Sent, what="memory", keep=keep_refused, judge=self._judge)
        rows: list[dict[str, Any]] = []
        for part in written.parts:
            rows += json.loads(part.rows) if part.rows else []
        lease.check()  # the rows came; nothing was written yet
        for row in rows:
            self._place.rows.pop(row["id"], None)
            if row[OPERATION] != OPERATION_DELETE:
                self._place.rows[row["id"]] = (row["id"], row["name"])
        written.keep_refused()
        lease.check()
        self._place.state = replace(self._place.state, applied_batch=span.upto, changelog_id=span.changelog_id)
        deletes = sum(row[OPERATION] == OPERATION_DELETE for row in rows)
        refused = sum(part.refused for part in written.parts)
        return WriteReport(upserts=len(rows) - deletes, deletes=deletes, refused_count=refused)

    def read(self, spark: SparkSession, *, keys: DataFrame | None = None) -> DataFrame:
        found = spark.createDataFrame(list(self._place.rows.values()), "id BIGINT, name STRING")
        return found if keys is None else found.join(keys, "id", "left_semi")

    def record_verdict(self, verdict: Verdict) -> None:
        self._place.state = replace(self._place.state, verdict=verdict)
