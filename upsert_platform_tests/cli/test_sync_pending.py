"""`upsert-platform sync` asks before it runs: no run where nothing is new, else a precise one; red stays red."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from upsert_platform import testing
from upsert_platform.changelog import pauses
from upsert_platform.cli.main import main

pytestmark = pytest.mark.whole_runs

MODULE = "shop_of_pending_tests"
TABLES = 60
KAFKA = """'connector' = 'upsert-kafka', 'properties.bootstrap.servers' = '${BROKERS}', 'key.format' = 'json',
  'value.format' = 'json'"""
STORE = """'connector' = 'tablestore', 'tablestore.endpoint' = '${STORE}', 'tablestore.instance.name' = 'shop',
  'tablestore.access.key.id' = '${ID}', 'tablestore.access.key.secret' = '${SECRET}'"""
COLUMNS = "id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED"
SQL = f"""
CREATE TABLE users ({COLUMNS}) WITH ({KAFKA}, 'topic' = 'users'{{quarantine}});
CREATE TABLE orders ({COLUMNS}) WITH ({KAFKA}, 'topic' = 'orders');
CREATE TABLE copies ({COLUMNS}) WITH ({STORE}, 'freshness.max-delay' = '1 h');
CREATE TABLE totals (name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH ({STORE});
CREATE TABLE bought ({COLUMNS}) WITH ({STORE}{{age}});
INSERT INTO copies SELECT * FROM users;
INSERT INTO totals SELECT name, COUNT(*) FROM users GROUP BY name;
INSERT INTO bought SELECT * FROM orders;
"""
WHOLE = {
    "changelogs/users", "changelogs/orders", "queries/totals", "tables/copies", "tables/totals", "tables/bought"
}  # fmt: skip


@dataclass
class Shop:
    """A project whose topics and tables are in this process, and the instance that commands record in."""

    project: testing.ProjectUnderTest
    home: Path

    def call(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["sync", "--module", MODULE, *words])

    def runs(self) -> int:
        with dg.DagsterInstance.from_config(str(self.home)) as instance:
            return instance.get_runs_count()

    def planned(self) -> set[str]:
        """Assets that the last run was asked for, with work or without."""
        with dg.DagsterInstance.from_config(str(self.home)) as instance:
            [run] = instance.get_runs(limit=1)
            found = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
            return {str(item.get_dagster_event().asset_key.to_user_string()) for item in found}

    def events(self) -> int:
        """Events of all runs, and of none."""
        with dg.DagsterInstance.from_config(str(self.home)) as instance:
            return sum(len(instance.all_logs(run.run_id)) for run in instance.get_runs()) + len(
                instance.fetch_observations(dg.AssetKey(["topics", "users"]), limit=100).records
            )


@pytest.fixture
def monkeypatched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("project", "dagster"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def opened(folder: Path, sql: str, monkeypatch: pytest.MonkeyPatch, own: list[object]) -> Iterator[Shop]:
    (folder / "project" / "shop.sql").write_text(sql, "utf-8")
    with testing.project(folder / "project") as project:
        module = ModuleType(MODULE)
        module.__file__ = __file__
        module.__dict__["defs"] = dg.Definitions.merge(project.definitions, dg.Definitions(asset_checks=own))  # type: ignore[arg-type]
        monkeypatch.setitem(sys.modules, MODULE, module)
        yield Shop(project, folder / "dagster")


@pytest.fixture
def own_checks() -> list[object]:
    return []


@pytest.fixture
def quarantine() -> str:
    return ""


@pytest.fixture
def age() -> str:
    return ""


@pytest.fixture
def shop(
    monkeypatched: Path, monkeypatch: pytest.MonkeyPatch, own_checks: list[object], quarantine: str, age: str
) -> Iterator[Shop]:
    sql = SQL.replace("{quarantine}", quarantine).replace("{age}", age)
    yield from opened(monkeypatched, sql, monkeypatch, own_checks)


def synced(shop: Shop) -> None:
    shop.project.send("users", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    shop.project.send("orders", [{"id": 7, "name": "x"}])
    done = shop.call()
    assert done.exit_code == 0, done.output
    assert shop.planned() == WHOLE


def test_nothing_new_starts_no_run_and_shows_what_was_asked(shop: Shop) -> None:
    synced(shop)
    runs, events = shop.runs(), shop.events()
    done = shop.call()
    assert done.exit_code == 0, done.output
    last = done.stdout.splitlines()[-1]
    assert last.startswith("nothing is new: 6 assets asked in ")
    assert "3 offsets read, 8 checks passed; no run was started ('upsert-platform sync --all' starts one)" in last
    assert "tables/copies" in done.stdout
    assert (shop.runs(), shop.events()) == (runs, events)
    found = json.loads(shop.call("--json").stdout)
    assert (found["run"], found["success"]) == (None, True)
    assert {item["asset"]: item["batch"] for item in found["assets"]} == dict.fromkeys(WHOLE, 1)
    checks = {item["asset"]: item["checks"] for item in found["assets"]}
    assert checks["tables/copies"] == {"last_value_per_key": True, "freshness": True}
    assert shop.call("--all").exit_code == 0
    assert shop.planned() == WHOLE


def test_sixty_tables_with_nothing_new_write_no_event(monkeypatched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = "".join(
        f"CREATE TABLE s{n} ({COLUMNS}) WITH ({KAFKA}, 'topic' = 't{n}');\n"
        f"CREATE TABLE d{n} ({COLUMNS}) WITH ({STORE});\nINSERT INTO d{n} SELECT * FROM s{n};\n"
        for n in range(TABLES)
    )
    for shop in opened(monkeypatched, sql, monkeypatch, []):
        assert shop.call().exit_code == 0  # checks without a result are evaluated
        events = shop.events()
        assert events > TABLES
        done = shop.call("--json")
        assert done.exit_code == 0, done.output
        assert len(json.loads(done.stdout)["assets"]) == 2 * TABLES
        assert (shop.runs(), shop.events()) == (1, events)


def test_new_records_start_the_run_of_what_follows_from_them(shop: Shop) -> None:
    synced(shop)
    shop.project.send("orders", [{"id": 8, "name": "y"}])
    done = shop.call()
    assert done.exit_code == 0, done.output
    assert shop.planned() == {"changelogs/orders", "tables/bought"}
    assert "changelogs/orders: 1 offset to read" in done.stdout
    assert "nothing new, and left out: 4 assets" in done.stdout
    assert [row["id"] for row in shop.project.rows("bought")] == [7, 8]
    shop.project.send("users", [{"id": 3, "name": "a"}])
    assert shop.call().exit_code == 0
    assert shop.planned() == {"changelogs/users", "queries/totals", "tables/copies", "tables/totals"}
    shop.project.send("users", [{"id": 4, "name": "a"}])
    runs = shop.runs()
    assert shop.call("bought").exit_code == 0
    assert shop.runs() == runs, "what other tables are made of is not looked at"


def test_failed_check_is_reported_by_a_run_with_its_exit_code(shop: Shop) -> None:
    synced(shop)
    hop = shop.project.platform.destination_hop("copies", run="test")
    verdict = hop.plan().state.verdict
    assert verdict is not None
    hop.destination.record_verdict(replace(verdict, passed=False, detail="1 row differs"))
    hop.destination.close()
    for _ in range(2):
        done = shop.call()
        assert done.exit_code == 1, done.output
        assert "the last check failed" in done.stdout
        assert shop.planned() == {"tables/copies"}


def test_quarantine_is_reported_by_a_run_until_it_is_empty(shop: Shop) -> None:
    synced(shop)
    shop.project.send_record("users", key=b'{"id": 3}', value=b"{")
    assert shop.call().exit_code == 0
    done = shop.call()
    assert done.exit_code == 0, "a warning"
    assert "1 of 3 records are in quarantine" in done.stdout
    assert shop.planned() == {"changelogs/users"}


@pytest.mark.parametrize("quarantine", [", 'quarantine.fail-count' = '1', 'check.quarantine-below.blocking' = 'true'"])
def test_quarantine_that_blocks_ends_with_1_each_time(shop: Shop) -> None:
    synced(shop)
    shop.project.send_record("users", key=b'{"id": 3}', value=b"{")
    assert [shop.call().exit_code for _ in range(2)] == [1, 1]


@pytest.mark.soak
def test_result_that_the_instance_lacks_is_recorded_once(shop: Shop) -> None:
    shop.project.send("users", [{"id": 1, "name": "a"}])
    shop.project.sync()  # in another instance
    done = shop.call()
    assert "nothing is new" not in done.stdout
    assert shop.planned() == WHOLE, "a query has no check, and is recorded as well"
    assert "nothing is new" in shop.call().stdout


def test_paused_table_is_left_alone_and_named(shop: Shop) -> None:
    synced(shop)
    pauses.pause(shop.project.platform.lake, "bought", reason="moved")
    done = shop.call()
    assert "no run was started" in done.stdout
    assert ": moved" in done.stdout


@pytest.mark.soak
def test_the_end_of_a_pause_is_recorded_once(shop: Shop) -> None:
    synced(shop)
    pauses.pause(shop.project.platform.lake, "bought")
    assert shop.call("--all").exit_code == 0
    assert "no run was started" in shop.call().stdout
    pauses.resume(shop.project.platform.lake, "bought")
    assert "tables/bought: its page shows a pause that has ended" in shop.call().stdout
    assert shop.planned() == {"tables/bought"}
    assert "no run was started" in shop.call().stdout


@pytest.mark.soak
def test_another_declaration_is_recorded_once(shop: Shop) -> None:
    synced(shop)
    old = dg.AssetMaterialization(["queries", "totals"], tags={"dagster/code_version": "another"})
    with dg.DagsterInstance.from_config(str(shop.home)) as instance:
        instance.report_runless_asset_event(old)
    assert "queries/totals: its declaration is another than that of its last" in shop.call().stdout
    assert shop.planned() == {"queries/totals"}
    assert "no run was started" in shop.call().stdout
    of_continuous_mode = dg.AssetMaterialization(["queries", "totals"])
    with dg.DagsterInstance.from_config(str(shop.home)) as instance:
        instance.report_runless_asset_event(of_continuous_mode)
    assert "no run was started" in shop.call().stdout


@pytest.mark.parametrize(
    ("age", "hours"),
    [
        pytest.param(", 'freshness.max-age' = '1 d'", 12, marks=pytest.mark.soak),
        (", 'freshness.max-age' = '1 d', 'freshness.warn-age' = '16 h'", 8),
    ],
)
def test_a_table_whose_age_dagster_counts_is_materialised_before_it_is_overdue(
    shop: Shop, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By syncs at regular times, up to once in the time that is allowed."""
    synced(shop)
    now, shift = time.time, 0.0
    monkeypatch.setattr(time, "time", lambda: now() + shift)
    shift = (hours - 1) * 3600.0
    assert "no run was started" in shop.call().stdout
    shift = hours * 3600.0
    done = shop.call()
    assert done.exit_code == 0, done.output
    assert f"tables/bought: materialised {hours}:00:" in done.stdout
    assert shop.planned() == {"tables/bought"}
    assert "no run was started" in shop.call().stdout


@dg.asset_check(asset=["tables", "bought"], name="own")
def own() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


@pytest.mark.parametrize("own_checks", [[own]])
@pytest.mark.soak
def test_check_of_the_user_is_evaluated_each_time(shop: Shop) -> None:
    synced(shop)
    done = shop.call()
    assert done.exit_code == 0, done.output
    assert "tables/bought: own is evaluated by runs" in done.stdout
    assert shop.planned() == {"tables/bought"}
