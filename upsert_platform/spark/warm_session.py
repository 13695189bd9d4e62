"""A Spark session that outlives runs, from the side of a run: found, judged to fit, worked in, left.

A process of its own (`warm_process`) keeps a JVM with an open SparkContext. A run connects to that JVM as PySpark
connects to one that it started (py4j, on loopback, with a secret), and works in a session of its own there, with its
own settings and views. One run at a time: it holds a lock of the file system, which ends with its process however that
ends. What a killed run left behind is cleared before another works there. A run that finds the session at work, gone,
or opened with other settings opens one for itself, and says so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from upsert_platform.core.import_ahead import import_ahead
from upsert_platform.spark.gateway import connect
from upsert_platform.spark.placement import refuse_wrong
from upsert_platform.spark.profiles import SparkPlace, spark_place
from upsert_platform.spark.session import (
    deal_for_cores,
    end_accumulators,
    open_session,
    prepare_environment,
    stop_session,
)
from upsert_platform.spark.warm_offer import Offer, Turn, folder, withdraw
from upsert_platform.spark.worker_daemon import CLIENTS

if TYPE_CHECKING:
    from py4j.clientserver import ClientServer
    from pyspark.sql import SparkSession

_CLEARED_SECONDS: Final = 30.0
"""How long cancelled jobs of a killed run may take to end."""
_turn: Turn | None = None
"""Of this process, while it works in the warm session."""


def session_for_run(
    settings: Mapping[str, str] | None = None,
    *,
    profile: str | None = None,
    lake: str | None = None,
    brief: bool = False,
    systems: Collection[str] = (),
    tell: Callable[[str], None],
) -> SparkSession:
    """The warm session, where there is one that fits and is free; else one of this process (`open_session`).

    Args:
        systems: endpoints (such as ``tablestore``) whose clients the run needs: they are imported while it waits.
        tell: is given a line where a warm session is there and is not used, and why.

    Raises:
        EndpointError: as `open_session` does.
    """
    import_ahead(("pandas", *(CLIENTS[name] for name in systems if name in CLIENTS)))
    found = _attach(spark_place(settings, profile=profile), lake, tell)
    if found is not None:
        return found
    return open_session(settings, profile=profile, lake=lake, brief=brief, systems=systems)


def close_session(session: SparkSession) -> None:
    """Stops a session of `session_for_run`, or leaves it where it is the warm one."""
    if _turn is None:
        stop_session(session)
    else:
        _leave(session)


def clear(session: SparkSession, jvm: int, *, cancel: bool) -> bool:
    """Makes the SparkContext of a session as it was before a run.

    Python workers end, since modules that they imported may be others for the next run.

    Args:
        jvm: its process; workers are below it unless a cluster has them.
        cancel: jobs may run, of a run that was killed.

    Returns:
        False if jobs did not end in half a minute.
    """
    context = session.sparkContext
    if cancel:
        context.cancelAllJobs()
    _end_workers(jvm)
    tracker = context.statusTracker()
    deadline = time.monotonic() + _CLEARED_SECONDS
    while tracker.getActiveJobsIds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    session.catalog.clearCache()
    for kept in context._jsc.getPersistentRDDs().values():  # noqa: SLF001 - PySpark has no other way to name them
        kept.unpersist()
    return True


def _attach(place: SparkPlace, lake: str | None, tell: Callable[[str], None]) -> SparkSession | None:
    global _turn
    from pyspark import SparkContext

    if _turn is not None or SparkContext._gateway is not None:  # noqa: SLF001 - there is no other way to tell
        return None
    where = folder()
    offer = None if where is None else Offer.read(where)
    if where is None or offer is None:
        return None
    refuse_wrong(place, lake=lake)
    prepare_environment(place)
    own = "this run opens a session of its own"
    if not offer.is_alive():
        tell(f"the warm Spark session (process {offer.pid}) is gone: {own}; see {where / 'session.log'}")
        withdraw(where, offer)
        return None
    differing = offer.differs_in(place)
    if differing:
        shown = ", ".join(differing[:3]) + (f" and {len(differing) - 3} more" if len(differing) > 3 else "")
        tell(
            f"the warm Spark session was opened with another {shown}: {own}; 'upsert-platform session down', then 'up'"
            " renews it"
        )
        return None
    turn = Turn.take(where)
    if turn is None:
        tell(f"the warm Spark session is at work for process {Turn.holder(where) or 'unknown'}: {own}")
        return None
    session = None
    if Offer.read(where) == offer:  # it may have ended before the turn was taken
        try:
            session = _connect(offer, cancel=bool(turn.left))
        except OSError as error:
            tell(f"the warm Spark session (process {offer.pid}) does not answer ({error}): {own}")
    if session is None:
        turn.end(left=turn.left)
        return None
    turn.begin()
    _turn = turn
    if place.is_cluster:
        deal_for_cores(session, place)
    return session


def _connect(offer: Offer, *, cancel: bool) -> SparkSession:
    """A session of its own on the SparkContext of the JVM.

    Raises:
        OSError: the JVM does not answer or has stopped its SparkContext, or jobs of a killed run do not end.
    """
    from py4j.protocol import Py4JError

    try:
        gateway = connect(offer.port, offer.secret)
    except Py4JError as error:
        raise ConnectionError(f"port {offer.port}") from error
    session = None
    try:
        session = _session_of(gateway)
        if not clear(session, offer.workers_below, cancel=cancel):
            raise TimeoutError("jobs of a run that was killed do not end")
    except (Py4JError, TimeoutError) as error:
        _disconnect(session, gateway)
        raise error if isinstance(error, TimeoutError) else ConnectionError("it has stopped Spark") from error
    return session


def _session_of(gateway: ClientServer) -> SparkSession:
    """A new session beside the one that the JVM opened.

    Raises:
        Py4JError: there is none, or the JVM is gone.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - what SparkSession.builder does by itself
    opened = getattr(gateway.jvm, "org.apache.spark.sql.classic.SparkSession").getDefaultSession().get()
    wrapped = gateway.jvm.JavaSparkContext(opened.sparkContext())
    context = SparkContext(gateway=gateway, jsc=wrapped, conf=SparkConf(_jconf=wrapped.getConf()))
    return SparkSession(context, jsparkSession=opened.newSession())


