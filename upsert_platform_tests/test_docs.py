"""The documents: every command in them exists, cheap ones are run, declarations are valid, references are current."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import click
import pytest

import upsert_platform
import upsert_platform.testing
from upsert_platform.changelog import lake
from upsert_platform.cli.main import main
from upsert_platform.core.redaction import is_secret_name
from upsert_platform.formats import FORMATS
from upsert_platform.reference.markdown import sections
from upsert_platform.sync import binding
from upsert_platform.sync.connectors import CONNECTORS

ROOT = Path(__file__).parents[1]
PAGES = tuple(sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "ARCHITECTURE.md", "SECURITY.md", *PAGES)
BIN = Path(sys.executable).parent
DECLARED = "docs/declaring.md"
EXTENDING = "docs/extending.md"
"""Its Python is that of a connector that the contract suite runs, and is compared with it."""
PROJECT_OF_TESTS = "docs/testing.md"
"""Its Python is several files of one project, which `testing/test_page.py` runs together."""
EXECUTED = ("docs/tutorial.md", "docs/dagster-project.md")
"""Their commands are executed as they are, by tests of systems."""
SHELL_WORDS = (".", "export", "mkdir", "eval", "git")
OTHER_TOOLS = (".venv/bin/ruff", ".venv/bin/mypy", ".venv/bin/pytest", ".venv/bin/python", ".venv/bin/pre-commit")
CHEAP = (
    "upsert-platform init",
    "upsert-platform options",
    "upsert-platform validate",
    "upsert-platform quarantine list",
)
"""Beginnings of commands that need neither Spark nor a server, so they are run."""


def _text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def _blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", _text(name), re.DOTALL | re.MULTILINE)


def _commands(name: str) -> Iterator[str]:
    """Commands of the shell blocks, those joined by && one by one."""
    for block in _blocks(name, "sh"):
        for line in block.splitlines():
            yield from (part.strip() for part in line.split("&&") if part.strip())


COMMANDS = sorted({command for name in DOCUMENTS if name not in EXECUTED for command in _commands(name)})


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project of docs/declaring.md, in a working directory of its own, beside the one that is deployed."""
    working = tmp_path_factory.mktemp("declaring") / "edited"
    folder = working / "shop"
    folder.mkdir(parents=True)
    (working.parent / "deployed").mkdir()
    (sql,), (yaml,) = _blocks(DECLARED, "sql"), _blocks(DECLARED, "yaml")
    (folder / "orders.sql").write_text(sql, "utf-8")
    (folder / "pipeline.yaml").write_text(yaml, "utf-8")
    for name in (
        "orders.sql",
        "tablestore-sink.properties",
        "mysql-to-kafka.yaml",
        "job.sql",
        "orders.jsonl",
    ):  # that pages name
        (working / name).touch()
    return working


def _dummies(text: str) -> dict[str, str]:
    """Values for the variables of a text; endpoints are addresses where nobody listens, and no secret is one."""
    names = re.findall(r"\$\{(\w+)\}", text)
    values = {name: "http://127.0.0.1:9" if name.endswith("ENDPOINT") else "127.0.0.1:9" for name in names}
    return values | {name: f"dummy-{name.lower()}" for name in names if is_secret_name(name)}


@lru_cache(maxsize=1)
def _make_targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z]+):", _text("Makefile"), re.MULTILINE))


