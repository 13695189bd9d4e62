"""The consumers of a changelog (queries and tables written from them), brought up to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.core.capabilities import StoresOtherValues
from upsert_platform.core.errors import ChangelogError, LeaseHeldError
from upsert_platform.sync.binding import Binding, Target, changelog_of
from upsert_platform.sync.destination_hop import DestinationHop, DestinationRun
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.replay import check_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def tables_behind(binding: Binding, table: str) -> dict[str, Target]:
    """The tables that are written from a changelog, by a query or not."""
    queries = {name for name, source in binding.queries.items() if table in source.query.tables}
    read = {table, *queries}
    return {name: target for name, target in binding.targets.items() if target.source.table.name in read}


def check_keys(binding: Binding, table: str) -> None:
    """Refuses a replay where rows of several keys, or of several inserts, would be ordered by the batch of the replay.

    Raises:
        ChangelogError: a table stores several keys as one, or a query takes the row that came last.
    """
    check_order([source.query for source in binding.queries.values()], table)
    for name, target in tables_behind(binding, table).items():
        with closing(target.open()) as destination:
            if not isinstance(destination, StoresOtherValues) or not destination.state().applied_batch:
                continue
            if destination.folded_key():
                raise ChangelogError(
                    f"table '{name}' stores several values of {', '.join(destination.folded_key())} as one, so rows of"
                    " different keys are one row there, whose order a replay would change; replay it into a new table"
                )


def follow(
    spark: SparkSession, binding: Binding, lake: Lake, table: str, *, run: str, tell: Callable[[str], None]
) -> Iterator[tuple[str, DestinationRun | None]]:
    """Brings what reads a changelog up to it, as a sync does: the queries first.

    Yields:
        The name of each table, when it has been written, and what was done; None where it had everything, or another
        run writes it, which goes on to what is new.
    """
    for name, source in binding.queries.items():
        if table in source.query.tables:
            computed = binding.query_hop(name, lake, run=run).execute(OnDemand.dividing(spark))
            tell(f"query '{name}': {computed.batches} batches, {computed.written} rows of changes")
    for name, target in tables_behind(binding, table).items():
        with closing(target.open()) as destination:
            store, refused = changelog_of(target.source, lake), RefusedStore(lake.refused(name))
            hop = DestinationHop(target, store, destination, refused=refused, run=run)
            done: DestinationRun | None = None
            try:
                done = hop.execute(OnDemand.dividing(spark), hop.plan(), tell=tell, progress=tell)
            except LeaseHeldError as error:  # continuous mode, say, which comes to the new batch by itself
                tell(f"{error}; it takes the new batch with its own")
            yield name, done
