"""A project folder as a Dagster component, for code locations that are built from ``defs.yaml`` files."""

import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

import dagster as dg
from dagster._core.storage.defs_state.base import DefsStateStorage
from dagster.components.resolved.errors import ResolutionException
from dagster.components.utils.defs_state import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from dagster_shared.serdes.objects.models.defs_state_info import LOCAL_STATE_VERSION, DefsStateManagementType
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from upsert_platform.core.errors import EndpointError
from upsert_platform.declarations.starter import write_starter
from upsert_platform.graph.automation import PRESETS
from upsert_platform.graph.component_settings import (
    DefinitionSettings,
    JobSettings,
    ScheduleSettings,
    SensorSettings,
)
from upsert_platform.graph.discovered_topics import TopicSettings, discover_declarations, state_text, write_state
from upsert_platform.graph.steps import OpSettings
from upsert_platform.graph.translator import TranslatorData, UpsertTranslator

if TYPE_CHECKING:
    from upsert_platform.graph.resources import PlatformResource

_LOGGER: Final = logging.getLogger(__name__)


def texts(context: dg.ResolutionContext, values: Mapping[str, Any]) -> dict[str, str]:
    """Options as texts, templates replaced.

    Dagster itself reads the result of a template as Python: ``0815`` stays a text, ``815`` becomes a number, ``1e5``
    another one. An option, a password among them, is what the variable holds.
    """
    return {name: _text(context, name, value) for name, value in values.items()}


def _text(context: dg.ResolutionContext, name: str, value: object) -> str:
    from jinja2 import StrictUndefined, Template
    from jinja2.exceptions import UndefinedError

    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return str(value)
    # A variable that is not set stays one: the run that needs it refuses the option, not the code location.
    template = _ENVIRONMENT.sub(_kept_if_unset, value)
    missing: list[str] = []

    def known(found: object) -> object:
        if found is None:
            missing.append(name)
        return found

    try:
        rendered = Template(template, undefined=StrictUndefined, finalize=known, keep_trailing_newline=True).render(
            **context.scope
        )
    except UndefinedError as error:
        raise ResolutionException(f"option '{name}': {error.message}") from None
    if missing:
        raise ResolutionException(f"option '{name}': an environment variable that it names is not set")
    return rendered


def _kept_if_unset(found: re.Match[str]) -> str:
    name = found[1] or found[2]
    return found[0] if name in os.environ else f"${{{name}}}"


TextOptions = Annotated[
    dict[str, str],
    dg.Resolver(texts, model_field_type=dict[str, str | bool | int | float], inject_before_resolve=False),
]
"""Name to text; a scalar of YAML is taken as it is written, and a template is not read as Python."""


Translate = Annotated[
    TranslationFn[TranslatorData],
    TranslationFnResolver[TranslatorData](
        lambda data: {"data": data, "kind": data.kind, "name": data.name, "connector": data.table.connector}
    ),
]
"""Attributes of assets, with templates over `kind`, `name`, `connector`, `spec` and the whole `data`."""


_ENVIRONMENT: Final = re.compile(r"\{\{\s*env(?:\.([A-Za-z_]\w*)|\(\s*['\"]([A-Za-z_]\w*)['\"]\s*\))\s*\}\}")
"""A template that is the value of a variable of the environment."""


class UpsertProjectScaffolder(dg.Scaffolder):
    """Writes a `defs.yaml`, and beside it the small project of `upsert-platform init`.

    Topic and tables have the name of the new component, so that the projects of one code location share none.
    """

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        """Writes both into the folder of the new component."""
        folder = Path(request.target_path)
        topic = re.sub(r"\W", "_", folder.name, flags=re.ASCII)
        dg.scaffold_component(request, {})
        write_starter(folder, topic=f"_{topic}" if topic[0].isdigit() else topic, tests=False)


