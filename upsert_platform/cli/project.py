"""Commands about a project: validate, demo, ui."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console

from upsert_platform.cli.next_step import ProjectFolder, project_option
from upsert_platform.cli.text import problem_data
from upsert_platform.core.wording import counted

if TYPE_CHECKING:
    from upsert_platform.core.errors import Problem
    from upsert_platform.core.model import Project
    from upsert_platform.sync.located import LocatedProject

_WHOLE_WEEK: Final = 7 * 86_400.0
"""Seconds: a session that nobody used for so long ends beside a UI too."""


@click.command(short_help="Say everything that is wrong in a project.")
@click.argument("project", required=False, type=ProjectFolder())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def validate(project: Path | None, *, as_json: bool) -> None:
    """Say everything that is wrong in PROJECT, with file and line; ends with 1 if there is an error.

    PROJECT is a folder that declares tables and inserts: Flink SQL, YAML, ingestion pipelines, Kafka Connect
    configurations. If left out, it is UPSERT_PLATFORM_PROJECT, every project of the code location that this folder's
    pyproject.toml declares, or the demo that ships with the package. Opens no
    connection, but to servers of databases that pipelines read: they are asked for their tables. Where the lake is a
    folder of this machine, changelogs are compared with what is declared.
    """
    from upsert_platform.changelog import lake
    from upsert_platform.cli.location import located_projects
    from upsert_platform.core.error_catalogue import shown

    checked = [_Checked.of(item, item.folder or lake.project_path()) for item in located_projects(project)]
    folders = ", ".join(str(item.folder) for item in checked)
    tables = sorted(name for item in checked for name in item.declared.tables)
    inserts = [insert.target for item in checked for insert in item.declared.inserts]
    problems = [problem for item in checked for problem in item.problems]
    failed = any(item.hint is not None for item in checked)
    if as_json:
        found_all = [problem_data(problem) for problem in problems]
        click.echo(json.dumps({"project": folders, "tables": tables, "inserts": inserts, "problems": found_all}))
        sys.exit(1 if failed else 0)
    for problem in problems:
        click.echo(shown(problem), err=problem.severity == "error")
    warnings = sum(problem.severity == "warning" for problem in problems)
    found = f"{counted(len(tables), 'table')} and {counted(len(inserts), 'insert')} in {folders}"
    if failed:
        errors = counted(len(problems) - warnings, "error")
        click.echo(f"{found}: {errors}, {counted(warnings, 'warning')}", err=True)
        for hint in dict.fromkeys(item.hint for item in checked if item.hint):
            click.echo(hint, err=True)
        sys.exit(1)
    click.echo(f"{found}: no error, {counted(warnings, 'warning')}")


@dataclass(frozen=True)
class _Checked:
    """A project with all that is wrong in it; `hint` is None where nothing is."""

    folder: Path
    declared: Project
    problems: list[Problem]
    hint: str | None

    @staticmethod
    def of(project: LocatedProject, folder: Path) -> _Checked:
        from upsert_platform.changelog import lake
        from upsert_platform.core.errors import DeclarationError
        from upsert_platform.sync.binding import lake_problems

        declared, problems = project.load()
        try:
            lake_problems(project.bind(declared, problems), lake.default_lake(), problems)
        except DeclarationError as error:
            return _Checked(folder, declared, problems, error.hint or "")
        return _Checked(folder, declared, problems, None)


@click.command(short_help="Try the platform on servers of this machine.")
@click.option("--keep", is_flag=True, help="Leave the local servers running at the end.")
def demo(keep: bool) -> None:
    """Keep two tables equal to an upsert topic, on servers of this machine."""
    from upsert_platform.demo.run import run_demo

    run_demo(Console(highlight=False), keep=keep)


@click.command(short_help="Open the Dagster UI on the project.")
@click.option("--port", default=3000, show_default=True, type=click.IntRange(1, 65535), help="Port of the UI.")
@click.option("--warm/--no-warm", default=True, show_default=True, help="Keep a Spark session open for the runs.")
@project_option()
def ui(port: int, project: Path | None, *, warm: bool) -> None:
    """Open the Dagster UI on the project; ends with Ctrl-C.

    The local servers that the project names by their variables (UPSERT_KAFKA_BOOTSTRAP_SERVERS and so on) are brought
    up before, unless those variables lead elsewhere. A warm Spark session for the runs stays open as long as the UI
    does; --no-warm leaves it out.
    """
    from upsert_platform.changelog import lake
    from upsert_platform.cli.location import current_location, located_projects, use_project
    from upsert_platform.demo.instance import environment
    from upsert_platform.local.process import is_free

    if not is_free(port):
        raise click.ClickException(f"port {port} is taken by another process: name another with --port")
    location = current_location(Path.cwd())
    use_project(project, location=location)
    wanted = start_named_servers(*(item.folder or lake.project_path() for item in located_projects()))
    servers = f"; local {' and '.join(wanted)} up until 'upsert-platform local down'" if wanted else ""
    variables = environment()
    session = "; Spark opens for runs" if warm and keep_session(variables) else ""
    click.echo(f"Dagster UI on http://127.0.0.1:{port}{servers}{session}")
    dagster = str(Path(sys.executable).parent / "dagster")
    arguments = ["dev", "-m", location, "-h", "127.0.0.1", "-p", str(port)]
    # A shell lets what it starts in the background ignore SIGINT, by which Dagster ends its services at a SIGTERM too.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execve(dagster, [dagster, *arguments], variables)


def keep_session(variables: Mapping[str, str]) -> bool:
    """Keep a warm Spark session as long as this process lives, whatever program it becomes.

    Args:
        variables: of the runs, which the session has to have alike.

    Returns:
        Whether one opens; none does where one is up already, warm sessions are not used, or there is no Java.
    """
    from upsert_platform.spark.jars import JavaMissingError, java
    from upsert_platform.spark.warm_offer import Offer, folder
    from upsert_platform.spark.warm_start import start_process

    where = folder()
    found = None if where is None else Offer.read(where)
    if where is None or (found is not None and found.is_alive()):
        return False
    try:
        java()
    except JavaMissingError as error:
        click.echo(f"no warm Spark session: {error}", err=True)
        return False
    start_process(where, idle=_WHOLE_WEEK, environment=variables, beside=os.getpid())
    return True


def start_named_servers(*projects: Path) -> list[str]:
    """Start the local servers that projects need, and return their names."""
    from upsert_platform.changelog import lake
    from upsert_platform.local import supervisor

    root = lake.home()
    wanted = list(dict.fromkeys(name for project in projects for name in named_servers(project, root=root)))
    if wanted:
        with Console(stderr=True).status("starting the local servers"):
            supervisor.up(supervisor.default_directory(), only=wanted)
    return wanted


def named_servers(project: Path, *, root: str) -> list[str]:
    """The local servers that a project needs: it names a variable of theirs, which nobody has set to another place.

    Args:
        project: the folder.
        root: of the lake, beside which the local servers' own variables lie.
    """
    from upsert_platform.local.services import SERVICES, Keys
    from upsert_platform.sync.binding import local_variables_named

    wanted = local_variables_named(project, root=root)
    return [name for name, service in SERVICES.items() if wanted & set(service.variables(0, Keys("", "", "", "")))]
