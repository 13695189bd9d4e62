"""Reads by bucket: of some buckets alone, or with a split for each."""

from __future__ import annotations

import itertools
from collections.abc import Set

from upsert_platform.local.maxcompute.errors import invalid_argument
from upsert_platform.local.maxcompute.schema import Table
from upsert_platform.local.maxcompute.storage.changes import split_by_bucket
from upsert_platform.local.maxcompute.storage.readers import View
from upsert_platform.local.maxcompute.storage.snapshot import Rows


def by_bucket(table: Table, found: View, wanted: Set[int], *, asked: str) -> tuple[View, list[tuple[int, int]]]:
    """The rows of some buckets, or of all where none is wanted, one bucket after the other.

    Args:
        asked: what asks for it, for a refusal.

    Returns:
        The view, and first row and number of rows of every bucket of the table, from 0.

    Raises:
        ServiceError: the table has no such bucket.
    """
    if not table.primary_key:
        raise invalid_argument(f"{asked}: table {table.name} has no primary key and so no buckets")
    unknown = sorted(bucket for bucket in wanted if not 0 <= bucket < table.buckets)
    if unknown:
        raise invalid_argument(f"{asked}: table {table.name} has no bucket {unknown[0]}, but {table.buckets} from 0")
    buckets: list[list[tuple[dict[str, str], Rows]]] = [[] for _ in range(table.buckets)]
    for values, whole in found.parts:
        for bucket, rows in split_by_bucket(table, whole.live_table()):
            if not wanted or bucket in wanted:
                buckets[bucket].append((values, Rows(rows, None)))
    edges = [0, *itertools.accumulate(sum(rows.count for _, rows in parts) for parts in buckets)]
    splits = [(start, end - start) for start, end in itertools.pairwise(edges)]
    return View(found.columns, tuple(itertools.chain.from_iterable(buckets))), splits
