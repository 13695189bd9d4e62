"""The documents: every command in them exists, cheap ones are run, declarations are valid, references are current."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from io import StringIO
from pathlib import Path

import click
import pytest
from rich.console import Console

import upsert_platform
from upsert_platform.changelog import lake
from upsert_platform.cli import options as cli_options
from upsert_platform.cli.main import main
from upsert_platform.declarations import connect_options
from upsert_platform.formats import FORMATS
from upsert_platform.generated.options import DatagenSettings, FakerSettings
from upsert_platform.hops import binding
from upsert_platform.hops.connectors import CONNECTORS
from upsert_platform.kafka import properties
from upsert_platform.kafka.options import KafkaSettings, UpsertKafkaSettings
from upsert_platform.maxcompute.options import MaxComputeSettings
from upsert_platform.maxcompute.replaced import REPLACED, REPLACED_BY_MAXSTORAGE
from upsert_platform.options import option_fields
from upsert_platform.reference.markdown import markdown, sections
from upsert_platform.tablestore.options import TablestoreSettings

ROOT = Path(__file__).parents[1]
DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
    "docs/options.md",
    "docs/extending.md",
    "docs/operating.md",
    "docs/cluster.md",
)
BIN = Path(sys.executable).parent
SHELL_WORDS = (".", "export", "mkdir", "eval")
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


COMMANDS = sorted({command for name in ("README.md", "CONTRIBUTING.md") for command in _commands(name)})


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project of the README, in a working directory of its own."""
    working = tmp_path_factory.mktemp("readme")
    folder = working / "shop"
    folder.mkdir()
    (sql,), (yaml,) = _blocks("README.md", "sql"), _blocks("README.md", "yaml")
    (folder / "orders.sql").write_text(sql, "utf-8")
    (folder / "pipeline.yaml").write_text(yaml, "utf-8")
    return working


def _dummies(text: str) -> dict[str, str]:
    """Values for the variables of a text; endpoints are addresses where nobody listens."""
    names = re.findall(r"\$\{(\w+)\}", text)
    return {name: "http://127.0.0.1:9" if name.endswith("ENDPOINT") else "127.0.0.1:9" for name in names}


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
        case _:
            assert words[0] in (*SHELL_WORDS, *OTHER_TOOLS), f"who checks '{command}'?"
            assert not words[0].startswith(".venv") or (BIN / Path(words[0]).name).exists()


