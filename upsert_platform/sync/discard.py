"""Discards quarantined records: a person says that they are not needed, and why. Nothing needs a JVM.

A discard is a batch without changes: a row per record that marks it, as a replay's row does, with who said so, when and
why, and an accounting row. The records themselves stay in the changelog.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.quarantine import Discard, Place, quarantined_places
from upsert_platform.changelog.replays import ACCOUNT_TOPIC
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.errors import ChangelogError

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS: Final = 50_000
"""Marks of one Arrow batch."""


@dataclass(frozen=True)
class Discarded:
    """The result of a discard.

    Attributes:
        count: records.
        batch: the batch that says so; None when there was nothing to discard.
    """

    count: int
    batch: int | None


def discard(
    store: ChangelogStore, *, by: str, why: str, run: str, places: Collection[Place] | None = None
) -> Discarded:
    """Marks quarantined records as discarded, in one commit.

    Args:
        by: who says so.
        why: for those who ask later.
        places: topic, partition and offset of the records meant; all that are in quarantine if None.

    Raises:
        ChangelogError: one of the places is not in quarantine, or another run committed meanwhile.
    """
    head = store.create()
    chosen = quarantined_places(store)
    if places is not None:
        missing = sorted(set(places) - set(zip(*(column.to_pylist() for column in chosen.columns), strict=True)))
        if missing:
            topic, partition, offset = missing[0]
            raise ChangelogError(
                f"{topic}-{partition}@{offset} is not in the quarantine of '{store.table.name}'; it may have been"
                " replayed or discarded"
            )
    if not chosen.num_rows:
        return Discarded(0, None)
    count = chosen.num_rows if places is None else len(set(places))
    account = RangeAccount(ACCOUNT_TOPIC, -1, 0, count, records=count, skipped=(("discarded", count),))
    schema = rows.arrow_schema(store.table)
    mark = Discard(by, datetime.now(UTC), why).text()
    files = write_rows(
        _marks(chosen, places, mark=mark, account=account, schema=schema),
        location=store.location,
        schema=schema,
        batch=head.batch + 1,
    )
    after = store.append(files, head=head, positions=head.positions, run=run)
    if after is None:
        raise ChangelogError(
            f"another run committed to the changelog of '{store.table.name}' meanwhile, and nothing is discarded: do it"
            " again"
        )
    return Discarded(count, after.batch)


def _marks(
    chosen: pa.Table, places: Collection[Place] | None, *, mark: str, account: RangeAccount, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    wanted = None if places is None else set(places)
    inner = schema.remove(schema.get_field_index(rows.BATCH))
    for batch in chosen.to_batches(max_chunksize=_ROWS):
        found = [
            {
                rows.KIND: rows.KIND_REPLAYED,
                rows.TOPIC: topic,
                rows.PARTITION: partition,
                rows.OFFSET: offset,
                rows.REASON: mark,
            }
            for topic, partition, offset in zip(*(column.to_pylist() for column in batch.columns), strict=True)
            if wanted is None or (topic, partition, offset) in wanted
        ]
        yield from pa.Table.from_pylist(found, schema=inner).to_batches()
    told = {rows.KIND: rows.KIND_ACCOUNTING, rows.ACCOUNTING: account.to_json()}
    yield from pa.Table.from_pylist([told], schema=inner).to_batches()
