"""What a new user does wrong first: the last lines say what happened, where, why, and what to type next."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from upsert_platform.cli.main import main
from upsert_platform.cli.next_step import for_typed_project, next_step, project_option
from upsert_platform.core.errors import DeclarationError, EndpointError, Problem, TopicError, UpsertPlatformError

PROJECT = """
CREATE TABLE orders (id BIGINT, n STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
  'topic' = 'never-made', 'properties.bootstrap.servers' = '127.0.0.1:9', 'key.format' = 'json',
  'value.format' = 'json');
CREATE TABLE copies (id BIGINT, n STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
  'topic' = 'copies', 'properties.bootstrap.servers' = '127.0.0.1:9', 'key.format' = 'json', 'value.format' = 'json');
INSERT INTO copies SELECT id, n FROM orders;
"""
TYPED = {
    "no broker": ("discover --bootstrap-servers 127.0.0.1:9", "127.0.0.1:9", "next: upsert-platform local up"),
    "no variable": ("discover", "${UPSERT_KAFKA_BOOTSTRAP_SERVERS} is not set", "'upsert-platform local up' sets"),
    "no project": ("peek orders", "this is the demo", "next: upsert-platform local up"),
    "empty folder": ("status --project empty", "no .sql file", "next: upsert-platform init FOLDER"),
    "no such folder": ("status --project nowhere", "'nowhere'", "does not exist"),
    "command": ("sycn", "No such command 'sycn'", "did you mean 'sync'"),
    "table to verify": ("verify copis --project shop", "'copis'", "did you mean 'copies'; written are: copies"),
    "table to peek at": ("peek ordres --project shop", "'ordres'", "did you mean 'orders'; there are: topics/orders"),
    "table in a query": ("query 'SELECT 1 FROM copis' --project shop", "'copis'", "did you mean 'copies'; there are"),
    "secret": ("discover --property sasl.password=x", "is a secret", "sasl.password=${NAME}"),
    "file of a project": ("validate shop/shop.sql", "is a file, and a project is a folder", "all files are read: shop"),
    "servers": ("local up --only kafak", "takes names out of", "kafka, "),
}
"""What is typed, the place and the reason, and the end of what is printed."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a new user's: no variable is set."""
    for name in ("UPSERT_KAFKA_BOOTSTRAP_SERVERS", "UPSERT_PLATFORM_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "shop.sql").write_text(PROJECT)
    return tmp_path


@pytest.mark.parametrize("case", TYPED)
def test_last_lines_say_what_happened_where_and_what_to_type(folder: Path, case: str) -> None:
    words, where, last = TYPED[case]
    done = CliRunner().invoke(main, shlex.split(words))
    assert done.exit_code in (1, 2)
    assert where in done.stderr
    assert last in " ".join(done.stderr.splitlines()[-3:])
    assert "Traceback" not in done.stderr


def test_port_that_is_taken_is_named(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for words in (
            ["local", "up", "--only", "tablestore", "--tablestore-port", str(port)],
            ["ui", "--port", str(port)],
        ):
            done = CliRunner().invoke(main, words)
            assert done.exit_code == 1
            assert str(port) in done.stderr
            assert "name another" in done.stderr


def test_topics_that_are_not_there(folder: Path, kafka_bootstrap: str, make_topic: Callable[..., str]) -> None:
    (folder / "shop" / "shop.sql").write_text(PROJECT.replace("127.0.0.1:9", kafka_bootstrap))
    empty = make_topic()
    for words, reason, last in (
        (
            ["discover", "never-made"],
            f"'never-made' does not exist on {kafka_bootstrap}",
            "next: upsert-platform discover",
        ),
        (["discover", "--match", "never-*"], f"no topic matches 'never-*' on {kafka_bootstrap}", "--bootstrap-servers"),
        (["peek", "orders", "--project", "shop"], "'never-made' does not exist", "next: upsert-platform discover"),
    ):
        more = ["--bootstrap-servers", kafka_bootstrap] if words[0] == "discover" else []
        done = CliRunner().invoke(main, [*words, *more])
        assert done.exit_code == 1
        assert reason in done.stderr
        assert last in done.stderr.splitlines()[-1]
    shown = CliRunner().invoke(main, ["discover", empty, "--bootstrap-servers", kafka_bootstrap])
    assert (shown.exit_code, "Doubtful: the topic is empty" in shown.stdout) == (0, True)


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("upsert-platform sync", "upsert-platform sync --project 'a shop'"),
        ("upsert-platform quarantine replay users", "upsert-platform quarantine replay users --project 'a shop'"),
        ("upsert-platform validate", "upsert-platform validate 'a shop'"),
        ("upsert-platform sync --project b", "upsert-platform sync --project b"),
        ("upsert-platform local up", "upsert-platform local up"),
        ("upsert-platform no-such-command", "upsert-platform no-such-command"),
    ],
)
def test_next_command_is_about_the_project_that_was_named(tmp_path: Path, command: str, typed: str) -> None:
    project = tmp_path / "a shop"
    project.mkdir()

    @click.command()
    @project_option()
    def looks(project: Path | None) -> None:
        click.echo(for_typed_project(command))

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setitem(main.commands, "looks", looks)
        assert CliRunner().invoke(main, ["looks", "--project", "a shop"]).output == f"{typed}\n"
        assert CliRunner().invoke(main, ["looks"]).output == f"{command}\n"


def test_every_command_that_is_named_next_takes_the_project() -> None:
    """Commands that read a project take --project: what one of them names is typed with it."""
    without = {"demo", "discover", "explain", "explain-error", "import", "init", "local", "options", "package"}
    without |= {"session", "setup", "submit-args", "ui"}
    context = click.Context(main)
    for name in set(main.list_commands(context)) - without:
        command = main.get_command(context, name)
        parts = command.commands.values() if isinstance(command, click.Group) else [command]
        for part in parts:
            assert "project" in {parameter.name for parameter in part.params}, part.name


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (EndpointError("Kafka b:1: not reachable within 10 s"), "upsert-platform doctor"),
        (EndpointError("Kafka 127.0.0.1:1: not reachable within 10 s"), "upsert-platform local up"),
        (EndpointError("Kafka 127.0.0.1:1: the login was refused"), "upsert-platform doctor"),
        (TopicError("topic 'x' does not exist"), "upsert-platform discover"),
        (DeclarationError([Problem("column 'a' has no type")]), "upsert-platform validate"),
        (UpsertPlatformError("type 'upsert-platform reset a' or 'upsert-platform status'"), "upsert-platform reset a"),
        (UpsertPlatformError("there is no row"), ""),
        (RuntimeError("port 1 is taken"), ""),
    ],
)  # fmt: skip
def test_command_after_an_error_is_the_one_it_names_or_that_of_its_kind(error: Exception, command: str) -> None:
    assert next_step(error) == command
