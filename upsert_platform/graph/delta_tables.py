"""Delta tables of MaxCompute: those that others write, as source assets with their changes; major compaction as a job.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg

from upsert_platform.core.errors import DeclarationError, Problem
from upsert_platform.core.model import Project, Table
from upsert_platform.core.platform_options import platform_settings
from upsert_platform.graph import keys
from upsert_platform.graph.declared import code_references, declared_at
from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.observable import observable_asset
from upsert_platform.graph.resources import PlatformResource
from upsert_platform.graph.translator import Translation, TranslatorData
from upsert_platform.maxcompute.connector import MaxComputeConnector
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.sync.binding import with_defaults
from upsert_platform.sync.connectors import connector_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from upsert_platform.maxcompute.changes import TableVersions
    from upsert_platform.maxcompute.table import MaxComputeTable

MAJOR_COMPACT = "major_compact"


def delta_source_assets(project: Project, translation: Translation) -> list[Any]:
    """One observable asset per Delta table that is declared and that no INSERT writes; its data version is the table's.

    Only tables with a key are meant: ``'connector' = 'maxcompute'``, ``'sink.operation' = 'upsert'``.
    """
    written = {insert.target for insert in project.inserts}
    return [
        _source(table, translation, project=project.path)
        for table in project.tables.values()
        if _is_delta(table) and table.name not in written
    ]


def changes_of(
    platform: PlatformResource, spark: "SparkSession", name: str, *, after: int, upto: int | None = None
) -> tuple["DataFrame", int]:
    """Changes of a declared Delta table after a version, and the version to read on after.

    Raises:
        DeclarationError: the table is not declared, or not as a MaxCompute table.
        DestinationError: it keeps no changes, or differs from its declaration.
        EndpointError: no answer.
    """
    from upsert_platform.maxcompute.changes import read_changes

    return read_changes(spark, _settings(platform, name), after=after, upto=upto)


def major_compact_job(project: Project, names: AssetKeys = AS_DECLARED) -> dg.JobDefinition | None:
    """One step per Delta table that an INSERT keeps; None without any."""
    written = {insert.target for insert in project.inserts}
    steps = [
        _compaction(table, names) for table in project.tables.values() if _is_delta(table) and table.name in written
    ]
    if not steps:
        return None

    @dg.job(
        name=names.named(MAJOR_COMPACT),
        executor_def=dg.in_process_executor,
        description="Runs a major compaction of every Delta table of MaxCompute as its only writer: it keeps the newest"
        " row per key, and loses history. A table that a run is writing fails its step; run it again.",
    )
    def major_compact() -> None:
        for step in steps:
            step()

    return major_compact


def _is_delta(table: Table) -> bool:
    connector = connector_of(table)
    return connector is not None and connector.is_observed(table)


def _source(table: Table, translation: Translation, *, project: str) -> dg.AssetsDefinition:
    spec = dg.AssetSpec(
        keys.source_key(table.name),
        group_name="sources",
        owners=platform_settings(table).owners,
        description=f"Delta table {table.name} of MaxCompute, declared at {declared_at(table.location, project)};"
        " others write it.",
        metadata={
            keys.TABLE_METADATA: table.name,
            **code_references(table.location),
            "dagster/column_schema": keys.column_schema(table.physical_columns, table.primary_key),
        },
        tags={"dagster/kind/maxcompute": ""},
    )
    found = translation.described(TranslatorData("source", table.name, table, spec))

    @translation.keys.bound
    def observe(context: dg.AssetExecutionContext, platform: PlatformResource) -> dg.ObserveResult:
        from upsert_platform.maxcompute.changes import table_versions

        with told_plainly():
            settings = _settings(platform, table.name)
            versions = table_versions(settings)
        return dg.ObserveResult(
            asset_key=found.key,
            data_version=dg.DataVersion(str(versions.latest)),
            metadata=_shown(settings, versions),
        )

    return observable_asset(found, observe, name=translation.keys.op_name("observe_sources", table.name))


def _shown(table: "MaxComputeTable", versions: "TableVersions") -> Mapping[str, Any]:
    shown: dict[str, Any] = {
        "table_version": versions.latest,
        "keeps_changes": versions.keeps_changes,
        "time_travel": f"SELECT * FROM {table.target} VERSION AS OF {versions.latest}",
    }
    return shown if versions.history_hours is None else {**shown, "history_hours": versions.history_hours}


def _settings(platform: PlatformResource, name: str) -> "MaxComputeTable":

    declared = platform.sound().project.tables.get(name)
    connector = connector_of(declared) if declared is not None else None
    if declared is None or not isinstance(connector, MaxComputeConnector):
        known = ", ".join(sorted(platform.sound().project.tables)) or "none"
        raise DeclarationError([Problem(f"'{name}' is not a declared MaxCompute table; declared are: {known}", None)])
    return connector.checked(with_defaults(declared, platform.defaults()))


def _compaction(table: Table, names: AssetKeys) -> Any:
    @dg.op(
        name=names.op_name("major_compact", table.name),
        description=f"Major compaction of table {table.name}.",
        tags={"dagster/kind/maxcompute": ""},
        out=dg.Out(dg.Nothing),
    )
    @names.bound
    def step(context: dg.OpExecutionContext, platform: PlatformResource) -> None:
        with told_plainly():
            destination = MaxComputeDestination(_settings(platform, table.name))
            try:
                done = destination.compact(owner=context.run.run_id)
            finally:
                destination.close()
        context.log.info(f"compacted: {', '.join(spec or 'the table' for spec in done) or 'nothing'}")
        context.log_event(
            dg.AssetObservation(
                asset_key=names.destination_key(table.name), metadata={"compacted_partitions": len(done)}
            )
        )

    return step
