"""A translator gives assets other names, and everything that names them follows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from upsert_platform.core.errors import DeclarationError
from upsert_platform.core.model import Project
from upsert_platform.graph.build import build_definitions
from upsert_platform.graph.keys import CHECK_FRESHNESS
from upsert_platform.graph.sensor_state import SensorState
from upsert_platform.graph.stream_events import asset_keys, events_of
from upsert_platform.graph.translator import VARIABLE, TranslatorData, UpsertTranslator, translator_of
from upsert_platform.sync.binding import load
from upsert_platform.sync.freshness import Freshness, Judgement
from upsert_platform.sync.streaming.measures import Numbers
from upsert_platform.sync.streaming.reports import Reporter
from upsert_platform_tests.graph.stack import Stack, checks_of
from upsert_platform_tests.graph.test_project_component import CHECKOUT, make_code_location

pytestmark = pytest.mark.whole_runs

HOUSE = """
CREATE TABLE users (id BIGINT, name STRING, region STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'users', 'properties.bootstrap.servers' = '127.0.0.1:1',
  'key.format' = 'json', 'value.format' = 'json', 'owners' = 'ann@example.org', 'tags' = 'tier=1');
CREATE TABLE copied (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'copied', 'properties.bootstrap.servers' = '127.0.0.1:1',
  'key.format' = 'json', 'value.format' = 'json', 'freshness.max-delay' = '1 min');
