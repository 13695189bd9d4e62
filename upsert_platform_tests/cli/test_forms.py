"""What commands print for scripts and on narrow terminals, and what they do without values of variables."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from rich.table import Table

from upsert_platform.cli.main import main
from upsert_platform.cli.names import complete_nodes, complete_tables, complete_tables_and_topics
from upsert_platform.cli.status import _shown
from upsert_platform.cli.text import console_for
from upsert_platform.sync.binding import bind, load
from upsert_platform.sync.checkups.finding import State
from upsert_platform.sync.checkups.kafka import client_check
from upsert_platform.sync.endpoints import ENDPOINT_VALUES
from upsert_platform.sync.peek import nodes
from upsert_platform.sync.stand_ins import PLACES
from upsert_platform.sync.status import ChangelogStatus, Status, TableStatus

LOGIN = """
CREATE TABLE users (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
  'topic' = 't', 'properties.bootstrap.servers' = '${NOBODY_SETS_SERVERS}', 'key.format' = 'json',
  'value.format' = 'json', 'properties.security.protocol' = 'SASL_SSL', 'properties.sasl.mechanism' = 'PLAIN',
  'properties.sasl.jaas.config' = '${NOBODY_SETS_JAAS}');
CREATE TABLE per_name (name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH ('connector' = 'tablestore',
  'tablestore.endpoint' = '${NOBODY_SETS_ENDPOINT}', 'tablestore.instance.name' = 'i',
  'tablestore.access.key.id' = '${NOBODY_SETS_ID}', 'tablestore.access.key.secret' = '${NOBODY_SETS_SECRET}');
INSERT INTO per_name SELECT name, COUNT(*) FROM users GROUP BY name;
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project none of whose variables is set."""
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(tmp_path / "shop"))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "users.sql").write_text(LOGIN)
    return tmp_path / "shop"


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def test_explain_needs_no_endpoint_and_no_login(project: Path) -> None:
    done = run("explain")
    assert done.exit_code == 0, done.output
    assert "read users (id, name): upserts" in done.stdout
    (told,) = [json.loads(line) for line in run("explain", "--json").stdout.splitlines()]
    assert (told["table"], told["reads"], told["line"]) == ("per_name", ["users"], 9)
    assert any("read users" in line for line in told["plan"])


def test_every_value_of_an_endpoint_has_a_stand_in() -> None:
    assert {name: {item.field for item in items} for name, items in ENDPOINT_VALUES.items()} == {
        name: set(values) for name, values in PLACES.items()
    }


def test_validate_tells_problems_as_json(project: Path) -> None:
    done = run("validate", "--json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert (told["tables"], told["inserts"]) == (["per_name", "users"], ["per_name"])
    assert "error" in {problem["severity"] for problem in told["problems"]}
    assert any("NOBODY_SETS_JAAS" in problem["message"] and problem["line"] == 5 for problem in told["problems"])


def test_import_tells_files_and_variables_as_json(project: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.sql"
    job.write_text(LOGIN.replace("'${NOBODY_SETS_SECRET}'", "'s3cret'"))
    done = run("import", str(job), "--into", str(tmp_path / "into"), "--json")
    told = json.loads(done.stdout)
    assert [Path(item["path"]).name for item in told["files"]] == ["job.sql"]
    assert len(told["variables"]) == 1
    assert "s3cret" not in done.output


def test_lists_of_quarantine_and_of_local_servers_are_json(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SERVERS", "JAAS", "ENDPOINT", "ID", "SECRET"):
        value = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
        monkeypatch.setenv(f"NOBODY_SETS_{name}", value if name == "JAAS" else "http://localhost:1")
    listed = run("quarantine", "list", "--json")
    assert (listed.exit_code, listed.stdout) == (0, "")
    found = json.loads(run("local", "status", "--json").stdout)
    assert {item["state"] for item in found} == {"stopped"}


def test_names_are_completed_without_variables(project: Path) -> None:
    context = click.Context(click.Command("any"))
    parameter = click.Argument(["table"])
    assert [item.value for item in complete_tables(context, parameter, "per")] == ["per_name"]
    assert [item.value for item in complete_tables_and_topics(context, parameter, "")] == ["users", "per_name"]
    assert "changelogs/users" in [item.value for item in complete_nodes(context, parameter, "ch")]
    (project / "users.sql").write_text(LOGIN.replace("COUNT(*)", "NO_SUCH(*)"))
    assert "users" in [item.value for item in complete_tables_and_topics(context, parameter, "")]


def test_a_name_alone_is_the_table_before_the_query_that_feeds_it(project: Path) -> None:
    from upsert_platform.sync.peek import _KINDS, _OF_LAKE, _resolved
    from upsert_platform.sync.stand_ins import unset_value, without_places

    declared, problems = load(project, unset=unset_value)
    binding = bind(without_places(declared), problems)
    assert {"queries/per_name", "tables/per_name"} <= set(nodes(binding))
    assert _resolved(binding, "per_name", kinds=_KINDS) == ("tables", "per_name")
    assert _resolved(binding, "users", kinds=_KINDS) == ("topics", "users")
    assert _resolved(binding, "per_name", kinds=_OF_LAKE) == ("queries", "per_name")


def test_names_stay_whole_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name, at = "customers_of_the_northern_shops_by_day", datetime(2026, 1, 1, tzinfo=UTC)
    status = Status(
        (ChangelogStatus(name, (f"topic.{name}",), 5, 7, at, 3),),
        (TableStatus(f"{name}_serving", name, "tablestore", applied=7, checked=True, checked_at=at, delay=1.0),),
        0.1,
    )
    shown = _shown(status)
    console = console_for(*(item for item in shown.renderables if isinstance(item, Table)))
    with console.capture() as captured:
        console.print(shown)
    lines = captured.get().splitlines()
    assert any(f"{name}_serving" in line and "tablestore" in line and " 7 " in line for line in lines)
    assert any(f"topic.{name}" in line and line.count(name) == 2 for line in lines)


def test_doctor_warns_of_kerberos_only_where_a_cluster_needs_it() -> None:
    assert {item.state for item in client_check(None).look()} == {State.OK}
