"""What the driver makes of the outcomes of writing tasks, and of their errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from upsert_platform.destination import RefusedRow
from upsert_platform.errors import DestinationError, LeaseHeldError, RecordError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from upsert_platform.tablestore.options import TablestoreSettings
    from upsert_platform.tablestore.task import TaskStats

_RAISED = re.compile(r"^upsert_platform\.(?:\w+\.)+(\w+): (.*)$", re.MULTILINE)
_ERRORS = {"LeaseHeldError": LeaseHeldError, "RecordError": RecordError, "DestinationError": DestinationError}


def run_writing_task(
    frame: DataFrame, task: Callable[[Any], Any], *, name: str, settings: TablestoreSettings
) -> tuple[TaskStats, list[RefusedRow]]:
    """Writes a frame by a task of `upsert_platform.tablestore.task`; sums of the counts, and the refused rows.

    Raises:
        DestinationError: the write failed for good, or more rows were refused than ``max.refused.rows``.
        LeaseHeldError: the lease was lost, or ends before the write can.
        RecordError: Tablestore does not take a row, and ``on-error`` is ``fail``.
    """
    from upsert_platform.tablestore.task import OUTCOME_DDL, TaskStats, too_many_refused

    total = TaskStats()
    refused: list[RefusedRow] = []
    with errors_of_tasks():
        for outcome in frame.mapInArrow(task, OUTCOME_DDL).collect():
            if outcome.stats is not None:
                total.add(TaskStats.from_json(outcome.stats))
            else:
                refused.append(RefusedRow(outcome.key, outcome.row, outcome.reason))
    if total.refused > settings.max_refused_rows:
        raise too_many_refused(name, settings, total.refused, refused[0])
    return total, refused


@contextmanager
def errors_of_tasks() -> Iterator[None]:
    """Turns what Spark reports of a failed task into the error that the task raised."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raised = _RAISED.findall(str(error))
        if not raised:
            raise
        kind, message = raised[-1]
        raise _ERRORS.get(kind, DestinationError)(message) from error
