"""Dagster resources: the endpoints that declarations may leave out, the Spark session, and the project itself.

Annotations are evaluated here: Dagster does not understand a `ResourceDependency` that is text.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr

from upsert_platform.changelog.lake import Lake, check_writable, project_path
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.destination import Destination
from upsert_platform.core.errors import EndpointError
from upsert_platform.core.source import Source
from upsert_platform.core.unreachable import AWAY_SECONDS, wait_once_for
from upsert_platform.graph.discovered_topics import read_discovered
from upsert_platform.graph.endpoint_resources import (
    ENDPOINT_RESOURCES,
    EndpointResource,
    KafkaResource,
    LakeResource,
    MaxComputeResource,
    MySqlResource,
    PostgresResource,
    TablestoreResource,
)
from upsert_platform.graph.keys import LAKE
from upsert_platform.graph.launchable import SECRET, HoldsSecrets, flat, launchable, resolved
from upsert_platform.graph.own_runs import LAKE_TAG, lake_mark
from upsert_platform.graph.processes import name_host
from upsert_platform.spark.pages import pages_of
from upsert_platform.spark.placement import refuse_wrong
from upsert_platform.spark.profiles import SparkPlace, spark_place
from upsert_platform.spark.spark_work import SparkWork, WorkCounter
from upsert_platform.spark.warm_session import close_session, session_for_run
from upsert_platform.sync.binding import Binding, QuerySource, bind_sound, load, open_unbound
from upsert_platform.sync.changelog_hop import ChangelogHop
from upsert_platform.sync.connectors import keep_connections, written_systems
from upsert_platform.sync.declared import Declared, declared
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.endpoints import Endpoints, project_variables
from upsert_platform.sync.located import LocatedProject
from upsert_platform.sync.on_demand import OnDemand, local_rows
from upsert_platform.sync.project_hops import ProjectHops
from upsert_platform.sync.query_hop import QueryHop

_UNSET = re.compile(r"\$\{[A-Za-z_]\w*\}")
"""What a component leaves of a variable that is not set where it is loaded."""
_BRIEF_ROWS = 1_000_000
"""Below this a JVM that starts fast ends sooner than one that gets faster while it runs."""


class SparkResource(LazyPySparkResource, HoldsSecrets):
    """The Spark session of a run, closed at its end: the warm one of `upsert-platform session up` where it fits.

    It is opened when a run has work: more than `local_rows` rows, or what only Spark computes. `settings` win over
    those of the profile and over the platform's defaults, and an ``EnvVar`` inside them is resolved.
    """

    profile: str | None = Field(
        default=None,
        description="Where Spark runs: local, standalone, yarn or kubernetes; UPSERT_SPARK_PROFILE, or what"
        " `spark.master` tells, if left out.",
    )

    spark_config: dict[str, Any] = Field(
        default_factory=dict, description="Spark settings as dagster-pyspark takes them, nested or not; `settings` win."
    )
    settings: dict[str, Any] = Field(default_factory=dict, description="Spark settings, name to value.")
    local_rows: int | None = Field(
        default=None,
        ge=0,
        description="Up to so many rows the run's own process does the work, without Spark; UPSERT_SPARK_LOCAL_ROWS, or"
        " 0, if left out: every row goes through Spark.",
    )
    little_rows: int | None = Field(default=None, ge=0, description="The old name of `local_rows`.")
    _spark_session: Any = PrivateAttr(default=None)
    _opened: bool = PrivateAttr(default=False)
    _brief: bool = PrivateAttr(default=False)
    _asked: int = PrivateAttr(default=0)
    _pages: dict[str, str] = PrivateAttr(default_factory=dict)
    _noticed: bool = PrivateAttr(default=False)
    _counter: Any = PrivateAttr(default=None)
    _served: Any = PrivateAttr(default=None)

    def refuse_wrong(self, platform: "PlatformResource", *, writes: bool = False) -> None:
        """Refuses settings with which Spark could not work on the lake; opens nothing.

        Args:
            writes: a lake that cannot be written is refused too, before anything is read.

        Raises:
            EndpointError: it tells everything that is wrong, with the remedies.
        """
        if writes:
            check_writable(platform.root)
        refuse_wrong(self.place, lake=platform.root)

    @property
    def place(self) -> SparkPlace:
        """Return where Spark runs, by profile and settings.

        Raises:
            EndpointError: there is no profile of that name.
        """
        return spark_place(self.spark_settings, profile=self.profile)

    @property
    def spark_settings(self) -> dict[str, str]:
        """Spark settings, name to value, with variables of the environment resolved.

        Raises:
            EndpointError: a variable is not set.
        """
        entries = {**self.held.get("spark_config", {}), **self.spark_config}
        given = {**flat(entries), **self.held.get("settings", {}), **self.settings}
        found = {name: resolved(value) for name, value in given.items()}
        for name, value in found.items():
            if value is None or _UNSET.search(value):
                raise EndpointError(
                    f"Spark setting '{name}' is an environment variable that is not set; set it, or"
                    " give the setting's value in the resource 'spark'"
                )
        return {name: value for name, value in found.items() if value is not None}

    def expect(self, rows: int) -> None:
        """Announce at least how many rows the run will move; a session that is not open yet is sized for them."""
        self._brief = rows < _BRIEF_ROWS

    def serve(self, platform: "PlatformResource") -> None:
        """Names the project whose run this is: what its systems need is imported while the session opens."""
        self._served = platform

    def on_demand(self) -> OnDemand:
        """The local bound, and what opens the session for work above it."""
        return OnDemand(lambda: self.spark_session, rows=self.most_local_rows(), on_cluster=self.place.is_cluster)

    def most_local_rows(self) -> int:
        """Return the local bound of this run.

        Raises:
            EndpointError: UPSERT_SPARK_LOCAL_ROWS is not a number of rows.
        """
        if self.little_rows is None:
            return local_rows(self.local_rows)
        if not self._noticed:
            self._noticed = True
            dg.get_dagster_logger().warning("'little_rows' of the Spark resource is called 'local_rows' now")
        return self.little_rows if self.local_rows is None else self.local_rows

    @property
    def times_asked(self) -> int:
        """Return how often the session was requested so far."""
        return self._asked

    def pages(self, *, since: int) -> Mapping[str, str]:
        """Return the pages of Spark about the session, name to URL; none if it was not requested since."""
        return self._pages if self._asked > since else {}

    def take_work(self) -> SparkWork:
        """Return what Spark did since this was asked for last."""
        return SparkWork() if self._counter is None else self._counter.take()

    def _init_session(self) -> None:
        self._asked += 1
        if self._spark_session is None:
            from pyspark.sql import SparkSession

            self._opened = SparkSession.getActiveSession() is None
            settings = self.spark_settings
            tell = dg.get_dagster_logger().info
            systems = () if self._served is None else self._served.written_systems()
            self._spark_session = session_for_run(
                settings, profile=self.profile, brief=self._brief, systems=systems, tell=tell
            )
            self._pages = pages_of(self._spark_session)
            self._counter = WorkCounter(self._spark_session)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Stops the session if this run opened it, and leaves a warm one."""
        if self._opened and self._spark_session is not None:
            close_session(self._spark_session)
            self._spark_session, self._opened, self._counter = None, False, None


