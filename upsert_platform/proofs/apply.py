"""Carries out a plan: exactly what it says, or nothing where the lake, a table or a declaration moved since.

A changed query is computed anew beside its old result, and the switch is one commit of the lake. Then each table is
compared again under its lease, and the rows that differ are written in one step with the position. The same plan
continues a run that was killed: the commits of the run carry the plan's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import Head
from upsert_platform.core.errors import DestinationError, UpsertPlatformError
from upsert_platform.engine.store import QueryStore
from upsert_platform.proofs.inputs import queries_of
from upsert_platform.proofs.plan import Kind
from upsert_platform.proofs.plan_file import PlanFile, PlannedTable
from upsert_platform.proofs.world import moved, world_of
from upsert_platform.sync.binding import Binding, changelog_of
from upsert_platform.sync.comparison import Comparison
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.reconcile import reconcile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Applied:
    """The effect of an apply on a table.

    Attributes:
        put, deleted, refused: rows.
        equal: whether the table equals its declaration at the end; None where it was not compared.
    """

    table: str
    put: int = 0
    deleted: int = 0
    refused: int = 0
    equal: bool | None = None


def check_applicable(plan: PlanFile, binding: Binding, lake: Lake) -> None:
    """Refuse a plan that cannot be carried out as it is. No JVM.

    Raises:
        UpsertPlatformError: it is an estimate, a table is refused, or the world moved.
    """
    if plan.estimated:
        raise UpsertPlatformError(
            "the plan is an estimate, whose rows nobody has seen: plan without --estimate, then apply that"
        )
    for item in plan.tables:
        if item.kind is Kind.REFUSED:
            raise UpsertPlatformError(f"the plan cannot be applied: table '{item.table}' is refused: {item.reason}")
        if item.kind is Kind.CHANGED and item.rebuilds and item.added is None:
            raise UpsertPlatformError(
                f"the plan cannot be applied: table '{item.table}' is not compared by key, so that nobody could write"
                f" its differences; 'upsert-platform reset {item.table}' has it built anew"
            )
        if item.kind is not Kind.GONE and item.table not in binding.targets:
            raise UpsertPlatformError(
                f"the world moved since the plan was made: no insert writes table '{item.table}' any more; plan again"
            )
    tables = [item.table for item in plan.tables if item.kind is not Kind.GONE]
    lines = list(moved(plan.world, world_of(binding, lake, tables), own=f"{plan.run}/"))
    if lines:
        raise UpsertPlatformError(
            f"the world moved since the plan was made: {'; '.join(lines)}. Nothing more was written; switch the sensor"
            " off, then plan again"
        )


def apply(
    spark: SparkSession,
    plan: PlanFile,
    binding: Binding,
    lake: Lake,
    *,
    tell: Callable[[str], None] = lambda message: None,
) -> list[Applied]:
    """Carry out a plan.

    Args:
        tell: is given a line per step.

    Returns:
        What was done to each table of the plan that changes.

    Raises:
        UpsertPlatformError: the plan cannot be applied, or a table would get more rows than the plan says.
        LeaseHeldError: another run writes a table.
    """
    check_applicable(plan, binding, lake)
    heads: dict[str, Head] = {}
    for item in plan.due:
        _compute(spark, plan, item, binding, lake, heads, tell)
    check_applicable(plan, binding, lake)
    return [_write(spark, plan, item, binding, lake, heads, tell) for item in plan.due]


def _compute(
    spark: SparkSession,
    plan: PlanFile,
    item: PlannedTable,
    binding: Binding,
    lake: Lake,
    heads: dict[str, Head],
    tell: Callable[[str], None],
) -> None:
    """Have the queries behind a table computed as they are declared, each by one commit where it had a result."""
    work, queries = OnDemand.dividing(spark), queries_of(binding.targets[item.table], binding)
    if not item.rebuilds and all(plan.world.lake[name].batch for name in queries):
        return  # the plan has taken the results as they are
    for name in queries:
        if name in heads:
            continue
        store = QueryStore(lake.query(name), binding.queries[name].query, any_plan=True)
        head = store.head()
        own = head is not None and head.run.startswith(f"{plan.run}/")
        hop = binding.query_hop(name, lake, run=plan.run)
        if name in item.rebuilds and not own:
            tell(f"query '{name}' is computed anew")
            hop.rebuild(work, tell=tell)
        elif name not in item.rebuilds:
            tell(f"query '{name}' is computed")
            hop.execute(work)
        done = store.head()
        assert done is not None
        heads[name] = done


def _write(
    spark: SparkSession,
    plan: PlanFile,
    item: PlannedTable,
    binding: Binding,
    lake: Lake,
    heads: Mapping[str, Head],
    tell: Callable[[str], None],
) -> Applied:
    target = binding.targets[item.table]
    store = changelog_of(target.source, lake)
    with closing(target.open()) as destination:
        refused = RefusedStore(lake.refused(item.table))
        hop = DestinationHop(target, store, destination, refused=refused, run=plan.run)
        if item.kind is Kind.NEW:
            tell(f"writing table '{item.table}'")
            run = hop.execute(OnDemand.dividing(spark), hop.plan(), tell=tell)
            if run is None:
                return Applied(item.table)
            report = run.report
            return Applied(item.table, report.upserts, report.deletes, report.refused_count)
        if not item.rebuilds and not (item.added or item.changed or item.removed):
            destination.prepare()
            return Applied(item.table, equal=None if item.added is None else True)
        tell(f"writing the rows of '{item.table}' that differ")
        through = heads[target.insert.source] if item.rebuilds else None
        done = reconcile(
            spark, hop, dry_run=False, through=through, check=lambda found: _check_planned(item, found), tell=tell
        )
        counts = done.report
        if counts is None:
            return Applied(item.table, equal=done.last.passed)
        return Applied(item.table, counts.upserts, counts.deletes, counts.refused_count, done.last.passed)


def _check_planned(item: PlannedTable, found: Comparison) -> None:
    """Refuse to write more than was planned; less is what a run that was killed has left to do."""
    planned = (item.added or 0, item.changed or 0, item.removed or 0)
    differs = (found.missing, found.stale, found.extra)
    if any(more > most for more, most in zip(differs, planned, strict=True)):
        raise DestinationError(
            f"table '{item.table}': {differs[0]} rows would be added, {differs[1]} changed and {differs[2]} removed,"
            f" and the plan says {planned[0]}, {planned[1]} and {planned[2]}: another program has written the table"
            " since the plan was made. Nothing was written into it; plan again"
        )
