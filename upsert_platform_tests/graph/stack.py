"""The whole platform in a test: real broker, real local servers, a project folder, syncs in this process or another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg

from upsert_platform.demo.users import Users, produce
from upsert_platform.graph.build import build_definitions
from upsert_platform.graph.resources import (
    KafkaResource,
    MaxComputeResource,
    PlatformResource,
    SparkResource,
    TablestoreResource,
)
from upsert_platform.local.kafka import Broker
from upsert_platform.referee.selection import Condition, Selection
from upsert_platform.sync.binding import load
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform_tests.local.maxcompute.server import ServerHandle as MaxComputeServer
from upsert_platform_tests.local.tablestore.server import ServerHandle as TablestoreServer
from upsert_platform_tests.referee.judging import Declared, maxcompute_table, records_of, tablestore_table, told

COLUMNS = "user_id BIGINT, name STRING, region STRING, balance DECIMAL(12, 2), updated_at TIMESTAMP(3)"
KEY = "PRIMARY KEY (user_id) NOT ENFORCED"
USERS = Declared(
    {
        "user_id": "BIGINT",
        "name": "STRING",
        "region": "STRING",
        "balance": "DECIMAL(12, 2)",
        "updated_at": "TIMESTAMP(3)",
    },
    ("user_id",),
)
"""The same for the referee."""
SOURCE = """
CREATE TABLE users ({columns}, {key}) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}',
  'key.format' = 'json', 'value.format' = 'json'{more}
);
"""
SERVING = """
CREATE TABLE users_serving ({columns}, {key}) WITH (
  'connector' = 'tablestore', 'table.name' = '{table}',
  'tablestore.endpoint' = '${{UPSERT_TABLESTORE_ENDPOINT}}',
  'tablestore.instance.name' = '${{UPSERT_TABLESTORE_INSTANCE}}',
  'tablestore.access.key.id' = '${{UPSERT_TABLESTORE_ACCESS_KEY_ID}}',
  'tablestore.access.key.secret' = '${{UPSERT_TABLESTORE_ACCESS_KEY_SECRET}}',
  'auto.create' = 'true'{more}
);
INSERT INTO users_serving SELECT * FROM users;
"""
WAREHOUSE = """
CREATE TABLE users_warehouse ({columns}, {key}) WITH (
  'connector' = 'maxcompute', 'table.name' = '{table}',
  'odps.end.point' = '${{UPSERT_MAXCOMPUTE_ENDPOINT}}', 'odps.project.name' = '${{UPSERT_MAXCOMPUTE_PROJECT}}',
  'odps.access.id' = '${{UPSERT_MAXCOMPUTE_ACCESS_ID}}', 'odps.access.key' = '${{UPSERT_MAXCOMPUTE_ACCESS_KEY}}',
  'sink.operation' = 'upsert', 'upsert.write.bucket.num' = '4', 'auto.create' = 'true'{more}
);
INSERT INTO users_warehouse SELECT user_id, name, region, balance, updated_at FROM users WHERE region <> 'test';
"""


def variables_of(broker: Broker, tablestore: TablestoreServer, maxcompute: MaxComputeServer) -> dict[str, str]:
    """Endpoints of running servers, as `local up` names them."""
    return {
        "UPSERT_KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "UPSERT_TABLESTORE_ENDPOINT": tablestore.endpoint,
        "UPSERT_TABLESTORE_INSTANCE": tablestore.instance,
        "UPSERT_TABLESTORE_ACCESS_KEY_ID": tablestore.access_key_id,
        "UPSERT_TABLESTORE_ACCESS_KEY_SECRET": tablestore.access_key_secret,
        "UPSERT_MAXCOMPUTE_ENDPOINT": maxcompute.endpoint,
        "UPSERT_MAXCOMPUTE_PROJECT": maxcompute.project,
        "UPSERT_MAXCOMPUTE_ACCESS_ID": maxcompute.access_id,
        "UPSERT_MAXCOMPUTE_ACCESS_KEY": maxcompute.access_key,
    }


@dataclass
class Stack:
    """A project on real servers.

    Attributes:
        variables: what `local up` would write.
        topic: of the source; table names in the destinations are the same.
    """

    path: Path
    variables: Mapping[str, str]
    topic: str
    users: Users = field(default_factory=Users)

    @property
    def table(self) -> str:
        """Name of the tables in the destinations."""
        return self.topic.replace("-", "_")

    @property
    def project(self) -> Path:
        """The project folder."""
        return self.path / "project"

    @property
    def lake(self) -> Path:
        """Root of the lake."""
        return self.path / "lake"

    def declare(
        self, *, source: str = "", serving: str | None = "", warehouse: str | None = "", columns: str = COLUMNS
    ) -> None:
        """Writes the project: further options per table, or None to leave a destination out."""
        self.project.mkdir(parents=True, exist_ok=True)
        text = SOURCE.format(columns=columns, key=KEY, topic=self.topic, more=source)
        if serving is not None:
            text += SERVING.format(columns=columns, key=KEY, table=self.table, more=serving)
        if warehouse is not None:
            text += WAREHOUSE.format(columns=columns, key=KEY, table=self.table, more=warehouse)
        (self.project / "users.sql").write_text(text, "utf-8")

    def produce(self, records: Iterable[tuple[bytes, bytes | None]]) -> int:
        """Sends records to the topic."""
        return produce(self.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], iter(records), topic=self.topic)

    def platform(self) -> PlatformResource:
        """The resource, as the code location builds it."""
        return PlatformResource(
            project=str(self.project),
            home=str(self.lake),
            kafka=KafkaResource(),
            tablestore=TablestoreResource(),
            maxcompute=MaxComputeResource(),
        )

    def definitions(self) -> dg.Definitions:
        """The definitions of the project."""
        project, problems = load(self.project, root=str(self.lake))
        assert not [problem for problem in problems if problem.severity == "error"], problems
        return build_definitions(project, platform=self.platform(), spark=SparkResource())

    def run(self, job: str = "sync", *, instance: dg.DagsterInstance | None = None) -> dg.ExecuteInProcessResult:
        """Runs a job in this process and in the session's Spark; failures do not raise."""
        resolved = self.definitions().resolve_job_def(job)
        return resolved.execute_in_process(instance=instance, raise_on_error=False)

    def execute(self, job: str = "sync", **more: Any) -> subprocess.CompletedProcess[str]:
        """Runs ``dagster job execute`` as a user would."""
        return subprocess.run(self.command(job), env=self.environment(), capture_output=True, text=True, **more)

    def command(self, job: str = "sync") -> list[str]:
        """The command of execute."""
        dagster = str(Path(sys.executable).parent / "dagster")
        return [dagster, "job", "execute", "-m", "upsert_platform.definitions", "-j", job]

    def environment(self) -> dict[str, str]:
        """The environment of the command."""
        home = self.path / "dagster"
        home.mkdir(exist_ok=True)
        return {
            **os.environ,
            **self.variables,
            "DAGSTER_HOME": str(home),
            "DAGSTER_DISABLE_TELEMETRY": "yes",
            "UPSERT_PLATFORM_HOME": str(self.lake),
            "UPSERT_PLATFORM_PROJECT": str(self.project),
        }

    def hop(self, target: str) -> DestinationHop:
        """A hop of a destination, for looking at its state; close its destination."""
        return self.platform().destination_hop(target, run="test")

    def serving_rows(self) -> list[list[Any]]:
        """Rows of the table in Tablestore, by the vendor's client, in the order of the columns."""
        return list(tablestore_table(self.variables, self.table, USERS.columns, USERS.primary_key))

    def serving_differences(self) -> list[str]:
        """What the referee finds in Tablestore that the topic does not say."""
        return self._differences(self.serving_rows(), USERS.whole(), len(self.users.rows))

    def warehouse_differences(self) -> list[str]:
        """What the referee finds in MaxCompute that the topic does not say."""
        selection = Selection(USERS.whole().columns, [Condition("region", "<>", "test")])
        wanted = sum(row["region"] != "test" for row in self.users.rows.values())
        return self._differences(maxcompute_table(self.variables, self.table, USERS.columns), selection, wanted)

    def _differences(self, rows: Iterable[Sequence[Any]], selection: Selection, wanted: int) -> list[str]:
        records = records_of(self.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], self.topic)
        verdict = USERS.judge(records, rows, selection)
        lines = told(verdict)
        if not lines and verdict.equal_rows != wanted:  # so that the topic itself is what was produced
            lines.append(f"{verdict.equal_rows} rows are equal, of {wanted} produced")
        return lines


def metadata_of(result: dg.ExecuteInProcessResult, *key: str) -> dict[str, Any]:
    """Metadata of the materialisation of an asset in a run."""
    for event in result.get_asset_materialization_events():
        if event.asset_key == dg.AssetKey(list(key)):
            return {name: value.value for name, value in event.materialization.metadata.items()}
    raise AssertionError(f"{key} was not materialised")


def checks_of(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    """Check name and asset to whether it passed."""
    return {
        f"{item.check_name}:{item.asset_key.path[-1]}": item.passed for item in result.get_asset_check_evaluations()
    }
