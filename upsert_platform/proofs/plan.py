"""Shows what an edited project changes before anything happens: declarations, rows of tables, queries to be rebuilt.

Rows are compared as they would be: the insert is computed over the lake as the project declares it now, beside the rows
that the table holds. Nothing is written but results of queries, into a folder of the lake that is removed at the end.
`apply` carries out what a plan says, if the lake and the tables are still where the plan saw them (`world`).
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.data_files import file_system
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.capabilities import AddsColumns
from upsert_platform.core.destination import STATUS, Destination, DestinationState
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.model import Project
from upsert_platform.core.plan import expressions
from upsert_platform.core.spark_failures import failure_of, job_failures
from upsert_platform.core.types import quote_name
from upsert_platform.core.wording import counted
from upsert_platform.engine.engine import advance, plan_batch
from upsert_platform.engine.store import PLAN, QueryStore
from upsert_platform.proofs.consumers import Change, Consumer, consumers_of
from upsert_platform.proofs.declared_changes import declared_changes
from upsert_platform.proofs.estimate import deployed_target, sampled_sides
from upsert_platform.proofs.inputs import queries_of, tables_of
from upsert_platform.proofs.world import World, world_of
from upsert_platform.sync.binding import Binding, QuerySource, Target, changelog_of, query_store
from upsert_platform.sync.comparison import SHOWN_ROWS, Comparison
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.equal_sums import bucket_of
from upsert_platform.sync.verify import (
    NO_ROWS,
    as_held,
    is_comparable,
    judged_by_buckets,
    judged_rows,
    stored_key,
    summed,
)

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from upsert_platform.changelog.store import ChangelogStore

_ONE_IN: Final = 32
"""The largest share of keys that an estimate looks at: one key in so many."""
_SAMPLED_ROWS: Final = 200_000
"""Rows of a changelog that a sample has at most, about: of a longer changelog a smaller share is drawn."""
_SMALLEST_SHARE: Final = 4096


class Kind(StrEnum):
    """The effect of a project on a table.

    `SAME` changes nothing, `NEW` writes a table for the first time, `CHANGED` changes its declaration or its rows,
    `REFUSED` is stopped by an error, and `GONE` is a table that is not declared any more.
    """

    SAME = "same"
    NEW = "new"
    CHANGED = "changed"
    REFUSED = "refused"
    GONE = "gone"


@dataclass(frozen=True)
class Cost:
    """The cost of a change.

    Attributes:
        rows_read: rows of the lake from which queries are computed anew, and rows of the table that are compared.
        rows_written: rows that are put or deleted.
        requests: write requests of those rows; None where the system's requests do not count rows.
        seconds: to compute and compare, as long as the plan itself took for it; a comparison is made before and after
            the write.
    """

    rows_read: int = 0
    rows_written: int = 0
    requests: int | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class TablePlan:
    """The effect of a project on a table that an insert writes.

    Attributes:
        declared: differences of the declarations behind the table, where the deployed ones are given.
        rows: rows that differ: `missing` ones would be added, `extra` ones removed, `stale` ones changed. None where
            rows are not compared.
        estimated: whether `rows` is an estimate, of a sample of keys.
        one_in: the sample has one key in so many.
        rebuilds: queries whose result has to be computed anew.
        reason: why the table is refused, or its rows are not compared; of an estimate, what was compared.
        command: what makes the rows equal; empty where nothing has to be done.
        columns: column outside the key to the number of `stale` rows in which it differs.
        consumers: tables and consumers of contracts that read what changes.
    """

    table: str
    kind: Kind
    declared: tuple[str, ...] = ()
    rows: Comparison | None = None
    estimated: bool = False
    one_in: int = 1
    rebuilds: tuple[str, ...] = ()
    reason: str = ""
    command: str = ""
    columns: Mapping[str, int] = field(default_factory=dict)
    consumers: tuple[Consumer, ...] = ()
    cost: Cost = Cost()

    @property
    def added(self) -> int:
        """Rows that would be added."""
        return self.rows.missing if self.rows else 0

    @property
    def removed(self) -> int:
        """Rows that would be removed."""
        return self.rows.extra if self.rows else 0

    @property
    def changed(self) -> int:
        """Rows that would have another value."""
        return self.rows.stale if self.rows else 0


@dataclass(frozen=True)
class ProjectPlan:
    """The effect of a project on its tables.

    Attributes:
        world: where the lake and the tables were when the plan began.
    """

    tables: tuple[TablePlan, ...]
    world: World

    @property
    def changes(self) -> bool:
        """Return whether a table changes."""
        return any(item.kind is not Kind.SAME for item in self.tables)

    @property
    def breaks(self) -> bool:
        """Return whether a consumer of a table cannot go on as it is."""
        return any(consumer.breaks for item in self.tables for consumer in item.consumers)


def plan_project(
    spark: SparkSession,
    binding: Binding,
    lake: Lake,
    *,
    deployed: Project | None = None,
    tables: Sequence[str] = (),
    estimate: bool = False,
    examples: int = SHOWN_ROWS,
    tell: Callable[[str], None] = lambda message: None,
) -> ProjectPlan:
    """Return the effect of a project on each table that its inserts write; write nothing into any of them.

    Args:
        deployed: the project as it is deployed, for the differences of declarations.
        tables: those that are planned; all of them if left out.
        estimate: compare a sample of keys.
        examples: rows that are described, for each table.
        tell: is given a line per table.

    Raises:
        UpsertPlatformError: no insert writes one of `tables`.
    """
    for name in tables:
        if name not in binding.targets:
            known = ", ".join(sorted(binding.targets)) or "none"
            raise UpsertPlatformError(f"no insert writes table '{name}'; written are: {known}")
    chosen = [target for name, target in binding.targets.items() if not tables or name in tables]
    world = world_of(binding, lake, [target.table.name for target in chosen])
    scratch = lake.proof("(plan)", f"plan-{uuid.uuid4().hex[:12]}")
    planning = _Planning(spark, binding, lake, scratch, deployed, estimate=estimate, examples=examples)
    plans = []
    try:
        for target in chosen:
            tell(f"comparing '{target.table.name}'")
            declared = () if deployed is None else tuple(declared_changes(deployed, binding, target))
            plan = planning.of(target)
            # A table of the same rows is changed where its declaration is.
            kind = Kind.CHANGED if plan.kind is Kind.SAME and declared else plan.kind
            plans.append(replace(plan, declared=declared, kind=kind))
    finally:
        _remove(scratch)
    if deployed is not None and not tables:
        written = {insert.target for insert in deployed.inserts}
        plans += [
            TablePlan(name, Kind.GONE, reason="no insert writes it any more; its rows stay as they are")
            for name in sorted(written - {insert.target for insert in binding.project.inserts})
        ]
    return ProjectPlan(tuple(_with_consumers(plan, binding, deployed) for plan in plans), world)


def _with_consumers(plan: TablePlan, binding: Binding, deployed: Project | None) -> TablePlan:
    project = binding.project if plan.kind is not Kind.GONE or deployed is None else deployed
    if plan.kind is Kind.SAME or plan.table not in project.tables:
        return plan
    every = frozenset(column.name for column in project.tables[plan.table].columns)
    whole = plan.rows is None or plan.added or plan.removed
    stops = {
        Kind.REFUSED: "no row of it is written, since a sync stops",
        Kind.GONE: "no insert writes it any more",
    }.get(plan.kind, "")
    changed = every if whole and plan.kind is not Kind.CHANGED else frozenset(plan.columns)
    if plan.kind is Kind.CHANGED and (plan.added or plan.removed or (plan.rows is None and plan.rebuilds)):
        changed = every
    change = Change(plan.table, changed, stops)
    return replace(plan, consumers=tuple(consumers_of(change, project, deployed)))


class _Planning:
    """Compares tables with what their inserts would write."""

    def __init__(
        self,
        spark: SparkSession,
        binding: Binding,
        lake: Lake,
        scratch: Lake,
        deployed: Project | None,
        *,
        estimate: bool,
        examples: int,
    ) -> None:
        self._spark = spark
        self._binding = binding
        self._lake = lake
        self._scratch = scratch
        self._deployed = deployed
        self._estimate = estimate
        self._examples = examples

    def of(self, target: Target) -> TablePlan:
        """Return the effect on one table."""
        name = target.table.name
        refusals: tuple[type[Exception], ...] = (UpsertPlatformError, *job_failures())
        try:
            with closing(target.open()) as destination:
                if isinstance(destination, AddsColumns):
                    destination.show_added()
                return self._compared(target, destination, destination.state())
        except refusals as raised:
            # Tasks that read a table raise their errors through Spark.
            error = raised if isinstance(raised, UpsertPlatformError) else failure_of(raised)
            if error is None:
                raise
            return TablePlan(name, Kind.REFUSED, reason=str(error), command=_reset_of(target, self._binding))

    def _compared(self, target: Target, destination: Destination, state: DestinationState) -> TablePlan:
        name = target.table.name
        rebuilds, begun = tuple(self._changed_queries(target)), self._is_begun(target)
        if state.applied_batch and not begun:
            # So a sync says, too: its position is not one of the query's result.
            return TablePlan(
                name,
                Kind.REFUSED,
                reason="its rows were not written by the continuous query that its insert, or its primary key,"
                " needs now",
                command=f"upsert-platform reset {name} --drop-target --dry-run",
            )
        anew = bool(rebuilds) or not begun
        began = compared = time.monotonic()
        store = self._recomputed(target) if anew else changelog_of(target.source, self._lake)
        if anew:
            compared = time.monotonic()
        head = store.check_declared()
        hop = DestinationHop(target, store, destination, refused=RefusedStore(self._lake.refused(name)), run="plan")
        command = "upsert-platform sync"
        if head is None or not head.batch:
            return TablePlan(name, Kind.NEW, reason="the lake has no rows of its topics yet", command=command)
        if not is_comparable(hop) or not destination.primary_key:
            reason = "its rows have no key of their own, so they are not compared"
            return TablePlan(name, Kind.CHANGED if rebuilds else Kind.SAME, rebuilds=rebuilds, reason=reason)
        if not state.applied_batch:
            found = self._all_new(hop, head.batch)
            cost = self._cost(target, found, began=began, compared=compared)
            reason = _set_aside(found)
            return TablePlan(name, Kind.NEW, rows=found, rebuilds=rebuilds, reason=reason, command=command, cost=cost)
        own = not rebuilds and state.changelog_id == head.changelog_id
        before = deployed_target(target, self._binding.project, self._deployed) if own and self._estimate else None
        upto = min(state.applied_batch, head.batch) if own else head.batch
        one_in = _share_of(store.about_rows(upto=upto)) if self._estimate else 1
        if before is None:
            found, columns = self._rows(hop, upto, one_in)
        else:
            found, columns = self._rows_by_lake(hop, before, upto, one_in)
        notes = [_behind(state.applied_batch, head.batch) if own else ""]
        if self._estimate:
            notes.append(_basis(name, one_in, by_lake=before is not None))
        notes.append(_set_aside(found))
        reason = "; ".join(filter(None, notes))
        if found.passed and not rebuilds:
            return TablePlan(name, Kind.SAME, rows=found, estimated=self._estimate, one_in=one_in, reason=reason)
        command = "upsert-platform run rebuild" if rebuilds else f"upsert-platform reconcile {name}"
        return TablePlan(
            name,
            Kind.CHANGED,
            rows=found,
            estimated=self._estimate,
            one_in=one_in,
            rebuilds=rebuilds,
            reason=reason,
            command=command,
            columns=columns,
            cost=self._cost(target, found, began=began, compared=compared),
        )

    def _cost(self, target: Target, found: Comparison, *, began: float, compared: float) -> Cost:
        """Return the cost of a change, given when its plan and its comparison began."""
        written = found.missing + found.extra + found.stale
        most = target.connector.rows_per_request(target.checked)
        read = found.compared
        for name in queries_of(target, self._binding) if compared > began else ():
            for table in self._binding.queries[name].query.tables:
                if table not in self._binding.queries:
                    store = self._binding.changelog(table, self._lake)
                    head = store.head()
                    read += store.about_rows(upto=head.batch) if head is not None else 0
        now = time.monotonic()
        seconds = (compared - began) + 2 * (now - compared)
        return Cost(read, written, None if most is None else math.ceil(written / most), round(seconds, 1))

    def _is_begun(self, target: Target) -> bool:
        """Return whether every query behind a table has a result in the lake; true without queries."""
        stores = (
            QueryStore(self._lake.query(name), self._binding.queries[name].query, any_plan=True)
            for name in queries_of(target, self._binding)
        )
        return all((head := store.head()) is not None and head.batch for store in stores)

    def _changed_queries(self, target: Target) -> Iterator[str]:
        """Yield the queries behind a table whose result in the lake is of another plan, or of none yet."""
        for name in queries_of(target, self._binding):
            source = self._binding.queries[name]
            store = QueryStore(self._lake.query(name), source.query, any_plan=True)
            head = store.head()
            if head is not None and head.batch and head.positions.topic_ids.get(PLAN) != store.fingerprint:
                yield name

    def _recomputed(self, target: Target) -> ChangelogStore:
        """Compute the queries behind a table anew, over the changelogs of the lake; return the last one's result."""
        from upsert_platform.engine.runners import SparkRunner
        from upsert_platform.sql.evaluation import prepared

        made: dict[str, QueryStore] = {}
        names = list(queries_of(target, self._binding))
        texts = [item.sql for name in names for item in expressions(self._binding.queries[name].query.plan)]
        runner = SparkRunner(lambda: prepared(self._spark, texts), local_rows=0)
        for name in names:
            source = self._binding.queries[name]
            store = query_store(source, self._scratch)
            inputs = {
                table: made[table] if table in made else self._binding.changelog(table, self._lake)
                for table in source.query.tables
            }
            lookups = {table: self._binding.key_readers[table] for table in source.query.lookups}
            store.create()
            while (plan := plan_batch(store, inputs)).is_due:
                advance(store, plan, runner=runner, run="plan", lookups=lookups)
            made[name] = store
        assert isinstance(target.source, QuerySource)
        return made[target.source.query.name]

    def _changes(self, hop: DestinationHop, upto: int) -> DataFrame:
        return as_held(hop.destination, hop.changes_with_failures(self._spark, after=0, upto=upto))

    def _all_new(self, hop: DestinationHop, upto: int) -> Comparison:
        """Return every expected row as one that would be added."""
        from pyspark.sql import functions as F

        from upsert_platform.core.destination import FAILED, OPERATION, OPERATION_UPSERT
        from upsert_platform.sync.transform import computed

        changes = self._changes(hop, upto)
        count = computed(changes).where(F.col(OPERATION) == OPERATION_UPSERT).count()
        refused = changes.where(F.col(FAILED).isNotNull()).count() if FAILED in changes.columns else 0
        return Comparison(upto, True, count, missing=count, extra=0, stale=0, refused=refused, sample=())

    def _rows(self, hop: DestinationHop, upto: int, one_in: int) -> tuple[Comparison, dict[str, int]]:
        """Return the rows that differ from those of the table, and the number of rows in which each column does."""
        from pyspark.sql import functions as F

        changes, actual = self._changes(hop, upto), hop.destination.read(self._spark)
        if self._estimate:
            key = [F.col(quote_name(name)) for name in hop.destination.primary_key]
            # Of both sides the same keys: a table may hold a key in another form.
            changes = _sampled(changes, stored_key(hop.destination), one_in)
            actual = _sampled(actual, key, one_in)
        return self._judged(hop, changes, actual, upto, one_in)

    def _rows_by_lake(
        self, hop: DestinationHop, before: Target, upto: int, one_in: int
    ) -> tuple[Comparison, dict[str, int]]:
        """As `_rows`, of a sample, without the table: against what its deployed insert makes of it."""
        sample = hop.sample(self._spark, upto=upto, one_in=one_in).persist()
        try:
            changes, actual = sampled_sides(self._spark, hop, before, sample, upto=upto)
            return self._judged(hop, changes, actual, upto, one_in)
        finally:
            sample.unpersist()

    def _judged(
        self, hop: DestinationHop, changes: DataFrame, actual: DataFrame, upto: int, one_in: int
    ) -> tuple[Comparison, dict[str, int]]:
        # A sample is small, and its sides are computed once where they are joined at once.
        joined, equal = (
            (judged_rows(hop, changes, actual), NO_ROWS) if self._estimate else judged_by_buckets(hop, changes, actual)
        )
        judged = joined.persist()
        try:
            found = summed(hop, judged, batch=upto, complete=True, most=self._examples, equal=equal)
            columns = _differing_columns(hop, judged) if found.stale else {}
        finally:
            judged.unpersist()
        found = replace(found, missing=one_in * found.missing, extra=one_in * found.extra, stale=one_in * found.stale)
        return found, {name: one_in * count for name, count in columns.items()}


