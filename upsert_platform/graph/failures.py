"""Errors made for users, as Dagster shows them best: the text first, the trace after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from upsert_platform.core.error_catalogue import identified, shown
from upsert_platform.core.errors import DeclarationError, EndpointError, UpsertPlatformError
from upsert_platform.core.redaction import redact_error
from upsert_platform.core.spark_failures import failure_of
from upsert_platform.core.spark_gone import told_if_gone


@contextmanager
def told_plainly() -> Iterator[None]:
    """Turns an `UpsertPlatformError` into a failure of the step whose description is the error's text.

    So does one that a task of Spark raised. Anything else is a defect, or foreign, and passes as it is. A retry policy
    of the user's is respected, but for a wrong declaration, which stays wrong; without one the step is not retried,
    since connectors try again by themselves what may pass, and the next run goes on where this one stopped.

    Raises:
        dagster.Failure: caused by the error.
    """
    try:
        yield
    except UpsertPlatformError as error:
        redact_error(error)
        raise dg.Failure(description=shown(error), allow_retries=not isinstance(error, DeclarationError)) from error
    except Exception as error:
        redact_error(error)  # an answer of a service that repeats headers, say: Dagster keeps texts of errors for good
        raised = failure_of(error)
        told = told_if_gone(error) if raised is None else None
        if told is not None:
            raised = EndpointError(told)
        if raised is None:
            raise
        raise dg.Failure(description=identified(raised)) from error
