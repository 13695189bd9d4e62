"""Computes a query anew beside what is there, then puts the new state and the difference of the results in one commit.

So tables that follow the query are corrected by what differs, and by nothing else. Until that commit the old result
stands; a kill leaves it as it was.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import DataFile, file_system, write_files
from upsert_platform.changelog.store import ChangelogStore, Positions
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.errors import ChangelogError
from upsert_platform.engine.engine import account_file, advance, plan_batch
from upsert_platform.engine.store import PLAN, QueryStore
from upsert_platform.engine.upkeep import REBUILDS, reduced_rows, shares_of

if TYPE_CHECKING:
    import pyarrow as pa

    from upsert_platform.core.connector import KeyReader
    from upsert_platform.engine.runners import Runner


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result of a rebuild.

    Attributes:
        differences: rows of the result's changelog that correct the old result, before-images included.
    """

    batch: int
    read: int
    differences: int


def rebuild(
    store: QueryStore,
    inputs: Mapping[str, ChangelogStore],
    *,
    runner: Runner,
    run: str,
    lookups: Mapping[str, KeyReader] | None = None,
    tell: Callable[[str], None] = lambda message: None,
) -> Rebuilt | None:
    """Computes a query anew.

    Args:
        store: opened with `any_plan`.
        lookups: as in `engine.advance`.
        tell: is given a line per batch.

    Returns:
        What was done, or None when the query has no result yet.

    Raises:
        ChangelogError: the result has no key, so that nothing of it can be taken back; or another run committed
            meanwhile.
    """
    head = store.head()
    if head is None or not head.batch:
        return None
    if not store.query.key:
        raise ChangelogError(
            f"query '{store.query.name}' only adds rows, and what was added is not taken back: move {store.uri} away"
            " and drop the table to have both made anew"
        )
    from upsert_platform.engine.closing import without_clocks

    folder = store.location.below(f"{REBUILDS}/{uuid.uuid4().hex}")
    beside = QueryStore(folder.below("query"), store.query, new_buckets=store.buckets())
    read = 0
    try:
        beside.create()
        while (plan := plan_batch(beside, inputs)).is_due:
            batch = advance(beside, plan, runner=runner, run=run, lookups=lookups)
            if batch is not None:
                read += batch.read
                tell(f"batch {batch.head.batch}: {batch.read} changes in {batch.seconds:.1f} s")
        store.add_missing_columns()
        number = head.batch + 1
        state = _copied_state(beside, store, batch=number)
        difference = _difference(store, beside, batch=number)
        account = account_file(store, read, sum(item.rows for item in difference), number=number)
        made = beside.head()
        assert made is not None
        positions = Positions(
            {**head.positions.offsets, **made.positions.offsets},
            {**without_clocks(head.positions.topic_ids), **made.positions.topic_ids, PLAN: store.fingerprint},
        )
        replaced = [file.path for files in store.state_files().values() for file in files]
        after = store.append(
            [*state, *difference, *account], head=head, positions=positions, run=run, replaced=replaced
        )
    finally:
        _remove(folder)
    if after is None:
        raise ChangelogError(
            f"query '{store.query.name}' was advanced by another run while it was rebuilt; nothing was changed, run the"
            " rebuild again"
        )
    return Rebuilt(after.batch, read, sum(item.rows for item in difference))


def _copied_state(beside: QueryStore, store: QueryStore, *, batch: int) -> list[DataFile]:
    from upsert_platform.engine.state import State

    system, folder = file_system(beside.location)
    _, into = file_system(store.location)
    schemas = {schema.name: schema for stage in beside.stages() for schema in stage.states}
    found: list[DataFile] = []
    for (name, bucket), files in beside.state_files().items():
        state = State(schemas[name], system=system, folder=folder, files=files, bucket=bucket, batch=batch)
        found += state.written_anew(folder=into, batch=batch)
    return found


def _difference(store: QueryStore, beside: QueryStore, *, batch: int) -> list[DataFile]:
    """Files with the changes that make the new result of the old one."""
    import pyarrow as pa

    from upsert_platform.engine.steps import WEIGHT

    result = store.result()
    old, new = store.result_files(), beside.result_files()
    shares = shares_of([*old, *new])
    found: list[DataFile] = []
    for share in range(shares):
        signed = pa.concat_tables(
            [
                _signed(reduced_rows(kept, files, share=share, shares=shares, floor=1 << 62), weight)
                for kept, files, weight in ((store, old, -1), (beside, new, 1))
            ]
        )
        changes = result.changes(signed.select([*(item.name for item in result.fields), WEIGHT]), batch=batch)
        batches = changes.combine_chunks().to_batches()
        for manifest in write_files(batches, location=store.location, schema=result.schema, batch=batch):
            found += [DataFile(**row) for row in manifest.to_pylist()]
    return found


def _signed(table: pa.Table, weight: int) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    from upsert_platform.engine.steps import WEIGHT

    there = table.filter(pc.equal(table.column(rows.KIND), rows.KIND_UPDATE_AFTER))
    return there.append_column(WEIGHT, pa.repeat(pa.scalar(weight, pa.int64()), there.num_rows))


def _remove(location: TableLocation) -> None:
    system, folder = file_system(location)
    with suppress(FileNotFoundError):
        system.delete_dir(folder.rstrip("/"))
