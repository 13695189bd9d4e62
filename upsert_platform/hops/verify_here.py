"""The check of a batch in this process, for few keys: what `verify.check_batch` finds, without Spark."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from upsert_platform.capabilities import ComparesRecords, ExpiresRows, WritesByMode, WritesHere
from upsert_platform.destination import OPERATION, OPERATION_UPSERT, SEQUENCE
from upsert_platform.hops.changes_here import InsertHere
from upsert_platform.hops.comparison import (
    SAMPLE_ROWS,
    SAMPLE_SCANNED_ROWS,
    SHOWN_ROWS,
    STATUS,
    Comparison,
    describe,
    sampled_since,
)
from upsert_platform.hops.destination_hop import DestinationHop
from upsert_platform.hops.local_files import local_files
from upsert_platform.hops.on_demand import OnDemand
from upsert_platform.masking import Mask
from upsert_platform.writing.plain_values import comparable_values, shown_values

if TYPE_CHECKING:
    import pyarrow as pa


def check_batch_here(spark: OnDemand, hop: DestinationHop, *, after: int, upto: int) -> Comparison | None:
    """Compares the keys of the batches after `after` and up to `upto`, and a sample of earlier ones.

    Args:
        spark: tells what is little; it is not opened.

    Returns:
        None where Spark has to do it: there is more than a little to look at, or the destination has rules of its own
        (rows that expire, are refused, or are written by a mode that keeps what is there), or rows differ that may have
        been changed meanwhile.
    """
    destination = hop.destination
    if not isinstance(destination, WritesHere) or not _is_plain(hop):
        return None
    insert = InsertHere.of(hop.target, destination)
    if insert is None:
        return None
    room = min(SAMPLE_SCANNED_ROWS, spark.rows - hop.rows_between(after=after, upto=upto))
    since, earlier_rows = sampled_since(hop, after, most=room, behind=_large_until(spark, hop, after))
    files = local_files(spark, hop.store, after=since, upto=upto)
    if files is None and since < after:
        since, earlier_rows = after, 0
        files = local_files(spark, hop.store, after=after, upto=upto)
    if files is None:
        return None
    changes = insert.changes(hop.store, files, after=since, upto=upto).table
    if since < after:
        changes = _with_sample(changes, destination.primary_key, after=after, earlier_rows=earlier_rows)
    changes = destination.held_here(changes)
    keys = changes.select(list(destination.primary_key))
    actual = destination.read_here(keys, since=since, most=spark.rows)
    if actual is None:
        return None
    found = replace(_compared(hop, changes, actual, batch=upto), earlier_batches=after - since)
    head = hop.store.head()
    # Of rows that differ Spark tells those that another run may be writing.
    return found if found.passed or head is None or head.batch <= upto else None


def _large_until(spark: OnDemand, hop: DestinationHop, before: int) -> int:
    """The last batch, up to one, that lies in a file which is too much for this process."""
    large = [item for item in hop.store.files() if not spark.is_local(0, item.size)]
    return max((min(before, before if item.last_batch is None else item.last_batch) for item in large), default=0)


def _is_plain(hop: DestinationHop) -> bool:
    """Whether equality of rows is all that the destination promises, and all that there is to look at."""
    destination = hop.destination
    if isinstance(destination, ComparesRecords) or hop.refused.count():
        return False
    if isinstance(destination, WritesByMode) and (destination.skips_nulls or destination.keeps_deleted):
        return False
    return not (isinstance(destination, ExpiresRows) and destination.time_to_live() is not None)


def _with_sample(changes: pa.Table, key: Sequence[str], *, after: int, earlier_rows: int) -> pa.Table:
    """Every key written after a batch, and about SAMPLE_ROWS of the others: of another batch other keys."""
    import pyarrow as pa

    one_in = max(1, earlier_rows // SAMPLE_ROWS)
    drawn = [
        sequence > after or zlib.crc32(repr((after, values)).encode()) % one_in == 0
        for sequence, values in zip(changes.column(SEQUENCE).to_pylist(), _keys(changes, key), strict=True)
    ]
    return changes.filter(pa.array(drawn, pa.bool_()))


def _keys(rows: pa.Table, key: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(comparable_values(rows.column(name)) for name in key), strict=True)


def _compared(hop: DestinationHop, changes: pa.Table, actual: pa.Table, *, batch: int) -> Comparison:
    key = list(hop.destination.primary_key)
    columns = [column.name for column in hop.destination.columns if column.name not in key]
    found: dict[tuple[Any, ...], list[int]] = {}
    for row, values in enumerate(_keys(actual, key)):
        found.setdefault(values, []).append(row)
    wanted = [operation == OPERATION_UPSERT for operation in changes.column(OPERATION).to_pylist()]
    pairs: list[tuple[int, int]] = []
    counts: Counter[str | None] = Counter()
    wrong: list[tuple[str, int, int | None]] = []
    for row, values in enumerate(_keys(changes, key)):
        there = found.get(values, [])
        if wanted[row] and there:
            pairs += [(row, other) for other in there]
        elif wanted[row]:
            wrong.append(("missing", row, None))
        else:
            wrong += [("extra", row, other) for other in there]
            counts[None] += not there
    for row, other in _stale(changes, actual, pairs, columns):
        wrong.append(("stale", row, other))
    counts[None] += len(pairs)
    mask = Mask.of(hop.target.table)
    for status, _, _ in wrong:
        counts[status] += 1
        counts[None] -= status == "stale"
    return Comparison(
        batch=batch,
        complete=False,
        compared=sum(counts.values()),
        missing=counts["missing"],
        extra=counts["extra"],
        stale=counts["stale"],
        refused=0,
        sample=tuple(
            describe(_row(changes, actual, item, key, columns), key, columns, skips_nulls=False, mask=mask)
            for item in wrong[:SHOWN_ROWS]
        ),
    )


def _stale(
    changes: pa.Table, actual: pa.Table, pairs: Sequence[tuple[int, int]], columns: Sequence[str]
) -> list[tuple[int, int]]:
    """The pairs of an expected and a found row that differ in some column."""
    import pyarrow as pa

    if not pairs:
        return []
    left, right = (pa.array([pair[side] for pair in pairs], pa.int64()) for side in (0, 1))
    differs: set[int] = set()
    for name in columns:
        expected, is_now = changes.column(name).take(left), actual.column(name).take(right)
        if expected.equals(is_now):
            continue
        both = zip(comparable_values(expected), comparable_values(is_now), strict=True)
        differs.update(place for place, (one, other) in enumerate(both) if not _same(one, other))
    return [pairs[place] for place in sorted(differs)]


def _same(one: Any, other: Any) -> bool:
    """Whether values are the same: NaN is NaN, nulls are the same."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _row(
    changes: pa.Table, actual: pa.Table, item: tuple[str, int, int | None], key: Sequence[str], columns: Sequence[str]
) -> Mapping[str, Any]:
    """A row that differs, as `comparison.describe` takes it."""
    status, row, other = item
    shown: dict[str, Any] = {STATUS: status}
    shown |= {f"k{place}": _shown(changes, name, row) for place, name in enumerate(key)}
    for place, name in enumerate(columns):
        shown[f"e{place}"] = _shown(changes, name, row)
        shown[f"a{place}"] = None if other is None else _shown(actual, name, other)
    return shown


def _shown(rows: pa.Table, name: str, row: int) -> Any:
    return shown_values(rows.column(name).slice(row, 1))[0]
