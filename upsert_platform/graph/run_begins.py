"""Spark's JVM starts with the process of a run: it is there when the run has imported, planned, and found work.

A run without work ends the JVM that it has not used. No JVM is started ahead where runs attach to a warm session, where
executors are elsewhere, or where `UPSERT_SPARK_LOCAL_ROWS` lets runs work without Spark.
"""

from __future__ import annotations

import multiprocessing
import sys
from contextlib import suppress
from typing import Final

from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.spark.profiles import spark_place
from upsert_platform.spark.session import begin_jvm
from upsert_platform.spark.warm_offer import Offer, folder
from upsert_platform.sync.on_demand import local_rows

_WITHOUT: Final = "stream"
"""The job of continuous mode (`graph.stream`, too long to import here): its batches have a bound of their own."""


def begin_in_process_of_run() -> None:
    """Start the JVM ahead if this process is that of a run; called before what takes long to import."""
    if _is_of_a_run() and _WITHOUT not in sys.argv:
        begin_run()


def begin_run(job: str = "") -> None:
    """Start the JVM ahead, if a run of a job in this process is going to open a session of its own."""
    if job == _WITHOUT:
        return
    with suppress(UpsertPlatformError):  # the run refuses what is wrong, with its words
        if local_rows() or spark_place().is_cluster:
            return
        where = folder()
        offer = None if where is None else Offer.read(where)
        if offer is None or not offer.is_alive():
            begin_jvm()


def _is_of_a_run() -> bool:
    """Return whether this is ``dagster job execute``, or what a run launcher of Dagster starts."""
    command = sys.argv[1:3]
    if command in (["job", "execute"], ["api", "execute_run"]):
        return True
    # A code server carries out each run in a process that it spawns, with its own arguments.
    return multiprocessing.parent_process() is not None and command[:1] == ["api"]