def _judge_own(arguments: list[str]) -> None:
    """Parses a command line of ours, down to the last argument, without running it."""
    context = click.Context(main, info_name="upsert-platform")
    command: click.Command = main
    while isinstance(command, click.Group):
        name, found, arguments = command.resolve_command(context, arguments)
        assert found is not None, f"no command {name}"
        context = found.make_context(name, list(arguments), parent=context)
        command = found
        arguments = [*context._protected_args, *context.args]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_exists(command: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    words = shlex.split(command)
    match words[0]:
        case "make":
            assert words[1] in _make_targets()
        case "upsert-platform":
            _judge_own(words[1:])
        case "dagster":
            assert words[1:4] in (["job", "execute", "-m"], ["sensor", "start", "-m"], ["asset", "materialize", "-m"])
            assert words[4] == "upsert_platform.definitions"
        case "cp":
            assert (ROOT / words[1]).is_file()
        case script if script.startswith("scripts/"):
            assert (ROOT / script).is_file()
        case _:
            assert words[0] in (*SHELL_WORDS, *OTHER_TOOLS), f"who checks '{command}'?"
            assert not words[0].startswith(".venv") or (BIN / Path(words[0]).name).exists()


def test_every_command_is_in_the_reference() -> None:
    listed = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \|", _text("docs/commands.md"), re.MULTILINE)
    names = [name for cell in listed for name in re.findall(r"`([a-z-]+)`", cell)]
    assert sorted(names) == sorted(main.list_commands(click.Context(main)))


@pytest.mark.parametrize("command", [item for item in COMMANDS if item.startswith(CHEAP) and "-n" not in item])
def test_cheap_command_runs(command: str, project: Path) -> None:
    environment = {
        **os.environ,
        **_dummies("".join((*_blocks(DECLARED, "sql"), *_blocks(DECLARED, "yaml")))),
        lake.PROJECT_VARIABLE: str(project / "shop"),
        lake.HOME_VARIABLE: str(project / "home"),
    }
    words = shlex.split(command)
    done = subprocess.run(
        [BIN / words[0], *words[1:]], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()


def test_declarations_are_valid(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in _dummies("".join((*_blocks(DECLARED, "sql"), *_blocks(DECLARED, "yaml")))).items():
        monkeypatch.setenv(name, value)
    bound = binding.bind(*binding.load(project / "shop", root=str(project)))
    assert set(bound.sources) == {"orders"}
    assert set(bound.targets) == {"open_orders", "all_orders"}
    assert not bound.warnings


def test_declarations_of_the_front_page_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sql,) = _blocks("README.md", "sql")
    (tmp_path / "orders.sql").write_text(sql, "utf-8")
    for name, value in _dummies(sql).items():
        monkeypatch.setenv(name, value)
    bound = binding.bind(*binding.load(tmp_path, root=str(tmp_path)))
    assert (set(bound.sources), set(bound.targets), bound.warnings) == ({"orders"}, {"open_orders"}, ())


def test_declaration_of_masked_columns_is_valid(tmp_path: Path) -> None:
    (sql,) = _blocks("docs/privacy.md", "sql")
    insert = sql.replace("TABLE users", "TABLE shown").replace("'topic' = 'users'", "'topic' = 'shown'")
    insert = (
        insert.replace(",\n  'mask.columns' = 'mail'", "")
        + "INSERT INTO shown SELECT id, UPPER(mail), city FROM users;"
    )
    (tmp_path / "users.sql").write_text((sql + insert).replace("${BROKERS}", "127.0.0.1:9"), "utf-8")
    bound = binding.bind(*binding.load(tmp_path, root=str(tmp_path)))
    assert bound.targets["shown"].table.masked == ("mail",)


def test_declaration_of_a_secure_cluster_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import certifi

    sql, _ = _blocks("docs/secure-kafka.md", "sql")
    (login,) = re.findall(r"^    (org\.apache\..*)$", _text("docs/secure-kafka.md"), re.MULTILINE)
    (tmp_path / "orders.sql").write_text(sql, "utf-8")
    values = {"KAFKA_BROKERS": "127.0.0.1:9", "KAFKA_JAAS_CONFIG": login, "KAFKA_TRUST_STORE": certifi.where()}
    assert set(_dummies(sql)) == set(values)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    project, problems = binding.load(tmp_path, root=str(tmp_path))
    binding.bind(project, problems)
    assert [str(problem) for problem in problems if "neither read nor written" not in problem.message] == []


@pytest.mark.parametrize(
    "name", [name for name in PAGES if "```python" in _text(name) and name not in (EXTENDING, PROJECT_OF_TESTS)]
)
def test_python_of_a_page_runs(name: str, project: Path) -> None:
    dummies = _dummies("".join((*_blocks(DECLARED, "sql"), *_blocks(DECLARED, "yaml"))))
    places = {lake.PROJECT_VARIABLE: str(project / "shop"), lake.HOME_VARIABLE: str(project / "home")}
    for block in _blocks(name, "python"):
        command = [sys.executable, "-c", block]
        environment = {**os.environ, **dummies, **places, "PYTHONWARNINGS": "ignore"}
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_jobs_and_sensor_have_the_documented_names(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dagster as dg

    from upsert_platform.graph.build import build_definitions

    for name, value in _dummies("".join((*_blocks(DECLARED, "sql"), *_blocks(DECLARED, "yaml")))).items():
        monkeypatch.setenv(name, value)
    loaded, _ = binding.load(project / "shop", root=str(project))
    repository = build_definitions(loaded).get_repository_def()
    assert isinstance(repository, dg.RepositoryDefinition)
    jobs = {words[words.index("-j") + 1] for words in map(str.split, COMMANDS) if "-j" in words}
    sensors = {command.split()[-1] for command in COMMANDS if command.startswith("dagster sensor")}
    assert jobs == {"sync", "verify", "compact"}
    assert jobs <= set(repository.job_names)
    assert sensors | {"new_offsets"} == {sensor.name for sensor in repository.sensor_defs}


def test_completion_works_in_bash() -> None:
    (line,) = [command for command in COMMANDS if command.startswith("eval")]
    script = f"""{line}
    COMP_WORDS=(upsert-platform options table) COMP_CWORD=2
    _upsert_platform_completion upsert-platform
    echo "${{COMPREPLY[@]}}"
    complete -p upsert-platform"""
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    reply, registered = done.stdout.splitlines()
    assert reply == "tablestore"
    assert "_upsert_platform_completion" in registered


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", _text(name)):
        file, _, anchor = target.partition("#")
        if "://" in target:
            continue
        path = (ROOT / name).parent / file if file else ROOT / name
        assert path.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}, target


@lru_cache(maxsize=1)
def _texts_of_the_code() -> tuple[str, ...]:
    """Every text in the package, the values in it written as {}."""
    found = []
    for path in Path(upsert_platform.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.append(node.target.id)  # a field of a report, which is told by its name
    return tuple(found)


MESSAGES = re.findall(r"^\| `([^`]+)` \|", _text("docs/troubleshooting.md"), re.MULTILINE)
OF_LIBRARIES = ("memory allocation of", "cannot allocate memory for thread-local data")
"""Printed by the Rust runtime of a library, and by the C library, as the process ends."""


@pytest.mark.parametrize("message", [message for message in MESSAGES if message not in OF_LIBRARIES])
def test_message_of_troubleshooting_is_one_of_the_code(message: str) -> None:
    assert any(message in text for text in _texts_of_the_code())


def test_troubleshooting_was_found() -> None:
    assert len(MESSAGES) > 10


def test_metadata_is_that_of_the_code() -> None:
    part = _text("docs/metadata.md").partition("\n## ")[0]
    table = [line for line in part.splitlines() if line.startswith("| ")]
    names = {name.removesuffix("...") for line in table for name in re.findall(r"`([\w/.]+)`", line)}
    assert len(names) > 30
    known = set(_texts_of_the_code())
    assert {name for name in names if name not in known} == set()


def test_columns_of_the_changelog_are_told() -> None:
    from upsert_platform.changelog.rows import SYSTEM_COLUMNS

    part = _text("docs/metadata.md").partition("## What lies in the lake")[2].partition("\n## ")[0]
    listed = part.partition("| column | meaning |")[2]
    assert set(SYSTEM_COLUMNS) == set(re.findall(r"`(_\w+)`", listed))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_environment_variables_are_in_the_reference(name: str) -> None:
    told = set(re.findall(r"\bUPSERT_PLATFORM_[A-Z]+\b", _text(name)))
    assert told <= {row.name for row in sections()["platform"].rows}


def test_version_is_told_once() -> None:
    (pinned,) = re.findall(r'^version = "(.*)"$', _text("pyproject.toml"), re.MULTILINE)
    assert upsert_platform.__version__ == pinned
    assert f"## [{pinned}]" in _text("CHANGELOG.md")


@pytest.mark.parametrize("name", [*FORMATS, *CONNECTORS])
def test_changelog_tells_every_format_and_connector(name: str) -> None:
    assert name in _text("CHANGELOG.md").lower()


def test_lease_is_as_long_as_told() -> None:
    from upsert_platform.sync.leased import LEASE

    assert f"({LEASE.total_seconds():.0f} seconds, renewed" in _text("docs/guarantees.md")


def test_the_connector_in_the_documents_is_the_one_that_the_contract_suite_runs() -> None:
    example = _lines((ROOT / "upsert_platform_tests/writing/in_memory.py").read_text("utf-8"))
    blocks = _blocks(EXTENDING, "python")
    assert len(blocks) == 2
    for block in blocks:
        assert _lines(block) in example or _lines(textwrap.indent(block, "    ")) in example


def _lines(text: str) -> str:
    """Without empty lines, of which a formatter puts more between functions than between methods."""
    return "\n".join(line for line in text.splitlines() if line.strip())


def test_every_exported_name_is_in_the_api_reference() -> None:
    described = {line.rpartition(".")[2] for line in _text("docs/api.md").splitlines() if line.startswith("::: ")}
    assert {*upsert_platform.__all__, *upsert_platform.testing.__all__} <= described
