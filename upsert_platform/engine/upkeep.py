"""Keeps the table of a query small: its result's history is reduced to the last change per key, its files are merged.

State needs none of this: every batch merges what has become many (`state`). Rows keep their own `_batch`, so a table
that lags reads on from where it was. Nothing here needs a JVM.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.changelog import rows, upkeep
from upsert_platform.changelog.compaction import CompactionReport
from upsert_platform.changelog.damage import naming
from upsert_platform.changelog.data_files import file_system
from upsert_platform.changelog.exchanges import remove_left
from upsert_platform.changelog.parquet_files import CHECKSUMS, open_parquet
from upsert_platform.changelog.store import LiveFile
from upsert_platform.core.errors import ChangelogError
from upsert_platform.engine.store import QueryStore

if TYPE_CHECKING:
    import pyarrow as pa

REBUILDS: Final = "_rebuild"
"""Folder of rebuilds on their way, below the table's; names that begin with an underscore are no data of the table."""
_SHARE_BYTES: Final = 128 << 20
"""About so many bytes of files are held and rewritten at once."""
_ATTEMPTS: Final = 8


def compact(
    store: QueryStore, *, applied_everywhere: int, applied: Collection[int] = (), upto: int | None = None
) -> CompactionReport:
    """Rewrites the result's changes as the last one per key, without before-images.

    Args:
        applied_everywhere: the lowest batch that all tables fed by the query have applied; deletes up to it go.
        applied: as in `changelog.compaction.reduce_history`; likewise `upto`. A table that tells what rows were before
            still needs the images of batches that it has not applied.

    Raises:
        ChangelogError: another run rewrote the same files meanwhile; nothing was changed.
    """
    head = store.head()
    if head is None or head.batch == 0:
        return CompactionReport(0, 0, 0, 0)
    upto = head.batch if upto is None else min(upto, head.batch)
    floor = min(applied_everywhere, upto) if store.query.key else 0
    # Told first: a kill after this refuses no table that there is, and one before it drops nothing.
    upkeep.raise_floor(store, floor, reduced=upto)
    files = [item for item in store.result_files() if (item.first_batch or 0) <= upto]
    if not files:
        return CompactionReport(0, 0, 0, 0)
    if not store.query.key:
        return _merge_files(store, files, upto=upto)
    before = sum(item.rows or 0 for item in files)
    shares = shares_of(files)
    ends = {end for end in applied if end >= floor}
    actions: list[Any] = []
    after = 0
    for share in range(shares):
        kept = reduced_rows(store, files, share=share, shares=shares, floor=floor, ends=ends, upto=upto)
        if kept.num_rows:
            actions.append(_written(store, kept))
            after += kept.num_rows
    _commit(store, files, actions, reduced=upto)
    return CompactionReport(len(files), len(actions), before, after)


def _merge_files(store: QueryStore, files: list[LiveFile], *, upto: int) -> CompactionReport:
    """Merge files of a result without a key: every change stays, and a share of the files is held at a time."""
    groups: list[list[LiveFile]] = []
    held = _SHARE_BYTES
    for item in sorted(files, key=lambda item: (item.first_batch or 0, item.path)):
        if held + item.size > _SHARE_BYTES:
            groups.append([])
            held = 0
        groups[-1].append(item)
        held += item.size
    merged = [group for group in groups if len(group) > 1]
    replaced = [item for group in merged for item in group]
    if not replaced:
        return CompactionReport(0, 0, 0, 0)
    actions: list[Any] = []
    after = 0
    for group in merged:
        kept = reduced_rows(store, group, share=0, shares=1, floor=0, upto=upto)
        actions.append(_written(store, kept))
        after += kept.num_rows
    _commit(store, replaced, actions, reduced=upto)
    return CompactionReport(len(replaced), len(actions), sum(item.rows or 0 for item in replaced), after)


def remove_unused(store: QueryStore, *, hours: int) -> int:
    """As `changelog.upkeep.remove_unused`; what killed runs left of rebuilds goes too, once it is old."""
    removed = upkeep.remove_unused(store, hours=hours)
    return removed + remove_left(store.location, REBUILDS, hours=hours)


