"""The Spark session of a run: which settings it gets, and how it is opened and closed.

Opening one costs seconds and a JVM, so nothing here is called before a plan has found work.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from upsert_platform.core.errors import EndpointError
from upsert_platform.core.redaction import remember_settings
from upsert_platform.spark.class_archive import archive_options
from upsert_platform.spark.gateway import start_gateway
from upsert_platform.spark.jars import java
from upsert_platform.spark.placement import is_on_this_machine, refuse_wrong
from upsert_platform.spark.profiles import SparkPlace, spark_place
from upsert_platform.spark.scratch import scratch_folder, sweep
from upsert_platform.spark.settings_file import settings_file

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_LOGGING: Final = Path(__file__).parent / "log4j2.properties"
_NOISE: Final = b"WARNING: Using incubator modules: "
"""Begins a line that every JVM of Spark writes before it reads a setting, and that has no remedy."""


_JVM_FLAGS: Final = "-XX:ReservedCodeCacheSize=256m -XX:+UseParallelGC -XX:MetaspaceSize=256m"
"""A collector without threads of its own beside the program: they cost a core."""
_LANGUAGE: Final = "-Duser.language=en"
"""UPPER and LOWER follow the JVM's language: LOWER('İ') would be 'i' on a Turkish machine, though not in Arrow."""
_LATE_COMPILER: Final = " ".join(
    f"-XX:Tier4{what}={calls}"
    for what, calls in (
        ("InvocationThreshold", 50_000), ("MinInvocationThreshold", 6_000),
        ("CompileThreshold", 150_000), ("BackEdgeThreshold", 400_000),
    )
)  # fmt: skip
"""Ten times the JVM's defaults: its second compiler then leaves the cores to the work in a run's first seconds, and
still compiles what moves millions of rows. A copy of 4 million records takes a tenth less time, a first load of 2.5
million rows a twentieth."""
_BRIEF_JVM_FLAGS: Final = "-XX:TieredStopAtLevel=1"
"""For a session that lives for seconds and plans many different queries: what the second compiler would make of them
comes too late to be used. A session that moves millions of rows needs it."""
_EXECUTORS_SECONDS: Final = 90.0
"""How long a cluster may take to give a first executor; without one, Spark would wait for ever."""
_OF_THE_PROCESS: Final = ("spark.master", "spark.sql.shuffle.partitions", "spark.python.daemon.module")
"""Defaults of a session whose tasks run on this machine: a cluster names its master, and has cores of its own."""
_OF_SQL_TASKS: Final = "SPARK_SIMPLIFIED_TRACEBACK"
WORKERS_GROUP: Final = "start-workers"
"""Group of the job that starts Python workers, so that it counts as no run's work."""
_OF_LOOPBACK: Final = ("spark.driver.bindAddress", "spark.driver.host")
"""Defaults that executors on other machines could not use; Spark finds an address by itself."""


def default_settings(*, brief: bool = False) -> dict[str, str]:
    """Spark settings of a local session: loopback only, no web page unless asked for, UTC.

    No jars beside PySpark's own: tables of the lake are listed and committed by delta-rs. Few shuffle partitions: a
    batch is bounded, and a task costs more than a megabyte of shuffle.

    Args:
        brief: the session will move few rows, so it should rather start fast.
    """
    cores = os.cpu_count() or 1
    return {
        "spark.master": f"local[{cores}]",
        "spark.app.name": "upsert-platform",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        # Read before the session exists, unlike `spark.log.level`, which would be told after the first warnings.
        "spark.driver.defaultJavaOptions": " ".join(
            (
                f'"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"',
                _LANGUAGE,
                _JVM_FLAGS,
                _BRIEF_JVM_FLAGS if brief else _LATE_COMPILER,
                archive_options(),
            )
        ).strip(),
        "spark.executor.defaultJavaOptions": _LANGUAGE,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # As Flink's: numbers wrap, and a cast that fails is told by the expression itself (`sql.evaluation`).
        "spark.sql.ansi.enabled": "false",
        "spark.sql.shuffle.partitions": str(max(2, cores)),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.sql.warehouse.dir": os.path.join(os.environ.get("TMPDIR", "/tmp"), "upsert-platform-warehouse"),  # noqa: PTH118
        # Files are named one by one, from the list that delta-rs gives: no job has to look for them.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        # Spark's own default, INT96, is slower and has no statistics.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.speculation": "false",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "upsert_platform.spark.worker_daemon",
    }


def settings_of(place: SparkPlace, *, brief: bool = False) -> dict[str, str]:
    """Every setting of a session: the platform's own, those of its profile, and those that are given."""
    own = default_settings(brief=brief)
    if place.is_cluster:
        left_out = (*_OF_THE_PROCESS, *(() if is_on_this_machine(place) else _OF_LOOPBACK))
        own = {name: value for name, value in own.items() if name not in left_out}
    return {**own, **place.settings}


def prepare_environment(place: SparkPlace | None = None) -> None:
    """Makes Spark's Python workers run this interpreter, and keeps the driver on loopback.

    Args:
        place: a cluster has an interpreter and addresses of its own.
    """
    if place is not None and place.is_cluster:
        os.environ["PYSPARK_PYTHON"] = place.python
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if place is None or is_on_this_machine(place):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")


