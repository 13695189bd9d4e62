"""Dagster resources: the endpoints that declarations may leave out, the Spark session, and the project itself.

Annotations are evaluated here: Dagster does not understand a `ResourceDependency` that is text.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import ConfigDict, Field, PrivateAttr, create_model

from upsert_platform.changelog.lake import Lake, check_writable, home
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.destination import Destination
from upsert_platform.graph.processes import name_host
from upsert_platform.hops.binding import Binding, bind, changelog_of, load, open_unbound
from upsert_platform.hops.changelog_hop import ChangelogHop
from upsert_platform.hops.connectors import by_endpoint, keep_connections
from upsert_platform.hops.destination_hop import DestinationHop
from upsert_platform.hops.on_demand import OnDemand, local_rows
from upsert_platform.hops.query_hop import QueryHop
from upsert_platform.jvm.placement import refuse_wrong
from upsert_platform.jvm.profiles import SparkPlace, spark_place
from upsert_platform.jvm.warm_session import close_session, session_for_run

_BRIEF_ROWS = 1_000_000
"""Below this a JVM that starts fast ends sooner than one that gets faster while it runs."""


class SparkResource(LazyPySparkResource):
    """The Spark session of a run, closed at its end: the warm one of `upsert-platform session up` where it fits.

    It is opened when a run has work: more than `local_rows` rows, or what only Spark computes. `settings` win over
    those of the profile and over the platform's defaults, and an ``EnvVar`` inside them is resolved.
    """

    profile: str | None = Field(
        None,
        description="Where Spark runs: local, standalone, yarn or kubernetes; UPSERT_SPARK_PROFILE, or what"
        " `spark.master` tells, if left out.",
    )

    spark_config: dict[str, Any] = Field(default_factory=dict, description="Not used; see `settings`.")
    settings: dict[str, str] = Field(default_factory=dict, description="Spark settings, name to value.")
    local_rows: int | None = Field(
        None,
        ge=0,
        description="Up to so many rows the run's own process does the work, without Spark; UPSERT_SPARK_LOCAL_ROWS, or"
        " 0, if left out: every row goes through Spark.",
    )
    little_rows: int | None = Field(None, ge=0, description="The old name of `local_rows`.")
    _spark_session: Any = PrivateAttr(default=None)
    _opened: bool = PrivateAttr(default=False)
    _brief: bool = PrivateAttr(default=False)
    _asked: int = PrivateAttr(default=0)
    _page: str | None = PrivateAttr(default=None)
    _noticed: bool = PrivateAttr(default=False)

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
        """Where Spark runs, by profile and settings.

        Raises:
            EndpointError: there is no profile of that name.
        """
        return spark_place({**self.spark_config, **self.settings}, profile=self.profile)

    def expect(self, rows: int) -> None:
        """Tells how many rows the run will move at least; a session that is not open yet is made to fit."""
        self._brief = rows < _BRIEF_ROWS

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
        """How often the session was asked for so far."""
        return self._asked

    def page(self, *, since: int) -> str | None:
        """Address of Spark's own page, if the session was asked for since, and has one (`spark.ui.enabled`)."""
        return self._page if self._asked > since else None

    def _init_session(self) -> None:
        self._asked += 1
        if self._spark_session is None:
            from pyspark.sql import SparkSession

            self._opened = SparkSession.getActiveSession() is None
            settings = {**self.spark_config, **self.settings}
            tell = dg.get_dagster_logger().info
            self._spark_session = session_for_run(settings, profile=self.profile, brief=self._brief, tell=tell)
            self._page = self._spark_session.sparkContext.uiWebUrl

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Stops the session if this run opened it, and leaves a warm one."""
        if self._opened and self._spark_session is not None:
            close_session(self._spark_session)
            self._spark_session, self._opened = None, False


class EndpointResource(dg.ConfigurableResource):
    """Base of resources that complete the options of tables: what a table declares wins."""

    # An error of validation would show the values, which may be secrets.
    model_config = ConfigDict(hide_input_in_errors=True)

    options: dict[str, str] = Field(
        default_factory=dict, description="Further table options, by their names in DDL, for tables that lack them."
    )

    def defaults(self) -> dict[str, str]:
        """Option name to value, for tables of the connector."""
        return dict(self.options)


class KafkaResource(EndpointResource):
    """Brokers for tables whose declaration names none."""

    bootstrap_servers: str | None = Field(default=None, description="host:port, joined by commas.")

    def defaults(self) -> dict[str, str]:
        """Option name to value, for upsert-kafka tables."""
        named = {"properties.bootstrap.servers": self.bootstrap_servers} if self.bootstrap_servers else {}
        return {**self.options, **named}


class TablestoreResource(EndpointResource):
    """Instance and credentials for Tablestore tables whose declaration names none."""

    endpoint: str | None = None
    instance: str | None = None
    access_key_id: str | None = Field(default=None, description="Give it as EnvVar.")
    access_key_secret: str | None = Field(default=None, description="Give it as EnvVar.")

    def defaults(self) -> dict[str, str]:
        """Option name to value, for tablestore tables."""
        named = {
            "tablestore.endpoint": self.endpoint,
            "tablestore.instance.name": self.instance,
            "tablestore.access.key.id": self.access_key_id,
            "tablestore.access.key.secret": self.access_key_secret,
        }
        return {**self.options, **{name: value for name, value in named.items() if value}}


class MaxComputeResource(EndpointResource):
    """Project and credentials for MaxCompute tables whose declaration names none."""

    endpoint: str | None = None
    project: str | None = None
    access_id: str | None = Field(default=None, description="Give it as EnvVar.")
    access_key: str | None = Field(default=None, description="Give it as EnvVar.")

    def defaults(self) -> dict[str, str]:
        """Option name to value, for maxcompute tables."""
        named = {
            "odps.end.point": self.endpoint,
            "odps.project.name": self.project,
            "odps.access.id": self.access_id,
            "odps.access.key": self.access_key,
        }
        return {**self.options, **{name: value for name, value in named.items() if value}}


class PlatformResource(dg.ConfigurableResource):
    """The declared project, bound to its connectors, and the lake.

    Args:
        project: folder of the project; UPSERT_PLATFORM_PROJECT or the demo if left out.
        home: root of the lake; UPSERT_PLATFORM_HOME or ``.upsert_platform`` if left out.
    """

    project: str | None = None
    home: str | None = None
    kafka: dg.ResourceDependency[KafkaResource]
    tablestore: dg.ResourceDependency[TablestoreResource]
    maxcompute: dg.ResourceDependency[MaxComputeResource]
    _binding: Binding | None = PrivateAttr(default=None)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Notes with a run where it is carried out, and keeps connections for its short questions."""
        keep_connections()
        if context.run is not None and context.instance is not None:
            name_host(context.instance, context.run.run_id)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Lets the connections go."""
        keep_connections(keep=False)

    @property
    def root(self) -> str:
        """Root of the lake."""
        return self.home or home()

    @property
    def lake(self) -> Lake:
        """The lake, as the environment describes its storage."""
        return Lake.at(self.root)

    def binding(self) -> Binding:
        """The project with every option in place.

        Raises:
            DeclarationError: the project cannot be used.
        """
        if self._binding is None:
            project, problems = load(Path(self.project) if self.project else None, root=self.root)
            self._binding = bind(project, problems, defaults=self.defaults())
        return self._binding

    def defaults(self) -> dict[str, Mapping[str, str]]:
        """Options per connector that complete those of its tables."""
        return by_endpoint(
            {
                "kafka": self.kafka.defaults(),
                "tablestore": self.tablestore.defaults(),
                "maxcompute": self.maxcompute.defaults(),
            }
        )

    def destination(self, name: str) -> Destination:
        """Opens the destination of a declared table, written by an INSERT or by an asset of one's own.

        The caller closes it.

        Raises:
            DeclarationError: no table of that name is declared, or its connector only reads.
        """
        bound = self.binding().targets.get(name)
        return bound.open() if bound is not None else open_unbound(self.binding().project, name, self.defaults())

    def changelog_hop(self, name: str, *, run: str) -> ChangelogHop:
        """The hop from the topics of a declared table to its changelog."""
        source = self.binding().sources[name]
        return ChangelogHop(source, changelog_of(source, self.lake), run=run)

    def query_hop(self, name: str, *, run: str) -> QueryHop:
        """The hop from the changelogs that a query reads to its result."""
        return self.binding().query_hop(name, self.lake, run=run)

    def destination_hop(self, name: str, *, run: str) -> DestinationHop:
        """The hop to a declared destination table; the caller closes its destination."""
        bound = self.binding().targets[name]
        return DestinationHop(
            bound,
            changelog_of(bound.source, self.lake),
            bound.open(),
            refused=RefusedStore(self.lake.refused(name)),
            run=run,
        )


def keeping_values(resource: PlatformResource | SparkResource) -> Any:
    """A resource whose values are the defaults of a launch: one that names some of them keeps the others.

    By itself Dagster takes the defaults of the class instead, so that a run launched with another `home` would forget
    the `project` that its assets were built from.
    """
    kind = type(resource)
    own = {
        name: (field.annotation, Field(default=getattr(resource, name), description=field.description))
        for name, field in kind.model_fields.items()
        if name in ("project", "home", "profile", "spark_config", "settings", "local_rows", "little_rows")
    }
    nested = {
        name: getattr(resource, name) for name in ("kafka", "tablestore", "maxcompute") if hasattr(resource, name)
    }
    made = create_model(kind.__name__, __base__=kind, __module__=kind.__module__, **own)  # type: ignore[call-overload]
    return made(**nested)
