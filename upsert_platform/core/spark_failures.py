"""The errors that a failed job of Spark ends with."""

from __future__ import annotations

import sys


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
