"""Assets: topics (observable), changelogs and destination tables (materialised).

No pools unless a project names them: a run that was killed keeps its slot for ever, and pools do not hold between runs
of ``dagster job execute``.
One writer per table is what the lease in the destination and the batch number in the changelog are for.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import dagster as dg

from upsert_platform.changelog.pauses import paused
from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.model import Insert, Project, Table
from upsert_platform.core.plan import Query
from upsert_platform.core.platform_options import platform_settings
from upsert_platform.core.wording import counted
from upsert_platform.engine.explain import explain_query
from upsert_platform.engine.store import query_table
from upsert_platform.graph import keys, metadata
from upsert_platform.graph.broken import Faults, broken_asset
from upsert_platform.graph.declared import (
    code_references,
    declared_at,
    freshness_policy,
    in_lines,
    version_of_insert,
    version_of_query,
    version_of_table,
)
from upsert_platform.graph.delta_tables import delta_source_assets
from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.keys import AssetKeys
from upsert_platform.graph.observable import observable_asset
from upsert_platform.graph.resources import PlatformResource
from upsert_platform.graph.steps import Steps
from upsert_platform.graph.translator import (
    Translation,
    TranslatorData,
    UpsertTranslator,
    translation_of,
)
from upsert_platform.sync.changelog_hop import ChangelogPlan
from upsert_platform.sync.connectors import (
    is_topic,
    kind_of,
    looked_up_before,
    stream_group,
    streams_of,
    topic_writers,
)

_STEPS: Final = Steps()


def topic_assets(
    project: Project, translation: Translation, *, looks: dg.AutomationCondition[Any] | None = None
) -> list[Any]:
    """One observable asset per topic that a table reads, and per table of a database.

    Their data versions are the end offsets per partition, and the position in the server's log.

    Args:
        looks: when they are observed by themselves.
    """
    readers: dict[dg.AssetKey, tuple[str, Table]] = {}
    for table in project.sources():
        for topic in streams_of(table):
            readers.setdefault(keys.stream_key(table, topic), (topic, table))
    return [_topic(topic, table, translation, looks) for topic, table in readers.values()]


def _topic(topic: str, table: Table, translation: Translation, looks: dg.AutomationCondition[Any] | None) -> Any:
    kind, group = kind_of(table), stream_group(table)
    spec = dg.AssetSpec(
        keys.stream_key(table, topic),
        group_name=group,
        owners=platform_settings(table).owners,
        description=f"Kafka topic {topic}." if is_topic(table) else f"Table {topic} of a database.",
        metadata={"dagster/uri": f"{kind}://{topic}", **code_references(table.location)},
        tags={f"dagster/kind/{kind}": ""},
        automation_condition=looks,
    )
    found = translation.described(TranslatorData("topic" if is_topic(table) else "database", topic, table, spec))

    @translation.keys.bound
    def observe(context: dg.AssetExecutionContext, platform: PlatformResource) -> dg.ObserveResult:
        with told_plainly():
            plan = platform.changelog_hop(table.name, run=context.run.run_id).plan()
        named = topic if any(item.name == topic for item in plan.topics) else plan.topics[0].name
        return dg.ObserveResult(
            asset_key=found.key,
            data_version=metadata.data_version_of_topic(plan, named),
            metadata=metadata.of_topic(plan, named),
        )

    return observable_asset(found, observe, name=translation.keys.op_name(f"observe_{group}", topic))


def changelog_asset(
    table: Table, translation: Translation, *, project: str, after: Iterable[str] = (), steps: Steps = _STEPS
) -> dg.AssetsDefinition:
    """The changelog of a declared table.

    Args:
        project: its folder.
        after: tables of the project that write its topics; a run writes them first.
        steps: settings of its step.
    """
    names = translation.keys

    @dg.asset(
        key=names.changelog_key(table.name),
        deps=[
            *(names.stream_key(table, topic) for topic in streams_of(table)),
            *(names.destination_key(name) for name in after),
        ],
        io_manager_key=names.named(keys.CHANGELOG_IO),
        group_name="changelogs",
        owners=platform_settings(table).owners,
        tags=platform_settings(table).tag_pairs,
        kinds={kind_of(table), "spark", "deltalake"},
        code_version=version_of_table(table),
        freshness_policy=freshness_policy(table),
        description=f"Upsert changelog of table {table.name}, declared at {declared_at(table.location, project)}.",
        metadata={
            keys.TABLE_METADATA: table.name,
            **code_references(table.location),
            "dagster/column_schema": keys.column_schema(table.columns, table.primary_key),
        },
        **steps.arguments(table),
    )
    @names.bound
    def changelog(context: dg.AssetExecutionContext, platform: PlatformResource) -> dg.MaterializeResult[Any]:
        return steps.result(context, lambda: changelog_result(context, platform, table, names))

    return translation.applied(changelog, kind="changelog", name=table.name, table=table)


def changelog_result(
    context: dg.AssetExecutionContext, platform: PlatformResource, table: Table, names: AssetKeys
) -> dg.MaterializeResult[Any]:
    """Return the result of a changelog's asset: a plan for its IO manager, or the present state if nothing is new."""
    with told_plainly():
        hop = platform.changelog_hop(table.name, run=context.run.run_id)
        plan, store = hop.plan(), hop.store
    _observe_topics(context, plan, table, names)
    version = metadata.data_version_of_changelog(plan)
    if not plan.backlog:
        return dg.MaterializeResult(
            metadata={**metadata.of_changelog_plan(plan), "lag": 0, "batches": 0, **metadata.of_store(store)},
            data_version=version,
        )
    context.log.info(f"{counted(plan.lag, 'offset')} to read from {counted(len(plan.backlog), 'partition')}")
    return dg.MaterializeResult(value=plan, metadata=metadata.of_changelog_plan(plan), data_version=version)


