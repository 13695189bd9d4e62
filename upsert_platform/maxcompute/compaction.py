"""Major compaction: after enough commits, or when a job asks for it.

The options are ``upsert.major-compact.enable`` and ``upsert.major-compact.min-commits``.

Compaction must not meet a writer (of two transactions on a partition the later one fails), so it runs under the lease,
at the end of a batch or alone. One that fails after a batch is logged and tried again after the next; the rows are
committed already.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from upsert_platform.core.errors import DestinationError, EndpointError
from upsert_platform.maxcompute.client import Client
from upsert_platform.maxcompute.connection import ServiceError, explain
from upsert_platform.maxcompute.lease import ControlLease
from upsert_platform.maxcompute.names import quote, sql_text
from upsert_platform.maxcompute.partition_spec import parse_spec
from upsert_platform.maxcompute.table import MaxComputeTable

_LOGGER = logging.getLogger(__name__)
_HINTS = {"odps.merge.task.mode": "service"}
_MOST_COUNTED = 1000
WHOLE_TABLE = ""
"""The partition text of a table without partitions."""
CUTS_CHANGES = (
    "it keeps changes ('acid.cdc.mode.enable'), and a major compaction removes them before others have read them. Leave"
    " the compaction out, or set that property to 'false'"
)


def count_commits(counts: str, partitions: Sequence[str]) -> str:
    """Adds one commit for each partition; the partitions with most commits are kept when they become very many."""
    if not partitions:
        return counts
    numbers: dict[str, int] = json.loads(counts) if counts else {}
    for partition in partitions:
        numbers[partition] = numbers.get(partition, 0) + 1
    kept = sorted(numbers.items(), key=lambda item: -item[1])[:_MOST_COUNTED]
    return json.dumps(dict(sorted(kept)), separators=(",", ":"))


def compact_statement(table: MaxComputeTable, partition: str) -> str:
    """The statement that compacts a partition, or the whole of a table without partitions.

    In lower case: PyODPS makes a merge task of it, and takes ``COMPACT MAJOR`` for a mere merge of small files.
    """
    where = ""
    if partition:
        pairs = ", ".join(f"{quote(name)}={sql_text(value)}" for name, value in parse_spec(partition))
        where = f" PARTITION ({pairs})"
    return f"ALTER TABLE {table.target.sql}{where} compact major"


def compact_where_due(lease: ControlLease, client: Client, table: MaxComputeTable) -> int:
    """Compacts every partition that has had enough commits.

    Returns:
        How many were compacted.
    """
    if not table.settings.compaction or not lease.record.commits:
        return 0
    numbers: dict[str, int] = json.loads(lease.record.commits)
    due = [partition for partition, commits in numbers.items() if commits >= table.settings.compaction_commits]
    done = []
    for partition in due:
        try:
            _compact(lease, client, table, partition)
        except (ServiceError, EndpointError) as error:
            _LOGGER.warning("compaction of %s %s is tried again later: %s", table.target, partition, error)
        else:
            done.append(partition)
    _forget(lease, done)
    return len(done)


def compact_partitions(lease: ControlLease, client: Client, table: MaxComputeTable) -> tuple[str, ...]:
    """Compacts every partition that was written since its last compaction; all of them where nobody counts.

    Returns:
        The partitions; an empty text is the whole of a table without partitions.

    Raises:
        DestinationError: the table keeps changes, which would be lost; or the service refuses a partition, and those
            before it are compacted.
        EndpointError: no answer.
        LeaseHeldError: the lease was lost.
    """
    actual = client.table(table.target)
    if actual is not None and actual.keeps_changes:
        raise DestinationError(f"compacting {table.target}: {CUTS_CHANGES}")
    done: list[str] = []
    try:
        for partition in _written(lease, client, table):
            _compact(lease, client, table, partition)
            done.append(partition)
    except ServiceError as error:
        explain(error, client.connection, f"compacting {table.target}")
    finally:
        _forget(lease, done)
    return tuple(done)


def _written(lease: ControlLease, client: Client, table: MaxComputeTable) -> Sequence[str]:
    if table.settings.compaction:
        return list(json.loads(lease.record.commits)) if lease.record.commits else []
    static = dict(table.partitions.static)
    specs = list(client.partitions(table.target)) if table.partitions.columns else [WHOLE_TABLE]
    return [spec for spec in specs if not spec or static.items() <= dict(parse_spec(spec)).items()]


def _compact(lease: ControlLease, client: Client, table: MaxComputeTable, partition: str) -> None:
    lease.check()
    client.run_sql(compact_statement(table, partition), hints=_HINTS, timeout=3600)


def _forget(lease: ControlLease, done: Sequence[str]) -> None:
    """Takes the counts of compacted partitions out of the record."""
    if not done or not lease.record.commits:
        return
    numbers: dict[str, int] = json.loads(lease.record.commits)
    left = {partition: commits for partition, commits in numbers.items() if partition not in done}
    lease.change(commits=json.dumps(left, separators=(",", ":")) if left else "")
