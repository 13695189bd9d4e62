"""Rows of the nodes of a project as Arrow tables, for queries: of few rows, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from upsert_platform.changelog import rows
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.latest import PARTITIONS_MET
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.masking import MASKED, Mask
from upsert_platform.sync.binding import Binding, Target, changelog_of, query_store
from upsert_platform.sync.destination_rows import destination_rows

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS: Final = 1_000_000
"""Of a node, unless a caller says otherwise."""
CHANGELOGS, TOPICS, QUERIES, TABLES = "changelogs", "topics", "queries", "tables"
KINDS: Final = (TOPICS, TABLES, QUERIES, CHANGELOGS)
"""In the order in which a bare name is looked for."""
_SYSTEM: Final = (rows.KIND, rows.TOPIC, rows.PARTITION, rows.OFFSET, rows.TIMESTAMP)

Load = Callable[[int], "pa.Table"]
"""Reads a node of at most so many rows."""


AsOf = Callable[[ChangelogStore], int]
"""Returns the batch as of which a changelog is read."""


def newest(store: ChangelogStore) -> int:
    """Return the last batch of a changelog."""
    head = store.head()
    return head.batch if head is not None else 0


def relations(binding: Binding, lake: Lake, *, as_of: AsOf | None = None) -> Mapping[tuple[str, str], Load]:
    """Return what reads each node: kind and name to a function that raises UpsertPlatformError over its bound.

    ``topics`` have the last row per key, as far as the changelog has read them, or every row of a topic of events;
    ``changelogs`` every change row with its place; ``queries`` and ``tables`` their rows.

    Args:
        as_of: the batch that counts; the last one if left out. Systems keep no earlier rows, so ``tables`` have none.
    """
    upto = as_of or newest
    found: dict[tuple[str, str], Load] = {}
    for name, source in binding.sources.items():
        store, mask = changelog_of(source, lake), Mask.of(source.table)
        found[TOPICS, name] = partial(_last, store, mask, upto)
        found[CHANGELOGS, name] = partial(_changes, store, mask, upto)
    for name, query in binding.queries.items():
        store, mask = query_store(query, lake), Mask.of(query.table)
        found[QUERIES, name.removesuffix("$query")] = partial(_last, store, mask, upto)
    for name, target in binding.targets.items():
        found[TABLES, name] = partial(_written, target) if as_of is None else partial(_no_earlier_rows, name)
    return found


def _changes(store: ChangelogStore, mask: Mask, as_of: AsOf, most: int) -> pa.Table:
    from upsert_platform.changelog.change_rows import change_rows

    head = store.head()
    names = [column.name for column in rows.stored_columns(store.table)]
    files = store.files() if head is not None else []
    count = sum(item.rows or 0 for item in files)
    _refuse_many(store.table.name, count, most)
    found = change_rows(store, files, columns=names, after=0, upto=as_of(store))
    return _masked(found.select([rows.BATCH, *_SYSTEM, *names]), mask)


def _last(store: ChangelogStore, mask: Mask, as_of: AsOf, most: int) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    from upsert_platform.changelog.change_rows import change_rows
    from upsert_platform.changelog.last_rows import last_rows

    head = store.head()
    names = [column.name for column in rows.stored_columns(store.table)]
    files = store.files() if head is not None else []
    _refuse_many(store.table.name, sum(item.rows or 0 for item in files), most)
    changes = change_rows(store, files, columns=names, after=0, upto=as_of(store))
    changes = changes.filter(pc.not_equal(changes.column(rows.KIND), rows.KIND_UPDATE_BEFORE))
    key = store.table.primary_key
    if key:
        changes = last_rows(changes, key=key).drop_columns([PARTITIONS_MET])
    live = pc.is_in(changes.column(rows.KIND), value_set=pa.array([rows.KIND_INSERT, rows.KIND_UPDATE_AFTER]))
    return _masked(changes.filter(live).select(names), mask)


def _written(target: Target, most: int) -> pa.Table:
    found = destination_rows(target, most + 1)
    _refuse_many(target.table.name, found.num_rows, most)
    return _masked(found, Mask.of(target.table))


def _no_earlier_rows(name: str, most: int) -> pa.Table:
    refuse_written(name)


def refuse_written(name: str) -> NoReturn:
    """Refuse to read a table that is written as of a moment."""
    raise UpsertPlatformError(
        f"table '{name}': its system keeps no earlier rows; ask for what it is made of, a topic's changelog or a"
        " query, as of a batch"
    )


def _refuse_many(name: str, count: int, most: int) -> None:
    if count > most:
        raise UpsertPlatformError(
            f"'{name}' has more than {most} rows, which this process would hold; raise --most, or ask its system"
        )


def _masked(found: pa.Table, mask: Mask) -> pa.Table:
    """The rows with a mask in the place of every value that is not shown."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, name in enumerate(found.column_names):
        if mask.any_of([name]):
            nulls = found.column(name).is_null()
            shown = pc.if_else(nulls, pa.scalar(None, pa.string()), pa.scalar(MASKED))
            found = found.set_column(place, name, shown)
    return found
