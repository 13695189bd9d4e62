"""Where an erasure can be killed, and a process that is: ``python -m ... STEP ARGUMENTS of upsert-platform erase``.

The process works with the JVM of the one that started it, which PYSPARK_GATEWAY_PORT and PYSPARK_GATEWAY_SECRET name:
to start a JVM for each kill takes longer than all else.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEFORE, AFTER = False, True
STEPS: dict[str, tuple[str, str, bool]] = {
    "tombstones are sent": ("upsert_platform.kafka.sink.tombstones", "send_tombstones", AFTER),
    "what was unread is committed": ("upsert_platform.sync.erase", "Erasure._delete", BEFORE),
    "the delete is committed": ("upsert_platform.sync.erase", "Erasure._delete", AFTER),
    "one of the tables is written": ("upsert_platform.sync.destination_hop", "DestinationHop.execute", AFTER),
    "tables are read back": ("upsert_platform.sync.erase", "Erasure._proven", AFTER),
    "its batch is noted": ("upsert_platform.sync.erase", "note_erased", AFTER),
    "files are written anew": ("upsert_platform.changelog.store", "ChangelogStore.replace", BEFORE),
    "files are replaced": ("upsert_platform.changelog.store", "ChangelogStore.replace", AFTER),
    "older files are deleted": ("upsert_platform.changelog.erasure", "delete_dead_files", AFTER),
    "refused rows are dropped": ("upsert_platform.sync.erase", "settle_refused", AFTER),
    "all is looked through": ("upsert_platform.sync.erase", "in_replays", AFTER),
    "it is noted": ("upsert_platform.sync.erasures", "record_erasure", AFTER),
}
"""What has been done when the process is killed: module, function, and whether that function has run by then."""
LEASE = timedelta(seconds=5)
"""Of the killed process, so that the next one need not wait as long as in the field."""


def kill_at(step: str) -> None:
    """Ends this process by SIGKILL at a step."""
    module, path, after = STEPS[step]
    owner: Any = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    real = getattr(owner, name)

    def killed(*arguments: Any, **named: Any) -> None:
        if after:
            real(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, killed)


def gateway_of(spark: SparkSession) -> Mapping[str, str]:
    """Variables that let another process work with the JVM of a session."""
    found = spark.sparkContext._gateway.gateway_parameters
    return {"PYSPARK_GATEWAY_PORT": str(found.port), "PYSPARK_GATEWAY_SECRET": found.auth_token}


def _shared_session() -> SparkSession:
    """The session of the JVM that the variables name."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()
    jvm = gateway.jvm
    there = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    context = jvm.org.apache.spark.api.java.JavaSparkContext(there.sparkContext())
    conf = SparkConf(_jvm=jvm, _jconf=context.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf), there)


def _main() -> None:
    from upsert_platform.cli.main import main
    from upsert_platform.spark import warm_session
    from upsert_platform.sync import leased

    spark = _shared_session()
    warm_session.open_session = lambda *_, **__: spark
    leased.LEASE = LEASE
    kill_at(sys.argv[1])
    main(["erase", *sys.argv[2:]])


if __name__ == "__main__":
    _main()