def shares_of(files: list[LiveFile]) -> int:
    """Into how many shares the keys in files are divided, so that one fits into memory."""
    return max(1, -(-sum(item.size for item in files) // _SHARE_BYTES))


def reduced_rows(
    store: QueryStore,
    files: list[LiveFile],
    *,
    share: int,
    shares: int,
    floor: int,
    ends: Collection[int] = (),
    upto: int | None = None,
) -> pa.Table:
    """The last change per key of one share of the keys; with the first share go the accounting rows.

    Args:
        floor: deletes up to this batch are left out.
        ends: batches up to which the last change per key is kept as well; none of them below `floor`.
        upto: rows of later batches are kept as they are; none are if None.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from upsert_platform.changelog.row_codes import code_rows, last_positions
    from upsert_platform.engine.keys import bucket_rows, place_rows

    system, folder = file_system(store.location)
    schema = store.result().schema
    key = store.query.key
    parts: list[pa.Table] = [schema.empty_table()]
    for item in files:
        place = f"{folder}{item.path}"
        with naming(place), open_parquet(system.open_input_file(place)) as opened:
            table = opened.read()
        columns = [
            table.column(field.name).cast(field.type)
            if field.name in table.column_names
            else pa.nulls(table.num_rows, field.type)
            for field in schema
        ]
        table = pa.Table.from_arrays(columns, schema=schema)
        change = _changes_upto(table, upto)
        mine = change
        if key:
            buckets = bucket_rows(place_rows(table, key), shares, spread=False)
            image = pc.equal(table.column(rows.KIND), rows.KIND_UPDATE_BEFORE)
            mine = pc.and_(pc.and_not(change, image), pa.array(buckets == share))
        elif share:
            mine = pa.array(np.zeros(table.num_rows, dtype=bool))
        if share == 0:
            mine = pc.or_(mine, pc.invert(change))
        parts.append(table.filter(mine))
    together = pa.concat_tables(parts).combine_chunks()
    if key:
        change = _changes_upto(together, upto).to_numpy()
        changes = together.filter(pa.array(change))
        (codes,) = code_rows([changes], [key])
        batches = changes.column(rows.BATCH).to_numpy()
        codes = codes * (len(ends) + 1) + np.searchsorted(sorted(ends), batches, side="left")
        order = np.argsort(batches, kind="stable")
        changes = changes.take(pa.array(last_positions(codes, order)))
        gone = pc.equal(changes.column(rows.KIND), rows.KIND_DELETE)
        dropped = pc.and_(gone, pc.less_equal(changes.column(rows.BATCH), floor))
        together = pa.concat_tables([changes.filter(pc.invert(dropped)), together.filter(pa.array(~change))])
    return together.sort_by(rows.BATCH)


def _changes_upto(table: pa.Table, upto: int | None) -> Any:
    """Return a mask of the rows that are changes to be reduced."""
    import pyarrow as pa
    import pyarrow.compute as pc

    change = pc.is_in(table.column(rows.KIND), pa.array(rows.CHANGE_KINDS))
    return change if upto is None else pc.and_(change, pc.less_equal(table.column(rows.BATCH), upto))


def _written(store: QueryStore, table: pa.Table) -> Any:
    """Writes rows into a file of their own; the action that adds it."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from deltalake.transaction import AddAction

    system, folder = file_system(store.location)
    path = f"part-{uuid.uuid4()}.snappy.parquet"
    place = f"{folder}{path}"
    with naming(place, writes=True), system.open_output_stream(place) as sink:
        pq.write_table(table, sink, compression="snappy", store_decimal_as_integer=True, **CHECKSUMS)
        size = sink.tell()
    edges = {name: pc.min_max(table.column(name)).as_py() for name in (rows.BATCH, rows.KIND)}
    statistics = {
        "numRecords": table.num_rows,
        "minValues": {name: edge["min"] for name, edge in edges.items()},
        "maxValues": {name: edge["max"] for name, edge in edges.items()},
        "nullCount": dict.fromkeys(edges, 0),
    }
    return AddAction(path, size, {}, int(time.time() * 1000), False, json.dumps(statistics))


def _commit(store: QueryStore, files: list[LiveFile], added: list[Any], *, reduced: int) -> None:
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError
    from deltalake.transaction import RemoveAction

    now = int(time.time() * 1000)
    replaced = {item.path for item in files}
    actions = [*added, *(RemoveAction(path, False, now, partition_values={}) for path in sorted(replaced))]
    for attempt in range(1, _ATTEMPTS + 1):
        delta = store.opened()
        if not replaced <= {item.path for item in store.files()}:
            break
        metadata = {"userMetadata": store.commit_metadata(delta, reduced=reduced), "isBlindAppend": False}
        properties = CommitProperties(custom_metadata=metadata, max_commit_retries=0)
        try:
            delta.create_write_transaction(actions, mode="append", schema=delta.schema(), commit_properties=properties)
            return
        except CommitFailedError:
            time.sleep(0.02 * attempt)
    raise ChangelogError(
        f"another run rewrote files of query '{store.query.name}' meanwhile; nothing was changed, the next compaction"
        " does it"
    )
