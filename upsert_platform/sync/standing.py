"""Results of checks as they stand: by accounts and quarantine of a changelog, and by the last verdict of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from upsert_platform.changelog import rows
from upsert_platform.changelog.account_sums import account_sums
from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.quarantine import NothingDecoded, nothing_decoded, quarantined_count
from upsert_platform.core.masking import Mask
from upsert_platform.core.platform_options import platform_settings
from upsert_platform.sync.appended_rows import BATCH_IS_UNTOLD, untold_reason
from upsert_platform.sync.verify import is_comparable

if TYPE_CHECKING:
    from upsert_platform.changelog.store import ChangelogStore
    from upsert_platform.core.destination import DestinationState
    from upsert_platform.core.source import Source
    from upsert_platform.sync.destination_hop import DestinationHop


@dataclass(frozen=True)
class Accounted:
    """The accounts of some batches.

    Attributes:
        batches: that were looked at; none of a changelog without any.
        accounts: of their ranges, in the order of the batches.
        wrong: what does not add up.
    """

    batches: Sequence[int] = ()
    accounts: Sequence[RangeAccount] = ()
    wrong: Sequence[str] = ()


def accounted(store: ChangelogStore, *, own: Sequence[int] = ()) -> Accounted:
    """Judge the accounts of batches: offsets are records and gaps, records are rows or accounted for otherwise.

    Args:
        own: batches of a run; of a run that read nothing new, the newest batch is looked at.
    """
    head = store.head()
    batches = own or ([head.batch] if head is not None and head.batch else [])
    if not batches:
        return Accounted()
    accounts = store.accounts(after=min(batches) - 1, upto=max(batches))
    flat = [account for batch in sorted(accounts) for account in accounts[batch]]
    wrong = [
        f"{account.topic}-{account.partition} [{account.start}, {account.end}): {reason}"
        for account in flat
        if (reason := account.imbalance())
    ]
    wrong += [f"batch {batch} has no accounting" for batch in batches if batch not in accounts]
    return Accounted(batches, flat, [*wrong, *_holes(flat)])


def _holes(accounts: Sequence[RangeAccount]) -> list[str]:
    """Ranges of a partition that do not begin where the one before ended."""
    ends: dict[tuple[str, int], int] = {}
    found = []
    for account in accounts:
        place = (account.topic, account.partition)
        if ends.get(place, account.start) != account.start:
            found.append(f"{account.topic}-{account.partition}: [{account.start}, ...) follows an end of {ends[place]}")
        ends[place] = account.end
    return found


@dataclass(frozen=True)
class StandingQuarantine:
    """The quarantine of a changelog as it is now.

    Attributes:
        table: that is read.
        waiting: records that were neither replayed nor discarded.
        records: that were ever read; None where none ever was in quarantine.
        reached: limits that are declared and reached, as their options.
        nothing: what is known of a changelog whose records were all quarantined.
    """

    table: str
    waiting: int = 0
    records: int | None = None
    reached: Sequence[str] = ()
    nothing: NothingDecoded | None = None

    @property
    def fails(self) -> bool:
        """Return whether that is an error, and not a warning."""
        return bool(self.reached) or self.nothing is not None

    @property
    def remedy(self) -> str:
        """Return the commands that show the records, and what can be done with them."""
        return (
            f"'upsert-platform quarantine list {self.table}' tells why, 'quarantine replay {self.table}' tries them"
            f" again, 'quarantine discard {self.table}' gives them up"
        )


def standing_quarantine(source: Source, store: ChangelogStore) -> StandingQuarantine:
    """Judge the quarantine of a changelog by the limits of its table. No JVM."""
    name, waiting = source.table.name, quarantined_count(store)
    if not waiting and not store.read_arrow([rows.BATCH], kind=rows.KIND_REPLAYED, after=0, upto=None).num_rows:
        return StandingQuarantine(name)
    head = store.head()
    records = account_sums(store, head).records if head is not None else 0
    reached = []
    count, percent = source.quarantine_limits
    if waiting and count is not None and waiting >= count:
        reached.append(f"'quarantine.fail-count' = '{count}'")
    if waiting and percent is not None and waiting * 100 >= percent * records:
        reached.append(f"'quarantine.fail-percent' = '{percent}'")
    return StandingQuarantine(name, waiting, records, reached, nothing_decoded(store, Mask.of(source.table)))


def quarantine_stop(source: Source, store: ChangelogStore) -> str | None:
    """Return why nothing is written from a changelog, by its check `quarantine_below` if that blocks; else None."""
    if not platform_settings(source.table).quarantine_blocking:
        return None
    found = standing_quarantine(source, store)
    if not found.fails:
        return None
    if found.nothing is not None:
        return found.nothing.told(found.table)
    return f"the quarantine of '{found.table}' has reached {' and '.join(found.reached)}; {found.remedy}"


@dataclass(frozen=True)
class StandingVerdict:
    """The result of `last_value_per_key` of a table to which a sync writes nothing.

    Attributes:
        told: why there is nothing new; empty where the last verdict is that rows differ.
        kept: rows that the table refused.
        differs: whether the last comparison found other rows.
        untold: whether a sync never compares anything of the table, so that the result is no proof of its rows.
    """

    told: str = ""
    kept: int = 0
    differs: bool = False
    untold: bool = False

    @property
    def passed(self) -> bool:
        """Return whether the check passes."""
        return not self.differs and not self.kept


def standing_verdict(hop: DestinationHop, state: DestinationState) -> StandingVerdict | None:
    """Return the verdict that stands, or None where a sync has batches to compare."""
    if state.verdict is not None and not state.verdict.passed:
        return StandingVerdict(differs=True)
    if not is_comparable(hop):
        return StandingVerdict(untold_reason(hop) or BATCH_IS_UNTOLD, kept=hop.refused.count(), untold=True)
    checked = state.verdict.batch if state.verdict else 0
    if checked < state.applied_batch:
        return None
    told = "nothing was written since the last check" if checked else "nothing was written yet"
    return StandingVerdict(told, kept=hop.refused.count())
