"""The batch of a changelog as of which rows are read: a number, the offsets at which a batch ends, or a time."""

from __future__ import annotations

from datetime import UTC, datetime

from upsert_platform.changelog.accounting import ends_of_batches
from upsert_platform.changelog.commit_times import last_batch_before
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.upkeep import history_from
from upsert_platform.core.errors import ChangelogError, TopicError
from upsert_platform.proofs.ends import At, stated_ends
from upsert_platform.sync.relations import AsOf


def moment_of(text: str) -> AsOf:
    """Return what finds the batch that a text states in a changelog.

    Raises:
        TopicError: it states no batch, offsets or time.
    """
    stated = text.strip()
    if stated.isdecimal():
        return lambda store: kept_batch(store, int(stated))
    at = At.parse(stated)
    if at.form not in ("offsets", "time"):
        raise TopicError(f"'{text}' is no moment of a changelog: give a batch, offsets such as 0:42,1:17, or a time")
    return lambda store: kept_batch(store, _by_offsets(store, at) if at.offsets else _by_time(store, at))


def kept_batch(store: ChangelogStore, batch: int) -> int:
    """Return a batch whose rows the lake still has.

    Raises:
        ChangelogError: history ends behind it, or it is not there yet.
    """
    head, first = store.head(), history_from(store)
    last = head.batch if head is not None else 0
    if not first <= batch <= last:
        raise ChangelogError(
            f"'{store.table.name}' has no rows as of batch {batch}: its history begins with batch {first} and ends with"
            f" batch {last}. 'history.retain' of a table that is read keeps more of it from compaction"
        )
    return batch


def _by_time(store: ChangelogStore, at: At) -> int:
    assert at.timestamp is not None
    return last_batch_before(store, datetime.fromtimestamp(at.timestamp / 1000, UTC))


def _by_offsets(store: ChangelogStore, at: At) -> int:
    """Return the batch that ends at stated offsets.

    Raises:
        ChangelogError: none does.
        TopicError: the offsets leave a partition out, or lie behind the changelog.
    """
    head = store.head()
    reached = ends_of_batches(store.accounts(after=0, upto=head.batch if head is not None else 0))
    ends = reached[max(reached)] if reached else {}
    if not ends:
        raise ChangelogError(f"'{store.table.name}' has read no offsets: state a batch or a time")
    wanted = stated_ends(at, ends, table=store.table.name)
    # A partition that later batches were the first to read counts from its beginning.
    exact = [batch for batch, found in reached.items() if {**dict.fromkeys(wanted, 0), **found} == wanted]
    if exact:
        return exact[-1]
    before = [batch for batch, found in reached.items() if all(end <= wanted[place] for place, end in found.items())]
    near = f"; the last one before them is batch {before[-1]}" if before else ""
    raise ChangelogError(
        f"'{store.table.name}': no batch ends at these offsets, and what a key was within a batch is not kept{near}"
    )