def _observe_topics(context: dg.AssetExecutionContext, plan: ChangelogPlan, table: Table, names: AssetKeys) -> None:
    """Log an observation of each topic whose data version is not the one that Dagster knows."""
    step = context.op_execution_context.get_step_execution_context()
    observed = False
    for topic in plan.topics if streams_of(table) else ():
        key = names.stream_key(table, topic.name)
        known = step.maybe_fetch_and_get_input_asset_version_info(key)
        if known is None or known.data_version != metadata.data_version_of_topic(plan, topic.name):
            context.log_event(metadata.observed_topic(plan, topic.name, key=key))
            observed = True
    if observed:
        # What was just observed is what this run reads; by what was known before, the UI would call it out of date.
        step.fetch_external_input_asset_version_info()


def query_asset(
    query: Query,
    translation: Translation,
    *,
    after: Collection[str] = (),
    places: Collection[SourceLocation] = (),
    steps: Steps = _STEPS,
) -> dg.AssetsDefinition:
    """The result of a query, kept up with the changelogs that it reads.

    Args:
        places: of the statements that it stands for.
        after: tables in which it finds rows, and which are written first.
        steps: settings of its step.
    """
    table, names = query_table(query), translation.keys
    lineage = keys.column_lineage(query, names)

    @dg.asset(
        key=names.query_key(query.name),
        deps=[
            *(names.changelog_key(name) for name in query.tables),
            *(names.destination_key(name) for name in after),
        ],
        io_manager_key=names.named(keys.QUERY_IO),
        group_name="queries",
        kinds={"arrow", "deltalake"},
        code_version=version_of_query(query),
        description="Result of a query, with the state that keeps it up to date."
        f"\n\n```sql\n{in_lines(query.statement)}\n```",
        metadata={
            keys.TABLE_METADATA: query.name,
            "dagster/column_schema": keys.column_schema(table.columns, table.primary_key, lineage),
            "dagster/column_lineage": lineage,
            **code_references(*places),
            keys.PLAN_METADATA: dg.MetadataValue.md("\n".join(["```", *explain_query(query), "```"])),
        },
        **steps.arguments(),
    )
    @names.bound
    def result(context: dg.AssetExecutionContext, platform: PlatformResource) -> dg.MaterializeResult[Any]:
        return steps.result(context, lambda: query_result(context, platform, query, names))

    return translation.applied(result, kind="query", name=query.name.removesuffix("$query"), table=table)


