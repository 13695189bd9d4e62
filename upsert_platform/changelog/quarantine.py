"""Quarantined records of a changelog, read without a JVM and without holding more of them than are wanted."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.account_sums import account_sums
from upsert_platform.changelog.live_files import rows_of
from upsert_platform.changelog.parquet_files import open_parquet
from upsert_platform.core.masking import Mask

if TYPE_CHECKING:
    import pyarrow as pa

    from upsert_platform.changelog.store import ChangelogStore

PLACE: Final = (rows.TOPIC, rows.PARTITION, rows.OFFSET)
FEW_ROWS: Final = 64
"""A record may have a megabyte: so many are looked at together."""

Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Discard:
    """The reason for which a record has left quarantine without becoming a row.

    Attributes:
        by: who said so.
        at: UTC.
        why: in words.
    """

    by: str
    at: datetime
    why: str

    def text(self) -> str:
        """As the mark of a record keeps it."""
        told = {"discarded_by": self.by, "at": self.at.isoformat(timespec="seconds"), "why": self.why}
        return json.dumps(told, ensure_ascii=False)

    @staticmethod
    def read(text: str) -> Discard:
        """The inverse of `text`."""
        told = json.loads(text)
        return Discard(told["discarded_by"], datetime.fromisoformat(told["at"]), told["why"])


@dataclass(frozen=True, slots=True)
class NothingDecoded:
    """A changelog of which no record with a value was decoded: the declaration does not fit its topic.

    Attributes:
        records: in quarantine.
        reason: of the first of them.
    """

    records: int
    reason: str

    def told(self, table: str) -> str:
        """Return what happened and what to do, in words."""
        return (
            f"table '{table}' stays empty: none of its records can be read, {self.records} are in quarantine, as"
            f" 'upsert-platform quarantine list {table}' shows. The first: {self.reason}. Correct the declaration, then"
            f" 'upsert-platform quarantine replay {table}' and 'upsert-platform sync'; where a type or the key has to"
            f" change, 'upsert-platform reset {table}'"
        )


def nothing_decoded(store: ChangelogStore, mask: Mask) -> NothingDecoded | None:
    """Return what is known of a changelog without a decoded value; None where there is one, or nothing waits. No JVM.

    Args:
        mask: of its table: reasons repeat parts of records.
    """
    waiting = quarantined_count(store)
    head = store.head() if waiting else None
    if head is None:
        return None
    if account_sums(store, head).decoded:
        return None
    (first,) = quarantined_records(store, limit=1).column(rows.REASON).to_pylist()
    return NothingDecoded(waiting, mask.reason(first or ""))


def quarantined_places(
    store: ChangelogStore, *, after: int = 0, upto: int | None = None, with_discarded: bool = False
) -> pa.Table:
    """Return the places (`_topic`, `_partition`, `_offset`) of quarantined records that were neither replayed nor
    discarded.

    What it holds does not depend on the size of the records.

    Args:
        with_discarded: those that were discarded too: nothing came of them either.
    """
    import pyarrow.compute as pc

    found = store.read_arrow(PLACE, kind=rows.KIND_QUARANTINED, after=after, upto=upto)
    if found.num_rows:
        replayed = store.read_arrow((*PLACE, rows.REASON), kind=rows.KIND_REPLAYED, after=0, upto=None)
        if with_discarded:
            replayed = replayed.filter(pc.is_null(replayed.column(rows.REASON)))
        replayed = replayed.select(PLACE)
        if replayed.num_rows:
            found = found.join(replayed, keys=list(PLACE), join_type="left anti")
    return found.sort_by([(name, "ascending") for name in PLACE])


def quarantined_count(store: ChangelogStore, *, upto: int | None = None) -> int:
    """Return the number of quarantined records, of batches up to one, that were neither replayed nor discarded. No
    JVM.
    """
    return quarantined_places(store, upto=upto).num_rows


def discarded(store: ChangelogStore) -> list[tuple[Place, Discard]]:
    """The records that were discarded, and that no replay of their topic brought back, each with who said so."""
    marks = store.read_arrow((*PLACE, rows.REASON), kind=rows.KIND_REPLAYED, after=0, upto=None)
    told = list(zip(_places_of(marks), marks.column(rows.REASON).to_pylist(), strict=True))
    replayed = {place for place, text in told if text is None}
    found = {place: Discard.read(text) for place, text in told if text is not None and place not in replayed}
    return sorted(found.items(), key=lambda item: item[0])


def quarantined_records(
    store: ChangelogStore,
    *,
    after: int = 0,
    upto: int | None = None,
    limit: int | None = None,
    places: Collection[Place] | None = None,
) -> pa.Table:
    """Quarantined records that wait, by place: the system columns but kind and accounting.

    Args:
        limit: the first so many; no more of them are held.
        places: topic, partition and offset of the records meant; all if None.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    chosen = quarantined_places(store, after=after, upto=upto)
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
                for batch in open_parquet(file).iter_batches(FEW_ROWS, columns=[rows.KIND, *columns]):
                    quarantined = pc.equal(batch.column(rows.KIND), rows.KIND_QUARANTINED)
                    met = pa.array([place in wanted for place in _places_of(batch)], pa.bool_())
                    kept.append(pa.Table.from_batches([batch.filter(pc.and_(quarantined, met))]).select(columns))
    return pa.concat_tables(kept, promote_options="permissive").sort_by([(name, "ascending") for name in PLACE])


def _places_of(table: pa.Table | pa.RecordBatch) -> Iterator[Place]:
    return zip(*(table.column(name).to_pylist() for name in PLACE), strict=True)
