"""Batches of changes that destinations are given, one after the other, and what a table must hold after them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.destination import OPERATION, SEQUENCE, BatchSpan, Destination
from upsert_platform.core.errors import LeaseHeldError
from upsert_platform.core.types import spark_type
from upsert_platform.referee.topic import Record
from upsert_platform.referee.verdict import Verdict
from upsert_platform_tests.referee.judging import Declared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS: Final = {"id": "BIGINT", "n": "BIGINT", "s": "STRING"}
KEYS: Final = 40
LEASE: Final = timedelta(seconds=5)
_PATIENCE_SECONDS: Final = 40.0


@dataclass
class Batches:
    """Puts and deletes of some keys, the same for a batch whoever writes it.

    Attributes:
        appends: whether every row stands for itself, under a key of its own, and none is deleted.
    """

    seed: str
    appends: bool = False
    size: int = 12
    made: dict[int, list[tuple[str, int, int | None, str | None]]] = field(default_factory=dict)

    def changes(self, batch: int) -> list[tuple[str, int, int | None, str | None]]:
        """Operation and values, one per key."""
        if batch not in self.made:
            chance = random.Random(f"{self.seed} {batch}")
            keys = (
                [batch * 1000 + n for n in range(self.size)] if self.appends else chance.sample(range(KEYS), self.size)
            )
            self.made[batch] = [
                ("D", key, None, None)
                if not self.appends and chance.random() < 0.25
                else ("U", key, batch, chance.choice([None, f"text {chance.random()}"]))
                for key in keys
            ]
        return self.made[batch]

    def write(self, spark: SparkSession, destination: Destination, batch: int, *, lease: timedelta = LEASE) -> None:
        """Writes a batch, once the destination is free.

        Raises:
            UpsertPlatformError: it cannot be written.
        """
        kinds = [f"`{column.name}` {spark_type(column.type)}" for column in destination.columns if column.type]
        schema = ", ".join([*kinds, f"{OPERATION} STRING", f"{SEQUENCE} BIGINT"])
        rows = [(*values, operation, batch) for operation, *values in self.changes(batch)]
        frame = spark.createDataFrame(rows, schema).coalesce(2)
        destination.prepare()
        with destination.lease(owner=f"writer {batch}", duration=lease) as held:
            if destination.state().applied_batch >= batch:
                return
            span = BatchSpan(batch - 1, batch, "changelog", f"run {batch}")
            destination.write(frame, span=span, lease=held, keep_refused=_no_refused)

    def write_at_last(self, spark: SparkSession, opened: Callable[[], Destination], batch: int) -> None:
        """Writes a batch that may be written in part, waiting for a lease that ends."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            destination = opened()
            try:
                return self.write(spark, destination, batch)
            except LeaseHeldError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
            finally:
                with suppress(LeaseHeldError):
                    destination.close()

    def records(self, upto: int) -> Iterable[Record]:
        """The changes as a topic would have them."""
        offset = 0
        for batch in range(1, upto + 1):
            for operation, key, number, text in self.changes(batch):
                quoted = "null" if text is None else f'"{text}"'
                value = None if operation == "D" else f'{{"n":{number},"s":{quoted}}}'.encode()
                yield Record("changes", 0, offset, 0, b'{"id":%d}' % key, value)
                offset += 1

    def judge(self, rows: Iterable[Sequence[Any]], upto: int) -> Verdict:
        """The referee on a table after the batches up to one."""
        return Declared(COLUMNS, ("id",)).judge(self.records(upto), rows)


def _no_refused(refused: Sequence[Any]) -> None:
    assert not refused, refused