CREATE TABLE counted (region STRING, n BIGINT, PRIMARY KEY (region) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'counted', 'properties.bootstrap.servers' = '127.0.0.1:1',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE ledger (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'maxcompute', 'table.name' = 'ledger', 'sink.operation' = 'upsert', 'odps.end.point' = 'http://x:1',
  'odps.project.name' = 'p', 'odps.access.id' = 'i', 'odps.access.key' = 'k');
INSERT INTO copied SELECT id, name FROM users;
INSERT INTO counted SELECT region, COUNT(*) FROM users GROUP BY region;
"""
OWN = ("topics/users", "changelogs/users", "queries/counted", "tables/copied", "tables/counted", "sources/ledger")


class Ours(UpsertTranslator):
    """Keys ``shop/<kind>/<name>``, a group per declared table, and something of everything else."""

    def get_asset_key(self, data: TranslatorData) -> dg.AssetKey:
        return dg.AssetKey(["shop", data.kind, data.name])

    def get_group_name(self, data: TranslatorData) -> str | None:
        return f"of_{data.name.partition('-')[0]}"

    def get_metadata(self, data: TranslatorData) -> Mapping[str, Any]:
        return {**super().get_metadata(data), "team": "shop"}

    def get_tags(self, data: TranslatorData) -> Mapping[str, str]:
        return {**super().get_tags(data), "domain": "shop"}

    def get_owners(self, data: TranslatorData) -> list[str]:
        return ["team:shop"]


ours = Ours()


@pytest.fixture
def house(tmp_path: Path) -> Project:
    (tmp_path / "house.sql").write_text(HOUSE)
    project, problems = load(tmp_path)
    assert not problems, problems
    return project


def described(definitions: dg.Definitions) -> dict[str, dict[str, Any]]:
    """Key of every asset to all that Dagster knows of it."""
    graph = definitions.resolve_asset_graph()
    found = {}
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        found[key.to_user_string()] = {
            "group": node.group_name, "tags": dict(node.tags), "owners": list(node.owners),
            "metadata": dict(node.metadata), "description": node.description,
            "parents": sorted(parent.to_user_string() for parent in node.parent_keys),
            "checks": sorted(check.name for check in node.check_keys),
            "automation": node.automation_condition,
        }  # fmt: skip
    return found


def selected(definitions: dg.Definitions) -> dict[str, list[str]]:
    """Job to the assets and checks that it takes."""
    repository = definitions.get_repository_def()
    return {
        job.name: sorted(
            map(str, [*job.asset_layer.selected_asset_keys, *job.asset_layer.asset_graph.asset_check_keys])
        )
        for job in repository.get_all_jobs()
        if job.asset_layer.asset_graph.get_all_asset_keys()
    }


def named(events: Iterable[dg.DagsterEvent]) -> set[str]:
    """The assets that events are of."""
    return {event.asset_key.to_user_string() for event in events if event.asset_key is not None}


def test_a_translator_that_overrides_nothing_changes_nothing(house: Project) -> None:
    for automation in ("sensor", "conditions"):
        plain = build_definitions(house, automation=automation)
        same = build_definitions(house, automation=automation, translator=UpsertTranslator())
        assert sorted(described(plain)) == sorted(OWN)
        assert described(same) == described(plain)
        assert selected(same) == selected(plain)


def test_keys_hold_in_dependencies_lineage_checks_and_jobs(house: Project) -> None:
    plain, definitions = build_definitions(house), build_definitions(house, translator=Ours())
    dg.Definitions.validate_loadable(definitions)
    before, found = described(plain), described(definitions)

    def renamed(own: str) -> str:
        group, name = own.split("/")
        return f"shop/{ {'queries': 'query'}.get(group, group.removesuffix('s')) }/{name}"

    assert sorted(found) == sorted(map(renamed, OWN))
    for own in OWN:
        was, now = before[own], found[renamed(own)]
        assert now["parents"] == sorted(map(renamed, was["parents"]))
        assert now["checks"] == was["checks"]
        assert now["group"] == f"of_{own.split('/')[1]}"
        assert now["tags"] == {**was["tags"], "domain": "shop"}
        assert now["metadata"].keys() == {*was["metadata"], "team"}
        assert now["owners"] == ["team:shop"]
    for own, reads in (("tables/copied", "changelogs/users"), ("queries/counted", "changelogs/users")):
        lineage = found[renamed(own)]["metadata"]["dagster/column_lineage"].deps_by_column
        keys = {dep.asset_key.to_user_string() for deps in lineage.values() for dep in deps}
        assert keys == {renamed(reads)}
    jobs = {
        name: sorted(item.replace("'shop', ", "") for item in items) for name, items in selected(definitions).items()
    }
    kinds = (
        ("topics", "topic"),
        ("changelogs", "changelog"),
        ("queries", "query"),
        ("tables", "table"),
        ("sources", "source"),
    )
    for name, items in selected(plain).items():
        for group, kind in kinds:
            items = [item.replace(f"'{group}'", f"'{kind}'") for item in items]
        assert jobs[name] == sorted(items)


def test_two_assets_of_one_key_are_refused_by_their_names(house: Project) -> None:
    class Same(UpsertTranslator):
        def get_asset_key(self, data: TranslatorData) -> dg.AssetKey:
            return dg.AssetKey(data.name)

    with pytest.raises(DeclarationError, match="changelog 'users' gets key 'users', which topic 'users' has"):
        build_definitions(house, translator=Same())


def test_what_follows_from_an_asset_is_refused(house: Project) -> None:
    class Parted(UpsertTranslator):
        def get_asset_spec(self, data: TranslatorData) -> dg.AssetSpec:
            return data.spec.replace_attributes(partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))

    with pytest.raises(DeclarationError, match="'partitions_def', which follows from what it does"):
        build_definitions(house, translator=Parted())


def test_metadata_that_is_replaced_keeps_what_an_asset_is_written_by(house: Project) -> None:
    class Bare(UpsertTranslator):
        def get_metadata(self, data: TranslatorData) -> Mapping[str, Any]:
            return {"upsert/table": "other", "dagster/table_name": "shop.other", "dagster/uri": "shop://other"}

    plain, found = described(build_definitions(house)), described(build_definitions(house, translator=Bare()))
    for own in OWN:
        was, now = plain[own]["metadata"], found[own]["metadata"]
        assert (now["dagster/table_name"], now["dagster/uri"]) == ("shop.other", "shop://other")
        assert now.get("upsert/table") == was.get("upsert/table", "other")


def test_the_environment_names_a_translator(house: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert translator_of(None) is None
    for text in (f"{__name__}:Ours", f"{__name__}:ours"):
        monkeypatch.setenv(VARIABLE, text)
        assert "shop/table/copied" in described(build_definitions(house))
    for text, told in (
        (f"{__name__}:Theirs", "has no attribute 'Theirs'"),
        ("no_such_module:Ours", "No module named"),
        ("Ours", "cannot be imported"),
        ("pathlib:Path", "is a PosixPath"),
    ):
        monkeypatch.setenv(VARIABLE, text)
        with pytest.raises(DeclarationError, match=told):
            build_definitions(house)


def test_continuous_mode_reports_under_the_keys_that_were_given(
    house: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, f"{__name__}:Ours")
    names = asset_keys(house)
    for kind, name, key in (
        ("changelog", "users", "shop/changelog/users"),
        ("query", "counted$query", "shop/query/counted"),
        ("table", "copied", "shop/table/copied"),
    ):
        judged = {name: Judgement(True, False, "", Freshness(datetime.now(UTC), ()), {})} if kind == "table" else {}
        (report,) = Reporter().reports({f"{kind} {name}": Numbers(kind, batches=1)}, judged)
        events = list(events_of(report, run="r", names=names))
        assert {event.asset_key.to_user_string() for event in events} == {key}
        assert [event.check_name for event in events if isinstance(event, dg.AssetCheckEvaluation)] == (
            [CHECK_FRESHNESS] if judged else []
        )


def test_a_sync_and_its_checks_take_place_under_the_keys_that_were_given(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics are observed, tables written and checked, repaired, and asked for by the sensor, under the same names."""
    monkeypatch.setenv(VARIABLE, f"{__name__}:Ours")
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(20))
    with dg.DagsterInstance.ephemeral() as instance:
        done = stack.run(instance=instance)
        assert done.success
        written = named(done.get_asset_materialization_events())
        assert written == {"shop/changelog/users", "shop/table/users_serving"}
        observed = named(done.get_asset_observation_events())
        assert observed >= {f"shop/topic/{stack.topic}"}
        assert observed <= {f"shop/topic/{stack.topic}", "shop/table/users_serving"}
        assert all(checks_of(done).values())
        assert {"last_value_per_key:users_serving", "offsets_accounted:users"} <= checks_of(done).keys()
        verified = stack.run("verify", instance=instance)
        assert checks_of(verified) == {"last_value_per_key:users_serving": True}
        assert stack.serving_differences() == []
        for job, key in (("reconcile", "shop/table/users_serving"), ("compact", "shop/changelog/users")):
            told = stack.run(job, instance=instance)
            assert told.success
            assert named(told.get_asset_observation_events()) == {key}

        definitions = stack.definitions()
        state = SensorState()
        sensor = definitions.resolve_sensor_def("new_offsets")
        stack.produce(stack.users.second_wave(5))
        seen = dict.fromkeys(("sync", "reconcile", "rebuild", "replay", "drain_quarantine"), 1_000_000)
        failed = json.loads(state.text()) | {"failing": {"users_serving": {"count": 1, "at": 4e9}}, "seen": seen}
        with dg.build_sensor_context(
            instance=instance, definitions=definitions, cursor=json.dumps(failed),
            resources={"platform": stack.platform()},
        ) as context:  # fmt: skip
            tick = sensor.evaluate_tick(context)
        (request,) = tick.run_requests or ()
        assert [key.to_user_string() for key in request.asset_selection or ()] == ["shop/changelog/users"]


