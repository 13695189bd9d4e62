"""The process of which Spark forks its Python workers: it has imported what their tasks import, once for all of them.

``spark.python.daemon.module`` names it. A worker then begins with its task, where it would import the platform and the
clients of Kafka, Tablestore and MaxCompute for a second or two before.
"""

from __future__ import annotations

import gc
import importlib
from typing import Final

MODULES: Final = (
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
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
    "upsert_platform.engine.native_insert",
    "upsert_platform.engine.tasks",
    "upsert_platform.tablestore.reader",
    "upsert_platform.tablestore.writer",
    "upsert_platform.core.task_runner",
)
"""Modules of tasks, by name, for this room knows none of theirs; what they import comes with them."""


def main() -> None:
    """Imports the modules, and then is PySpark's daemon."""
    from pyspark import daemon

    for name in MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what was imported stays in memory that workers share
    daemon.manager()


if __name__ == "__main__":
    main()
