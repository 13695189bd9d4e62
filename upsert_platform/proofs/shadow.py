"""Keeps a second table or topic beside one that another writer fills, by the same declarations, and compares both.

The second one is an ordinary destination of the lake under another name, with a position of its own. The first one is
read and never written. Both are compared with the rows that the lake expects, so a round says of each whether it is
right, and not just that they differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.core.errors import DeclarationError, DestinationError
from upsert_platform.core.model import Options
from upsert_platform.proofs.inputs import queries_of, starts_late, tables_of, topics_of
from upsert_platform.proofs.proof import SETTLE_SECONDS, ExcusedRows, Judging, Proof, check_provable, duplicates_of
from upsert_platform.sync.binding import Binding, Target, changelog_of
from upsert_platform.sync.changelog_hop import ChangelogHop
from upsert_platform.sync.comparison import SHOWN_ROWS, Comparison
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.reconcile import check_adoptable
from upsert_platform.sync.relations import newest
from upsert_platform.sync.replay_into import declared_there
from upsert_platform.sync.verify import check_everything

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Round:
    """Findings of one comparison of both tables.

    Attributes:
        first: the table of the other writer, as of the lake's `first.batch`.
        second: the table of the platform, as of the batch that it has applied.
        seconds: that the round took.
    """

    first: Proof
    second: Comparison
    seconds: float

    @property
    def equal(self) -> bool:
        """Return whether both tables are equal to the lake, and so to each other; moving keys are not judged."""
        return self.first.equal and self.second.passed


def shadow_of(target: Target, suffix: str) -> Target:
    """Return a target of the same insert, whose name, and whose name in its system, end with a suffix.

    Raises:
        DeclarationError: the system does not take that name.
    """
    table, connector = target.table, target.connector
    place = connector.place_option
    options = {**table.options, place: table.options.get(place, table.name) + suffix, "auto.create": "true"}
    located = {name: found for name in table.options if (found := table.options.location(name)) is not None}
    second = replace(table, name=table.name + suffix, options=Options(options, located))
    checked, problems = connector.check(second)
    if checked is None:
        raise DeclarationError([problem for problem in problems if problem.severity == "error"])
    return replace(target, table=second, checked=checked)


def read_topics(spark: SparkSession, target: Target, binding: Binding, lake: Lake, *, run: str) -> None:
    """Read the topics behind a table into the lake up to their ends, and compute the queries between them.

    Raises:
        TopicError, EndpointError, RecordError: as a sync.
    """
    for name in tables_of(target, binding):
        source = binding.sources[name]
        hop = ChangelogHop(source, changelog_of(source, lake), run=run)
        hop.execute(OnDemand.dividing(spark), hop.plan())
    for query in queries_of(target, binding):
        binding.query_hop(query, lake, run=run).execute(OnDemand.dividing(spark))


class Shadowing:
    """A table of another writer, and the platform's beside it.

    Args:
        suffix: of the second table's name.
        run: name of the run, for leases and commits.

    Raises:
        NotProvableError: the rows of the table follow from more than its topics.
        DestinationError: the first table is the platform's already, or the second one is somebody's, or one that
            the project writes.
        DeclarationError: the system does not take the second name.
    """

    def __init__(
        self, spark: SparkSession, target: Target, binding: Binding, lake: Lake, *, suffix: str, run: str
    ) -> None:
        self.first = target
        self.second = shadow_of(target, suffix)
        other = declared_there(binding, self.second)
        if other is not None:
            raise DestinationError(
                f"'{self.second.table.name}' is where table '{other}' of the project is: nothing is changed; state"
                " another --shadow-suffix"
            )
        sources = topics_of(target, binding)
        self.store = changelog_of(target.source, lake)
        self.incomplete = any(map(starts_late, sources.values())) or any(
            lane.low > 0 for source in sources.values() for stream in source.discover() for lane in stream.partitions
        )
        self._spark = spark
        self._binding = binding
        self._lake = lake
        self._run = run
        with closing(target.open()) as destination:
            check_provable(destination)
            check_adoptable(target.table.name, self.store.head(), destination.state())
        with closing(self.second.open()) as destination:
            destination.prepare()
            if not destination.state().applied_batch and not destination.read(spark).isEmpty():
                raise DestinationError(
                    f"table '{self.second.table.name}' ({destination.uri}) has rows that the platform has not written:"
                    " nothing is changed; state another --shadow-suffix"
                )

    def read_to(self, spark: SparkSession, *, tell: Callable[[str], None]) -> int:
        """Read the topics on and write the second table; return the lake's last batch."""
        read_topics(spark, self.first, self._binding, self._lake, run=self._run)
        with closing(self.second.open()) as destination:
            hop = self._hop(self.second, destination, RefusedStore(self._lake.refused(self.second.table.name)))
            plan = hop.plan()
            if plan.behind:
                hop.execute(OnDemand.dividing(spark), plan, tell=tell)
        return newest(self.store)

    def compare(
        self,
        *,
        settle: float = SETTLE_SECONDS,
        examples: int = SHOWN_ROWS,
        tell: Callable[[str], None] = lambda message: None,
    ) -> Round:
        """Write the second table up to the ends of the topics, and compare both tables with the lake.

        Args:
            settle: seconds that the other writer has to write what the topics hold.
            examples: rows that are described.
            tell: is given a line per look.

        Raises:
            LeaseHeldError: another run writes the second table.
            TopicError, EndpointError, RecordError: as a sync.
        """
        started = time.monotonic()
        batch = self.read_to(self._spark, tell=tell)
        with closing(self.first.open()) as destination:
            hop = self._hop(self.first, destination, ExcusedRows(self._lake.refused(self.first.table.name)))
            judging = Judging(self._spark, hop, self, batch, tell)
            found = judging.prove(settle=settle, patient=True, strict=False, examples=examples)
            duplicates, duplicate_keys = duplicates_of(self._spark, self.first, destination, examples)
        with closing(self.second.open()) as destination:
            hop = self._hop(self.second, destination, RefusedStore(self._lake.refused(self.second.table.name)))
            own = check_everything(self._spark, hop, upto=destination.state().applied_batch)
        found = replace(found, at="latest", batch=batch, duplicates=duplicates, duplicate_keys=duplicate_keys)
        return Round(found, own, time.monotonic() - started)

    def _hop(self, target: Target, destination: Any, refused: RefusedStore) -> DestinationHop:
        return DestinationHop(target, self.store, destination, refused=refused, run=self._run)