DECLARING = CHECKOUT / "docs" / "declaring.md"
RUN = """
import json, sys
from pathlib import Path
import dagster as dg
defs = dg.load_from_defs_folder(path_within_project=Path(sys.argv[1]))
with dg.DagsterInstance.ephemeral() as instance:
    done = defs.resolve_job_def("sync").execute_in_process(instance=instance)
node = defs.resolve_asset_graph().get(dg.AssetKey(["shop", "table", "users_serving"]))
print(json.dumps({
    "success": done.success,
    "written": [event.asset_key.to_user_string() for event in done.get_asset_materialization_events()],
    "checks": {f"{item.asset_key.to_user_string()}:{item.check_name}": item.passed
               for item in done.get_asset_check_evaluations()},
    "group": node.group_name, "owners": list(node.owners), "tags": dict(node.tags),
    "declared": node.metadata["declared"], "description": node.description.splitlines()[-1],
}))
"""


def test_a_code_location_with_a_translation_in_yaml_loads_writes_and_checks(stack: Stack, tmp_path: Path) -> None:
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(20))
    location = tmp_path / "location"
    location.mkdir()
    instance = make_code_location(location, sql=(stack.project / "users.sql").read_text())
    (yaml,) = [
        block for block in re.findall(r"```yml\n(.*?)```", DECLARING.read_text(), re.DOTALL) if "translation" in block
    ]
    (instance / "defs.yaml").write_text(f"{yaml}  home: lake\n")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN, str(location / "shop" / "defs")],
        capture_output=True, text=True, cwd=location,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(location), str(CHECKOUT)])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["success"]
    assert sorted(told["written"]) == ["shop/changelog/users", "shop/table/users_serving"]
    assert told["checks"]["shop/table/users_serving:last_value_per_key"]
    assert told["checks"]["shop/changelog/users:offsets_accounted"]
    assert all(told["checks"].values())
    assert (told["group"], told["owners"], told["declared"]) == ("tablestore", ["team:shop"], "users_serving")
    assert told["tags"]["domain"] == "shop"
    assert told["tags"]["dagster/kind/tablestore"] == ""
    assert told["description"].endswith("Of the shop.")
    assert stack.serving_differences() == []
