"""A project as Dagster definitions."""

from __future__ import annotations

import dagster as dg

from upsert_platform.graph import assets, checks, console, jobs, keys, sensors
from upsert_platform.graph.compact import compact_job
from upsert_platform.graph.delta_tables import major_compact_job
from upsert_platform.graph.io_managers import changelog_io, destination_io, query_io
from upsert_platform.graph.quarantine_check import quarantine_check
from upsert_platform.graph.rebuild import rebuild_job
from upsert_platform.graph.reconcile import reconcile_job
from upsert_platform.graph.resources import (
    KafkaResource,
    MaxComputeResource,
    PlatformResource,
    SparkResource,
    TablestoreResource,
    keeping_values,
)
from upsert_platform.graph.stream import stream_job
from upsert_platform.model import Project


def build_definitions(
    project: Project,
    *,
    platform: PlatformResource | None = None,
    spark: SparkResource | None = None,
) -> dg.Definitions:
    """Assets, checks, jobs, sensor and resources of a project.

    Args:
        platform: where the project and the lake are, and defaults for endpoints; from the environment if left out.
        spark: the session's settings.
    """
    spark = spark or SparkResource()
    platform = platform or default_platform()
    sync = jobs.sync_job(project)
    targets = [target for _, target in assets.inserts_of(project)]
    major_compact = major_compact_job(project)
    upkeep = [job for job in (jobs.ingest_job(project), major_compact, rebuild_job(project)) if job is not None]
    return dg.Definitions(
        assets=list(assets.project_assets(project)),
        asset_checks=[
            *(checks.accounted_check(table) for table in project.sources()),
            *(quarantine_check(table) for table in project.sources()),
            *(checks.last_value_check(table) for table in targets),
        ],
        jobs=[
            sync,
            jobs.verify_job(project),
            reconcile_job(project),
            compact_job(project),
            stream_job(project),
            *upkeep,
        ]
        if project.inserts
        else [],
        sensors=[sensors.new_offsets_sensor(project, sync)] if project.inserts else [],
        resources={
            "platform": keeping_values(platform),
            "spark": keeping_values(spark),
            keys.CHANGELOG_IO: changelog_io,
            keys.QUERY_IO: query_io,
            keys.DESTINATION_IO: destination_io,
        },
        loggers={console.CONSOLE: console.console},
    )


def default_platform() -> PlatformResource:
    """The project and the lake that the environment names."""
    return PlatformResource(kafka=KafkaResource(), tablestore=TablestoreResource(), maxcompute=MaxComputeResource())
