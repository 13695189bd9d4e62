"""Requests of the sensor: what follows from new records alone; plots that a run without work leaves as they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from upsert_platform import testing
from upsert_platform.graph.affected import following, written
from upsert_platform.graph.keys import AS_DECLARED

pytestmark = pytest.mark.whole_runs

KAFKA = """'connector' = 'upsert-kafka', 'properties.bootstrap.servers' = '${BROKERS}', 'key.format' = 'json',
  'value.format' = 'json'"""
STORE = """'connector' = 'tablestore', 'tablestore.endpoint' = '${STORE}', 'tablestore.instance.name' = 'shop',
  'tablestore.access.key.id' = '${ID}', 'tablestore.access.key.secret' = '${SECRET}'"""
COLUMNS = "id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED"
SQL = f"""
CREATE TABLE users ({COLUMNS}) WITH ({KAFKA}, 'topic' = 'users');
CREATE TABLE orders ({COLUMNS}) WITH ({KAFKA}, 'topic' = 'orders');
CREATE TABLE copies ({COLUMNS}) WITH ({STORE}, 'freshness.max-delay' = '1 h', 'check.equals-topic' = 'warn');
CREATE TABLE totals (name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH ({STORE});
CREATE TABLE passed_on ({COLUMNS}) WITH ({KAFKA}, 'topic' = 'passed');
CREATE TABLE passed ({COLUMNS}) WITH ({KAFKA}, 'topic' = 'passed');
CREATE TABLE last ({COLUMNS}) WITH ({STORE});
INSERT INTO copies SELECT * FROM users;
INSERT INTO totals SELECT name, COUNT(*) FROM users GROUP BY name;
INSERT INTO passed_on SELECT * FROM orders;
INSERT INTO last SELECT * FROM passed;
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[testing.ProjectUnderTest]:
    (tmp_path / "shop.sql").write_text(SQL, "utf-8")
    with testing.project(tmp_path) as found:
        yield found


def texts(found: Any) -> set[str]:
    return {key.to_user_string() for key in found}


def test_what_follows_from_a_table_is_its_changelog_its_queries_and_its_tables(shop: testing.ProjectUnderTest) -> None:
    project = shop.platform.binding().project
    found = texts(following(project, ["users"]).assets(AS_DECLARED))
    assert found == {"changelogs/users", "queries/totals", "tables/copies", "tables/totals"}


def test_a_topic_that_the_project_writes_is_read_on_in_the_same_run(shop: testing.ProjectUnderTest) -> None:
    project = shop.platform.binding().project
    found = texts(following(project, ["orders"]).assets(AS_DECLARED))
    assert found == {"changelogs/orders", "tables/passed_on", "changelogs/passed", "tables/last"}
    without = texts(following(project, ["orders"], without={"passed_on"}).assets(AS_DECLARED))
    assert without == {"changelogs/orders"}


def test_the_checks_of_a_request_are_those_of_the_job(shop: testing.ProjectUnderTest) -> None:
    project = shop.platform.binding().project
    whole = following(project, ["users", "orders"])
    requested = {f"{key.asset_key.to_user_string()}:{key.name}" for key in whole.checks(AS_DECLARED)}
    assert requested == set(shop.sync().checks)
    assert not any("changelogs" in key.asset_key.path for key in written(project, ["totals"]).checks(AS_DECLARED))


def tick(shop: testing.ProjectUnderTest, cursor: str | None = None) -> Any:
    sensor = shop.definitions.resolve_sensor_def("new_offsets")
    resources = {"platform": shop.platform}
    with dg.build_sensor_context(
        instance=shop.instance, definitions=shop.definitions, resources=resources, cursor=cursor
    ) as context:
        return sensor.evaluate_tick(context)


def test_the_sensor_requests_what_has_new_records_and_its_run_does_nothing_else(
    shop: testing.ProjectUnderTest,
) -> None:
    shop.sync()
    assert not tick(shop).run_requests
    shop.send("users", [{"id": 1, "name": "a"}])
    (request,) = tick(shop).run_requests
    assert texts(request.asset_selection) == {"changelogs/users", "queries/totals", "tables/copies", "tables/totals"}
    assert {(key.asset_key.path[-1], key.name) for key in request.asset_check_keys} == {
        ("users", "offsets_accounted"), ("users", "quarantine_below"), ("copies", "last_value_per_key"),
        ("copies", "freshness"), ("totals", "last_value_per_key"),
    }  # fmt: skip
    job = shop.definitions.resolve_job_def("sync")
    done = job.execute_in_process(instance=shop.instance, asset_selection=list(request.asset_selection))
    assert {
        key.asset_key.to_user_string() for key in done.get_asset_materialization_events() if key.asset_key
    } == texts(request.asset_selection)
    assert not tick(shop).run_requests
    assert [row["id"] for row in shop.rows("copies")] == [1]


def test_a_run_without_work_leaves_plots_and_the_row_count_of_an_asset_as_they_were(
    shop: testing.ProjectUnderTest,
) -> None:
    shop.send("users", [{"id": n, "name": "a"} for n in range(3)])
    shop.delete("users", [{"id": 0}])
    first, idle = shop.sync(), shop.sync()
    assert first.metadata["tables/copies"]["upserts"] == 2
    assert first.metadata["queries/totals"]["dagster/row_count"] > 0
    # Three keys are one row each: accounting is not among them.
    assert first.metadata["changelogs/users"]["dagster/row_count"] == 3
    assert not idle.metadata  # nothing takes the place of what was materialised
    assert all(idle.checks.values())


def observed(shop: testing.ProjectUnderTest) -> list[str | None]:
    """Data versions of the observations of a topic, the oldest first."""
    found = shop.instance.fetch_observations(dg.AssetKey(["topics", "users"]), limit=100).records
    return [item.asset_observation.data_version for item in reversed(found) if item.asset_observation]


def test_a_topic_is_observed_when_its_data_version_changed(shop: testing.ProjectUnderTest) -> None:
    shop.send("users", [{"id": 1, "name": "a"}])
    shop.sync()
    first = observed(shop)
    assert set(first) == {"0:1"}
    shop.sync()
    assert observed(shop) == first
    shop.send("users", [{"id": 2, "name": "a"}])
    shop.sync()
    assert set(observed(shop)[len(first) :]) == {"0:2"}


def test_checks_of_a_changelog_are_one_step_and_each_is_selected_by_itself(shop: testing.ProjectUnderTest) -> None:
    shop.send("users", [{"id": 1, "name": "a"}])
    key = dg.AssetKey(["changelogs", "users"])

    def evaluated(job: str) -> list[tuple[str | None, str]]:
        done = shop.definitions.resolve_job_def(job).execute_in_process(instance=shop.instance)
        events = [item for item in done.all_events if item.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION]
        checks = [(item.step_key, item.asset_check_evaluation_data) for item in events]
        return sorted((step, data.check_name) for step, data in checks if data.asset_key == key)

    step = "checks_users"
    assert evaluated("sync") == [(step, name) for name in ("offsets_accounted", "quarantine_below")]
    ahead = ("no_unread_loss", "quarantine_below", "schema_matches")
    assert [found for found in evaluated("watch") if found[0] == step] == [(step, name) for name in ahead]