def _leave(session: SparkSession) -> None:
    """Gives the session to the next run."""
    global _turn
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    turn, _turn = _turn, None
    assert turn is not None
    cleared = False
    try:
        with suppress(Py4JError, AttributeError):  # the JVM is gone, or Spark was stopped: whoever comes next is told
            session.catalog.clearCache()
            cleared = not session.sparkContext.statusTracker().getActiveJobsIds()
    finally:
        _disconnect(session, SparkContext._gateway)  # noqa: SLF001
        turn.end(left="" if cleared else turn.left or str(os.getpid()))


def _disconnect(session: SparkSession | None, gateway: ClientServer) -> None:
    """Forgets the JVM without ending it: PySpark can only stop both."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession as Sessions

    if session is not None:
        end_accumulators(session.sparkContext)
        session.sparkContext._jsc = None  # noqa: SLF001 - `stop` would stop the SparkContext of the JVM
        session.sparkContext.stop()
    Sessions._instantiatedSession = Sessions._activeSession = None  # noqa: SLF001
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
    gateway.close()


def _end_workers(jvm: int) -> None:
    """Ends Python workers, whose parents are the daemons of a JVM: a daemon has imported nothing but PySpark."""
    import psutil

    workers = []
    with suppress(psutil.NoSuchProcess):  # the JVM, and daemons of its that end, come and go by themselves
        for daemon in psutil.Process(jvm).children() if jvm else ():
            workers += daemon.children(recursive=True)
    for worker in workers:
        with suppress(psutil.NoSuchProcess):
            worker.kill()
    psutil.wait_procs(workers, timeout=10)
