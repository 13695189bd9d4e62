"""Projects in Python: assets, checks and a sensor of a folder, in definitions that one writes oneself.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg

from upsert_platform.core.errors import DeclarationError, Problem
from upsert_platform.core.model import Project, Table
from upsert_platform.graph import assets, console, keys, sensors
from upsert_platform.graph.broken import BROKEN_TAG, warn_of
from upsert_platform.graph.build import default_platform, resources_of, with_options
from upsert_platform.graph.jobs import SYNC
from upsert_platform.graph.keys import AssetKeys
from upsert_platform.graph.resources import PlatformResource, SparkResource
from upsert_platform.graph.table_checks import project_checks
from upsert_platform.graph.translator import Translation, UpsertTranslator, translator_of
from upsert_platform.graph.unchanged import without_event
from upsert_platform.sync.declared import Declared


class UpsertProject:
    """A project folder, from which assets, checks and a sensor are built.

    Args:
        path: the folder; that of the platform's resource if left out.
        platform: where systems and the lake are; from the environment if left out.
        spark: the session's settings.
        translator: how assets are called and shown.
        instance: tells the project from others of the code location; names of resources and ops end in it.

    Example:
        import dagster as dg

        from upsert_platform import UpsertProject

        shop = UpsertProject("shop")
        defs = dg.Definitions(assets=[*shop.topics(), *shop.assets()], resources=shop.resources())
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        platform: PlatformResource | None = None,
        spark: SparkResource | None = None,
        translator: UpsertTranslator | None = None,
        instance: str = "",
    ) -> None:
        found = platform or default_platform()
        self.platform = found if path is None else _in_folder(found, str(Path(path).absolute()))
        self.spark = spark or SparkResource()
        self._translator, self._instance = translator, instance

    @cached_property
    def declared(self) -> Declared:
        """Return the declarations of the folder; problems and unset variables are logged once."""
        found = self.platform.declared()
        warn_of(found.unset, found.faults, folder=found.project.path)
        return found

    @cached_property
    def project(self) -> Project:
        """The declarations, completed by the resources."""
        return with_options(self.declared.project, self.platform)

    @cached_property
    def translation(self) -> Translation:
        """The keys and descriptions of its assets."""
        return assets.project_translation(
            self.project, translator_of(self._translator), instance=self._instance, faults=self.declared.faults
        )

    @property
    def names(self) -> AssetKeys:
        """Keys of assets, and names of resources, jobs and ops."""
        return self.translation.keys

    def topics(self) -> list[dg.AssetsDefinition]:
        """The observable assets of what it reads."""
        return [item for item in self._made if not item.is_materializable]

    def assets(self) -> list[dg.AssetsDefinition]:
        """The assets that it materialises, each with an op of its own."""
        return [item for item in self._made if item.is_materializable]

    def resources(self) -> dict[str, Any]:
        """The resources and IO managers that its assets need."""
        return resources_of(self.platform, self.spark, self.names)

    def sync(self, context: dg.AssetExecutionContext, platform: PlatformResource) -> Iterator[Any]:
        """Brings the selected assets of a decorated function up to date: changelogs, then queries, then tables.

        Each result is written before the next asset begins. The first one that fails ends the step.

        Yields:
            A result per selected asset, for the IO managers of the project.
        """
        results = self._results
        specs = [spec for item in self.assets() for spec in item.specs]
        reads = {spec.key: {dep.asset_key for dep in spec.deps} for spec in specs}
        selected = set(context.selected_asset_keys)
        done: set[dg.AssetKey] = set()
        while waiting := [key for key in reads if key in selected - done]:
            key = next(key for key in waiting if not reads[key] & (selected - done))
            yield without_event(context, results[key](context, platform)._replace(asset_key=key))
            done.add(key)

    def io_managers(self) -> dict[dg.AssetKey, str]:
        """Asset to the name of its IO manager."""
        names, project = self.names, self.project
        return {
            **{names.changelog_key(table.name): names.named(keys.CHANGELOG_IO) for table in project.sources()},
            **{names.query_key(query.name): names.named(keys.QUERY_IO) for query in project.queries()},
            **{
                names.destination_key(target.name): names.named(keys.DESTINATION_IO)
                for _, target in assets.inserts_of(project)
            },
        }

    @cached_property
    def _made(self) -> list[dg.AssetsDefinition]:
        return list(assets.project_assets(self.project, self.translation, faults=self.declared.faults))

    @property
    def _results(self) -> dict[dg.AssetKey, Callable[..., Any]]:
        """Asset to what it returns."""
        names, project = self.names, self.project
        found: dict[dg.AssetKey, Callable[..., Any]] = {}
        for table in project.sources():
            found[names.changelog_key(table.name)] = _of_changelog(table, names)
        for query in project.queries():
            found[names.query_key(query.name)] = lambda context, platform, query=query: assets.query_result(
                context, platform, query, names
            )
        for insert, target in assets.inserts_of(project):
            lineage = assets.lineage_of(project, insert, target, names)
            found[names.destination_key(target.name)] = lambda context, platform, insert=insert, lineage=lineage: (
                assets.destination_result(context, platform, insert, lineage)
            )
        return found


