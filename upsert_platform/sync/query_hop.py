"""The hop between: changelogs to the result of a query. Plan, compute, commit, until nothing is new."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.latest import latest_per_key
from upsert_platform.changelog.rows import KIND, KIND_DELETE
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.upkeep import note_applied
from upsert_platform.core.connector import KeyReader
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.plan import expressions
from upsert_platform.engine.engine import QueryBatch, QueryBatchPlan, advance, plan_batch
from upsert_platform.engine.rebuild import Rebuilt, rebuild
from upsert_platform.engine.store import QueryStore
from upsert_platform.sql.evaluation import prepared
from upsert_platform.sync.on_demand import OnDemand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from upsert_platform.engine.runners import SparkRunner

_LOST_RACES: Final = 5


@dataclass(frozen=True)
class QueryRun:
    """The result of a run, for metadata.

    Attributes:
        read: changes read of all inputs.
        written: rows of the result's changelog, before-images included.
        state_bytes: what all state takes.
        met: keys that several inserts into one table have, of those that the batches touched.
        late: rows that were left out of a window since it is closed; one of several windows counts for each.
        let_go: rows of state that left it, of closed windows or since nothing changed them for so long.
        forgotten: rows that were taken back after they were let go of.
    """

    batch: int
    batches: int
    read: int
    written: int
    state_rows: int
    state_bytes: int
    seconds: float
    met: int = 0
    late: int = 0
    let_go: int = 0
    forgotten: int = 0


class QueryHop:
    """Keeps the result of a query up with the changelogs that it reads.

    Args:
        inputs: changelog per table that the query reads.
        run: name of the run, stored in every commit.
        note_seconds: how far apart it is noted in the inputs what the query has applied of them.
        lookups: what reads each table in which the query finds rows.
    """

    def __init__(
        self,
        store: QueryStore,
        inputs: Mapping[str, ChangelogStore],
        *,
        run: str,
        lookups: Mapping[str, KeyReader] | None = None,
        note_seconds: float = 0.0,
    ) -> None:
        self.note_seconds = note_seconds
        self.store = store
        self.inputs = inputs
        self.run = run
        self.lookups = dict(lookups or {})
        self._noted_at = -math.inf
        self._unnoted: QueryBatchPlan | None = None

    def plan(self) -> QueryBatchPlan:
        """Compares what the query has applied with the heads of its inputs. No JVM.

        Raises:
            ChangelogError: the query, or an input, is not the one that the result was computed from.
        """
        return plan_batch(self.store, self.inputs)

    def execute(self, spark: OnDemand) -> QueryRun:
        """Computes and commits batches until every input is applied.

        Args:
            spark: opens a session for work above the local bound and for expressions that need it.

        Raises:
            ChangelogError: other runs keep committing to the same query; or state that cannot be.
        """
        started = time.monotonic()
        runner = self._runner(spark)
        done: list[QueryBatch] = []
        lost = 0
        while (plan := self.plan()).is_due:
            batch = advance(self.store, plan, runner=runner, run=self.run, lookups=self.lookups)
            if batch is not None:
                done.append(batch)
                continue
            lost += 1
            if lost > _LOST_RACES:
                raise ChangelogError(
                    f"query '{self.store.query.name}' is computed by another run all the time; stop one"
                )
        if done:
            self._note(plan)
        head = self.store.head()
        return QueryRun(
            batch=head.batch if head else 0,
            batches=len(done),
            read=sum(item.read for item in done),
            written=sum(item.written for item in done),
            state_rows=sum(item.state_rows for item in done),
            state_bytes=done[-1].state_bytes if done else 0,
            seconds=time.monotonic() - started,
            met=sum(item.met for item in done),
            late=sum(item.late for item in done),
            let_go=sum(item.let_go for item in done),
            forgotten=sum(item.forgotten for item in done),
        )

    def _note(self, plan: QueryBatchPlan) -> None:
        """Notes in the inputs which of their commits the query holds, so that they know it behind pruned logs.

        Args:
            plan: finds nothing to do.
        """
        self._unnoted = plan
        if time.monotonic() - self._noted_at >= self.note_seconds:
            self.note()

    def note(self) -> None:
        """Notes what of the last batches is not noted yet, if anything: inputs let go of commits that nobody needs."""
        plan, self._unnoted = self._unnoted, None
        if plan is None:
            return
        self._noted_at = time.monotonic()
        for item in plan.slices:
            if item.upto:
                note_applied(self.inputs[item.name], self.store.query.name, item.upto, commit=item.commit)

    def needs_rebuild(self) -> str | None:
        """Return why the result cannot be advanced incrementally, or None if it can. No JVM."""
        try:
            self.plan()
        except ChangelogError as error:
            return str(error)
        return None

    def rebuild(self, spark: OnDemand, *, tell: Callable[[str], None]) -> Rebuilt | None:
        """Computes the result anew beside the old one, and writes the difference; None when there is no old one.

        Args:
            tell: is given a line per batch.

        Raises:
            ChangelogError: the result only has rows added to it, or another run advanced the query meanwhile.
        """
        store = QueryStore(self.store.location, self.store.query, any_plan=True)
        found = rebuild(store, self.inputs, runner=self._runner(spark), run=self.run, lookups=self.lookups, tell=tell)
        plan = self.plan()
        if found is not None and not plan.is_due:
            self._note(plan)
        return found

    def _runner(self, spark: OnDemand) -> SparkRunner:
        """Return the runner of the query's tasks; its session knows the functions that the query calls."""
        from upsert_platform.engine.runners import SparkRunner

        texts = [item.sql for item in expressions(self.store.query.plan)]
        return SparkRunner(lambda: prepared(spark.open(), texts), local_rows=spark.rows)

    def result(self, spark: SparkSession, *, upto: int | None = None) -> DataFrame:
        """The rows of the result.

        Args:
            upto: as of this batch of the result; the last one if left out.

        Raises:
            ChangelogError: nothing was computed yet.
        """
        head = self.store.create()
        upto = head.batch if upto is None else upto
        names = [field.name for field in self.store.query.plan.fields]
        changes = self.store.read(spark, after=0, upto=upto)
        shown = [f"`{name}`" for name in names]
        if not self.store.query.key:
            return changes.select(*shown)
        count = self.store.about_rows(upto=upto)
        latest = latest_per_key(changes, key=self.store.query.key, columns=names, count=count)
        return latest.where(f"{KIND} <> '{KIND_DELETE}'").select(*shown)
