"""The command itself: quick to load, and clear when something is wrong."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from upsert_platform.cli import main as cli
from upsert_platform.core.errors import EndpointError
from upsert_platform.demo.instance import SHIPPED_SETTINGS
from upsert_platform.local.process import ServerError

HEAVY = {"pyspark", "dagster", "confluent_kafka", "tablestore", "odps", "pyarrow", "pandas", "deltalake"}


def test_command_and_its_local_group_load_nothing_heavy() -> None:
    code = "import sys, upsert_platform.cli.main, upsert_platform.cli.local; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "click" in loaded
    assert HEAVY & set(loaded) == set()


def test_every_command_loads_and_is_listed_with_help() -> None:
    listed = CliRunner().invoke(cli.main, ["--help"])
    assert listed.exit_code == 0, listed.output
    for name in cli._COMMANDS:
        assert CliRunner().invoke(cli.main, [name, "--help"]).exit_code == 0
        assert f"\n  {name} " in listed.output


@pytest.mark.parametrize("group", [[], ["local"], ["quarantine"]])
def test_commands_are_listed_in_whole_sentences(group: list[str]) -> None:
    listed = CliRunner().invoke(cli.main, [*group, "--help"], terminal_width=80)
    assert listed.exit_code == 0
    assert "..." not in listed.output.partition("Commands:")[2]


USERS = """
CREATE TABLE users (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'users', 'key.format' = 'json', 'value.format' = 'json',
  'properties.bootstrap.servers' = '{servers}');
"""


def _validate(folder: Path, servers: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(home))
    monkeypatch.delenv("UPSERT_KAFKA_BOOTSTRAP_SERVERS", raising=False)
    (folder / "users.sql").write_text(USERS.format(servers=servers))
    return CliRunner().invoke(cli.main, ["validate", str(folder)])


def test_missing_variables_of_local_servers_close_with_one_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = _validate(tmp_path, "${UPSERT_KAFKA_BOOTSTRAP_SERVERS}", tmp_path / "home", monkeypatch)
    assert result.exit_code == 1
    *_, counts, hint = result.output.splitlines()
    assert counts == f"1 table and 0 inserts in {tmp_path}: 1 error, 1 warning"
    assert hint.startswith("hint: 'upsert-platform local up'")
    assert result.output.count("upsert-platform local up") == 1


def test_other_errors_have_no_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = _validate(tmp_path, "${BROKERS}", tmp_path / "home", monkeypatch)
    assert result.exit_code == 1
    assert "hint:" not in result.output


WRONG = """INSERT INTO zzz SELECT id FROM users;
CREATE TABLE users (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'users',
  'on-error' = 'quarentine',
  'key.format' = 'jsn', 'value.format' = 'json',
  'value.json.ignore-parse-error' = 'true', 'properties.bootstrap.servers' = '127.0.0.1:9');
CREATE TABLE other (id INT) WITH ('connector' = 'tablestor');
"""


def test_everything_wrong_is_told_at_once_in_the_order_of_the_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "home"))
    (tmp_path / "wrong.sql").write_text(WRONG)
    result = CliRunner().invoke(cli.main, ["validate", str(tmp_path)])
    errors = [line.split(":", 1)[1] for line in result.output.splitlines() if ": error: " in line]
    assert errors == [
        "1: error: INSERT INTO zzz: no CREATE TABLE declares the target [UP-1206]",
        "4: error: table 'users': option 'on-error' must be 'quarantine' or 'fail' [UP-1103]",
        "5: error: table 'users': unknown key format 'jsn'; did you mean 'json'? [UP-1401]",
        "6: error: table 'users': unknown option 'json.ignore-parse-error'; did you mean 'json.ignore-parse-errors'?"
        " [UP-1101]",
        "7: error: table 'other': connector 'tablestor' is not known; did you mean 'tablestore'?; known are:"
        " upsert-kafka, kafka, kafka-changes, tablestore, tablestore-connect, maxcompute, postgres, hologres, faker,"
        " datagen, mysql-cdc, filesystem [UP-1012]",
    ]


def test_project_without_errors_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = _validate(tmp_path, "127.0.0.1:9", tmp_path / "home", monkeypatch)
    assert result.exit_code == 0
    assert result.output.endswith(f"\n1 table and 0 inserts in {tmp_path}: no error, 1 warning\n")


@pytest.mark.parametrize(
    ("error", "added"),
    [
        (EndpointError("broker.example:9092 refused"), " [UP-2210]\nnext: upsert-platform doctor"),
        (ServerError("it ended"), ""),
    ],
)
def test_error_made_for_users_is_one_message_without_a_trace(error: Exception, added: str) -> None:
    @cli.main.command("fails")
    def fails() -> None:
        raise error

    try:
        result = CliRunner().invoke(cli.main, ["fails"])
    finally:
        del cli.main.commands["fails"]
    assert (result.exit_code, result.output) == (1, f"Error: {error}{added}\n")


def test_unknown_command_is_refused() -> None:
    result = CliRunner().invoke(cli.main, ["no-such-command"])
    assert result.exit_code == click.UsageError.exit_code
    assert "no-such-command" in result.output
    assert "did you mean" not in result.output


def test_mistyped_command_names_the_nearest() -> None:
    result = CliRunner().invoke(cli.main, ["vlidate"])
    assert result.exit_code == click.UsageError.exit_code
    assert "'vlidate'; did you mean 'validate'?" in result.output


def test_port_of_the_ui_that_is_taken_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(cli.main, ["ui", "--port", str(port)])
    assert (result.exit_code, result.output) == (
        1,
        f"Error: port {port} is taken by another process: name another with --port [UP-2308]\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_shipped_instance_settings_are_taken_by_dagster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dagster import DagsterInstance

    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "dagster.yaml").write_text(SHIPPED_SETTINGS.read_text())
    with DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.global_op_concurrency_default_limit is None  # a run that was killed keeps its slot for ever
        assert instance.run_monitoring_enabled
        assert not instance.telemetry_enabled
        assert instance.python_log_level == "INFO"  # Kafka's client tells every failed attempt at DEBUG


APPENDED = """
CREATE TABLE events (id INT) WITH ('connector' = 'kafka', 'topic' = 'e', 'format' = 'json',
  'properties.bootstrap.servers' = '127.0.0.1:1');
