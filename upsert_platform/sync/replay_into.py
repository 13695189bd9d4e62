"""Replays a topic into a new table: beside the declared one, with a changelog and a position of its own.

Nothing that the declared table has is touched. The same replay, asked for again, goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.connector import Writable
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.model import Options
from upsert_platform.core.source import Start
from upsert_platform.sync.binding import Binding, QuerySource, Target
from upsert_platform.sync.changelog_hop import ChangelogHop, CommittedBatch
from upsert_platform.sync.comparison import Comparison
from upsert_platform.sync.destination_hop import DestinationHop, DestinationRun
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.replay_topic import check_start, replays_from
from upsert_platform.sync.verify import check_everything, is_comparable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class NewTable:
    """The result of a replay into a new table.

    Attributes:
        offsets: that were read.
        written: what the table took; None where it had everything already.
        compared: the comparison of every row afterwards; None where rows are appended.
    """

    offsets: int
    written: DestinationRun | None = None
    compared: Comparison | None = None


def new_target(binding: Binding, table: str, name: str, *, start: Start) -> Target:
    """The target of a replay: as the declared table, but of another name in its system, and read from a start.

    Raises:
        ChangelogError: the table is not written from a topic, or another declared table has the name.
    """
    bound = binding.targets.get(table)
    if bound is None:
        known = ", ".join(sorted(binding.targets)) or "none"
        raise ChangelogError(f"no insert writes table '{table}'; written are: {known}")
    if isinstance(bound.source, QuerySource):
        raise ChangelogError(
            f"table '{table}' is written from a query, which no single topic gives anew: job 'rebuild' computes"
            " it again"
        )
    source = replays_from(bound.source).starting(start)
    connector: Writable[object] = bound.connector
    options = Options({**bound.table.options, connector.place_option: name})
    declared = replace(bound.table, options=options)
    checked = connector.checked(declared)
    place, stored = connector.control_place(checked), connector.stored_as(declared)
    for other in binding.targets.values():
        taken = other.connector.control_place(other.checked)
        if other.connector.stored_as(other.table) == stored or (place and taken and place.control == taken.control):
            raise ChangelogError(
                f"'{name}' is where table '{other.table.name}' is already: a replay into the same table names none;"
                " give a new table a name of its own"
            )
    return replace(bound, table=declared, source=source, checked=checked)


def replay_into(
    spark: SparkSession,
    target: Target,
    lake: Lake,
    *,
    start: Start,
    run: str,
    dry_run: bool = False,
    tell: Callable[[str], None] = lambda message: None,
) -> NewTable:
    """Reads the topic from its start into a changelog of its own, writes the new table from it, and compares the two.

    Args:
        target: of `new_target`.
        dry_run: only tell how much there is to read.

    Raises:
        DestinationError: the table is missing and ``auto.create`` is off, or was written from another start.
        TopicError, EndpointError, RecordError: as a sync.
    """
    name = target.connector.place_option
    place = target.table.options[name]
    assert not isinstance(target.source, QuerySource)
    store = ChangelogStore(lake.replay(place, start.label), target.source.table, mode=target.source.mode)
    check_start(target.source, start)
    changelog = ChangelogHop(target.source, store, run=run)
    plan = changelog.plan()
    if dry_run:
        return NewTable(plan.lag)

    def told(done: CommittedBatch) -> None:
        tell(f"batch {done.batch}: {sum(account.records for account in done.accounts)} records")

    if plan.backlog:
        changelog.execute(OnDemand.dividing(spark), plan, progress=told)
    with closing(target.open()) as destination:
        refused = RefusedStore(lake.replay(place, f"{start.label}-refused"))
        hop = DestinationHop(target, store, destination, refused=refused, run=run)
        written = hop.execute(OnDemand.dividing(spark), hop.plan(), tell=tell, progress=tell)
        state = hop.plan().state
        if not state.applied_batch or not is_comparable(hop):
            return NewTable(plan.lag, written)
        compared = check_everything(spark, hop, upto=state.applied_batch)
        destination.record_verdict(compared.verdict(state))
    return NewTable(plan.lag, written, compared)
