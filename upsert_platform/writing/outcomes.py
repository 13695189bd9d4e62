"""What writing tasks hand to the driver: counts, refused rows, and the error that ended one. Once for every system."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from upsert_platform import errors
from upsert_platform.destination import RefusedRow
from upsert_platform.errors import DestinationError, UpsertPlatformError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

OUTCOME_DDL: Final = "stats STRING, key STRING, row STRING, reason STRING"
"""What a task yields: refused rows (key, row, reason), and rows with its counts as JSON (stats)."""
_TASK_DIED: Final = "PythonException"
_RAISED: Final = re.compile(
    r"^upsert_platform\.(?:\w+\.)*(?P<kind>\w+): (?P<text>.*?)(?=\n\s*(?:\n|at |\tat |JVM stacktrace)|\Z)",
    re.DOTALL | re.MULTILINE,
)


@dataclass(slots=True)
class TaskStats:
    """Counts of one task, or of several: a dataclass of numbers, and of texts that say something of the first case."""

    def to_json(self) -> str:
        """The form that a task yields."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of to_json."""
        return cls(**json.loads(text))

    def add(self, other: Self) -> None:
        """Sums up tasks."""
        for name, value in asdict(other).items():
            own = getattr(self, name)
            setattr(self, name, (own or value) if isinstance(value, str) else own + value)


_Stats = TypeVar("_Stats", bound=TaskStats)


def outcome(stats: TaskStats | None = None, refused: Sequence[RefusedRow] = ()) -> pa.RecordBatch:
    """What a task yields, as `OUTCOME_DDL` says: one row with counts, and one per refused row."""
    import pyarrow as pa

    told = [] if stats is None else [stats.to_json()]
    columns = {
        "stats": told + [None] * len(refused),
        "key": [None] * len(told) + [row.key for row in refused],
        "row": [None] * len(told) + [row.row for row in refused],
        "reason": [None] * len(told) + [row.reason for row in refused],
    }
    return pa.RecordBatch.from_pydict(columns, pa.schema([(name, pa.string()) for name in columns]))


def run_tasks(
    frame: DataFrame, task: Callable[[Any], Any], stats: type[_Stats], *, what: str
) -> tuple[_Stats, list[RefusedRow]]:
    """Writes a frame by a function for ``mapInArrow`` that yields outcomes; their sums, and the refused rows.

    Args:
        what: is written, for messages: ``table 'users'``.

    Raises:
        UpsertPlatformError: what a task raised, or DestinationError when a task ended otherwise.
    """
    total = stats()
    refused: list[RefusedRow] = []
    with raising_what_tasks_raised(what):
        for row in frame.mapInArrow(task, OUTCOME_DDL).collect():
            if row.stats is not None:
                total.add(stats.from_json(row.stats))
            else:
                refused.append(RefusedRow(row.key, row.row, row.reason))
    return total, refused


@contextmanager
def raising_what_tasks_raised(what: str) -> Iterator[None]:
    """Turns what Spark raises of a failed task into the error that the task raised.

    Faults that are no task's, such as those of the declared SQL, stay Spark's.

    Raises:
        UpsertPlatformError: what a task raised, or DestinationError when it ended otherwise.
    """
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raised = failure_of(error)
        if raised is None and _TASK_DIED not in str(error):
            raise
        raise raised or DestinationError(f"{what}: a writing task failed: {str(error)[:2000]}") from error


def failure_of(error: BaseException) -> UpsertPlatformError | None:
    """The platform's own error inside what Spark raised for a failed task; None when the task ended otherwise.

    The last one named counts: it is the one that left the task, where others led to it.
    """
    for found in reversed(list(_RAISED.finditer(str(error)))):
        kind: Any = getattr(errors, found["kind"], None)
        if isinstance(kind, type) and issubclass(kind, UpsertPlatformError) and kind is not errors.DeclarationError:
            own: UpsertPlatformError = kind(found["text"].strip())
            return own
    return None
