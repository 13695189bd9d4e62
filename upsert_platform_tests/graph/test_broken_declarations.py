"""Locations with errors, without variables, or with a database that is away: they load, and what is wrong is seen."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from upsert_platform.core.errors import DeclarationError, EndpointError
from upsert_platform.graph.build import definitions_of
from upsert_platform.graph.resources import KafkaResource, MaxComputeResource, PlatformResource, TablestoreResource
from upsert_platform.mysql.columns import MySqlColumn, MySqlTable
from upsert_platform.sync import databases
from upsert_platform.sync.binding import bind_sound, load
from upsert_platform.sync.faults import PROJECT
from upsert_platform.sync.stand_ins import PLACES, unset_value, without_places
from upsert_platform.testing.harness import LOCAL_ROWS
from upsert_platform.testing.memory import MemorySystems, in_memory
from upsert_platform.testing.platform import LastingSpark, holding

KAFKA = "'properties.bootstrap.servers' = '${NO_BROKERS}', 'key.format' = 'json', 'value.format' = 'json'"
STORE = """'connector' = 'tablestore', 'tablestore.endpoint' = '${NO_STORE}', 'tablestore.instance.name' = 'shop',
  'tablestore.access.key.id' = '${NO_ID}', 'tablestore.access.key.secret' = '${NO_SECRET}'"""
KEY = "PRIMARY KEY (id) NOT ENFORCED"
GOOD = f"""CREATE TABLE users (id BIGINT, name STRING, {KEY}) WITH ('connector' = 'upsert-kafka', 'topic' = 'u',
  {KAFKA});
CREATE TABLE copies (id BIGINT, name STRING, {KEY}) WITH ({STORE});
INSERT INTO copies SELECT id, name FROM users;
"""
BAD_TABLE = f"""CREATE TABLE wrong (id BIGINT, {KEY}) WITH ({STORE},
  'no.such.option' = '1');
INSERT INTO wrong SELECT id FROM users;
"""
BAD_SOURCE = f"""CREATE TABLE lost (id BIGINT, {KEY}) WITH ('connector' = 'upsert-kafka', 'topic' = 'l',
  'kex' = '1',
  {KAFKA});
