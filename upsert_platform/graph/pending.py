"""Finds what a run of a job would do and report, before it is started: without work and reports, no run is needed.

Every asset is asked as its step asks, and every check of a sync as its step evaluates it where nothing is new. Assets
and checks that are not the platform's are pending in every look: only a run knows what they say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from upsert_platform.changelog.pauses import paused
from upsert_platform.changelog.quarantine import nothing_decoded
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.masking import Mask
from upsert_platform.core.wording import counted
from upsert_platform.graph import changelog_checks, checks, keys
from upsert_platform.graph.keys import AssetKeys
from upsert_platform.graph.resources import PlatformResource, SparkResource
from upsert_platform.sync.freshness import FreshnessLimits, judge

_KINDS: Final = (keys.CHANGELOG_IO, keys.QUERY_IO, keys.DESTINATION_IO)
_CHECKS: Final = frozenset({keys.CHECK_ACCOUNTED, keys.CHECK_QUARANTINE, keys.CHECK_LAST_VALUE, keys.CHECK_FRESHNESS})
"""Checks of a sync: all others of a job are evaluated by its runs alone."""

_SIDE_BY_SIDE: Final = 4
"""Assets that are asked at a time."""


@dataclass(frozen=True)
class AssetState:
    """An asset as it stands.

    Attributes:
        key: of the asset.
        batch: the last one committed or applied; 0 before the first.
        offsets: how many are read of its topics; 0 for what reads none.
        checks: name of a check to whether it passes.
        work: what a run has to do; empty if nothing.
        report: what a run has to report; empty if nothing.
        note: what does not need a run, such as a pause.
    """

    key: dg.AssetKey
    batch: int = 0
    offsets: int = 0
    checks: Mapping[str, bool] = field(default_factory=dict)
    work: str = ""
    report: str = ""
    note: str = ""


@dataclass(frozen=True)
class Pending:
    """The result of a look at a job.

    Attributes:
        states: one per asset, those that are read first.
        assets: keys of those that a run has to materialise, with what follows from new rows; empty if none.
    """

    states: tuple[AssetState, ...]
    assets: tuple[dg.AssetKey, ...]

    @property
    def reasons(self) -> Mapping[str, str]:
        """Asset to why it is pending by itself."""
        return {item.key.to_user_string(): text for item in self.states if (text := item.work or item.report)}


def pending(
    repository: dg.RepositoryDefinition,
    job: dg.JobDefinition,
    *,
    instance: dg.DagsterInstance,
    assets: Collection[dg.AssetKey] | None = None,
) -> Pending:
    """Ask every asset of a job whether a run would do or report anything. Starts no Spark, and writes no event.

    Args:
        repository: code location of the job.
        instance: where the last results of checks are; a check that did not pass there is reported by a run.
        assets: part of the job; all of it if left out.
    """
    layer = job.asset_layer
    executable = set(layer.executable_asset_keys)
    wanted = sorted(executable if assets is None else executable & set(assets))
    job_checks = {key for item in layer.data for key in item.assets_def.check_keys}
    own_checks = {key: {item.name for item in job_checks if item.asset_key == key} for key in wanted}
    stale = _stale([item for item in job_checks if item.asset_key in own_checks], instance)
    named = [(key, *_named(layer.get(key).assets_def, key)) for key in wanted]
    found: dict[dg.AssetKey, AssetState] = {}
    for suffix in dict.fromkeys(suffix for _, kind, suffix, _ in named if kind):
        mine = [(key, kind, table) for key, kind, other, table in named if kind and other == suffix]
        with _resources(repository, suffix, instance) as resources:
            asks = _Asks(*resources, AssetKeys(instance=suffix))
            ordered = [item for kind in _KINDS for item in mine if item[1] == kind]
            states = asks.states([(*item, own_checks[item[0]], stale.get(item[0], "")) for item in ordered])
            found |= {item.key: item for item in states}
    for key in wanted:
        found.setdefault(key, AssetState(key, report="only a run materialises it"))
    graph = repository.asset_graph
    due = [item.key for item in found.values() if item.work]
    follows = dg.AssetSelection.assets(*due).downstream().resolve(graph) if due else set()
    told = {item.key for item in found.values() if item.report}
    return Pending(tuple(found.values()), tuple(sorted((set(follows) | told) & set(wanted))))


def _named(definition: dg.AssetsDefinition, key: dg.AssetKey) -> tuple[str, str, str]:
    """Return the kind of an asset by its IO manager, the suffix of its project's resources, and its declared table.

    All are empty for an asset that is not the platform's.
    """
    manager = definition.get_io_manager_key_for_asset_key(key)
    table = definition.metadata_by_key.get(key, {}).get(keys.TABLE_METADATA)
    for kind in _KINDS:
        if table is not None and (manager == kind or manager.startswith(f"{kind}_")):
            return kind, manager.removeprefix(kind).removeprefix("_"), str(getattr(table, "value", table))
    return "", "", ""


def _stale(wanted: Collection[dg.AssetCheckKey], instance: dg.DagsterInstance) -> dict[dg.AssetKey, str]:
    """Return assets of which the instance does not have a passed check, each with the reason."""
    known = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(wanted))
    found = {}
    for key in wanted:
        last = known.get(key)
        if last is None:
            found[key.asset_key] = f"this Dagster instance has no result of '{key.name}'"
        elif last.status != AssetCheckExecutionRecordStatus.SUCCEEDED:
            found[key.asset_key] = f"the last result of '{key.name}' in this Dagster instance did not pass"
    return found


@contextmanager
def _resources(
    repository: dg.RepositoryDefinition, suffix: str, instance: dg.DagsterInstance
) -> Iterator[tuple[PlatformResource, SparkResource]]:
    """Open the resources of a project, with those that they need, and no others of the code location."""
    every = repository.get_top_level_resources()
    names = AssetKeys(instance=suffix)
    waiting = [names.named(keys.PLATFORM), names.named(keys.SPARK)]
    needed: dict[str, Any] = {}
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed[name] = every[name]
            waiting += every[name].get_required_resource_keys(every)
    with dg.build_resources(needed, instance=instance) as found:
        yield getattr(found, names.named(keys.PLATFORM)), getattr(found, names.named(keys.SPARK))


class _Asks:
    """Asks the assets of one project.

    Args:
        names: of its jobs, which remedies name.
    """

    def __init__(self, platform: PlatformResource, spark: SparkResource, names: AssetKeys) -> None:
        self._platform, self._spark, self._names = platform, spark, names
        self._paused: Mapping[str, object] | None = None
        self._opening = Lock()

    def states(self, wanted: Sequence[tuple[dg.AssetKey, str, str, Collection[str], str]]) -> list[AssetState]:
        """Return `state` of assets, in their order.

        The first of each kind is asked alone: it loads modules, and what all share. The others are asked side by
        side, for half of their time goes by in brokers, tables and the reading of logs.
        """
        first = {item[1]: item for item in reversed(wanted)}
        found = {item[0]: self.state(*item) for item in first.values()}
        others = [item for item in wanted if item[0] not in found]
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            found |= {state.key: state for state in pool.map(lambda item: self.state(*item), others)}
        return [found[key] for key, *_ in wanted]

    def state(self, key: dg.AssetKey, kind: str, table: str, names: Collection[str], stale: str) -> AssetState:
        """Return the state of an asset.

        Args:
            table: as declared.
            names: of its checks in the job.
            stale: why the instance does not know it as it is; empty if it does.
        """
        others = sorted(set(names) - _CHECKS)
        try:
            if kind == keys.CHANGELOG_IO:
                found = self._changelog(key, table)
            elif kind == keys.QUERY_IO:
                found = self._query(key, table)
            else:
                found = self._destination(key, table, set(names))
        except UpsertPlatformError as error:  # the run fails with it, and others go on
            return AssetState(key, work=str(error))
        failed = [name for name, passes in found.checks.items() if not passes]
        report = f"{failed[0]} does not pass" if failed else f"{others[0]} is evaluated by runs" if others else stale
        return AssetState(key, found.batch, found.offsets, found.checks, found.work, report, found.note)

    def _changelog(self, key: dg.AssetKey, table: str) -> AssetState:
        source = self._platform.sound().sources[table]
        with self._opening:
            hop = self._platform.changelog_hop(table, run="")
        hop.store.begin_look()
        plan, store = hop.plan(), hop.store
        results = (
            changelog_checks.accounted_result(store, own=[], key=key),
            changelog_checks.quarantine_result(source, store, nothing_decoded(store, Mask.of(source.table)), key=key),
        )
        positions = plan.head.positions.offsets if plan.head else {}
        return AssetState(
            key,
            plan.head.batch if plan.head else 0,
            sum(sum(offsets.values()) for offsets in positions.values()),
            {str(item.check_name): item.passed for item in results},
            f"{counted(plan.lag, 'offset')} to read" if plan.backlog else "",
        )

    def _query(self, key: dg.AssetKey, table: str) -> AssetState:
        with self._opening:
            hop = self._platform.query_hop(table, run="")
        plan = hop.plan()
        work = f"{counted(plan.behind, 'batch')} to compute" if plan.is_due else ""
        return AssetState(key, plan.head.batch if plan.head else 0, work=work)

    def _destination(self, key: dg.AssetKey, table: str, names: Collection[str]) -> AssetState:
        bound = self._platform.sound().targets.get(table)
        if bound is None:  # an asset of one's own that writes a declared table
            return AssetState(key, work="only a run materialises it")
        self._spark.refuse_wrong(self._platform)
        with self._opening:
            hop = self._platform.destination_hop(table, run="")
        hop.store.begin_look()
        try:
            plan = hop.plan()
            note = str(self._pauses().get(table, ""))
            work = ""
            if (plan.behind or plan.state.lost) and not note:
                work = plan.state.lost or f"{counted(plan.behind, 'batch')} to apply"
            elif plan.head is not None and not note:
                hop.destination.prepare()  # refuses a declaration that the table does not fit, as a run does
            result = checks.standing_result(hop, plan.state, key=key, names=self._names)
        finally:
            hop.destination.close()
        passed: dict[str, bool] = {keys.CHECK_LAST_VALUE: result.passed} if result is not None else {}
        if result is None:
            work = work or "batches to compare"
        if keys.CHECK_FRESHNESS in names and FreshnessLimits.of(bound.table) is not None:
            passed[keys.CHECK_FRESHNESS] = judge(self._platform.sound(), bound, self._platform.lake).passed
        return AssetState(key, plan.state.applied_batch, checks=passed, work=work, note=note)

    def _pauses(self) -> Mapping[str, object]:
        if self._paused is None:
            self._paused = dict(paused(self._platform.lake))
        return self._paused