def query_result(
    context: dg.AssetExecutionContext, platform: PlatformResource, query: Query, names: AssetKeys
) -> dg.MaterializeResult[Any]:
    """Return the result of a query's asset: its step for the IO manager, or the present state if nothing is new."""
    with told_plainly():
        hop = platform.query_hop(query.name, run=context.run.run_id)
        plan = hop.plan()
    shown = {**metadata.of_query_plan(plan), "dagster/column_lineage": keys.column_lineage(query, names)}
    version = metadata.data_version_of_query(plan)
    if not plan.is_due:
        context.log.info("every batch is applied: nothing is computed")
        shown |= metadata.of_store(hop.store)
        return dg.MaterializeResult(metadata={**shown, "batches": 0}, data_version=version)
    context.log.info(f"{counted(plan.behind, 'batch')} to apply")
    return dg.MaterializeResult(value=hop, metadata=shown, data_version=version)


def destination_asset(
    insert: Insert,
    target: Table,
    lineage: dg.TableColumnLineage,
    translation: Translation,
    *,
    project: str,
    steps: Steps = _STEPS,
) -> dg.AssetsDefinition:
    """A destination table, kept equal to what its insert selects.

    Args:
        lineage: of its columns.
        project: the folder that declares them.
        steps: settings of its step.
    """
    names = translation.keys

    @dg.asset(
        key=names.destination_key(target.name),
        deps=[names.query_key(insert.source) if insert.query else names.changelog_key(insert.source)],
        io_manager_key=names.named(keys.DESTINATION_IO),
        group_name="tables",
        owners=platform_settings(target).owners,
        tags=platform_settings(target).tag_pairs,
        kinds={"spark", kind_of(target)},
        code_version=version_of_insert(insert, target),
        freshness_policy=freshness_policy(target),
        description=f"Table {target.name} ({target.connector}), declared at {declared_at(target.location, project)}."
        f"\n\n```sql\n{in_lines(insert.sql)}\n```",
        metadata={
            keys.TABLE_METADATA: target.name,
            "dagster/column_schema": keys.column_schema(target.physical_columns, target.primary_key, lineage),
            "dagster/column_lineage": lineage,
            "dagster/table_name": keys.stored_as(target),
            **code_references(target.location, insert.location),
        },
        **steps.arguments(target),
    )
    @names.bound
    def destination(context: dg.AssetExecutionContext, platform: PlatformResource) -> dg.MaterializeResult[Any]:
        return steps.result(context, lambda: destination_result(context, platform, insert, lineage))

    return translation.applied(destination, kind="table", name=target.name, table=target, insert=insert)


def destination_result(
    context: dg.AssetExecutionContext, platform: PlatformResource, insert: Insert, lineage: dg.TableColumnLineage
) -> dg.MaterializeResult[Any]:
    """Return the result of a table's asset: a plan for its IO manager, or the present state if nothing is new."""
    with told_plainly():
        hop = platform.destination_hop(insert.target, run=context.run.run_id)
        try:
            plan = hop.plan()
            pause = paused(platform.lake).get(insert.target)
            if pause is None and plan.head is not None and not plan.behind:
                hop.destination.prepare()  # refuses a declaration that the table does not fit, as a write does
        finally:
            hop.destination.close()
    shown = {
        **metadata.of_destination_plan(plan),
        "dagster/uri": hop.destination.uri,
        "dagster/column_lineage": lineage,
    }
    if pause is not None:
        context.log.warning(f"{pause}; 'upsert-platform resume {insert.target}' ends that")
        told = f"{plan.state.changelog_id}:{plan.state.applied_batch}"
        return dg.MaterializeResult(metadata={**shown, "paused": str(pause)}, data_version=dg.DataVersion(told))
    version = dg.DataVersion(f"{plan.head.changelog_id}:{plan.head.batch}" if plan.head else "none")
    if not plan.behind:
        return dg.MaterializeResult(metadata={**shown, "batches": 0}, data_version=version)
    context.log.info(f"{counted(plan.behind, 'batch')} to apply, from batch {plan.state.applied_batch}")
    return dg.MaterializeResult(value=plan, metadata=shown, data_version=version)