class PlatformResource(HoldsSecrets):
    """The declared project, bound to its connectors.

    The resources of `endpoint_resources` and `lake` say where its systems and its lake are.
    """

    project: str | None = Field(
        default=None, description="Folder of the project; UPSERT_PLATFORM_PROJECT, or the demo, if left out."
    )
    home: str | None = Field(default=None, description="Superseded by `root` of the resource `lake`; wins over it.")
    discovered: str | None = Field(
        default=None,
        description="Declarations of discovered topics, which the component gives; no value to give by hand.",
        json_schema_extra=SECRET,  # kept in the process: they would fill the page of the resource
    )
    kafka: dg.ResourceDependency[KafkaResource]
    tablestore: dg.ResourceDependency[TablestoreResource]
    maxcompute: dg.ResourceDependency[MaxComputeResource]
    postgres: dg.ResourceDependency[PostgresResource]
    mysql: dg.ResourceDependency[MySqlResource]
    storage: dg.ResourceDependency[LakeResource]
    _binding: Binding | None = PrivateAttr(default=None)
    _hops: ProjectHops | None = PrivateAttr(default=None)
    _keeps: bool = PrivateAttr(default=False)

    def __init__(self, **data: Any) -> None:
        """Takes the values and the resources; those of databases, and `storage`, may be left out."""
        others: dict[str, Any] = {item.endpoint_name: item() for item in ENDPOINT_RESOURCES if item.may_be_left_out}
        others["storage"] = LakeResource()
        super().__init__(**{**others, **data})

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Notes with a run where it is carried out, and keeps connections and changelogs open for its steps.

        Steps of tables whose endpoint is away wait for it once, and not in turn.
        """
        keep_connections()
        wait_once_for(AWAY_SECONDS)
        self._hops, self._keeps = None, True
        if self.home is not None and context.log is not None:
            context.log.warning(
                "'home' of resource 'platform' is superseded by 'root' of resource 'lake'; it still wins"
            )
        if context.run is not None and context.instance is not None:
            name_host(context.instance, context.run.run_id, **{LAKE_TAG: lake_mark(self.root)})

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Lets the connections and changelogs go."""
        keep_connections(keep=False)
        wait_once_for(None)
        self._hops, self._keeps = None, False

    @property
    def root(self) -> str:
        """Root of the lake."""
        return self.lake.root

    @property
    def has_servers(self) -> bool:
        """Return whether its topics and tables are on servers, which whoever proves them asks."""
        return True

    @property
    def lake(self) -> Lake:
        """The lake."""
        return self.storage.lake(self.home)

    def binding(self) -> Binding:
        """The whole project with every option in place.

        Raises:
            DeclarationError: something in the project cannot be used.
        """
        return self.sound().whole()

    def sound(self) -> Binding:
        """Return the usable part of the project, every option in place; access to another part raises its problem."""
        if self._binding is None:
            self._binding = self._bound()
        return self._binding

    def written_systems(self) -> set[str]:
        """Endpoints (such as ``tablestore``) of the tables that the usable part of the project writes."""
        return written_systems(self.sound().project)

    def read_again(self) -> Binding:
        """Read the declarations anew, servers of databases asked; what was read before stays where they have errors.

        Raises:
            DeclarationError: something in the project cannot be used.
        """
        found = self._bound().whole()
        self._binding, self._hops = found, None
        return found

    def _bound(self) -> Binding:
        lake = self.lake
        project, problems = load(
            self._folder, root=lake.root, endpoints=self.endpoints(), lake=lake, discovered=self._discovered()
        )
        return bind_sound(project, problems, defaults=self.defaults())

    def declared(self) -> Declared:
        """The project as far as a code location needs it: without secrets, and without asking a server again."""
        return declared(
            self._folder,
            lake=self.lake,
            endpoints=self.endpoints(),
            defaults=self.defaults(),
            discovered=self._discovered(),
        )

    def _discovered(self) -> Mapping[str, str] | None:
        text = self.value_of("discovered")
        return None if text is None else read_discovered(text)

    def located(self) -> LocatedProject:
        """Return the project as commands read it."""
        return LocatedProject(self._folder, self.lake, self.endpoints(), self.defaults(), self._discovered())

    def endpoints(self) -> Endpoints:
        """Return the values of the endpoint resources."""
        given = _systems(self)
        return Endpoints(
            {name: item.given() for name, item in given.items()},
            {name: item.values_of("options") for name, item in given.items()},
        )

    def defaults(self) -> dict[str, Mapping[str, str]]:
        """Options per connector that complete those of its tables."""
        endpoints = self.endpoints()
        variables = project_variables(self._folder, root=self.root, given=endpoints.variables())
        return endpoints.defaults(variables)

    @property
    def _folder(self) -> Path:
        return Path(self.project) if self.project else project_path()

    def destination(self, name: str) -> Destination:
        """Opens the destination of a declared table, written by an INSERT or by an asset of one's own.

        The caller closes it.

        Raises:
            DeclarationError: no table of that name is declared, or its connector only reads.
        """
        found = self.sound()
        if any(insert.target == name for insert in found.project.inserts):
            return found.targets[name].open()
        return open_unbound(found.project, name, self.defaults())

    def hops(self) -> ProjectHops:
        """The hops of the usable part of the project; steps of a run look at changelogs through one handle each."""
        if self._hops is None:
            self._hops = ProjectHops(self.sound(), self.lake, keeps=self._keeps)
        return self._hops

    def changelog(self, source: Source | QuerySource) -> ChangelogStore:
        """Return the changelog of a source, or of a query."""
        return self.hops().changelog(source)

    def changelog_hop(self, name: str, *, run: str) -> ChangelogHop:
        """The hop from the topics of a declared table to its changelog."""
        return self.hops().changelog_hop(name, run=run)

    def query_hop(self, name: str, *, run: str) -> QueryHop:
        """The hop from the changelogs that a query reads to its result."""
        return self.hops().query_hop(name, run=run)

    def destination_hop(self, name: str, *, run: str) -> DestinationHop:
        """The hop to a declared destination table; the caller closes its destination."""
        return self.hops().destination_hop(name, run=run)


def _systems(platform: PlatformResource) -> dict[str, EndpointResource]:
    """Endpoint to its resource."""
    return {item.endpoint_name: getattr(platform, item.endpoint_name) for item in ENDPOINT_RESOURCES}


def top_level(platform: PlatformResource) -> dict[str, Any]:
    """The platform's resources as those of a code location: `platform`, and where its systems and its lake are."""
    found: dict[str, Any] = {
        name: launchable(item, **item.of_environment()) for name, item in _systems(platform).items()
    }
    root = {"root": platform.home} if platform.home is not None else platform.storage.of_environment()
    found[LAKE] = launchable(platform.storage, **root)
    nested = {("storage" if name == LAKE else name): item for name, item in found.items()}
    # A home of the definition is the lake's root, so that a launch that names another root is heard.
    return {**found, "platform": launchable(platform, home=None, **nested)}
