"""Errors of Spark that say that a process of its session has ended: its JVM, or a Python worker."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from traceback import walk_tb
from typing import Final

_JVM: Final = (
    "Spark's JVM is gone: it was killed, most often for want of memory, or ended with the warm session that it belonged"
    " to. Give it more with 'spark.driver.memory', or take less at once with 'batch.max-records'; the next run goes on"
    " where this one stopped"
)
_WORKER: Final = (
    "a Python worker of Spark ended in the middle of its task: it was killed, most often for want of memory. Give this"
    " machine more, or take less at once with 'batch.max-records'; the next run goes on where this one stopped"
)
_CRASHED: Final = "Python worker exited unexpectedly"
_ENDING_SECONDS: Final = 1.0


def told_if_gone(error: BaseException) -> str | None:
    """Return what is reported for an error that says that the JVM or a Python worker has ended; None for any other."""
    if _is_jvm_gone(error):
        return _JVM
    return _WORKER if _is_worker_gone(error) else None


def _is_jvm_gone(error: BaseException) -> bool:
    """Return whether the JVM of this process's session has ended, or ends, whoever started it."""
    packages = {part for frame, _ in walk_tb(error.__traceback__) for part in Path(frame.f_code.co_filename).parts}
    if "py4j" in packages and (isinstance(error, OSError) or type(error).__name__ == "Py4JNetworkError"):
        return True
    # Whatever fails in PySpark: a JVM that ends in order stops its context, and then deletes its files.
    return bool(packages & {"py4j", "pyspark"}) and _has_ended()


def _is_worker_gone(error: BaseException) -> bool:
    """Return whether a job failed since a Python worker ended without having told why."""
    return type(error).__module__.partition(".")[0] in ("py4j", "pyspark") and _CRASHED in str(error)


def _has_ended() -> bool:
    """Return whether the session's context is stopped, or cannot be asked; before there is one, whether the JVM ended.

    That is known a moment after its last answer.
    """
    from py4j.protocol import Py4JError

    pyspark = sys.modules.get("pyspark")
    if pyspark is None:
        return False
    context = pyspark.SparkContext._active_spark_context  # noqa: SLF001 - no other way tells
    if context is not None:
        try:
            return context._jsc is None or bool(context._jsc.sc().isStopped())  # noqa: SLF001
        except (OSError, Py4JError):
            return True
    process: subprocess.Popen[bytes] | None = getattr(pyspark.SparkContext._gateway, "proc", None)  # noqa: SLF001
    if process is None:
        return False
    with suppress(subprocess.TimeoutExpired):
        process.wait(_ENDING_SECONDS)
    return process.poll() is not None
