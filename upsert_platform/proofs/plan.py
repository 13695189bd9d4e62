"""Shows what an edited project changes before anything happens: declarations, rows of tables, queries to be rebuilt.

Rows are compared as they would be: the insert is computed over the lake as the project declares it now, beside the rows
that the table holds. Nothing is written but results of queries, into a folder of the lake that is removed at the end.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.changelog.data_files import file_system
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.destination import Destination, DestinationState
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.masking import MASKED
from upsert_platform.core.model import Insert, Project, Table
from upsert_platform.core.redaction import is_secret_name
from upsert_platform.core.types import quote_name
from upsert_platform.engine.engine import advance, plan_batch
from upsert_platform.engine.store import PLAN, QueryStore
from upsert_platform.proofs.inputs import queries_of, tables_of
from upsert_platform.sync.binding import Binding, QuerySource, Target, changelog_of, query_store
from upsert_platform.sync.comparison import SHOWN_ROWS, Comparison
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.equal_sums import bucket_of
from upsert_platform.sync.verify import CHANGE, as_held, is_comparable, judged_by_buckets, summed
from upsert_platform.writing.outcomes import failure_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from upsert_platform.changelog.store import ChangelogStore

_ONE_IN: Final = 32
"""The share of keys that an estimate looks at."""


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
class TablePlan:
    """The effect of a project on a table that an insert writes.

    Attributes:
        declared: differences of the declarations behind the table, where the deployed ones are given.
        rows: rows that differ: `missing` ones would be added, `extra` ones removed, `stale` ones changed. None where
            rows are not compared.
        estimated: whether `rows` is an estimate, of a sample of keys.
        rebuilds: queries whose result has to be computed anew.
        reason: why the table is refused, or its rows are not compared.
        command: what makes the rows equal; empty where nothing has to be done.
    """

    table: str
    kind: Kind
    declared: tuple[str, ...] = ()
    rows: Comparison | None = None
    estimated: bool = False
    rebuilds: tuple[str, ...] = ()
    reason: str = ""
    command: str = ""

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
) -> list[TablePlan]:
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
    scratch = lake.proof("(plan)", f"plan-{uuid.uuid4().hex[:12]}")
    planning = _Planning(spark, binding, lake, scratch, estimate=estimate, examples=examples)
    plans = []
    try:
        for target in chosen:
            tell(f"comparing '{target.table.name}'")
            declared = () if deployed is None else tuple(_declared(deployed, binding, target))
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
    return plans


class _Planning:
    """Compares tables with what their inserts would write."""

    def __init__(
        self, spark: SparkSession, binding: Binding, lake: Lake, scratch: Lake, *, estimate: bool, examples: int
    ) -> None:
        self._spark = spark
        self._binding = binding
        self._lake = lake
        self._scratch = scratch
        self._estimate = estimate
        self._examples = examples

    def of(self, target: Target) -> TablePlan:
        """Return the effect on one table."""
        from pyspark.errors import PySparkException

        name = target.table.name
        try:
            with closing(target.open()) as destination:
                return self._compared(target, destination, destination.state())
        except (UpsertPlatformError, PySparkException) as raised:
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
        store = self._recomputed(target) if anew else changelog_of(target.source, self._lake)
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
            return TablePlan(name, Kind.NEW, rows=found, rebuilds=rebuilds, command=command)
        own = not rebuilds and state.changelog_id == head.changelog_id
        found = self._rows(hop, min(state.applied_batch, head.batch) if own else head.batch)
        if found.passed and not rebuilds:
            return TablePlan(name, Kind.SAME, rows=found, estimated=self._estimate)
        command = "upsert-platform run rebuild" if rebuilds else f"upsert-platform reconcile {name}"
        return TablePlan(name, Kind.CHANGED, rows=found, estimated=self._estimate, rebuilds=rebuilds, command=command)

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
        runner = SparkRunner(lambda: prepared(self._spark), local_rows=0)
        for name in queries_of(target, self._binding):
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
        return as_held(hop.destination, hop.changes(self._spark, after=0, upto=upto))

    def _all_new(self, hop: DestinationHop, upto: int) -> Comparison:
        """Return every expected row as one that would be added."""
        from pyspark.sql import functions as F

        from upsert_platform.core.destination import OPERATION, OPERATION_UPSERT

        count = self._changes(hop, upto).where(F.col(OPERATION) == OPERATION_UPSERT).count()
        return Comparison(upto, True, count, missing=count, extra=0, stale=0, refused=0, sample=())

    def _rows(self, hop: DestinationHop, upto: int) -> Comparison:
        """Return the rows that differ."""
        changes, actual = self._changes(hop, upto), hop.destination.read(self._spark)
        if self._estimate:
            changes, actual = (self._sampled(frame, hop.destination.primary_key) for frame in (changes, actual))
        joined, equal = judged_by_buckets(hop, changes, actual)
        judged = joined.drop(CHANGE).persist()
        try:
            found = summed(hop, judged, batch=upto, complete=True, most=self._examples)
        finally:
            judged.unpersist()
        found = replace(found, compared=found.compared + equal.rows, rows=(found.rows or 0) + equal.wanted)
        if not self._estimate:
            return found
        return replace(found, missing=_ONE_IN * found.missing, extra=_ONE_IN * found.extra, stale=_ONE_IN * found.stale)

    def _sampled(self, frame: DataFrame, key: Sequence[str]) -> DataFrame:
        from pyspark.sql import functions as F

        return frame.where(bucket_of([F.col(quote_name(name)) for name in key]) % _ONE_IN == 0)


def _reset_of(target: Target, binding: Binding) -> str:
    with suppress(UpsertPlatformError):
        return f"upsert-platform reset {tables_of(target, binding)[0]} --drop-target --dry-run"
    return ""


def _remove(scratch: Lake) -> None:
    system, folder = file_system(TableLocation(scratch.root, scratch.options))
    with suppress(FileNotFoundError):
        system.delete_dir(folder.rstrip("/"))


def _declared(deployed: Project, binding: Binding, target: Target) -> Iterator[str]:
    """Yield what differs in the declarations of a table, of its insert, and of the tables that it reads."""
    project, name = binding.project, target.table.name
    for table in dict.fromkeys([name, *target.insert.tables, *tables_of(target, binding)]):
        if table not in project.tables:
            continue
        if table not in deployed.tables:
            yield f"table '{table}' is new"
            continue
        for line in _differences(deployed.tables[table], project.tables[table]):
            yield f"table '{table}': {line}"
    before = [insert for insert in deployed.inserts if insert.target == name]
    now = [insert for insert in project.inserts if insert.target == name]
    if before and list(map(_meaning, before)) != list(map(_meaning, now)):
        yield f"INSERT INTO {name}: {' '.join(now[0].sql.split()) if now else 'is gone'}"


def _meaning(insert: Insert) -> tuple[Any, ...]:
    """Return what an insert computes, however it is written."""
    plan = None if insert.query is None else (insert.query.key, repr(insert.query.plan))
    return insert.source, insert.projections, insert.predicate, insert.overwrite, plan


def _differences(before: Table, now: Table) -> Iterator[str]:
    """Yield what differs in the declarations of a table."""
    old, new = ({column.name: column for column in table.columns} for table in (before, now))
    for name in new.keys() - old.keys():
        yield f"column '{name}' {new[name].type} is added"
    for name in old.keys() - new.keys():
        yield f"column '{name}' {old[name].type} is removed"
    for name in old.keys() & new.keys():
        if str(old[name].type) != str(new[name].type):
            yield f"column '{name}' is {new[name].type}, and was {old[name].type}"
        elif (old[name].expression, old[name].metadata_key) != (new[name].expression, new[name].metadata_key):
            yield f"column '{name}' is computed otherwise"
    for what, one, other in (
        ("primary key", before.primary_key, now.primary_key),
        ("partition columns", before.partitioned_by, now.partitioned_by),
        ("watermark", before.watermark, now.watermark),
    ):
        if one != other:
            yield f"{what} {_shown(other)}, and was {_shown(one)}"
    yield from _options({**before.options, **before.platform}, {**now.options, **now.platform})


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(value)})"
    return str(value) if value is not None else "none"


def _options(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(before.keys() | now.keys()):
        one, other = before.get(name), now.get(name)
        if one == other:
            continue
        hidden = is_secret_name(name)
        old, new = (MASKED if hidden and value is not None else value for value in (one, other))
        yield f"option '{name}' is {_quoted(new)}, and was {_quoted(old)}"


def _quoted(value: str | None) -> str:
    return "not declared" if value is None else f"'{value}'"