@dg.scaffold_with(UpsertProjectScaffolder)
class UpsertProjectComponent(dg.StateBackedComponent, dg.Model, dg.Resolvable):
    """Topics, changelogs and destination tables of a folder of declarations.

    The folder holds what `upsert_platform.declarations.project.load_project` reads: Flink SQL, YAML, ingestion
    pipelines, Kafka Connect configurations. Options given here complete tables that do not declare them. With `topics`
    the topics of a cluster are declared by what their records are; Dagster keeps the declarations as the component's
    state, and `dg utils refresh-defs-state` discovers anew.

    Example of a ``defs.yaml`` beside the declarations:

        type: upsert_platform.UpsertProjectComponent
        attributes:
          kafka: {properties.bootstrap.servers: "{{ env.KAFKA }}"}

    A subclass says what happens around each step. A `defs.yaml` names it as its type. In Python:

    Example:
        from pathlib import Path

        from upsert_platform import UpsertProjectComponent

        class ShopProject(UpsertProjectComponent):
            def execute(self, context, compute):
                context.log.info(f"begins with {context.asset_key.to_user_string()}")
                return compute()

        defs = ShopProject(kafka={"batch.max-records": "100000"}).definitions_of(Path("shop"))
    """

    # An error of validation would show the values, which may be secrets.
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_]*$",
        description="Tells the project from others of the code location: names of resources, IO managers, jobs,"
        " schedules and sensors end in it. If left out, nothing is added where only one component has no name, and the"
        " name of the component's folder where several have none.",
    )
    executor: Literal["in_process", "location"] = Field(
        default="in_process",
        description="Of runs that are launched from the graph: one process with one JVM, or that of the code location,"
        " whose own definitions then name it.",
    )
    project: str = Field(default=".", description="The folder, relative to the component's own.")
    topics: TopicSettings | None = Field(
        default=None,
        description="Topics that are discovered: `match`, the pattern of their names; `to`, destinations that each is"
        " written to; `registry`. A table that the folder declares itself wins.",
    )
    defs_state: ResolvedDefsStateConfig = Field(
        default_factory=DefsStateConfigArgs.local_filesystem,
        description="Where Dagster keeps the declarations of discovered topics, as for any state-backed component.",
    )
    home: str | None = Field(default=None, description="Root of the lake; UPSERT_PLATFORM_HOME if left out.")
    kafka: TextOptions = Field(default_factory=dict, description="Options for upsert-kafka tables.", repr=False)
    tablestore: TextOptions = Field(default_factory=dict, description="Options for tablestore tables.", repr=False)
    maxcompute: TextOptions = Field(default_factory=dict, description="Options for maxcompute tables.", repr=False)
    profile: str | None = Field(
        default=None, description="Where Spark runs; UPSERT_SPARK_PROFILE, or what `spark.master` tells, if left out."
    )
    spark: TextOptions = Field(default_factory=dict, description="Spark settings.", repr=False)
    local_rows: int | None = Field(
        default=None,
        ge=0,
        description="Up to so many rows a run's own process does the work, without Spark; UPSERT_SPARK_LOCAL_ROWS, or"
        " 0, if left out.",
    )

    automation: Literal["sensor", "conditions"] | None = Field(
        default=None,
        description="What starts runs by itself: sensor, or conditions on data versions; UPSERT_PLATFORM_AUTOMATION,"
        " or sensor, if left out.",
    )
    translation: Translate | None = Field(
        default=None,
        description="How assets are called and shown: key, key_prefix, group_name, description, metadata, tags, owners"
        " and other attributes of assets, with templates over kind, name, connector, spec and data.",
    )

    op: OpSettings = Field(
        default_factory=OpSettings,
        description="Tags, concurrency pools and retries of the steps that materialise changelogs, queries and tables.",
    )
    jobs: dict[str, JobSettings] = Field(
        default_factory=dict,
        description="Job (`sync`, `verify` and so on, without the suffix of the instance) to the tags of its runs, and"
        " whether it exists.",
    )
    sensor: SensorSettings = Field(
        default_factory=SensorSettings, description="Name, interval and default status of the sensor `new_offsets`."
    )
    schedules: dict[str, ScheduleSettings] = Field(
        default_factory=dict, description="Job to its schedule: cron, time zone, default status."
    )

    _instance: str = PrivateAttr(default="")
    _tells_alerts: bool = PrivateAttr(default=True)
    _discovered: str | None = PrivateAttr(default=None)
    _loads: bool = PrivateAttr(default=False)
    _claims: dict[tuple[str, str], tuple[str, str]] | None = PrivateAttr(default=None)
    _place: str = PrivateAttr(default="")

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """Return the component; only one with `topics` has a state."""
        loaded: Self = super(dg.StateBackedComponent, cls).load(attributes, context)
        if loaded.topics is not None:
            key = loaded.defs_state_config.key
            context.component_tree.mark_component_defs_state_key(defs_state_key=key, loc=context.component_loc)
        return loaded

    @classmethod
    def get_additional_scope(cls) -> Mapping[str, Any]:
        """Return what templates of a `defs.yaml` know besides Dagster's names: the conditions of `automation`."""
        return {**PRESETS, **super().get_additional_scope()}

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Key and storage of the state."""
        if self.topics is None:  # a state that nothing refreshes, and no storage holds
            return DefsStateConfig.from_args(DefsStateConfigArgs.legacy_code_server_snapshots(), default_key="none")
        named = f"{self.name}:" if self.name else ""
        key = f"UpsertProjectComponent[{named}{self.topics.match}]"
        return DefsStateConfig.from_args(self.defs_state, default_key=key)

    def write_state_to_path(self, state_path: Path) -> None:
        """Discover the topics, and write their declarations.

        Raises:
            DeclarationError: no servers are given, or an option is wrong.
            EndpointError: the brokers or the registry do not answer, or refuse the login.
        """
        if self.topics is not None:
            platform = self._platform(Path(self.project))
            options = platform.defaults().get("upsert-kafka", {})
            write_state(discover_declarations(self.topics, options, root=platform.root), state_path)

    async def refresh_state(self, project_root: Path) -> str:
        """Discover anew; where a code location is loaded while the brokers are away, the last state stays."""
        try:
            return await super().refresh_state(project_root)
        except EndpointError as error:
            version = self._last_version() if self._loads else None
            if version is None:
                raise
            _LOGGER.warning("topics keep their last declarations, for they could not be discovered: %s", error)
            return version

    def _last_version(self) -> str | None:
        config = self.defs_state_config
        if config.management_type is DefsStateManagementType.LOCAL_FILESYSTEM:
            return LOCAL_STATE_VERSION
        storage = DefsStateStorage.get()
        return storage.get_latest_version(config.key) if storage is not None else None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Assets, checks, jobs, sensor and resources of the folder.

        Raises:
            DeclarationError: the folder has errors; it carries all of them.
        """
        everyone = context.component_tree.get_all_components(UpsertProjectComponent) or [self]
        unnamed = [item for item in everyone if item.name is None]
        self._instance = self.name or (_place(context) if self.name is None and len(unnamed) > 1 else "")
        self._tells_alerts = everyone[0] is self
        if len(everyone) > 1:
            self._claims = _claims_of(context.component_tree)
            self._place = _place(context)
        if self.topics is None:
            return self.definitions_of((context.path / self.project).resolve())
        self._loads = True
        try:
            return super().build_defs(context)
        finally:
            self._loads = False

    def build_defs_from_state(self, context: dg.ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        """The definitions of the folder and of the discovered topics."""
        assert self.topics is not None
        self._discovered = state_text(state_path, self.topics.match)
        return self.definitions_of((context.path / self.project).resolve())

    def get_asset_spec(self, data: TranslatorData) -> dg.AssetSpec:
        """Return the asset spec of a declaration, as `translation` describes it; override it for what YAML cannot
        express.
        """
        return self.translation(data.spec, data) if self.translation is not None else data.spec

    def execute(
        self, context: dg.AssetExecutionContext, compute: Callable[[], dg.MaterializeResult[Any]]
    ) -> dg.MaterializeResult[Any]:
        """Return the result of an asset's step; override it for what happens before, or for further metadata.

        Args:
            compute: plans the step, and returns its result. The asset's IO manager writes rows after this method.
        """
        return compute()

    def definitions_of(self, folder: Path) -> dg.Definitions:
        """The definitions of a folder; the point to override for other resources or assets."""
        from upsert_platform.graph.build import definitions_of
        from upsert_platform.graph.resources import SparkResource

        platform = self._platform(folder)
        self._claim_tables(platform, folder)
        spark = SparkResource(profile=self.profile, settings=self.spark, local_rows=self.local_rows)
        translates = (
            self.translation is not None or type(self).get_asset_spec is not UpsertProjectComponent.get_asset_spec
        )
        return definitions_of(
            platform,
            spark=spark,
            automation=self.automation,
            instance=self._instance,
            executor=dg.in_process_executor if self.executor == "in_process" else None,
            alerts=self._tells_alerts,
            translator=_ByComponent(self) if translates else None,
            settings=DefinitionSettings(self.op, self.jobs, self.sensor, self.schedules, self.execute),
        )

    def _claim_tables(self, platform: "PlatformResource", folder: Path) -> None:
        """Warn of a table that another component has in the same lake, whose runs refuse the changelog of the other."""
        if self._claims is None:
            return
        for name in platform.declared().project.tables:
            place, other = self._claims.setdefault((platform.root, name), (self._place, str(folder)))
            if place != self._place:
                _LOGGER.warning(
                    "table '%s' of %s is declared in %s, too, whose component has the same lake %s: a lake has one"
                    " changelog of a name. Give one of the components a 'home' of its own, or rename the table",
                    name,
                    folder,
                    other,
                    platform.root,
                )

    def _platform(self, folder: Path) -> "PlatformResource":
        from upsert_platform.graph.resources import (
            KafkaResource,
            MaxComputeResource,
            PlatformResource,
            TablestoreResource,
        )

        return PlatformResource(
            project=str(folder),
            home=self.home,
            discovered=self._discovered,
            kafka=KafkaResource(options=self.kafka),
            tablestore=TablestoreResource(options=self.tablestore),
            maxcompute=MaxComputeResource(options=self.maxcompute),
        )


def _place(context: dg.ComponentLoadContext) -> str:
    """The place of a component in its code location, as part of a name."""
    where = context.component_path
    parts = [*where.file_path.relative_to(context.defs_module_path).parts]
    parts += [str(where.instance_key)] if where.instance_key else []  # further documents of one file
    return re.sub(r"\W", "_", "_".join(parts), flags=re.ASCII)


_CLAIMED: Final[list[Any]] = [None, {}]
"""A code location that is being loaded, and its tables by the root of their lake: places and folders of components."""


def _claims_of(tree: object) -> dict[tuple[str, str], tuple[str, str]]:
    """Return what the components of a code location have claimed so far; a location that is loaded anew begins anew."""
    if _CLAIMED[0] is not tree:
        _CLAIMED[:] = [tree, {}]
    claims: dict[tuple[str, str], tuple[str, str]] = _CLAIMED[1]
    return claims


class _ByComponent(UpsertTranslator):
    """A component as translator."""

    def __init__(self, component: UpsertProjectComponent) -> None:
        self._component = component

    def get_asset_spec(self, data: TranslatorData) -> dg.AssetSpec:
        """Return the asset spec that the component gives."""
        return self._component.get_asset_spec(data)