def project_assets(
    project: Project,
    translation: Translation | None = None,
    *,
    looks: dg.AutomationCondition[Any] | None = None,
    faults: Faults | None = None,
    steps: Steps = _STEPS,
) -> Iterator[Any]:
    """Every asset of a project.

    Args:
        translation: how they are called and shown; as the platform does, if left out.
        looks: when topics are observed by themselves.
        faults: table to the errors with which its assets fail.
        steps: settings of the steps of changelogs, queries and tables.
    """
    translation, faults = translation or Translation(), faults or {}
    yield from _broken_assets(project, translation, faults)
    yield from topic_assets(project, translation, looks=looks)
    writers = topic_writers(project)
    for table in (table for table in project.sources() if table.name not in faults):
        yield changelog_asset(table, translation, project=project.path, after=writers.get(table.name, ()), steps=steps)
    for query in project.queries():
        places = [
            insert.location
            for insert in project.inserts
            if insert.query is not None and insert.query.name == query.name
        ]
        yield query_asset(query, translation, after=looked_up_before(project, query), places=places, steps=steps)
    for insert, target in inserts_of(project):
        if target.name in faults:
            continue
        lineage = lineage_of(project, insert, target, translation.keys)
        yield destination_asset(insert, target, lineage, translation, project=project.path, steps=steps)
    yield from delta_source_assets(project, translation)


def _broken_assets(project: Project, translation: Translation, faults: Faults) -> Iterator[dg.AssetsDefinition]:
    """Assets of tables whose declarations have errors: under the keys that they have without them."""
    names = translation.keys
    read = {table.name for table in project.sources()}
    reads = {insert.target: insert for insert in project.inserts}
    for name in (name for name in faults if name in project.tables):
        table = project.tables[name]
        if name in read:
            deps = [names.stream_key(table, topic) for topic in streams_of(table)]
            broken = broken_asset(names.changelog_key(name), faults[name], group="changelogs", deps=deps)
            yield translation.applied(broken, kind="changelog", name=name, table=table)
        else:
            insert = reads.get(name)
            deps = []
            if insert is not None:
                deps = [names.query_key(insert.source) if insert.query else names.changelog_key(insert.source)]
            broken = broken_asset(names.destination_key(name), faults[name], group="tables", deps=deps)
            yield translation.applied(broken, kind="table", name=name, table=table)


def project_translation(
    project: Project, translator: UpsertTranslator | None, *, instance: str = "", faults: Faults | None = None
) -> Translation:
    """A translator that was asked for the key of every asset of a project.

    Args:
        instance: tells the project from others of its code location.
        faults: table to the errors with which its assets fail.
    """
    return translation_of(
        translator,
        lambda noting: project_assets(project, noting, faults=faults),
        own=_own_keys(project, faults or {}),
        instance=instance,
    )


def _own_keys(project: Project, faults: Faults) -> Iterator[dg.AssetKey]:
    """The keys that assets of a project have by themselves."""
    for table in project.sources():
        yield from (keys.stream_key(table, stream) for stream in streams_of(table))
        yield keys.changelog_key(table.name)
    yield from (keys.query_key(query.name) for query in project.queries())
    written = (insert.target for insert in project.inserts if insert.target in project.tables)
    yield from (keys.destination_key(name) for name in dict.fromkeys((*written, *faults)))
    yield from (keys.source_key(name) for name in project.tables)


def lineage_of(project: Project, insert: Insert, target: Table, names: AssetKeys) -> dg.TableColumnLineage:
    """Return the columns of an insert's inputs from which each column of its table is computed."""
    source = project.tables[insert.source] if insert.query is None else query_table(insert.query)
    return keys.insert_lineage(insert, target, [column.name for column in source.columns], names)


def inserts_of(project: Project) -> Iterable[tuple[Insert, Table]]:
    """Inserts with the tables that they write, where all that they name is declared."""
    for insert in project.inserts:
        if insert.target in project.tables and all(name in project.tables for name in insert.tables):
            yield insert, project.tables[insert.target]
