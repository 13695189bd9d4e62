"""Finds what a run of a job would do and report, before it is started: without work and reports, no run is needed.

`sync.looks` asks the tables. Assets and checks that are not the platform's are pending in every look: only a run knows
what they say.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from upsert_platform.core import check_names
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.graph import keys
from upsert_platform.graph.keys import AssetKeys
from upsert_platform.graph.resources import PlatformResource, SparkResource
from upsert_platform.graph.unchanged import report_due
from upsert_platform.sync.looks import Asked, Kind, Look, Looks

if TYPE_CHECKING:
    from dagster._core.definitions.assets.job.asset_layer import AssetLayer

_KINDS: Final = {
    keys.CHANGELOG_IO: Kind.CHANGELOG, keys.QUERY_IO: Kind.QUERY, keys.DESTINATION_IO: Kind.TABLE
}  # fmt: skip
_ONLY_A_RUN: Final = "only a run materialises it"


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
    known: Mapping[Asked, Look] | None = None,
) -> Pending:
    """Ask every asset of a job whether a run would do or report anything. Starts no Spark, and writes no event.

    Args:
        repository: code location of the job.
        instance: where the last results of checks are; a check that did not pass there is reported by a run.
        assets: part of the job; all of it if left out.
        known: looks at the project of the location's own definitions that were made a moment ago.
    """
    known = known or {}
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
        ordered = [(key, Asked(_KINDS[kind], table)) for wanted_kind in _KINDS for key, kind, table in mine
                   if kind == wanted_kind]  # fmt: skip
        with _resources(repository, suffix, instance) as (platform, spark):
            looks = _looks(platform, spark, [asked for _, asked in ordered], known if not suffix else {})
        found |= {key: _state(key, looks[asked], own_checks[key], stale.get(key, "")) for key, asked in ordered}
    found |= _with_reports(layer, [item for item in found.values() if not item.work and not item.report], instance)
    for key in wanted:
        found.setdefault(key, AssetState(key, report=_ONLY_A_RUN))
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


def _with_reports(
    layer: AssetLayer, states: Sequence[AssetState], instance: dg.DagsterInstance
) -> dict[dg.AssetKey, AssetState]:
    """Return those assets of which a run would record a materialisation, though nothing is new, with the reason."""
    records = instance.get_asset_records([item.key for item in states]) if states else ()
    known = {record.asset_entry.asset_key: record.asset_entry.last_materialization_record for record in records}
    found, now = {}, time.time()
    for item in states:
        record = known.get(item.key)
        last = None if record is None else record.asset_materialization
        if record is None or last is None:
            found[item.key] = replace(item, report="this Dagster instance has no materialisation of it")
        else:
            spec = layer.get(item.key).assets_def.specs_by_key[item.key]
            age = timedelta(seconds=now - record.timestamp)
            report = report_due(spec, last, age=age, paused=bool(item.note))
            found[item.key] = replace(item, report=report)
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


def _looks(
    platform: PlatformResource, spark: SparkResource, wanted: Sequence[Asked], known: Mapping[Asked, Look]
) -> dict[Asked, Look]:
    """Return looks at tables of a project; those that are not known are made."""
    found = {item: known[item] for item in wanted if item in known}
    others = [item for item in wanted if item not in found]
    if others:
        targets = platform.sound().targets
        written = [item for item in others if item.kind is Kind.TABLE and targets.get(item.table) is None]
        found |= dict.fromkeys(written, Look(work=_ONLY_A_RUN))  # assets of one's own write them
        found |= Looks(platform.hops()).of([item for item in others if item not in found])
    try:
        spark.refuse_wrong(platform)
    except UpsertPlatformError as error:
        found |= {item: Look(work=str(error)) for item in found if item.kind is Kind.TABLE}
    return found


def _state(key: dg.AssetKey, look: Look, names: Collection[str], stale: str) -> AssetState:
    """Return the state of an asset.

    Args:
        names: of its checks in the job.
        stale: why the instance does not know it as it is; empty if it does.
    """
    others = sorted(set(names) - check_names.OF_SYNC)
    checks = {name: passes for name, passes in look.checks.items() if name != keys.CHECK_FRESHNESS or name in names}
    failed = [name for name, passes in checks.items() if not passes]
    report = f"{failed[0]} does not pass" if failed else f"{others[0]} is evaluated by runs" if others else stale
    return AssetState(key, look.batch, look.offsets, checks, look.work, report, look.note)
