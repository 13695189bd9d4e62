"""Where systems are is what the resources of a run say: in plans, writes, checks and tasks, with secrets unseen.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._serdes import serialize_value

from upsert_platform.graph.build import build_definitions
from upsert_platform.graph.resources import (
    KafkaResource,
    LakeResource,
    MaxComputeResource,
    MySqlResource,
    PlatformResource,
    PostgresResource,
    SparkResource,
    TablestoreResource,
)
from upsert_platform.sync.binding import bind, load
from upsert_platform_tests.campaign import first_of
from upsert_platform_tests.graph.stack import COLUMNS, KEY, Stack

pytestmark = pytest.mark.whole_runs

NOWHERE = {
    "UPSERT_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "UPSERT_TABLESTORE_ENDPOINT": "http://127.0.0.1:1",
    "UPSERT_TABLESTORE_INSTANCE": "none",
    "UPSERT_TABLESTORE_ACCESS_KEY_ID": "none",
    "UPSERT_TABLESTORE_ACCESS_KEY_SECRET": "none",
    "UPSERT_MAXCOMPUTE_ENDPOINT": "http://127.0.0.1:1",
    "UPSERT_MAXCOMPUTE_PROJECT": "none",
    "UPSERT_MAXCOMPUTE_ACCESS_ID": "none",
    "UPSERT_MAXCOMPUTE_ACCESS_KEY": "none",
}
"""Servers that the environment names, and where nobody listens."""
BARE = """
CREATE TABLE users ({columns}, {key}) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}', 'key.format' = 'json', 'value.format' = 'json'
);
CREATE TABLE users_serving ({columns}, {key}) WITH (
  'connector' = 'tablestore', 'table.name' = '{table}', 'auto.create' = 'true'
);
INSERT INTO users_serving SELECT * FROM users;
CREATE TABLE users_warehouse ({columns}, {key}) WITH (
  'connector' = 'maxcompute', 'table.name' = '{table}', 'sink.operation' = 'upsert', 'auto.create' = 'true'
);
INSERT INTO users_warehouse SELECT user_id, name, region, balance, updated_at FROM users WHERE region <> 'test';
"""
"""Tables that leave their servers out."""


def launched(stack: Stack, **resources: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Runs `dagster job execute -c run.yaml` where the environment names other servers."""
    run = stack.path / "run.yaml"
    run.write_text(yaml.safe_dump({"resources": {name: {"config": config} for name, config in resources.items()}}))
    return subprocess.run(
        [*stack.command(), "-c", str(run)],
        env={**stack.environment(), **NOWHERE, "OTHER_SECRET": stack.variables["UPSERT_TABLESTORE_ACCESS_KEY_SECRET"]},
        capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    "bare", first_of([True, False], every=2), ids=["tables leave servers out", "tables name variables"]
)
def test_a_launch_reaches_the_servers_that_it_names(stack: Stack, bare: bool) -> None:
    if bare:
        text = BARE.format(columns=COLUMNS, key=KEY, topic=stack.topic, table=stack.table)
        (stack.project / "users.sql").write_text(text)
    stack.produce(stack.users.first_wave(40))
    variables = {name.removeprefix("UPSERT_"): value for name, value in stack.variables.items()}
    other = stack.path / "other"
    done = launched(
        stack,
        kafka={"bootstrap_servers": variables["KAFKA_BOOTSTRAP_SERVERS"]},
        tablestore={
            "endpoint": variables["TABLESTORE_ENDPOINT"],
            "instance": variables["TABLESTORE_INSTANCE"],
            "access_key_id": variables["TABLESTORE_ACCESS_KEY_ID"],
            "access_key_secret": {"env": "OTHER_SECRET"},
        },
        maxcompute={
            "endpoint": variables["MAXCOMPUTE_ENDPOINT"],
            "project": variables["MAXCOMPUTE_PROJECT"],
            "access_id": variables["MAXCOMPUTE_ACCESS_ID"],
            "access_key": variables["MAXCOMPUTE_ACCESS_KEY"],
        },
        lake={"root": str(other)},
        spark={"local_rows": 0},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert stack.serving_differences() == []
    assert stack.warehouse_differences() == []
    assert done.stderr.count("last_value_per_key passed") == 2, done.stderr
    assert (other / "changelogs" / "users" / "_delta_log").is_dir()
    assert not stack.lake.exists()


def test_a_table_without_servers_is_one_of_the_shipped_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "users.sql").write_text(BARE.format(columns=COLUMNS, key=KEY, topic="users", table="users"))
    for name, value in NOWHERE.items():
        monkeypatch.setenv(name, value)
    binding = bind(*load(tmp_path, root=str(tmp_path / "lake")))
    assert binding.sources["users"].table.options["properties.bootstrap.servers"] == "127.0.0.1:1"
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(tmp_path))
    platform = PlatformResource(
        kafka=KafkaResource(bootstrap_servers="10.0.0.1:9092"),
        tablestore=TablestoreResource(),
        maxcompute=MaxComputeResource(),
    )
    options = platform.binding().sources["users"].table.options
    assert options["properties.bootstrap.servers"] == "10.0.0.1:9092"
    assert platform.binding().targets["users_serving"].table.options["tablestore.endpoint"] == "http://127.0.0.1:1"