@pytest.mark.parametrize("command", [item for item in COMMANDS if item.startswith(CHEAP) and "-n" not in item])
def test_cheap_command_runs(command: str, project: Path) -> None:
    environment = {
        **os.environ,
        **_dummies("".join((*_blocks("README.md", "sql"), *_blocks("README.md", "yaml")))),
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
    for name, value in _dummies("".join((*_blocks("README.md", "sql"), *_blocks("README.md", "yaml")))).items():
        monkeypatch.setenv(name, value)
    bound = binding.bind(*binding.load(project / "shop", root=str(project)))
    assert set(bound.sources) == {"orders"}
    assert set(bound.targets) == {"open_orders", "all_orders"}
    assert not bound.warnings


def test_jobs_and_sensor_have_the_documented_names(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dagster as dg

    from upsert_platform.graph.build import build_definitions

    for name, value in _dummies("".join((*_blocks("README.md", "sql"), *_blocks("README.md", "yaml")))).items():
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


MESSAGES = re.findall(r"^\| `([^`]+)` \|", _text("README.md").partition("## Troubleshooting")[2], re.MULTILINE)


@pytest.mark.parametrize("message", MESSAGES)
def test_message_of_troubleshooting_is_one_of_the_code(message: str) -> None:
    assert any(message in text for text in _texts_of_the_code())


def test_troubleshooting_was_found() -> None:
    assert len(MESSAGES) > 10


def test_metadata_is_that_of_the_code() -> None:
    part = _text("README.md").partition("## What a run tells")[2].partition("\n## ")[0]
    table = [line for line in part.splitlines() if line.startswith("| ")]
    names = {name.removesuffix("...") for line in table for name in re.findall(r"`([\w/.]+)`", line)}
    assert len(names) > 30
    known = set(_texts_of_the_code())
    assert {name for name in names if name not in known} == set()


def test_columns_of_the_changelog_are_told() -> None:
    from upsert_platform.changelog.rows import SYSTEM_COLUMNS

    part = _text("README.md").partition("## What lies in the lake")[2].partition("\n## ")[0]
    assert set(SYSTEM_COLUMNS) == set(re.findall(r"`(_\w+)`", part))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
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


def test_reference_file_is_current() -> None:
    assert _text("docs/options.md") == markdown(), "write it anew: python -m upsert_platform.reference.markdown"


MODELS = {
    "upsert-kafka": UpsertKafkaSettings,
    "kafka": KafkaSettings,
    "tablestore": TablestoreSettings,
    "maxcompute": MaxComputeSettings,
    "faker": FakerSettings,
    "datagen": DatagenSettings,
    **{name: found.settings for name, found in FORMATS.items()},
}


@pytest.mark.parametrize("name", MODELS)
def test_reference_has_every_option_with_a_sentence_and_an_origin(name: str) -> None:
    rows = {row.name: row for row in sections()[name].rows}
    assert set(option_fields(MODELS[name])) <= set(rows)
    origins = {"flink", "alibaba", "volcengine", "tencent", "tablestore", "maxcompute", "confluent", "platform"}
    for option in option_fields(MODELS[name]):
        assert rows[option].meaning.endswith(".")
        assert set(rows[option].third.replace(" ", "").split(",")) <= origins, option


VENDOR_PAGES = {
    "alibaba": (
        "upsert-kafka",
        "connector, properties.bootstrap.servers, topic, key.format, key.fields, key.fields-prefix, value.format,"
        " value.fields-include, sink.parallelism, sink.buffer-flush.max-rows, sink.buffer-flush.interval,"
        " sink.delivery-guarantee, sink.add-tableId-to-header-enabled, aliyun.kafka.accessKeyId,"
        " aliyun.kafka.accessKeySecret, aliyun.kafka.instanceId, aliyun.kafka.endpoint, aliyun.kafka.regionId",
    ),
    "volcengine": (
        "upsert-kafka",
        "connector, properties.bootstrap.servers, topic, key.format, key.fields-prefix, value.format,"
        " value.fields-include, sink.parallelism",
    ),
    "tencent": (
        "upsert-kafka",
        "connector, properties.bootstrap.servers, topic, key.format, key.fields, key.fields-prefix, value.format,"
        " value.fields-include, scan.startup.mode, sink.parallelism, sink.buffer-flush.max-rows,"
        " sink.buffer-flush.interval",
    ),
}
"""What the pages of vendors list, or use in an example."""


@pytest.mark.parametrize("vendor", VENDOR_PAGES)
def test_reference_tells_which_vendors_document_an_option(vendor: str) -> None:
    section, listed = VENDOR_PAGES[vendor]
    found = {row.name for row in sections()[section].rows if vendor in row.third.split(", ")}
    assert found == set(listed.split(", "))


def test_reference_tells_options_of_kafka_connect_from_those_of_the_connector() -> None:
    origin = {row.name: row.third for row in sections()["kafka-connect"].rows}
    assert {origin[name] for name in ("tasks.max", "transforms", "errors.tolerance", "consumer.override.*")} == {
        "kafka-connect"
    }
    assert {origin[name] for name in ("primarykey.mode", "insert.mode", "bucket.count")} == {"tablestore"}


def test_reference_marks_what_has_no_effect_or_is_refused() -> None:
    def marked(section: str, status: str) -> set[str]:
        return {row.name for row in sections()[section].rows if row.status == status}

    assert marked("maxcompute", "no effect") == set(REPLACED)
    meaning = {row.name: row.text for row in sections()["maxcompute"].rows}
    assert "Used with `sink.coordinator.enable` = `false`" in meaning["insert.commit.thread-num"]
    assert all("Used with `write.api` = `tunnel`" in meaning[name] for name in REPLACED_BY_MAXSTORAGE)
    assert marked("upsert-kafka", "refused") == {"sink.partitioner"}
    assert marked("properties", "no effect") == {*properties.OWNED, *properties.JVM_ONLY}
    assert marked("kafka-connect", "refused") == set(connect_options.REFUSED)


def test_reference_tells_what_java_properties_become() -> None:
    rows = {row.name: row.second for row in sections()["properties"].rows}
    assert set(rows) | {"bootstrap.servers"} == {
        *properties.COMMON, *properties.CONSUMER, *properties.PRODUCER, *properties.RENAMED,
        *properties.JVM_ONLY, *properties.OWNED, *properties.HANDLED,
    }  # fmt: skip
    for java, native in properties.RENAMED.items():
        client, problems = properties.read_properties({java: "1"})
        assert not problems
        assert rows[java] == native
        assert native in {**client.common, **client.consumer, **client.producer}


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
@pytest.mark.parametrize("name", sections())
def test_options_fit_the_terminal_and_nothing_is_cut(name: str, width: int) -> None:
    output = StringIO()
    cli_options._show(Console(width=width, file=output, highlight=False), sections()[name])
    shown = output.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    letters = re.sub(r"\s", "", shown)
    for row in sections()[name].rows:
        words = [word for word in cli_options._plain(row.text).split() if len(word) < width // 5]
        assert all(word in letters for word in words), row.name


def test_options_of_an_unknown_connector_name_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["options", "tablestor"])
    assert ended.value.code == 2
    assert "did you mean 'tablestore'" in capsys.readouterr().err


def test_defaults_are_told_in_the_units_of_the_option() -> None:
    rows: Mapping[str, str] = {row.name: row.second for row in sections()["upsert-kafka"].rows}
    assert rows["scan.buffer-bytes"] == "192 mb"
    assert rows["batch.max-bytes"] == "2 gb"
    assert {row.name: row.second for row in sections()["tablestore"].rows}["request.timeout"] == "10 s"


def test_lease_is_as_long_as_told() -> None:
    from upsert_platform.hops.leased import LEASE

    assert f"({LEASE.total_seconds():.0f} seconds, renewed" in _text("README.md")
