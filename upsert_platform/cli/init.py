"""`upsert-platform init`: a small project to begin with."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from upsert_platform.changelog import lake


@click.command(short_help="Write a small project to begin with.")
@click.argument("folder", required=False, default=".", type=click.Path(path_type=Path, file_okay=False))
def init(folder: Path) -> None:
    """Write a small project into FOLDER (the working directory, if left out), and show what to type next.

    It declares a topic, a Tablestore table and the insert between them, works against the servers of
    'upsert-platform local up', and explains itself in comments. A file that is there already is never overwritten:
    the command then ends with 1, and has written nothing.
    """
    from upsert_platform.declarations.starter import write_starter

    for path in write_starter(folder):
        click.echo(f"wrote {path}")
    click.echo("\nWhat to type next:\n")
    for command in next_commands(folder):
        click.echo(f"  {command}")


def next_commands(folder: Path) -> list[str]:
    """Shell commands from the new project to its first run."""
    named = [f"export {lake.PROJECT_VARIABLE}={shlex.quote(str(folder.absolute()))}"]
    if not os.environ.get(lake.HOME_VARIABLE):
        named.append(f"export {lake.HOME_VARIABLE}={shlex.quote(lake.home())}")
    return [
        *named,
        "upsert-platform local up",
        "upsert-platform validate",
        "upsert-platform status",
        "dagster job execute -m upsert_platform.definitions -j sync",
    ]
