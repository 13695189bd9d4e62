"""The process that keeps a warm Spark session, with the arguments FOLDER IDLE [PROFILE [PID BEGAN]].

It opens a session, does in small what runs do so that the JVM has compiled it, and offers it. It ends after IDLE
seconds in which nobody worked there, when it is told to (SIGTERM), with the process PID (which began at BEGAN) if one
is named, or when its JVM ends, which ends with it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.spark.placement import refuse_wrong
from upsert_platform.spark.profiles import spark_place
from upsert_platform.spark.scratch import began_at, is_process, scratch_folder
from upsert_platform.spark.session import open_session, prepare_environment
from upsert_platform.spark.train_archive import exercise
from upsert_platform.spark.warm_offer import Offer, Turn, digests_of, new_salt, withdraw
from upsert_platform.spark.warm_session import clear
from upsert_platform.spark.worker_daemon import CLIENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANOTHER_IS_UP: Final = 3
"""Exit code where the folder has a process already."""
_LOOK_SECONDS: Final = 1.0
_LEAVES_SECONDS: Final = 30.0
"""How long a run that stopped Spark may take to leave the session."""
_WARMING_ROUNDS: Final = 3
_ON_A_CLUSTER: Final = {"spark.python.worker.reuse": "false"}
"""Workers of executors cannot be ended from here, and would keep modules that they imported for a run before."""


def main(arguments: list[str]) -> int:
    """Keeps a session until its end; the exit code."""
    where, idle, profile = Path(arguments[0]), float(arguments[1]), arguments[2] or None if len(arguments) > 2 else None
    beside = (int(arguments[3]), float(arguments[4])) if len(arguments) > 4 else None
    kept = os.open(where / "process", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(kept, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return ANOTHER_IS_UP
    stops = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stops.set())
    place = spark_place(profile=profile)
    try:
        refuse_wrong(place)
        prepare_environment(place)
        salt = new_salt()
        digests = digests_of(place, salt)
        # What the runs that attach will import is not known.
        session = open_session(
            _ON_A_CLUSTER if place.is_cluster else None, profile=profile, mllib=True, systems=CLIENTS
        )
    except UpsertPlatformError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the log is what whoever started this looks at
        return 1
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 - PySpark tells nobody its JVM's port
    port, secret = gateway.gateway_parameters.port, gateway.gateway_parameters.auth_token
    offer = Offer(
        pid=os.getpid(), began=began_at(os.getpid()) or 0.0, port=port, jvm=gateway.proc.pid, secret=secret,
        master=session.sparkContext.master, idle_seconds=idle, salt=salt, digests=digests,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        for _ in range(_WARMING_ROUNDS):
            exercise(session, folder)
    session.catalog.clearCache()
    offer.write(where)
    print(f"up: {offer}", flush=True)  # noqa: T201 - without the secret
    try:
        return _keep(session, offer, where, gateway.proc, stops, beside)
    finally:
        withdraw(where, offer)


def _keep(
    session: SparkSession,
    offer: Offer,
    where: Path,
    jvm: object,
    stops: threading.Event,
    beside: tuple[int, float] | None,
) -> int:
    used = time.monotonic()
    while not stops.wait(_LOOK_SECONDS):
        if beside is not None and not is_process(*beside):
            print(f"process {beside[0]} ended", flush=True)  # noqa: T201
            break
        if jvm.poll() is not None:  # type: ignore[attr-defined]
            print(f"the JVM (process {offer.jvm}) ended", file=sys.stderr, flush=True)  # noqa: T201
            return 1
        stopped = session.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 - a run may do so, by its own code
        # The run asks the JVM on as it leaves.
        turn = Turn.take(where, seconds=_LEAVES_SECONDS if stopped else 0)
        if stopped:
            print("a run stopped Spark", file=sys.stderr, flush=True)  # noqa: T201
            return 1
        if turn is None:
            used = time.monotonic()
            continue
        left = turn.left
        if left:
            print(f"process {left} ended without leaving: its jobs are cancelled", flush=True)  # noqa: T201
            used = time.monotonic()
            left = "" if clear(session, offer.workers_below, cancel=True) else left
        ends = time.monotonic() - used >= offer.idle_seconds
        if ends:
            withdraw(where, offer)
        turn.end(left=left)
        if ends:
            print(f"nobody worked here for {offer.idle_seconds:.0f} s", flush=True)  # noqa: T201
            break
    session.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
