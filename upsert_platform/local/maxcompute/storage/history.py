"""Versions of a table: which is current at a moment, and which can still be read."""

from __future__ import annotations

import time

from upsert_platform.local.maxcompute.errors import ServiceError
from upsert_platform.local.maxcompute.schema import Partition, Table
from upsert_platform.local.maxcompute.storage.catalogue import Catalogue


def version_at(catalogue: Catalogue, table: Table, moment: float) -> int:
    """The version that was current at a moment, in seconds since the epoch.

    Raises:
        ServiceError: the table did not exist then.
    """
    found = [version for version, committed, _ in catalogue.versions(table.table_id) if committed <= moment]
    if not found:
        raise _gone(table, f"the table did not exist at {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(moment))}")
    return found[-1]


def latest(catalogue: Catalogue, table: Table, number: int) -> tuple[int, float]:
    """Version and time of the n-th latest commit, counted from 1.

    Raises:
        ServiceError: there are fewer.
    """
    versions = catalogue.versions(table.table_id)
    if not 1 <= number <= len(versions):
        raise _gone(table, f"it has {len(versions)} versions, the {number}. latest was asked for")
    version, committed, _ = versions[-number]
    return version, committed


def check_readable(table: Table, partitions: list[Partition], version: int) -> None:
    """Returns when the table can be read as it was at a version.

    Raises:
        ServiceError: the version is to come, older than history is kept, or lost to a compaction.
    """
    if version > table.version:
        raise _gone(table, f"version {version} does not exist, the latest is {table.version}")
    for partition in partitions:
        if version < partition.first_version:
            raise _gone(
                table,
                f"the history of partition '{partition.spec}' begins at version {partition.first_version}:"
                f" compaction or acid.data.retain.hours has removed version {version}",
            )


def _gone(table: Table, reason: str) -> ServiceError:
    return ServiceError(400, "ODPS-0130071", f"ODPS-0130071:Semantic analysis exception - table {table.name}: {reason}")
