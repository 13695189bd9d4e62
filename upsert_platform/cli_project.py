"""Commands about a project: validate, demo, ui."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
from rich.console import Console


@click.command()
@click.argument("project", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
def validate(project: Path | None) -> None:
    """Say everything that is wrong in PROJECT, with file and line; ends with 1 if there is an error.

    PROJECT is a folder of SQL files; UPSERT_PLATFORM_PROJECT, or the demo that ships with the package, if left out.
    Opens no connection.
    """
    from upsert_platform.errors import DeclarationError
    from upsert_platform.graph import lake
    from upsert_platform.graph.binding import bind, load

    folder = project or lake.project_path()
    declared, problems = load(folder)
    failed = False
    try:
        bind(declared, problems)
    except DeclarationError:
        failed = True
    for problem in dict.fromkeys(problems):
        click.echo(str(problem), err=problem.severity == "error")
    warnings = sum(problem.severity == "warning" for problem in problems)
    errors = len(dict.fromkeys(problems)) - warnings
    told = f"{len(declared.tables)} tables and {len(declared.inserts)} inserts in {folder}"
    if failed:
        click.echo(f"{told}: {errors} errors, {warnings} warnings", err=True)
        sys.exit(1)
    click.echo(f"{told}: no error, {warnings} warnings")


@click.command()
@click.option("--keep", is_flag=True, help="Leave the local servers running at the end.")
def demo(keep: bool) -> None:
    """Keep two tables equal to an upsert topic, on servers of this machine."""
    from upsert_platform.demo.run import run_demo

    run_demo(Console(highlight=False), keep=keep)


@click.command()
@click.option("--port", default=3000, show_default=True, type=click.IntRange(1, 65535), help="Port of the UI.")
def ui(port: int) -> None:
    """Open the Dagster UI on the project, with the local servers up and the runs of the demo; ends with Ctrl-C."""
    from upsert_platform.demo.instance import environment
    from upsert_platform.graph import lake
    from upsert_platform.local import supervisor

    directory = Path(lake.home()) / "local"
    with Console().status("starting the local servers"):
        supervisor.up(directory)
    click.echo(f"Dagster UI on http://127.0.0.1:{port}; the local servers run on until 'upsert-platform local down'")
    dagster = str(Path(sys.executable).parent / "dagster")
    arguments = ["dev", "-m", "upsert_platform.definitions", "-h", "127.0.0.1", "-p", str(port)]
    os.execve(dagster, [dagster, *arguments], environment())