def _share_of(rows: int) -> int:
    """Return the share of keys that an estimate of so many rows looks at: one in so many, a power of two."""
    one_in = _ONE_IN
    while rows > one_in * _SAMPLED_ROWS and one_in < _SMALLEST_SHARE:
        one_in *= 2
    return one_in


def _set_aside(found: Comparison) -> str:
    if not found.refused:
        return ""
    return f"{counted(found.refused, 'row')} set aside, or that cannot be computed, are not compared"


def _sampled(frame: DataFrame, key: Sequence[SparkColumn], one_in: int) -> DataFrame:
    return frame.where(bucket_of(key) % one_in == 0)


def _basis(table: str, one_in: int, *, by_lake: bool) -> str:
    if not by_lake:
        return f"one key in {one_in} was compared with the table"
    return (
        f"one key in {one_in} was compared on the lake, as if the table held what the deployed project writes:"
        f" 'upsert-platform verify {table}' says whether it does"
    )


def _behind(applied: int, head: int) -> str:
    if applied >= head:
        return ""
    return f"it has applied batch {applied} of its changelog, which is at batch {head}: the next sync writes the others"


def _differing_columns(hop: DestinationHop, judged: DataFrame) -> dict[str, int]:
    """Return the columns that differ in stale rows, each with their number."""
    from pyspark.sql import functions as F

    key = hop.destination.primary_key
    names = [column.name for column in hop.destination.columns if column.name not in key]
    counts = [
        F.count(F.when(~F.col(f"e{index}").eqNullSafe(F.col(f"a{index}")), 1)).alias(f"c{index}")
        for index in range(len(names))
    ]
    row = judged.where(F.col(STATUS) == "stale").agg(*counts).collect()[0]
    return {name: row[f"c{index}"] for index, name in enumerate(names) if row[f"c{index}"]}


def _reset_of(target: Target, binding: Binding) -> str:
    with suppress(UpsertPlatformError):
        return f"upsert-platform reset {tables_of(target, binding)[0]} --drop-target --dry-run"
    return ""


def _remove(scratch: Lake) -> None:
    system, folder = file_system(TableLocation(scratch.root, scratch.options))
    with suppress(FileNotFoundError):
        system.delete_dir(folder.rstrip("/"))
