"""Quarantined records of a changelog, read without a JVM and without holding more of them than are wanted."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from upsert_platform.changelog.store import ChangelogStore

PLACE: Final = (rows.TOPIC, rows.PARTITION, rows.OFFSET)
FEW_ROWS: Final = 64
"""A record may have a megabyte: so many are looked at together."""

Place = tuple[str, int, int]


def rows_of(kind: str, *, after: int, upto: int | None) -> pc.Expression:
    """Tells the rows of a kind in the batches after one and up to another."""
    import pyarrow.dataset as ds

    condition = (ds.field(rows.KIND) == kind) & (ds.field(rows.BATCH) > after)
    return condition if upto is None else condition & (ds.field(rows.BATCH) <= upto)


def places(store: ChangelogStore, *, after: int = 0, upto: int | None = None) -> pa.Table:
    """Where the quarantined records lie that were not replayed: `_topic`, `_partition`, `_offset`, in that order.

    What it holds does not depend on the size of the records.
    """
    found = store.read_arrow(PLACE, kind=rows.KIND_QUARANTINED, after=after, upto=upto)
    if found.num_rows:
        replayed = store.read_arrow(PLACE, kind=rows.KIND_REPLAYED, after=0, upto=None)
        if replayed.num_rows:
            found = found.join(replayed, keys=list(PLACE), join_type="left anti")
    return found.sort_by([(name, "ascending") for name in PLACE])


def records(
    store: ChangelogStore,
    *,
    after: int = 0,
    upto: int | None = None,
    limit: int | None = None,
    places: Collection[Place] | None = None,
) -> pa.Table:
    """Quarantined records that were not replayed, by place: the system columns but kind and accounting.

    Args:
        limit: the first so many; no more of them are held.
        places: topic, partition and offset of the records meant; all if None.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    chosen = store.quarantined_places(after=after, upto=upto)
    if places is not None:
        chosen = chosen.filter(pa.array([place in places for place in _places_of(chosen)], pa.bool_()))
    chosen = chosen if limit is None else chosen.slice(0, limit)
    columns = [name for name in rows.SYSTEM_COLUMNS if name not in (rows.KIND, rows.ACCOUNTING)]
    schema = rows.arrow_schema(store.table)
    kept = [pa.schema([schema.field(name) for name in columns]).empty_table()]
    if chosen.num_rows:
        wanted = set(_places_of(chosen))
        condition = rows_of(rows.KIND_QUARANTINED, after=after, upto=upto)
        for fragment in store.dataset().get_fragments(condition):
            # A scanner of datasets decodes whole row groups, each as large as its records make it.
            with fragment.filesystem.open_input_file(fragment.path) as file:
                for batch in pq.ParquetFile(file).iter_batches(FEW_ROWS, columns=[rows.KIND, *columns]):
                    quarantined = pc.equal(batch.column(rows.KIND), rows.KIND_QUARANTINED)
                    met = pa.array([place in wanted for place in _places_of(batch)], pa.bool_())
                    kept.append(pa.Table.from_batches([batch.filter(pc.and_(quarantined, met))]).select(columns))
    return pa.concat_tables(kept, promote_options="permissive").sort_by([(name, "ascending") for name in PLACE])


def _places_of(table: pa.Table | pa.RecordBatch) -> Iterator[Place]:
    return zip(*(table.column(name).to_pylist() for name in PLACE), strict=True)