CREATE TABLE below (id BIGINT, {KEY}) WITH ({STORE});
INSERT INTO below SELECT id FROM lost;
"""
UNREAD = "CREATE TABEL half (id BIGINT);\n"


def platform_of(path: Path, **files: str) -> PlatformResource:
    for name, text in files.items():
        (path / f"{name}.sql").write_text(text, "utf-8")
    return PlatformResource(
        project=str(path),
        home=str(path / "lake"),
        kafka=KafkaResource(),
        tablestore=TablestoreResource(),
        maxcompute=MaxComputeResource(),
    )


def test_a_location_loads_without_any_variable_and_lists_those_that_are_not_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    platform = platform_of(tmp_path, good=GOOD)
    with caplog.at_level(logging.WARNING):
        made = definitions_of(platform)
    dg.Definitions.validate_loadable(made)
    assert "4 variables are not set" in caplog.text
    assert all(name in caplog.text for name in ("NO_BROKERS", "NO_STORE", "NO_ID", "NO_SECRET"))
    assert "cannot be used" not in caplog.text
    assert dg.AssetKey(["tables", "copies"]) in made.resolve_all_asset_keys()


def test_a_run_without_the_variables_fails_by_their_names(tmp_path: Path) -> None:
    job = definitions_of(platform_of(tmp_path, good=GOOD)).resolve_job_def("sync")
    done = job.execute_in_process(raise_on_error=False)
    assert not done.success
    told = reasons(done)
    assert "variable ${NO_BROKERS} is not set: set the environment variable NO_BROKERS" in told["changelogs__users"]


def test_errors_belong_to_the_table_that_they_name_and_never_to_a_neighbour(tmp_path: Path) -> None:
    found = platform_of(tmp_path, a=GOOD, b=BAD_TABLE, c=BAD_SOURCE, d=UNREAD).declared()
    assert {"wrong", "lost", PROJECT} <= set(found.faults)
    assert not {"users", "copies"} & set(found.faults)
    assert "no.such.option" in str(found.faults["wrong"][0])


def memory_platform(path: Path, **files: str) -> Any:
    platform_of(path, **files)
    systems = MemorySystems()
    kind: Any = holding(systems)

    def bound(self: Any) -> Any:
        project, problems = load(path, root=self.lake.root, endpoints=self.endpoints(), unset=unset_value)
        return in_memory(bind_sound(without_places(project), problems, defaults=self.defaults()), systems)

    kind = type("Memory", (kind,), {"_bound": bound, "__module__": __name__})
    resources: Mapping[str, Any] = {
        "kafka": KafkaResource(**PLACES["kafka"]),
        "tablestore": TablestoreResource(**PLACES["tablestore"]),
        "maxcompute": MaxComputeResource(**PLACES["maxcompute"]),
    }
    return kind(project=str(path), home=str(path / "lake"), **resources)


def reasons(done: dg.ExecuteInProcessResult) -> dict[str, str]:
    failed = [event for event in done.all_events if event.is_step_failure]
    return {
        str(event.step_key): str(event.step_failure_data.user_failure_data.description)  # type: ignore[union-attr]
        if event.step_failure_data.user_failure_data
        else str(event.step_failure_data.error)
        for event in failed
    }


def test_a_bad_table_is_a_failing_asset_with_its_reason_and_the_others_go_on(tmp_path: Path) -> None:
    platform = memory_platform(tmp_path, a=GOOD, b=BAD_TABLE, c=BAD_SOURCE, d=UNREAD)
    made = definitions_of(platform, spark=LastingSpark(local_rows=LOCAL_ROWS))
    done = made.resolve_job_def("sync").execute_in_process(raise_on_error=False)
    told = reasons(done)
    assert set(told) == {"tables__wrong", "changelogs__lost", "declarations__d_sql"}
    assert "no.such.option" in told["tables__wrong"]
    assert "'kex'" in told["changelogs__lost"]
    assert "d.sql:1" in told["declarations__d_sql"]
    written = {event.asset_key.to_user_string() for event in done.get_asset_materialization_events() if event.asset_key}
    assert written == {"changelogs/users", "tables/copies"}
    specs = {spec.key.to_user_string(): spec for spec in made.resolve_all_asset_specs()}
    assert "**Cannot be used**" in (specs["tables/wrong"].description or "")
    with pytest.raises(DeclarationError, match=r"no\.such\.option"):
        platform.binding()


PIPELINE = """source:
  type: mysql
  hostname: 127.0.0.1
  port: 1
  username: x
  password: y
  tables: shop.orders
sink:
  type: tablestore
  tablestore.endpoint: http://x
  tablestore.instance.name: shop
  tablestore.access.key.id: x
  tablestore.access.key.secret: y
"""


def test_a_database_is_asked_by_no_location_that_knows_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    known = MySqlTable("shop", "orders", (MySqlColumn("id", "bigint", "bigint", nullable=False),), ("id",))
    (tmp_path / "orders.yaml").write_text(PIPELINE, "utf-8")

    def tables(settings: Any) -> Any:
        asked.append(str(settings.server))
        return [], {}

    monkeypatch.setattr(databases, "_tables", tables)
    monkeypatch.setattr(databases._Kept, "read", lambda self: {known.full_name: known})
    monkeypatch.setattr(databases._Kept, "write", lambda self, tables, before: None)
    platform = platform_of(tmp_path)
    found = platform.declared()
    assert not asked
    assert any(table.name == "mysql.shop.orders" for table in found.project.tables.values())
    platform.sound()
    assert len(asked) == 1


def test_a_variable_of_a_resource_that_is_not_set_is_named_by_the_run(tmp_path: Path) -> None:
    (tmp_path / "good.sql").write_text(GOOD.replace("'properties.bootstrap.servers' = '${NO_BROKERS}', ", ""), "utf-8")
    platform = platform_of(tmp_path)
    resource = KafkaResource(options={"properties.bootstrap.servers": "${NO_BROKERS_AT_ALL}"})
    platform = platform.model_copy(update={"kafka": resource})
    assert "NO_BROKERS_AT_ALL" in platform.declared().unset
    assert not platform.declared().faults
    with pytest.raises(DeclarationError, match="environment variable NO_BROKERS_AT_ALL"):
        platform.sound().sources["users"]
    spark = LastingSpark(settings={"spark.app.name": "${NO_NAME_AT_ALL}"})
    with pytest.raises(EndpointError, match=r"spark\.app\.name"):
        _ = spark.spark_settings
