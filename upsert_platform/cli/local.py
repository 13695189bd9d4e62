"""`upsert-platform local`: servers on this machine to develop and test against."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from upsert_platform.core.packages import missing_package
from upsert_platform.local import supervisor
from upsert_platform.local.services import DEFAULT_SERVICES, MYSQL, MYSQL_SERVERS, SERVICES

_ONLY = f"Servers to bring up, out of {', '.join(SERVICES)}."
_STYLES = {"running": "green", "not answering": "red", "stopped": "dim"}


def _data_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--data",
        type=click.Path(path_type=Path, file_okay=False),
        help="Data directory.  [default: $UPSERT_PLATFORM_HOME/local]",
    )(command)


def _names(context: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in SERVICES]
    if unknown or not names:
        raise click.BadParameter(f"takes names out of {', '.join(SERVICES)}, separated by commas")
    return names


@click.group(short_help="Servers on this machine to develop against.")
def local() -> None:
    """Kafka, Tablestore, MaxCompute, schema registry, MariaDB or MySQL, and PostgreSQL servers on this machine."""


@local.command(short_help="Start the servers that do not run yet.")
@_data_option
@click.option("--env-file", type=click.Path(path_type=Path, dir_okay=False), help="[default: <data>/local.env]")
@click.option("--only", callback=_names, default=",".join(DEFAULT_SERVICES), show_default=True, help=_ONLY)
@click.option("--kafka-port", type=click.IntRange(1, 65535), help="[default: the last one, or a free one]")
@click.option("--tablestore-port", type=click.IntRange(1, 65535), help="[default: the last one, or a free one]")
@click.option("--maxcompute-port", type=click.IntRange(1, 65535), help="[default: the last one, or a free one]")
@click.option("--registry-port", type=click.IntRange(1, 65535), help="[default: the last one, or a free one]")
@click.option("--mysql-port", type=click.IntRange(1, 65535), help="[default: the last one, or a free one]")
@click.option("--postgres-port", type=click.IntRange(1, 65535), help="[default: the last one, or a free one]")
@click.option(
    "--server",
    type=click.Choice(MYSQL_SERVERS),
    help=f"Which server `mysql` is; mysql is fetched (50 MB), MariaDB has to be installed.  [default: the last one, or"
    f" {MYSQL_SERVERS[0]}]",
)
def up(
    data: Path | None, env_file: Path | None, only: tuple[str, ...], server: str | None, **ports: int | None
) -> None:
    """Start the servers that do not run yet; they run on until `upsert-platform local down`.

    Addresses and access keys are written to the env file as NAME=value lines.
    """
    console = Console(highlight=False)
    directory = data or supervisor.default_directory()
    if server is not None and MYSQL not in only:
        raise click.UsageError("--server names a server of mysql, which is not to come up; add mysql to --only")
    for name in only:
        if name != MYSQL and (told := missing_package(name)):  # the local server reads the vendor's messages with it
            raise click.ClickException(f"{name}: {told}, or leave it out with --only")
    servers = {} if server is None else {MYSQL: server}
    named = {name.removesuffix("_port"): port for name, port in ports.items() if port is not None}
    starting: set[str] = set()
    with console.status("starting") as spinner:

        def report(name: str, state: str) -> None:
            if state == "starting":
                starting.add(name)
            else:
                starting.discard(name)
                console.print(f"{name} {state}")
            spinner.update(f"starting {', '.join(sorted(starting))}")

        supervisor.up(directory, only=only, env_file=env_file, ports=named, servers=servers, report=report)
    click.echo(f"env file: {env_file or directory / 'local.env'}")


@local.command(short_help="Show how the servers are.")
@_data_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list of servers.")
@click.pass_context
def status(context: click.Context, data: Path | None, *, as_json: bool) -> None:
    """Show how the servers are; ends with 1 unless every server that was ever started answers."""
    table = Table("server", "state", "pid", "port", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    directory = data or supervisor.default_directory()
    found = supervisor.status(directory)
    started = [item for item in found if item.port is not None]
    code = 0 if started and all(item.state == "running" for item in started) else 1
    if as_json:
        click.echo(json.dumps([asdict(item) for item in found], default=str))
        context.exit(code)
    for item in found:
        shown = f"[{_STYLES[item.state]}]{item.state}[/]"
        table.add_row(item.name, shown, str(item.pid or "-"), str(item.port or "-"))
    Console(highlight=False).print(table)
    click.echo(f"logs: {directory}{os.sep}<server>{os.sep}server.log")  # no table: a path is never folded
    context.exit(code)


@local.command(short_help="End the servers; data stay.")
@_data_option
def down(data: Path | None) -> None:
    """End the servers that `upsert-platform local up` started; data stay."""
    directory = data or supervisor.default_directory()
    ended = supervisor.down(directory, report=lambda name, state: click.echo(f"{name} {state}"))
    if not ended:
        click.echo(f"nothing runs on {directory}")