def test_variables_of_the_local_servers_complete_tables_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NOWHERE:
        monkeypatch.delenv(name, raising=False)
    local = tmp_path / "lake" / "local"
    local.mkdir(parents=True)
    (local / "local.env").write_text("".join(f"{name}={value}\n" for name, value in NOWHERE.items()))
    (tmp_path / "users.sql").write_text(BARE.format(columns=COLUMNS, key=KEY, topic="users", table="users"))
    platform = PlatformResource(
        project=str(tmp_path), home=str(tmp_path / "lake"),
        kafka=KafkaResource(), tablestore=TablestoreResource(), maxcompute=MaxComputeResource(),
    )  # fmt: skip
    assert set(platform.binding().targets) == {"users_serving", "users_warehouse"}


def test_credentials_are_taken_together_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in NOWHERE.items():
        monkeypatch.setenv(name, value)
    declared = BARE.format(columns=COLUMNS, key=KEY, topic="users", table="users").replace(
        "'connector' = 'tablestore',", "'connector' = 'tablestore', 'tablestore.auth.mode' = 'sts',"
    )
    (tmp_path / "users.sql").write_text(declared)
    target = bind(*load(tmp_path, root=str(tmp_path / "lake"))).targets["users_serving"]
    assert target.table.options["tablestore.endpoint"] == "http://127.0.0.1:1"
    assert "tablestore.access.key.id" not in target.table.options


def secret_location(folder: Path) -> dg.Definitions:
    """A location with every secret as a text."""
    (folder / "users.sql").write_text(BARE.format(columns=COLUMNS, key=KEY, topic="users", table="users"))
    platform = PlatformResource(
        project=str(folder),
        kafka=KafkaResource(
            bootstrap_servers="127.0.0.1:1",
            options={"properties.sasl.password": "S3CRET-1", "properties.client.id": "shown"},
        ),
        tablestore=TablestoreResource(access_key_id="S3CRET-2", access_key_secret="S3CRET-3"),
        maxcompute=MaxComputeResource(access_id="S3CRET-4", access_key="S3CRET-5"),
        mysql=MySqlResource(username="u", password="S3CRET-6"),
        postgres=PostgresResource(
            url="jdbc:postgresql://u:S3CRET-P@127.0.0.1:1/db",
            options={"x": "http://u:S3CRET-Q@h", "y": "jdbc:h://a/b?user=u&password=S3CRET-R"},
        ),
        storage=LakeResource(options={"AWS_SECRET_ACCESS_KEY": "S3CRET-7", "AWS_ACCESS_KEY_ID": "S3CRET-8"}),
    )
    settings = {"spark.hadoop.fs.s3a.secret.key": "S3CRET-9", "spark.sql.shuffle.partitions": 8}
    nested = {"spark": {"hadoop": {"fs": {"s3a": {"access": {"key": "S3CRET-0"}}}}}}
    spark = SparkResource(settings=settings, spark_config=nested)
    return build_definitions(load(folder)[0], platform=platform, spark=spark)


