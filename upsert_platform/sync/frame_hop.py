"""A DataFrame of one's own to a declared table that no insert writes: each write is a batch of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.progress import WriteProgress
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.core.destination import (
    OPERATION,
    OPERATION_DELETE,
    OPERATION_UPSERT,
    SEQUENCE,
    BatchSpan,
    Destination,
    WriteReport,
)
from upsert_platform.core.errors import DestinationError
from upsert_platform.core.types import quote_name, spark_type
from upsert_platform.sync.leased import leased

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRITTEN_BY: Final = "frames of assets"
"""Stands where tables that follow a topic have the id of their changelog: neither is taken for the other."""


@dataclass(frozen=True)
class WrittenFrame:
    """The result of writing a frame.

    Attributes:
        batch: its number, which the destination keeps.
    """

    batch: int
    report: WriteReport
    seconds: float


def write_frame(
    frame: DataFrame,
    destination: Destination,
    *,
    refused: RefusedStore,
    run: str,
    tell: Callable[[str], None] = lambda message: None,
    progress: Callable[[str], None] | None = None,
) -> WrittenFrame:
    """Puts the rows of a frame into a table, under its lease; rows of other keys stay as they are.

    Args:
        frame: the declared columns, by name and in any order, at most one row per primary key. A column `_op` may say
            ``D`` of rows whose keys are deleted; all others, and all rows without it, are ``U``.
        refused: keeps rows that the destination will not take.
        tell: is given a line when the run has to wait for another writer.
        progress: is given a line every few seconds while rows are written.

    Raises:
        DestinationError: columns or operations are not as declared, a key has several rows, the table follows a
            changelog, or the write failed. Nothing is recorded as applied then.
        LeaseHeldError: another run writes the table.
    """
    started = time.monotonic()
    destination.prepare()
    with leased(destination, owner=run, tell=tell) as lease:
        state = destination.state()
        if state.changelog_id not in ("", WRITTEN_BY):
            raise DestinationError(
                f"table '{destination.name}' follows the changelog {state.changelog_id}, whose next batch would"
                " overwrite a frame. Declare a table of its own for it"
            )
        batch = state.applied_batch + 1
        changes = _changes(frame, destination, batch=batch).persist()
        try:
            _check_rows(changes, destination)
            span = BatchSpan(state.applied_batch, batch, WRITTEN_BY, run)
            refused.forget(span)
            what = f"table '{destination.name}'"
            watch = None if progress is None else WriteProgress(refused.location, what=what, tell=progress)
            keep = refused.of(span, progress=watch)
            report = destination.write(changes, span=span, lease=lease, keep_refused=keep)
        finally:
            changes.unpersist()
    return WrittenFrame(batch, report, time.monotonic() - started)


def _changes(frame: DataFrame, destination: Destination, *, batch: int) -> DataFrame:
    from pyspark.sql import functions as F

    names = [column.name for column in destination.columns]
    missing = [name for name in names if name not in frame.columns]
    surplus = [name for name in frame.columns if name not in names and name != OPERATION]
    if missing or surplus:
        found = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"also has {', '.join(surplus)}"] * bool(surplus)
        raise DestinationError(
            f"table '{destination.name}' has the columns {', '.join(names)}; the frame {' and '.join(found)}"
        )
    operation = F.col(OPERATION) if OPERATION in frame.columns else F.lit(OPERATION_UPSERT)
    columns = [
        F.col(quote_name(column.name)).cast(spark_type(column.type)).alias(column.name)
        for column in destination.columns
        if column.type is not None
    ]
    return frame.select(*columns, operation.alias(OPERATION), F.lit(batch).cast("bigint").alias(SEQUENCE))


def _check_rows(changes: DataFrame, destination: Destination) -> None:
    from pyspark.sql import functions as F

    wrong = ~F.coalesce(F.col(OPERATION).isin(OPERATION_UPSERT, OPERATION_DELETE), F.lit(False))
    if changes.where(wrong).limit(1).count():
        raise DestinationError(
            f"table '{destination.name}': column '{OPERATION}' of the frame is '{OPERATION_UPSERT}' (put the row) or"
            f" '{OPERATION_DELETE}' (delete its key), and nothing else"
        )
    key = [F.col(quote_name(name)) for name in destination.primary_key]
    if key and changes.groupBy(*key).count().where("count > 1").limit(1).count():
        raise DestinationError(
            f"table '{destination.name}': the frame has several rows of a key ({', '.join(destination.primary_key)});"
            " which one counts is for the asset to say, for example with dropDuplicates"
        )
