"""Commands about a project: validate, demo, ui."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import click
from rich.console import Console

from upsert_platform.cli.text import counted


@click.command(short_help="Say everything that is wrong in a project.")
@click.argument("project", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
def validate(project: Path | None) -> None:
    """Say everything that is wrong in PROJECT, with file and line; ends with 1 if there is an error.

    PROJECT is a folder that declares tables and inserts: Flink SQL, YAML, ingestion pipelines, Kafka Connect
    configurations. If left out, it is UPSERT_PLATFORM_PROJECT, or the demo that ships with the package. Opens no
    connection, but to servers of databases that pipelines read: they are asked for their tables. Where the lake is a
    folder of this machine, changelogs are compared with what is declared.
    """
    from upsert_platform.changelog import lake
    from upsert_platform.errors import DeclarationError
    from upsert_platform.hops.binding import bind, lake_problems, load

    folder = project or lake.project_path()
    declared, problems = load(folder)
    hint = None
    try:
        bound = bind(declared, problems)
        lake_problems(bound, lake.default_lake(), problems)
    except DeclarationError as error:
        hint = error.hint
    for problem in problems:
        click.echo(str(problem), err=problem.severity == "error")
    warnings = sum(problem.severity == "warning" for problem in problems)
    found = f"{counted(len(declared.tables), 'table')} and {counted(len(declared.inserts), 'insert')} in {folder}"
    if hint is not None:
        errors = counted(len(problems) - warnings, "error")
        click.echo(f"{found}: {errors}, {counted(warnings, 'warning')}", err=True)
        if hint:
            click.echo(hint, err=True)
        sys.exit(1)
    click.echo(f"{found}: no error, {counted(warnings, 'warning')}")


@click.command(short_help="Try the platform on servers of this machine.")
@click.option("--keep", is_flag=True, help="Leave the local servers running at the end.")
def demo(keep: bool) -> None:
    """Keep two tables equal to an upsert topic, on servers of this machine."""
    from upsert_platform.demo.run import run_demo

    run_demo(Console(highlight=False), keep=keep)


@click.command(short_help="Open the Dagster UI on the project.")
@click.option("--port", default=3000, show_default=True, type=click.IntRange(1, 65535), help="Port of the UI.")
def ui(port: int) -> None:
    """Open the Dagster UI on the project; ends with Ctrl-C.

    The local servers that the project names by their variables (UPSERT_KAFKA_BOOTSTRAP_SERVERS and so on) are brought
    up before, unless those variables lead elsewhere.
    """
    from upsert_platform.changelog import lake
    from upsert_platform.demo.instance import environment
    from upsert_platform.local import supervisor
    from upsert_platform.local.process import is_free

    if not is_free(port):
        raise click.ClickException(f"port {port} is taken by another process: name another with --port")
    wanted = named_servers(lake.project_path(), root=lake.home())
    if wanted:
        with Console().status("starting the local servers"):
            supervisor.up(supervisor.default_directory(), only=wanted)
    servers = f"; local {' and '.join(wanted)} up until 'upsert-platform local down'" if wanted else ""
    click.echo(f"Dagster UI on http://127.0.0.1:{port}{servers}")
    dagster = str(Path(sys.executable).parent / "dagster")
    arguments = ["dev", "-m", "upsert_platform.definitions", "-h", "127.0.0.1", "-p", str(port)]
    # A shell lets what it starts in the background ignore SIGINT, by which Dagster ends its services at a SIGTERM too.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execve(dagster, [dagster, *arguments], environment())


def named_servers(project: Path, *, root: str) -> list[str]:
    """The local servers that a project needs: it names a variable of theirs, which nobody has set to another place.

    Args:
        project: the folder.
        root: of the lake, beside which the local servers' own variables lie.
    """
    from upsert_platform.hops.binding import local_variables_named
    from upsert_platform.local.services import SERVICES, Keys

    wanted = local_variables_named(project, root=root)
    return [name for name, service in SERVICES.items() if wanted & set(service.variables(0, Keys("", "", "", "")))]
