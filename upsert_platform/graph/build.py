"""A project as Dagster definitions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dagster as dg

from upsert_platform.core.model import Project
from upsert_platform.graph import assets, console, jobs, keys, sensors
from upsert_platform.graph.alerts import declared_alerts
from upsert_platform.graph.automation import LOOKS, Automation, automation_of, with_conditions
from upsert_platform.graph.broken import BROKEN_TAG, Faults, broken_declarations, warn_of
from upsert_platform.graph.compact import compact_job
from upsert_platform.graph.component_settings import DefinitionSettings
from upsert_platform.graph.delta_tables import major_compact_job
from upsert_platform.graph.drain_quarantine import drain_job
from upsert_platform.graph.io_managers import changelog_io_manager, destination_io_manager, query_io_manager
from upsert_platform.graph.keys import AssetKeys
from upsert_platform.graph.launchable import launchable
from upsert_platform.graph.rebuild import rebuild_job
from upsert_platform.graph.reconcile import reconcile_job
from upsert_platform.graph.replay import replay_job
from upsert_platform.graph.resources import (
    KafkaResource,
    MaxComputeResource,
    PlatformResource,
    SparkResource,
    TablestoreResource,
    top_level,
)
from upsert_platform.graph.stream import stream_job
from upsert_platform.graph.table_checks import project_checks
from upsert_platform.graph.translator import UpsertTranslator, translator_of
from upsert_platform.sync.binding import with_defaults


def build_definitions(
    project: Project,
    *,
    platform: PlatformResource | None = None,
    spark: SparkResource | None = None,
    automation: str | None = None,
    translator: UpsertTranslator | None = None,
    instance: str = "",
    executor: dg.ExecutorDefinition | None = dg.in_process_executor,
    alerts: bool = True,
    faults: Faults | None = None,
    settings: DefinitionSettings | None = None,
) -> dg.Definitions:
    """Assets, checks, jobs, sensor and resources of a project.

    Args:
        platform: where the project and the lake are, and defaults for endpoints; from the environment if left out.
        spark: the session's settings.
        automation: ``sensor`` or ``conditions``; see `automation`. From the environment if left out.
        translator: how assets are called and shown; see `translator`. From the environment if left out.
        instance: tells the project from others of the same code location: names of its resources, IO managers, jobs,
            schedules, sensors and ops end in it. Keys of assets are a translator's.
        executor: of runs that are launched from the graph; None where the code location names one itself. Dagster's own
            gives each step a process, with a JVM.
        alerts: whether the sensors of alerts are part of it; they look at every run of the code location.
        faults: table to the errors of its declaration: its assets fail with them, and the others go on.
        settings: of steps, jobs, the sensor and schedules.

    Raises:
        DeclarationError: there is no automation of that name, a translator answers what cannot be, or settings name
            what the project does not have.
    """
    settings = settings or DefinitionSettings()
    by_conditions = automation_of(automation) is Automation.CONDITIONS
    spark = spark or SparkResource()
    platform = platform or default_platform()
    # Tables are shown as they are once resources have completed them.
    project = with_options(project, platform)
    faults = faults or {}
    translation = assets.project_translation(project, translator_of(translator), instance=instance, faults=faults)
    names = translation.keys
    broken = list(broken_declarations(faults, names))
    made = list(
        assets.project_assets(
            project, translation, looks=LOOKS if by_conditions else None, faults=faults, steps=settings.steps
        )
    )
    wrong = [key for item in (*made, *broken) for key in _broken_keys(item)]
    sync = jobs.sync_job(project, names, broken=wrong)
    targets = [target for _, target in assets.inserts_of(project)]
    found = (
        *(sync, jobs.verify_job(project, names), reconcile_job(project, names), drain_job(project, names)),
        *(compact_job(project, names), stream_job(project, names), jobs.ingest_job(project, names)),
        *(jobs.audit_job(project, names), jobs.prove_job(project, names), jobs.plan_job(project, names)),
        jobs.watch_job(project, names),
        *(major_compact_job(project, names), rebuild_job(project, names), replay_job(project, names)),
    )
    enabled = settings.adjusted_jobs(
        (job for job in found if job is not None) if project.inserts or broken else (), names
    )
    asks = settings.sensor_of(sync.name, enabled, by_conditions=by_conditions) if project.inserts else None
    by_name = {job.name: job for job in enabled}
    return dg.Definitions(
        assets=[*(with_conditions(made) if by_conditions else made), *broken],
        asset_checks=list(project_checks(project.sources(), targets, names)),
        jobs=enabled,
        schedules=settings.schedules_of(enabled, names, jobs.SCHEDULES) if project.inserts else [],
        sensors=[
            *([sensors.new_offsets_sensor(project, by_name[sync.name], names, settings=asks)] if asks else []),
            *(declared_alerts() if alerts else ()),
        ],
        resources=resources_of(platform, spark, names),
        executor=executor,
        loggers={console.CONSOLE: console.console},
    )


def _broken_keys(asset: object) -> list[dg.AssetKey]:
    specs = asset.specs if isinstance(asset, dg.AssetsDefinition) else ()
    return [spec.key for spec in specs if BROKEN_TAG in spec.tags]


def with_options(project: Project, platform: PlatformResource) -> Project:
    """The project as assets show it: tables completed by the resources, inserts between declared tables."""
    defaults = platform.defaults()
    tables = {name: with_defaults(item, defaults) for name, item in project.tables.items()}
    return replace(project, tables=tables, inserts=tuple(insert for insert, _ in assets.inserts_of(project)))


def resources_of(platform: PlatformResource, spark: SparkResource, names: AssetKeys) -> dict[str, Any]:
    """The resources and IO managers of a project, by their names in the code location."""
    return {
        **{names.named(name): found for name, found in top_level(platform).items()},
        names.named(keys.SPARK): launchable(spark),
        names.named(keys.CHANGELOG_IO): changelog_io_manager(names),
        names.named(keys.QUERY_IO): query_io_manager(names),
        names.named(keys.DESTINATION_IO): destination_io_manager(names),
    }


def definitions_of(platform: PlatformResource, **given: Any) -> dg.Definitions:
    """The definitions of the project that a resource names, whatever is wrong with it, and whatever is not set.

    Args:
        given: as `build_definitions` takes them.
    """
    found = platform.declared()
    warn_of(found.unset, found.faults, folder=found.project.path)
    return build_definitions(found.project, platform=platform, faults=found.faults, **given)


def default_platform() -> PlatformResource:
    """The project and the lake that the environment names."""
    return PlatformResource(kafka=KafkaResource(), tablestore=TablestoreResource(), maxcompute=MaxComputeResource())
