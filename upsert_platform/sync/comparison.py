"""The result of comparing a destination with its changelog, and the sample of keys from earlier batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from upsert_platform.core.capabilities import ReadsRecent
from upsert_platform.core.destination import STATUS, DestinationState, Verdict
from upsert_platform.core.errors import DestinationError
from upsert_platform.core.masking import Mask
from upsert_platform.sync.destination_hop import DestinationHop

SAMPLE_BATCHES: Final = 20
SAMPLE_ROWS: Final = 1000
SAMPLE_SCANNED_ROWS: Final = 200_000
"""Change rows of earlier batches that a sample may read, so that the check's cost follows the batch."""
SHOWN_ROWS: Final = 20
_TRIES: Final = 10
"""How often a verdict is tried to be kept while others record theirs."""


@dataclass(frozen=True)
class Comparison:
    """Result of comparing expected rows with a destination.

    Attributes:
        compared: keys that were looked at.
        missing: keys that should be in the table and are not.
        extra: keys that are in the table and should not be.
        stale: keys whose row differs.
        refused: keys whose last change the destination refused; they are in the lake and count as no difference.
        expired: keys whose row the destination has let go of, as it may after its time to live; no difference either.
        rows: that the table has, where all of them were looked at one by one.
        earlier_batches: of the batches before those that were to be compared, how many a sample of keys is from.
        sample: some differing rows: status, key, and the columns that differ with both values, as text.
        beside: rows of a table without a key that were never appended, as others may do; no difference.
        untold: why nothing was compared; empty where something was. Such a result is no verdict.
    """

    batch: int
    complete: bool
    compared: int
    missing: int
    extra: int
    stale: int
    refused: int
    sample: tuple[Mapping[str, str], ...]
    expired: int = 0
    rows: int | None = None
    earlier_batches: int = 0
    beside: int = 0
    untold: str = ""

    @property
    def passed(self) -> bool:
        """Return whether nothing differs."""
        return not (self.missing or self.extra or self.stale)

    @property
    def detail(self) -> str:
        """Return how many rows differ, in words; empty where none does."""
        return "" if self.passed else f"missing {self.missing}, extra {self.extra}, stale {self.stale}"

    def verdict(self, state: DestinationState) -> Verdict:
        """The form that is kept in the destination.

        Args:
            state: of the destination, read before its rows were.
        """
        return Verdict(
            self.batch,
            self.passed,
            self.complete,
            datetime.now(UTC),
            self.detail,
            changelog_id=state.changelog_id,
            table_id=state.table_id,
        )


def keep_verdict(hop: DestinationHop, found: Comparison, state: DestinationState) -> bool:
    """Have a destination keep a verdict; return False if one that rows differ stands, and stays.

    What was recorded while the comparison ran is read once more, and is replaced only as it was read: of two checks
    that end at once, none is lost unseen. A look at some rows says nothing of what a look at all of them found to
    differ, nor does a look at all rows of what another one found while it ran.

    Args:
        state: of the destination, read before its rows were.

    Raises:
        DestinationError: others keep changing what is recorded.
    """
    destination = hop.destination
    for _ in range(_TRIES):
        last = destination.last_verdict()
        if found.passed and last is not None and not last.passed:
            stands = replace(destination.state(), last_verdict=last).verdict is not None
            if stands and (not found.complete or last != state.last_verdict):
                return False
        if destination.swap_verdict(last, found.verdict(state)):
            return True
    raise DestinationError(
        f"table '{destination.name}': the verdict could not be stored, others keep changing the control record"
    )


def sampled_since(
    hop: DestinationHop, before: int, *, most: int = SAMPLE_SCANNED_ROWS, behind: int = 0
) -> tuple[int, int]:
    """The batch after which keys of earlier batches are sampled, and the change rows between: few enough to read.

    Args:
        before: the last batch to sample from.
        most: change rows between.
        behind: the batch behind which to sample.

    Returns:
        `before` and 0 where even the nearest start has more rows behind it than a sample may cost.
    """
    first = max(behind, before - SAMPLE_BATCHES, 0)
    accounts = hop.store.accounts(after=first, upto=before) if before > first else {}
    affordable: list[tuple[int, int]] = []
    rows = 0
    for batch in range(before, first, -1):
        rows += sum(account.rows for account in accounts.get(batch, ()))
        if rows > most:
            break
        affordable.append((batch - 1, rows))
    if affordable and isinstance(hop.destination, ReadsRecent):  # it is read on from a position: is there one?
        starts = hop.destination.recent_batches()
        affordable = [start for start in affordable if start[0] in starts]
    return affordable[-1] if affordable else (before, 0)


def describe(
    row: Mapping[str, Any], key: Sequence[str], columns: Sequence[str], *, skips_nulls: bool, mask: Mask
) -> dict[str, str]:
    """A row of `verify.judged_rows` that differs, in words, without the values of masked columns."""

    def told(name: str, place: str) -> str:
        return mask.value(name, repr(row[place]))

    differing = [
        f"{name}: expected {told(name, f'e{index}')}, found {told(name, f'a{index}')}"
        for index, name in enumerate(columns)
        if row[STATUS] == "stale" and row[f"e{index}"] != row[f"a{index}"]
        if row[f"e{index}"] is not None or not skips_nulls
    ]
    return {
        "status": str(row[STATUS]),
        "key": ", ".join(f"{name}={told(name, f'k{index}')}" for index, name in enumerate(key)),
        "difference": "; ".join(differing),
    }
