"""`upsert-platform reset`: the way back from a wrong declaration."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from upsert_platform.changelog import lake
from upsert_platform.cli.names import complete_tables_and_topics
from upsert_platform.cli.next_step import for_typed_project, project_option

if TYPE_CHECKING:
    from upsert_platform.sync.binding import Binding
    from upsert_platform.sync.reset import Reset


@click.command(short_help="Read a table again from its topic, after a wrong declaration.")
@click.argument("table", shell_complete=complete_tables_and_topics)
@click.option("--drop-target", is_flag=True, help="Also drop the tables that are written from it.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@project_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def reset(table: str, project: Path | None, *, drop_target: bool, dry_run: bool, as_json: bool) -> None:
    """Make the next sync read TABLE again as it is declared now, and write every row of what is made of it.

    TABLE is a table that inserts read: its changelog and the results of queries over it are moved to the folder 'reset'
    of the lake, and the tables written from it forget what they have applied. TABLE may be a table that an insert
    writes, too: then it alone is written again, from the changelog. Rows stay until they are written again; with
    --drop-target the tables (of Kafka the topics) are dropped, and made anew by the next sync.

    Records that the topic has deleted meanwhile are in the folder 'reset' alone.
    """
    from upsert_platform.cli.location import project_binding
    from upsert_platform.sync.reset import reset as take_back

    binding, where = project_binding(project), lake.default_lake()
    run = f"reset-{uuid.uuid4().hex[:8]}"

    def tell(line: str) -> None:
        click.echo(line, err=True)

    done = take_back(binding, where, table, drop=drop_target, dry_run=dry_run, run=run, tell=tell)
    if as_json:
        click.echo(json.dumps(_data(done, dry_run=dry_run), ensure_ascii=False))
        return
    _show(binding, where, done, dry_run=dry_run)
    _next(table, done, dry_run=dry_run)


def _show(binding: Binding, where: lake.Lake, done: Reset, *, dry_run: bool) -> None:
    from upsert_platform.sync.reset import batch_of

    for item in done.lake:
        batch = batch_of(binding, where, item) if dry_run else None
        held = f" (up to batch {batch})" if batch else ""
        moved = f"moved to {item.moved}" if item.moved else f"goes aside: {item.location.uri}"
        click.echo(f"{item.kind} of {item.name}{held}: {moved}")
    for table in done.tables:
        word = ("would be dropped" if dry_run else "dropped") if table.drops else "keeps its rows"
        holds = f"held batch {table.applied}" if table.applied else "held nothing that was applied"
        click.echo(f"{table.name} ({table.uri}): {holds}; {word}, and is written again")
    if not done.lake and not done.tables:
        click.echo("nothing was read or written yet")


def _next(table: str, done: Reset, *, dry_run: bool) -> None:
    if dry_run:
        click.echo("nothing was changed: --dry-run")
        return
    click.echo(f"next: {for_typed_project('upsert-platform sync')}")
    for name in done.keeps_rows:
        command = for_typed_project(f"upsert-platform reconcile {name}")
        click.echo(f"then, to delete rows whose keys '{table}' does not have: {command}")


def _data(done: Reset, *, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "lake": [{"kind": item.kind, "name": item.name, "moved": item.moved} for item in done.lake],
        "tables": [asdict(item) for item in done.tables],
    }
