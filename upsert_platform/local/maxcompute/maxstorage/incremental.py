"""Incremental reads of the storage API: change rows of commits, split by bucket (spec 2.7)."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

from upsert_platform.local.maxcompute.errors import ServiceError, invalid_argument
from upsert_platform.local.maxcompute.maxstorage.describe import read_columns
from upsert_platform.local.maxcompute.schema import Column, Partition, Table
from upsert_platform.local.maxcompute.service import Service
from upsert_platform.local.maxcompute.storage.changes import SYSTEM_COLUMNS, changes_of, split_by_bucket
from upsert_platform.local.maxcompute.storage.history import check_readable, version_at
from upsert_platform.local.maxcompute.storage.readers import View
from upsert_platform.local.maxcompute.storage.snapshot import Rows

_ENABLED = "acid.cdc.mode.enable"


def incremental_view(
    service: Service,
    table: Table,
    partitions: list[Partition],
    columns: list[Column],
    keys: list[Column],
    options: dict[str, Any],
) -> tuple[View, dict[str, Any]]:
    """The change rows after ``From`` up to ``To``, and how the session is described.

    Raises:
        ServiceError: the table keeps no change log, the options are malformed, or changes after ``From`` are lost or
            to come.
    """
    mode = options.get("Mode") or "CDC"
    if str(mode).lower() != "cdc":
        raise invalid_argument(f"IncrementalReadOptions: Mode takes CDC, not '{mode}'")
    if table.properties.get(_ENABLED, "").lower() != "true":
        raise ServiceError(400, "InvalidArgument", f"table {table.name} keeps no change log: set '{_ENABLED}'='true'")
    after = _version(service, table, options.get("From"), 0)
    check_readable(table, partitions, after)
    to = min(_version(service, table, options.get("To"), table.version), table.version)
    buckets: dict[int, list[tuple[dict[str, str], Rows]]] = {}
    for partition in partitions:
        for bucket, rows in split_by_bucket(table, changes_of(service.store, table, partition, after, to)):
            buckets.setdefault(bucket, []).append((partition.values, Rows(rows, None)))
    shown = (*columns, *keys, *SYSTEM_COLUMNS)
    parts = tuple(part for bucket in sorted(buckets) for part in buckets[bucket])
    counts = [sum(rows.count for _, rows in buckets[bucket]) for bucket in sorted(buckets)]
    edges = [0, *itertools.accumulate(counts)]
    found = View(shown, parts)
    return found, {
        "splits": [(start, end - start) for start, end in itertools.pairwise(edges)],
        "SessionType": "BATCH_READ",
        "SplitMode": "Size",
        "SplitsCount": len(counts),
        "SplitBucketId": sorted(buckets),
        "RecordCount": found.count,
        "DataSchema": {
            "DataColumns": read_columns(columns),
            "PartitionColumns": read_columns(keys),
            "SystemColumns": read_columns(SYSTEM_COLUMNS),
        },
        "SessionStats": {"EstimatedSize": found.size, "EstimatedRowCount": found.count},
        "LatestVersion": table.version,
        "IncrementalReadOptions": {"Mode": mode, "From": after, "To": to},
    }


def _version(service: Service, table: Table, value: object, default: int) -> int:
    """A version from a number, or from a time such as ``2024-01-01 00:00:00`` in UTC."""
    if value is None:
        return default
    text = str(value)
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise invalid_argument(f"IncrementalReadOptions: '{text}' is neither a version nor a time") from error
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return version_at(service.catalogue, table, aware.timestamp())