CREATE TABLE kept (id INT) WITH ('connector' = 'maxcompute', 'table.name' = 'kept', 'sink.operation' = 'insert',
  'odps.end.point' = 'http://127.0.0.1:1', 'odps.project.name' = 'p', 'odps.access.id' = 'i', 'odps.access.key' = 'k');
INSERT INTO kept SELECT id FROM events;
"""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["list", "kept"], "1 row refused by the destination"),
        (["show", "kept", '{"id": 1}'], '"name": "long"'),
        (["show", "kept", '{"id":2}'], "is not in the quarantine of 'kept'"),
        (["show", "kept", '{"id":'], "is not a key as 'quarantine list' prints it"),
        (["show", "kept", "1"], "is not topic-partition@offset, for example users-0@42, nor the key of a row"),
        (["replay", "kept"], "appends rows without a key, so a refused row cannot be replayed"),
        (["replay", "events"], "nothing of 'events' is in quarantine"),
        (["replay", "other"], "no table 'other' is read or written by an insert; there are: events, kept"),
    ],
)
def test_quarantine_of_a_destination(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    from upsert_platform.changelog.refused import RefusedStore
    from upsert_platform.core.destination import BatchSpan, RefusedRow

    (tmp_path / "tables.sql").write_text(APPENDED)
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(tmp_path))
    row = RefusedRow('{"id":1}', '{"id":1,"name":"long"}', "too long")
    RefusedStore(str(tmp_path / "home" / "refused" / "kept")).append([row], BatchSpan(0, 1, "c", "run"))
    result = CliRunner().invoke(cli.main, ["quarantine", *arguments])
    assert told in f"{result.output} {result.exception}"


def test_quarantine_lists_texts_of_others_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is not a markup of the console, moves no cursor, and is shown whole, so that it can be given to `show`."""
    from upsert_platform.changelog.refused import RefusedStore
    from upsert_platform.core.destination import BatchSpan, RefusedRow

    (tmp_path / "tables.sql").write_text(APPENDED)
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(tmp_path))
    keys = ['{"id":"[/x]"}', '{"id":"\x1b[2J\U000e0001"}', '{"id":"' + "Y" * 150 + '"}']
    kept = [RefusedRow(key, key, "[b]too long[/]") for key in keys]
    RefusedStore(str(tmp_path / "home" / "refused" / "kept")).append(kept, BatchSpan(0, 1, "c", "run"))
    result = CliRunner().invoke(cli.main, ["quarantine", "list", "kept"])
    assert result.exit_code == 0, result.exception
    assert '{"id":"[/x]"}' in result.output
    assert '{"id":"\\u001b[2J\\udb40\\udc01"}' in result.output
    assert result.output.count("Y") == 150
    assert result.output.count("[b]too long[/]") == 3
    assert "3 rows refused" in result.output


def test_a_project_names_the_local_servers_that_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from upsert_platform.cli.project import named_servers

    for name in ("KAFKA_BOOTSTRAP_SERVERS", "TABLESTORE_ENDPOINT", "SCHEMA_REGISTRY_URL"):
        monkeypatch.delenv(f"UPSERT_{name}", raising=False)
    project, lake = tmp_path / "project", tmp_path / "lake"
    project.mkdir()
    (lake / "local").mkdir(parents=True)
    (lake / "local" / "local.env").write_text("UPSERT_KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:9\n", "utf-8")
    (project / "a.sql").write_text("-- 'broker.example:9092', ${OTHER}", "utf-8")
    assert named_servers(project, root=str(lake)) == []
    (project / "a.sql").write_text("'${UPSERT_KAFKA_BOOTSTRAP_SERVERS}' '${UPSERT_TABLESTORE_ENDPOINT}'", "utf-8")
    (project / "b.yaml").write_text("url: ${UPSERT_SCHEMA_REGISTRY_URL}", "utf-8")
    assert named_servers(project, root=str(lake)) == ["kafka", "tablestore", "registry"]
    (project / "variables.yaml").write_text("UPSERT_TABLESTORE_ENDPOINT: https://elsewhere.example\n", "utf-8")
    monkeypatch.setenv("UPSERT_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9")
    assert named_servers(project, root=str(lake)) == ["kafka", "registry"]
    monkeypatch.setenv("UPSERT_KAFKA_BOOTSTRAP_SERVERS", "broker.example:9092")
    assert named_servers(project, root=str(lake)) == ["registry"]
