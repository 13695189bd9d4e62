"""Compares a table with the rows that the lake has as of a batch, offsets or a time, and says what differs.

The lake is believed here, unlike in a proof by topics: so tables whose rows follow from more than their topics are
judged too, and topics may have let go of their records. History ends where compaction has reduced it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.accounting import ends_of_batches
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.quarantine import quarantined_count
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.upkeep import history_from
from upsert_platform.core.destination import Destination
from upsert_platform.core.errors import ChangelogError, DestinationError, TopicError
from upsert_platform.proofs.as_of import kept_batch, moment_of
from upsert_platform.proofs.database import follows_database
from upsert_platform.proofs.ends import APPLIED, LATEST
from upsert_platform.proofs.inputs import ReadTopic
from upsert_platform.proofs.proof import (
    SETTLE_SECONDS,
    ExcusedRows,
    Judging,
    Proof,
    check_provable,
    duplicates_of,
)
from upsert_platform.sync.binding import QuerySource, Target, changelog_of
from upsert_platform.sync.comparison import SHOWN_ROWS
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.position import check_position
from upsert_platform.sync.relations import newest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH: Final = "batch"
TOPIC, DATABASE, LAKE = "topic", "database", "lake"
SOURCES: Final = (TOPIC, DATABASE, LAKE)
"""What a table may be compared with."""


def source_of(target: Target, source: str | None, at: str | None) -> str:
    """Return what a table is compared with: one of `SOURCES`.

    Args:
        source: as stated; left out, a table is compared with what it is written from.
        at: as stated; a batch is one of the lake.

    Raises:
        TopicError: the source has no such moment.
    """
    is_batch = at is not None and at.strip().isdecimal()
    found = source or (LAKE if is_batch else DATABASE if follows_database(target) else TOPIC)
    if found == DATABASE and at is not None:
        raise TopicError(
            f"'{at}' states a moment, and a database is compared as it is: leave --at out, or compare with the lake,"
            f" --source {LAKE}"
        )
    if found == TOPIC and is_batch:
        raise TopicError(f"batch {at} is one of the lake, which topics do not know: add --source {LAKE}")
    return found


@dataclass(frozen=True)
class _LakeInputs:
    """A changelog, or the result of a query, as it is in the lake."""

    store: ChangelogStore
    incomplete: bool = False

    def read_to(self, spark: SparkSession, *, tell: Callable[[str], None]) -> int:
        """Return the last batch; syncs alone read topics."""
        return newest(self.store)


def prove_by_lake(
    spark: SparkSession,
    target: Target,
    lake: Lake,
    *,
    at: str | None = None,
    settle: float = SETTLE_SECONDS,
    examples: int = SHOWN_ROWS,
    tell: Callable[[str], None] = lambda message: None,
) -> Proof:
    """Compare a table with the lake as of a moment; write nothing.

    Args:
        at: a batch, the offsets at which one ends, a time, ``latest`` or ``applied``; the batch that the platform has
            applied to the table if left out, or, of a table that somebody else writes, the last one.
        settle: seconds that the writer of the table has to write what it has not applied yet.
        examples: rows that are described, and keys that are named.
        tell: is given a line per look.

    Raises:
        NotProvableError: no key of the table has an expected row.
        ChangelogError: the lake does not have the rows of that moment, or nothing of the table yet.
        DestinationError: the table cannot be read, or `at` is ``applied`` and it was not written from this lake.
        TopicError: `at` states no moment.
    """
    started = time.monotonic()
    store = changelog_of(target.source, lake)
    head = store.check_declared()
    if head is None or not head.batch:
        raise ChangelogError(f"'{store.table.name}': the lake has no batch of it yet; run job 'sync'")
    with closing(target.open()) as destination:
        check_provable(destination)
        applied = _applied_batch(store, destination, asked=at == APPLIED)
        form = at if at is not None else APPLIED if applied else LATEST
        if form == APPLIED:
            batch = kept_batch(store, applied)
        elif form == LATEST:
            batch = head.batch
        else:
            batch, form = moment_of(form)(store), BATCH
        hop = DestinationHop(
            target,
            store,
            destination,
            refused=ExcusedRows(lake.refused(target.table.name)),
            run=f"proof-{uuid.uuid4().hex[:12]}",
        )
        judging = Judging(spark, hop, _LakeInputs(store), batch, tell)
        found = judging.prove(settle=settle, patient=batch > applied, strict=False, examples=examples)
        kept_batch(store, batch)  # compaction may have reduced its rows while they were compared
        duplicates, duplicate_keys = duplicates_of(spark, target, destination, examples)
        return replace(
            found,
            at=form,
            through=_through(target, store, batch),
            duplicates=duplicates,
            duplicate_keys=duplicate_keys,
            quarantined=quarantined_count(store, upto=batch),
            batch=batch,
            history=history_from(store),
            seconds=time.monotonic() - started,
        )


def _applied_batch(store: ChangelogStore, destination: Destination, *, asked: bool) -> int:
    """Return the batch of a changelog that a table has applied; 0 of a table that was not written from it.

    Args:
        asked: the user asks for that batch, so a reason not to have it is an error.
    """
    try:
        state = destination.state()
        check_position(store, store.head(), state, table=destination.name, uri=destination.uri)
    except (ChangelogError, DestinationError):
        if asked:
            raise
        return 0
    if asked and not state.applied_batch:
        raise DestinationError(
            f"table '{destination.name}' has no control record of the platform: give '--at latest', a batch, offsets"
            " or a time"
        )
    return state.applied_batch


def _through(target: Target, store: ChangelogStore, batch: int) -> dict[str, ReadTopic]:
    """Return how far a batch has read each topic; nothing of a query, which reads changelogs."""
    if isinstance(target.source, QuerySource):
        return {}
    found: dict[str, dict[int, int]] = {}
    batches = ends_of_batches(store.accounts(after=0, upto=batch))
    for (topic, partition), end in batches[max(batches)].items():
        found.setdefault(topic, {})[partition] = end
    return {topic: ReadTopic({}, ends) for topic, ends in found.items()}
