"""`upsert-platform pause` and `resume`: whether runs and continuous mode write a table by themselves."""

from __future__ import annotations

from pathlib import Path

import click

from upsert_platform.changelog import lake
from upsert_platform.cli.names import check_written, complete_tables
from upsert_platform.cli.next_step import project_option

_project = project_option()


@click.command(short_help="Let nothing write a table by itself, until it is resumed.")
@click.argument("table", shell_complete=complete_tables)
@click.option("--reason", default="", help="Is shown where the table is left out.")
@_project
def pause(table: str, reason: str, project: Path | None) -> None:
    """Let syncs and continuous mode leave TABLE out, until it is resumed; its changelog goes on.

    'reconcile', 'replay' and 'quarantine replay' write it when somebody asks for that. 'status' shows what is paused.
    """
    from upsert_platform.changelog import pauses

    _check(table, project)
    pauses.pause(lake.default_lake(), table, reason=reason)
    click.echo(f"{table}: {pauses.paused(lake.default_lake())[table]}; 'upsert-platform resume {table}' ends that")


@click.command(short_help="Let a table be written again.")
@click.argument("table", shell_complete=complete_tables)
@_project
def resume(table: str, project: Path | None) -> None:
    """Let syncs and continuous mode write TABLE again; the next one brings it up to its changelog."""
    from upsert_platform.changelog import pauses

    _check(table, project)
    told = "is written again" if pauses.resume(lake.default_lake(), table) else "was not paused"
    click.echo(f"{table} {told}")


def _check(table: str, project: Path | None) -> None:
    from upsert_platform.cli.location import project_binding

    binding = project_binding(project)
    check_written(binding, table)
