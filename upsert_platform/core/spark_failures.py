"""The errors that a failed job of Spark ends with."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from upsert_platform.core import errors
from upsert_platform.core.errors import UpsertPlatformError

_RAISED: Final = re.compile(
    r"^upsert_platform\.(?:\w+\.)*(?P<kind>\w+): (?P<text>.*?)(?=\n\s*(?:\n|at |\tat |JVM stacktrace)|\Z)",
    re.DOTALL | re.MULTILINE,
)


def job_failures() -> tuple[type[Exception], ...]:
    """Return the classes of errors that a job raises.

    What Python raises in a task comes as an error of PySpark. Of a worker that was killed, most often for want of
    memory, nothing is left but an error of the JVM, which Py4J raises as it is.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JJavaError


def known_job_failures() -> tuple[type[Exception], ...]:
    """Return `job_failures`; none in a process that has not loaded Spark, and leave it so."""
    return job_failures() if "pyspark.errors" in sys.modules else ()


@contextmanager
def raised_by_tasks() -> Iterator[None]:
    """Raise the platform's own error of a task in place of what Spark raises for it."""
    try:
        yield
    except Exception as error:
        raised = failure_of(error)
        if raised is None:
            raise
        raise raised from error


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