def test_no_secret_is_part_of_what_a_code_location_tells_dagster(tmp_path: Path) -> None:
    """Resource pages, GraphQL and scaffolded configuration have all of it from there."""
    repository = secret_location(tmp_path).get_repository_def()
    told = serialize_value(RepositorySnap.from_def(repository))
    told += "".join(serialize_value(job.get_job_snapshot()) for job in repository.get_all_jobs())
    assert "S3CRET" not in told
    assert "shown" in told
    snapshot = RepositorySnap.from_def(repository)
    resources = {item.name: item for item in snapshot.resources or []}
    assert {"kafka", "tablestore", "maxcompute", "mysql", "lake", "platform", "spark"} <= set(resources)
    nested = {name: item.type.value for name, item in resources["platform"].nested_resources.items()}
    assert set(nested.values()) == {"TOP_LEVEL"}
    fields = {field.name: field for field in resources["tablestore"].config_field_snaps}
    assert fields["access_key_secret"].is_secret
    assert not fields["endpoint"].is_secret


def test_secrets_of_a_definition_reach_the_run(tmp_path: Path) -> None:
    found: dict[str, Any] = {}

    @dg.op(required_resource_keys={"platform", "spark"})
    def look(context: dg.OpExecutionContext) -> None:
        platform, spark = context.resources.platform, context.resources.spark
        found.update(defaults=platform.defaults(), spark=spark.spark_settings, lake=platform.lake.options)

    @dg.job
    def looking() -> None:
        look()

    definitions = dg.Definitions.merge(secret_location(tmp_path), dg.Definitions(jobs=[looking]))
    launch = {"kafka": {"config": {"bootstrap_servers": "10.0.0.1:1"}}}
    assert definitions.resolve_job_def("looking").execute_in_process(run_config={"resources": launch}).success
    kafka, tablestore = found["defaults"]["upsert-kafka"], found["defaults"]["tablestore"]
    assert kafka["properties.bootstrap.servers"] == "10.0.0.1:1"
    assert (kafka["properties.sasl.password"], kafka["properties.client.id"]) == ("S3CRET-1", "shown")
    assert tablestore["tablestore.access.key.secret"] == "S3CRET-3"
    assert "S3CRET-P" in found["defaults"]["postgres"]["url"]
    assert "S3CRET-Q" in found["defaults"]["postgres"]["x"]
    assert found["spark"] == {
        "spark.hadoop.fs.s3a.secret.key": "S3CRET-9",
        "spark.hadoop.fs.s3a.access.key": "S3CRET-0",
        "spark.sql.shuffle.partitions": "8",
    }
    assert {name: value.get_secret_value() for name, value in found["lake"]} == {
        "AWS_ACCESS_KEY_ID": "S3CRET-8", "AWS_SECRET_ACCESS_KEY": "S3CRET-7",
    }  # fmt: skip


def test_variables_stay_variables_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An EnvVar is resolved where the run is, as an endpoint, as a setting of Spark and as an option."""
    (tmp_path / "users.sql").write_text(BARE.format(columns=COLUMNS, key=KEY, topic="users", table="users"))
    platform = PlatformResource(
        project=str(tmp_path),
        kafka=KafkaResource(options={"properties.sasl.password": dg.EnvVar("A_PASSWORD")}),
        tablestore=TablestoreResource(endpoint=dg.EnvVar("AN_ENDPOINT"), access_key_secret=dg.EnvVar("A_SECRET")),
        maxcompute=MaxComputeResource(),
    )
    spark = SparkResource(settings={"spark.hadoop.fs.s3a.secret.key": dg.EnvVar("A_SECRET")})
    definitions = build_definitions(load(tmp_path)[0], platform=platform, spark=spark)
    repository = definitions.get_repository_def()
    resources = {item.name: item for item in RepositorySnap.from_def(repository).resources or []}
    assert json.loads(serialize_value(resources["tablestore"].configured_values["endpoint"]))["name"] == "AN_ENDPOINT"
    for name in ("A_PASSWORD", "AN_ENDPOINT", "A_SECRET"):
        monkeypatch.setenv(name, f"value of {name}")
    found: dict[str, Any] = {}

    @dg.op(required_resource_keys={"platform", "spark"})
    def look(context: dg.OpExecutionContext) -> None:
        found.update(context.resources.platform.defaults(), spark=context.resources.spark.spark_settings)

    @dg.job
    def looking() -> None:
        look()

    more = dg.Definitions.merge(definitions, dg.Definitions(jobs=[looking]))
    assert more.resolve_job_def("looking").execute_in_process().success
    assert found["upsert-kafka"]["properties.sasl.password"] == "value of A_PASSWORD"
    assert found["tablestore"]["tablestore.endpoint"] == "value of AN_ENDPOINT"
    assert found["spark"] == {"spark.hadoop.fs.s3a.secret.key": "value of A_SECRET"}
