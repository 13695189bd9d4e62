"""Replays a topic into a new table: beside the declared one, with a changelog and a position of its own.

Nothing that the declared table has is touched. The same replay, asked for again, goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.connector import Writable
from upsert_platform.core.errors import ChangelogError, DeclarationError, Problem
from upsert_platform.core.model import Options
from upsert_platform.core.source import Start
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.sync.binding import Binding, QuerySource, Target
from upsert_platform.sync.changelog_hop import ChangelogHop, ChangelogPlan, CommittedBatch
from upsert_platform.sync.comparison import Comparison, keep_verdict
from upsert_platform.sync.destination_hop import DestinationHop, DestinationRun
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.replay_topic import check_start, replays_from
from upsert_platform.sync.verify import check_everything, is_comparable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DIGEST: Final = 16


@dataclass(frozen=True)
class NewTable:
    """The result of a replay into a new table.

    Attributes:
        offsets: that were read.
        written: what the table took; None where it had everything already.
        compared: the comparison of every row afterwards; None where rows are appended.
        changelog: where the rows that were read are.
    """

    offsets: int
    written: DestinationRun | None = None
    compared: Comparison | None = None
    changelog: str = ""


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
    found = replace(bound, table=declared, source=source, checked=checked)
    other = declared_there(binding, found)
    if other is not None:
        raise ChangelogError(
            f"'{name}' is where table '{other}' is already: a replay into the same table names none;"
            " give a new table a name of its own"
        )
    return found


def declared_there(binding: Binding, target: Target) -> str | None:
    """Return the name of a table that the project writes where a target would be written, or None."""
    place, stored = target.connector.control_place(target.checked), target.connector.stored_as(target.table)
    for other in binding.targets.values():
        taken = other.connector.control_place(other.checked)
        if other.connector.stored_as(other.table) == stored or (place and taken and place.control == taken.control):
            return other.table.name
    return None


def new_targets(binding: Binding, read: str, into: Mapping[str, str], *, start: Start) -> dict[str, Target]:
    """The targets of a replay of a table that is read, by the names of the tables that they stand beside.

    Args:
        into: table that is written to the name of the new one.

    Raises:
        ChangelogError: as `new_target`.
        DeclarationError: a table is written from another one.
    """
    targets = {name: new_target(binding, name, new, start=start) for name, new in into.items()}
    wrong = [target for target in targets.values() if target.source.table.name != read]
    if wrong:
        raise DeclarationError(
            [Problem(f"table '{item.table.name}' is not written from '{read}'", item.table.location) for item in wrong]
        )
    return targets


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
    assert not isinstance(target.source, QuerySource)
    store, refused = _kept(target, lake, start)
    check_start(target.source, start)
    changelog = ChangelogHop(target.source, store, run=run)
    plan = changelog.plan()
    _check_topics(target, store, plan)
    if dry_run:
        return NewTable(plan.lag, changelog=store.uri)

    def told(done: CommittedBatch) -> None:
        tell(f"batch {done.batch}: {sum(account.records for account in done.accounts)} records")

    if plan.backlog:
        changelog.execute(OnDemand.dividing(spark), plan, progress=told)
    with closing(target.open()) as destination:
        hop = DestinationHop(target, store, destination, refused=refused, run=run)
        written = hop.execute(OnDemand.dividing(spark), hop.plan(), tell=tell, progress=tell)
        state = hop.plan().state
        if not state.applied_batch or not is_comparable(hop):
            return NewTable(plan.lag, written, changelog=store.uri)
        compared = check_everything(spark, hop, upto=state.applied_batch)
        keep_verdict(hop, compared, state)
    return NewTable(plan.lag, written, compared, store.uri)


def folder_of(target: Target) -> str:
    """Return the name of the folder below ``replays/`` of a replay into a new table.

    The new name alone would be the same of two tables in different systems or instances, and of two sources.
    """
    place = target.connector.control_place(target.checked)
    identity = [
        target.source.table.name,
        target.table.name,
        target.connector.stored_as(target.table),
        *(() if place is None else place.control),
    ]
    digest = hashlib.sha256(json.dumps(identity).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{target.table.options[target.connector.place_option]}-{target.table.name}-{digest[:_DIGEST]}"


def _kept(target: Target, lake: Lake, start: Start) -> tuple[ChangelogStore, RefusedStore]:
    """Return the changelog and the refused rows of a replay, begun or not.

    One that an earlier version of the platform began has a folder of the new name alone, and goes on there if the table
    was written from it.
    """
    source = target.source
    assert not isinstance(source, QuerySource)

    def below(folder: str) -> tuple[ChangelogStore, RefusedStore]:
        store = ChangelogStore(lake.replay(folder, start.label), source.table, mode=source.mode)
        return store, RefusedStore(lake.replay(folder, f"{start.label}-refused"))

    own = below(folder_of(target))
    if own[0].head() is not None:
        return own
    earlier = below(target.table.options[target.connector.place_option])
    head = earlier[0].head()
    if head is None:
        return own
    with closing(target.open()) as destination:
        return earlier if destination.state().changelog_id == head.changelog_id else own


def _check_topics(target: Target, store: ChangelogStore, plan: ChangelogPlan) -> None:
    """Refuses a changelog with rows of topics that its table does not read.

    Raises:
        ChangelogError: it names them.
    """
    source = target.source
    assert not isinstance(source, QuerySource)
    known = {stream.name for stream in plan.topics}
    pattern = source.kafka.settings.topic_pattern if isinstance(source, TopicSource) else None
    read = plan.head.positions.offsets if plan.head is not None else {}
    strange = [name for name in read if name not in known and not (pattern and re.fullmatch(pattern, name))]
    if strange:
        name = target.table.options[target.connector.place_option]
        raise ChangelogError(
            f"the changelog of the replay into '{name}' at {store.uri} has rows of {', '.join(sorted(strange))}, which"
            f" table '{source.table.name}' does not read: of another table's replay into that name, or of an earlier"
            f" declaration. Nothing was written; give the new table another name, or drop '{name}' in its system,"
            " delete that folder and replay again"
        )
