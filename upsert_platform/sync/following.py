"""The consumers of a changelog (queries and tables written from them), brought up to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.core.errors import LeaseHeldError
from upsert_platform.sync.binding import Binding, Target, changelog_of
from upsert_platform.sync.destination_hop import DestinationHop, DestinationRun
from upsert_platform.sync.on_demand import OnDemand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def tables_behind(binding: Binding, table: str) -> dict[str, Target]:
    """The tables that are written from a changelog, by a query or not."""
    queries = {name for name, source in binding.queries.items() if table in source.query.tables}
    read = {table, *queries}
    return {name: target for name, target in binding.targets.items() if target.source.table.name in read}


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
