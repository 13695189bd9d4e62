"""`upsert-platform init`: a small project to begin with."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

import click

from upsert_platform.changelog import lake

_COMMAND: Final = "upsert-platform"
TARGETS: Final = ("tablestore", "postgres")
_FIRST_RECORD: Final = '{"order_id": 1, "customer": "Ada", "amount": 9.5, "state": "open"}'


@click.command(short_help="Write a small project to begin with.")
@click.argument("folder", required=False, default=".", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--to",
    type=click.Choice(TARGETS),
    default=TARGETS[0],
    show_default=True,
    help="Connector of the table that is written. PostgreSQL's server has to be installed.",
)
def init(folder: Path, to: str) -> None:
    """Write a small project into FOLDER (the working directory, if left out), and show what to type next.

    It declares a topic, a table and the insert between them, works against the servers of
    'upsert-platform local up', and explains itself in comments. A file that is there already is never overwritten:
    the command then ends with 1, and has written nothing.
    """
    from upsert_platform.declarations.starter import write_starter

    for path in write_starter(folder, options=_options(to)):
        click.echo(f"wrote {path}")
    click.echo("\nWhat to type next:\n")
    for command in next_commands(folder, to):
        click.echo(f"  {command}")


def next_commands(folder: Path, to: str) -> list[str]:
    """Return shell commands from the new project to its first rows, whatever PATH the shell has."""
    command = _this_command()
    named = [f"export {lake.PROJECT_VARIABLE}={shlex.quote(str(folder.absolute()))}"]
    if not os.environ.get(lake.HOME_VARIABLE):
        named.append(f"export {lake.HOME_VARIABLE}={shlex.quote(lake.home())}")
    return [
        *named,
        f"{command} local up" if to == TARGETS[0] else f"{command} local up --only kafka,{to}",
        f"{command} validate",
        f"echo {shlex.quote(_FIRST_RECORD)} | {command} send orders --create-topic",
        f"{command} sync",
        f"{command} peek open_orders",
        f"{command} status",
    ]


def _options(to: str) -> dict[str, str] | None:
    """Return connector and endpoint of the written table, where it is another than the starter's."""
    if to == TARGETS[0]:
        return None
    from upsert_platform.sync.connectors import CONNECTORS

    values = CONNECTORS[to].endpoint_values
    return {"connector": to, **{item.option: f"${{{item.variable}}}" for item in values}}


def _this_command() -> str:
    """Return how a shell finds this command: by its name, or by its path where the environment is not active."""
    own = Path(sys.executable).parent / _COMMAND
    found = shutil.which(_COMMAND)
    if not own.exists() or (found is not None and Path(found).resolve() == own.resolve()):
        return _COMMAND
    return shlex.quote(str(own))