def _in_folder(platform: PlatformResource, folder: str) -> PlatformResource:
    """The resource of another folder, made anew: Dagster keeps the values with which a resource was made."""
    fields = type(platform).model_fields
    given = {name: value for name in fields if (value := getattr(platform, name)) is not None}
    return type(platform)(**{**given, "project": folder})


def _of_changelog(table: Table, names: AssetKeys) -> Callable[..., Any]:
    return lambda context, platform: assets.changelog_result(context, platform, table, names)


def upsert_assets(
    *,
    project: UpsertProject,
    select: str = "*",
    exclude: str | None = None,
    name: str | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    op_tags: dict[str, Any] | None = None,
    pool: str | None = None,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Make one step of assets of a project, whose function says what happens around them.

    Args:
        project: the folder.
        select: of its assets, in Dagster's selection syntax: ``group:tables``, ``+key:"tables/open_orders"``.
        exclude: what of those is left out.
        name: of the op; that of the function if left out.

    Raises:
        DeclarationError: nothing is selected, or an asset whose declaration has errors.

    Example:
        import dagster as dg

        from upsert_platform import UpsertProject, build_upsert_checks, build_upsert_sensor, upsert_assets

        shop = UpsertProject("shop")

        @upsert_assets(project=shop, select="group:changelogs or group:tables")
        def tables(context: dg.AssetExecutionContext, platform: dg.ResourceParam):
            yield from shop.sync(context, platform)

        defs = dg.Definitions(
            assets=[*shop.topics(), tables],
            asset_checks=build_upsert_checks(shop),
            sensors=[build_upsert_sensor(shop, tables)],
            resources=shop.resources(),
        )
    """
    specs = _selected(project, select, exclude)

    def decorated(function: Callable[..., Any]) -> dg.AssetsDefinition:
        made: dg.AssetsDefinition = dg.multi_asset(
            specs=specs,
            can_subset=True,
            name=name or function.__name__,
            retry_policy=retry_policy,
            op_tags=op_tags,
            pool=pool,
        )(project.names.bound(function))
        return made

    return decorated


def _selected(project: UpsertProject, select: str, exclude: str | None) -> list[dg.AssetSpec]:
    made = [*project.topics(), *project.assets()]
    chosen = dg.AssetSelection.from_string(select)
    if exclude is not None:
        chosen = chosen - dg.AssetSelection.from_string(exclude)
    wanted = chosen.resolve(made)
    managers = project.io_managers()
    specs = [
        spec.with_io_manager_key(managers[spec.key]) if spec.key in managers else spec
        for item in project.assets()
        for spec in item.specs
        if spec.key in wanted
    ]
    if not specs:
        known = ", ".join(key.to_user_string() for item in project.assets() for key in item.keys) or "none"
        told = f"upsert_assets: select={select!r} with exclude={exclude!r} names no asset; there are: {known}"
        raise DeclarationError([Problem(told)])
    wrong = [spec.key for spec in specs if BROKEN_TAG in spec.tags]
    if wrong:
        told = ", ".join(key.to_user_string() for key in wrong)
        raise DeclarationError([problem for items in project.declared.faults.values() for problem in items]
                               or [Problem(f"upsert_assets: {told} cannot be used")])  # fmt: skip
    return specs


def build_upsert_checks(project: UpsertProject) -> list[dg.AssetChecksDefinition]:
    """Build the checks of a project: offsets, quarantine, last value per key, and those that tables declare.

    Example:
        import dagster as dg

        from upsert_platform import UpsertProject, build_upsert_checks

        shop = UpsertProject("shop")
        defs = dg.Definitions(
            assets=[*shop.topics(), *shop.assets()],
            asset_checks=build_upsert_checks(shop),
            resources=shop.resources(),
        )
    """
    names, sources = project.names, project.project.sources()
    targets = [target for _, target in assets.inserts_of(project.project)]
    return list(project_checks(sources, targets, names))


def build_upsert_sensor(
    project: UpsertProject, target: dg.AssetsDefinition | Sequence[dg.AssetsDefinition] | None = None
) -> dg.SensorDefinition:
    """Build the sensor that requests what follows from topics with new records.

    Args:
        target: assets that it requests; all of the project if left out. It requests nothing else.

    Example:
        import dagster as dg

        from upsert_platform import UpsertProject, build_upsert_checks, build_upsert_sensor

        shop = UpsertProject("shop")
        assets = shop.assets()
        defs = dg.Definitions(
            assets=[*shop.topics(), *assets],
            asset_checks=build_upsert_checks(shop),
            sensors=[build_upsert_sensor(shop, assets)],
            resources=shop.resources(),
        )
    """
    chosen = project.assets() if target is None else [target] if isinstance(target, dg.AssetsDefinition) else [*target]
    names, within = project.names, {key for item in chosen for key in item.keys}
    job = dg.define_asset_job(
        names.named(SYNC),
        selection=dg.AssetSelection.assets(*within),
        executor_def=dg.in_process_executor,
        config=console.RUN_CONFIG,
    )
    return sensors.new_offsets_sensor(project.project, job, names, within=within)
