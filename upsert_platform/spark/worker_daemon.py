"""The process of which Spark forks its Python workers: it has imported what their tasks import, once for all of them.

``spark.python.daemon.module`` names it. A worker then begins with its task, where it would import the platform and the
clients of Kafka, Tablestore and MaxCompute for a second or two before.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path
from typing import Final

MODULES: Final = (
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pandas",  # which pyarrow looks for when it is given a list
    "upsert_platform.changelog.change_rows",
    "upsert_platform.changelog.summed_in_tasks",
    "confluent_kafka",
    "upsert_platform.changelog.check_task",
    "upsert_platform.kafka.sink.sink",
    "upsert_platform.kafka.source.read_range",
    "upsert_platform.kafka.source.source",
    "upsert_platform.maxcompute.reader",
    "upsert_platform.maxcompute.writer",
    "upsert_platform.postgres.stage",
    "upsert_platform.engine.dealt_rows",
    "upsert_platform.engine.native_insert",
    "upsert_platform.engine.tasks",
    "upsert_platform.tablestore.reader",
    "upsert_platform.tablestore.writer",
    "upsert_platform.core.task_runner",
)
"""Modules of tasks, by name, for this room knows none of theirs; what they import comes with them."""

CLIENTS: Final = {
    "tablestore": "upsert_platform.tablestore.loaded_sdk",
    "maxcompute": "upsert_platform.maxcompute.loaded_sdk",
}
"""Modules that bring in the client of a system, by its endpoint: a program imports those of the tables that it has."""
CLIENTS_VARIABLE: Final = "UPSERT_SPARK_WORKER_CLIENTS"
"""Names the endpoints whose clients workers import, with commas; the JVM passes it on."""

_MEMORY_IS_KEPT: Final = ("MIMALLOC_PURGE_DELAY", "1000")
"""Milliseconds for which Arrow's allocator keeps memory that is free. After 10, its default, each block of rows would
be given new pages by the system: Nexmark's q20 over 5 million events took 42 s, and takes 34 s and a twelfth more
memory; a copy gains a thirtieth."""


def main() -> None:
    """Imports the modules, and then is PySpark's daemon."""
    os.environ.setdefault(*_MEMORY_IS_KEPT)  # before the library is loaded, which looks once
    _use_installed_pyspark()
    from pyspark import daemon

    asked = os.environ.get(CLIENTS_VARIABLE, "").split(",")
    for name in (*MODULES, *(CLIENTS[endpoint] for endpoint in asked if endpoint in CLIENTS)):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what was imported stays in memory that workers share
    daemon.manager()


def _use_installed_pyspark() -> None:
    """Import PySpark from its package, not from the archive in it that the JVM names first.

    Both are of one release; what stands in an archive is compiled anew by each process that imports it, half a second.
    """
    archives = Path(os.environ.get("SPARK_HOME", "")) / "python" / "lib"
    if (archives.parent.parent / "__init__.py").is_file():  # not a Spark that was unpacked from its distribution
        sys.path[:] = [entry for entry in sys.path if Path(entry).parent != archives]


if __name__ == "__main__":
    main()