def open_session(
    settings: Mapping[str, str] | None = None,
    *,
    profile: str | None = None,
    lake: str | None = None,
    brief: bool = False,
    mllib: bool = False,
    systems: Iterable[str] = (),
) -> SparkSession:
    """Opens the session, or returns the one of this process.

    Args:
        settings: added to those of the profile, and winning over them.
        profile: where Spark runs; see `spark_place`.
        lake: root of the lake, which executors have to see.
        brief: see `default_settings`.
        mllib: see `launch_command`.
        systems: endpoints (such as ``tablestore``) whose clients Python workers begin with.

    Raises:
        EndpointError: Java is missing or too old, the place cannot work, or a cluster gives no executor.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    place = spark_place(settings, profile=profile)
    refuse_wrong(place, lake=lake)
    home = java().resolve().parent.parent
    os.environ.setdefault("JAVA_HOME", str(home))
    prepare_environment(place)
    sweep()
    chosen = {**settings_of(place, brief=brief), **_temporary_files(place.settings), **place.given}
    remember_settings(chosen)
    _start_jvm(chosen, mllib=mllib, systems=systems)
    if SparkContext._active_spark_context is None:  # noqa: SLF001 - there is no other way to tell
        context = SparkContext.getOrCreate(SparkConf().setAll(list(chosen.items())))
        if not place.is_cluster:
            # Spark has a process of workers for each environment of tasks, and tasks of SQL have this variable.
            context.environment[_OF_SQL_TASKS] = "1"
            _start_workers(context)
    builder = SparkSession.builder
    for name, value in chosen.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if place.is_cluster:
        _await_executors(session, place)
        deal_for_cores(session, place)
    return session


def _start_workers(context: SparkContext) -> None:
    """Start the process of Spark's Python workers in the background, with a job in the group WORKERS_GROUP.

    It imports what tasks import, which takes as long as what is left to do for a session: both go on side by side.
    """

    def start() -> None:
        # Whoever needs a worker is told why there is none; a session may also end before it is there.
        with suppress(Exception):
            context.setJobGroup(WORKERS_GROUP, "start Python workers")
            context.parallelize([0], 1).mapPartitions(list).collect()

    threading.Thread(target=start, name="start-workers", daemon=True).start()


def stop_session(session: SparkSession) -> None:
    """Stop a session and its SparkContext, once no job runs any more."""
    end_accumulators(session.sparkContext)
    session.stop()


def end_accumulators(context: SparkContext) -> None:
    """End PySpark's server of accumulators in the background, before the context is stopped.

    The server looks once a second whether it should end, and ``SparkContext.stop`` waits for that.
    """
    server, context._accumulatorServer = context._accumulatorServer, None  # noqa: SLF001 - `stop` looks for it there
    if server is not None:
        threading.Thread(target=server.shutdown, name="end-accumulators", daemon=True).start()


def deal_for_cores(session: SparkSession, place: SparkPlace) -> None:
    """Shuffles into as many parts as a cluster has cores, unless a number is given."""
    if "spark.sql.shuffle.partitions" not in place.given:
        session.conf.set("spark.sql.shuffle.partitions", str(max(2, session.sparkContext.defaultParallelism)))


def _await_executors(session: SparkSession, place: SparkPlace) -> None:
    """Waits for a first executor: the cores of those that are there tell how work is dealt."""
    if place.settings.get("spark.dynamicAllocation.enabled") == "true":
        return  # they are asked for when there are tasks
    registered = session.sparkContext._jsc.sc()  # noqa: SLF001 - no other way tells executors from the driver
    deadline = time.monotonic() + _EXECUTORS_SECONDS
    while registered.getExecutorMemoryStatus().size() < 2:
        if time.monotonic() > deadline:
            stop_session(session)
            raise EndpointError(
                f"{place.master} gave no executor within {_EXECUTORS_SECONDS:.0f} s: it has no cores or memory to"
                " spare, or executors end at once. Look at its pages; ask for less with 'spark.cores.max',"
                " 'spark.executor.cores' and 'spark.executor.memory'"
            )
        time.sleep(0.2)


def _temporary_files(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings for Spark's temporary files: in the folder of this process. Executors of a cluster keep theirs."""
    try:
        folder = scratch_folder()
    except OSError as error:
        raise EndpointError(
            f"Spark's temporary files cannot be put below {tempfile.gettempdir()}: {error.strerror or error}. Name a"
            " folder that can be written in TMPDIR"
        ) from None
    # The JVM's own folder too: spark-submit and libraries put files there.
    found = {"spark.driver.extraJavaOptions": f'"-Djava.io.tmpdir={folder}"'}
    local = settings.get("spark.master", "local").startswith("local")
    return {**found, "spark.local.dir": str(folder)} if local else found


def _start_jvm(settings: Mapping[str, str], *, mllib: bool, systems: Iterable[str]) -> None:
    """Starts the JVM of this process, if it does not run, and passes on its error output."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:  # noqa: SLF001 - there is no other way to tell
        return
    output, jvm = os.pipe()
    threading.Thread(target=_pass_on, args=(output,), name="jvm-stderr", daemon=True).start()
    try:
        with settings_file(settings, scratch_folder()) as alone:
            gateway = start_gateway(settings if alone else None, stderr=jvm, mllib=mllib, systems=systems)
    finally:
        os.close(jvm)
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - what SparkSession.builder does by itself


def _pass_on(output: int) -> None:
    """Writes what the JVM says to the error output that this process has by then, but for noise."""
    with os.fdopen(output, "rb") as lines:
        for line in lines:
            if not line.startswith(_NOISE):
                os.write(2, line)
