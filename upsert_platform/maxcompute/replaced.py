"""Options of the Flink connector that have no work left here: accepted, with a warning that says what replaces them."""

from __future__ import annotations

from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Table

_SPILL = (
    "writing tasks send rows as they arrive and hold at most 'write.body-size' of them (through the tunnel"
    " 'upsert.writer.buffer-size'), so no rows wait in local files"
)
_METADATA = "the table's metadata is read once per run, so there is no cache to size"
_SERVER_BUCKETS = "the service sorts rows into buckets itself; 'write.body-size' bounds what a task sends at once"
_NO_SLOTS = "the write session needs no tunnel slots; 'sink.parallelism' bounds how many tasks send at once"
_ONE_COMMIT = "one commit covers all partitions of a batch, so there is nothing to commit at once"

REPLACED = {
    "sink.meta.cache.time": _METADATA,
    "sink.meta.cache.expire.time": _METADATA,
    "sink.file-cached.enable": _SPILL,
    "sink.file-cached.tmp.dirs": _SPILL,
    "sink.file-cached.writer.num": _SPILL,
    "sink.bucket.check-interval": "a task sends a body when it has 'write.body-size' bytes; no timer is needed",
    "sink.file-cached.rolling.max-size": "'write.body-size' is the size at which rows are sent",
    "sink.file-cached.memory": _SPILL,
    "sink.file-cached.memory.segment-size": _SPILL,
    "sink.file-cached.flush.always": _SPILL,
    "sink.file-cached.write.max-retries": "'upsert.writer.max-retries' bounds the retries of every request with rows",
    "insert.arrow-writer.enable": "rows always travel as Arrow",
    "insert.arrow-writer.batch-size": "'spark.sql.execution.arrow.maxRecordsPerBatch' sets the rows of an Arrow batch",
    "insert.arrow-writer.flush-interval": "a run ends with a commit, so no timer flushes",
}
"""Option to what takes its place, whatever else is declared."""

REPLACED_BY_MAXSTORAGE = {
    "upsert.writer.bucket.buffer-size": _SERVER_BUCKETS,
    "upsert.write.slot-num": _NO_SLOTS,
    "upsert.flush.concurrent": _NO_SLOTS,
    "upsert.commit.thread-num": _ONE_COMMIT,
}
REPLACED_BY_TUNNEL = {
    "write.body-size": "'upsert.writer.bucket.buffer-size' and 'upsert.writer.buffer-size' bound what the tunnel gets",
    "sink.group-partition.enable": "through the tunnel rows are grouped by partition and bucket already",
}
REPLACED_BY_COORDINATOR = {"insert.commit.thread-num": _ONE_COMMIT}


def warn_of_replaced(table: Table, *, session_per_task: bool) -> list[Problem]:
    """Warnings for the options of a declaration that change nothing here.

    Args:
        session_per_task: whether tasks have sessions of their own, which are committed at once.
    """
    problems = []
    tunnel = table.options.get("write.api", "").strip().lower() == "tunnel"
    idle = REPLACED | (REPLACED_BY_TUNNEL if tunnel else REPLACED_BY_MAXSTORAGE)
    if not session_per_task:
        hint = "'sink.coordinator.enable' = 'false' gives tasks commits of their own"
        idle |= {name: f"{why}; {hint}" for name, why in REPLACED_BY_COORDINATOR.items()}
    for name in table.options:
        if name in idle:
            place = table.options.location(name) or table.location
            message = f"table '{table.name}': option '{name}' changes nothing here: {idle[name]}"
            problems.append(Problem(message, place, severity="warning"))
    return problems
