"""Commands read the projects of the working folder's code location, completed by its components."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from upsert_platform.changelog import lake
from upsert_platform.cli.location import deployed_project
from upsert_platform.cli.main import main
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.declarations.starter import write_starter
from upsert_platform.graph.job_run import CodeLocation, JobRunError
from upsert_platform.sync.binding import Binding
from upsert_platform.sync.endpoints import Endpoints
from upsert_platform.sync.located import LocatedProject

pytestmark = pytest.mark.whole_runs

PYPROJECT = '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "stall"\n'
DEFINITIONS = """
from pathlib import Path

from dagster import definitions, load_from_defs_folder


@definitions
def defs():
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
DEFS = """
type: upsert_platform.UpsertProjectComponent
attributes:
  home: {home}
  kafka: {{properties.bootstrap.servers: "127.0.0.1:9"}}
  tablestore:
    tablestore.endpoint: http://127.0.0.1:9
    tablestore.instance.name: stall
    tablestore.access.key.id: key
    tablestore.access.key.secret: secret
"""
"""Completes what its tables leave out."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Dagster project with two instances of the component, whose tables name no server."""
    package = tmp_path / "stall"
    for name in ("retail", "wholesale"):
        write_starter(package / "defs" / name, topic=name, tests=False)
        file = package / "defs" / name / f"{name}.sql"
        kept = [line for line in file.read_text().splitlines() if "${" not in line]
        file.write_text("\n".join(kept))
        (package / "defs" / name / "defs.yaml").write_text(DEFS.format(home=tmp_path / "home"))
    (package / "definitions.py").write_text(DEFINITIONS)
    for place in (package, package / "defs"):
        (place / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(lake.PROJECT_VARIABLE, raising=False)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "stall"]:
        del sys.modules[name]


def call(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def test_a_command_without_a_folder_is_about_every_instance(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(lake.HOME_VARIABLE, "/elsewhere")
    done = call("validate", "--json")
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert shown["tables"] == ["open_retail", "open_wholesale", "retail", "wholesale"]
    assert shown["inserts"] == ["open_retail", "open_wholesale"]
    explained = call("explain")
    assert "INSERT" in explained.output or "project and filter rows of wholesale" in explained.output
    row = '{"order_id": 1, "amount": 1, "state": "open"}'
    sent = CliRunner().invoke(main, ["send", "wholesale", "--dry-run"], input=row)
    assert sent.output == "1 record and 0 tombstones would be sent to wholesale\n"
    aside = call("quarantine", "list")
    assert aside.exit_code == 0, aside.output
    assert "open_retail: 0 rows refused" in aside.output
    assert lake.home() == "/elsewhere", "the lake of the location is that of the command alone"


def test_a_sync_has_a_run_for_every_instance_or_for_that_of_a_table(folder: Path) -> None:
    location = CodeLocation("stall.definitions")
    jobs = location.jobs_of_projects("sync")
    assert jobs == ["sync_retail", "sync_wholesale"]
    found = location.assets_of_jobs(["open_wholesale"], jobs)
    assert {job: [key.to_user_string() for key in keys] for job, keys in found.items()} == {
        "sync_wholesale": ["changelogs/wholesale", "tables/open_wholesale"]
    }
    assert set(location.assets_of_jobs(["open_wholesale", "retail"], jobs)) == set(jobs)
    with pytest.raises(JobRunError, match="has no table 'open_nothing'"):
        location.assets_of_jobs(["open_wholesale", "open_nothing"], jobs)
    with pytest.raises(JobRunError, match=r"has no job 'sink'\. Its jobs: .*sync_wholesale"):
        location.jobs_of_projects("sink")


def test_a_folder_that_is_named_is_read_as_its_instance_has_it(folder: Path) -> None:
    done = call("validate", "stall/defs/retail", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["tables"] == ["open_retail", "retail"]


def test_two_instances_with_a_table_of_one_name_need_one_to_be_named(folder: Path) -> None:
    first = folder / "stall" / "defs" / "retail" / "retail.sql"
    (folder / "stall" / "defs" / "wholesale" / "wholesale.sql").write_text(first.read_text())
    (folder / "stall" / "defs" / "wholesale" / "defs.yaml").write_text(
        DEFS.format(home=folder / "home") + "  translation: {key_prefix: wholesale}\n"
    )
    done = call("status")
    assert done.exit_code != 0
    assert "table 'retail' is declared in" in done.output
    assert "name one with --project" in done.output


def test_instances_with_lakes_of_their_own_need_one_to_be_named(folder: Path) -> None:
    (folder / "stall" / "defs" / "wholesale" / "defs.yaml").write_text(DEFS.format(home=folder / "other"))
    done = call("status")
    assert done.exit_code != 0
    assert "lakes of their own" in done.output
    assert call("validate", "stall/defs/wholesale").exit_code == 0


@pytest.mark.parametrize(
    ("words", "targets"),
    [
        (["plan"], ["open_retail", "open_wholesale"]),
        (["plan", "--project", "stall/defs/retail"], ["open_retail"]),
        (["apply", "--yes"], ["open_retail", "open_wholesale"]),
        (["apply", "--yes", "--project", "stall/defs/retail"], ["open_retail"]),
    ],
)
def test_plans_are_of_the_projects_and_the_lake_of_the_location(
    words: list[str], targets: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[list[str], str, set[str]]] = []

    def planned(spark: object, binding: Binding, where: lake.Lake, **given: object) -> None:
        servers = {table.options["tablestore.endpoint"] for table in (item.table for item in binding.targets.values())}
        seen.append((sorted(binding.targets), where.root, servers))
        raise UpsertPlatformError("seen")

    monkeypatch.setattr("upsert_platform.proofs.plan.plan_project", planned)
    monkeypatch.setattr("upsert_platform.cli.session.spark_session", lambda name: nullcontext((None, print)))
    done = call(*words)
    assert "seen" in done.output
    assert seen == [(targets, str(folder / "home"), {"http://127.0.0.1:9"})]


def test_what_is_deployed_is_read_with_the_values_of_the_location(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option that names a variable of a resource is no difference, whatever the environment has."""
    before = folder / "before"
    declared = (folder / "stall" / "defs" / "retail" / "retail.sql").read_text()
    first, last = declared.rsplit("WITH (", 1)
    named = first + "WITH ('table.name' = '${UPSERT_TABLESTORE_INSTANCE}'," + last
    before.mkdir()
    (before / "retail.sql").write_text(named)
    monkeypatch.setenv("UPSERT_TABLESTORE_INSTANCE", "elsewhere")
    located = LocatedProject(
        folder / "stall" / "defs" / "retail", None, Endpoints({"tablestore": {"instance": "stall"}})
    )
    monkeypatch.setattr("upsert_platform.cli.location.located_projects", lambda project=None: [located])
    found = deployed_project(before)
    assert found.tables["open_retail"].options["table.name"] == "stall"


def test_the_quarantine_of_an_unknown_table_is_an_error_in_every_form(folder: Path) -> None:
    for words in (["nothing"], ["nothing", "--json"], ["nothing", "--discarded", "--json"]):
        done = call("quarantine", "list", *words)
        assert done.exit_code == 2, done.output
        assert "no table 'nothing' is read or written by an insert" in done.output
    for table in ("retail", "open_retail"):
        assert call("quarantine", "list", table, "--json").exit_code == 0
