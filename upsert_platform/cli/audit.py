"""`upsert-platform audit`: whether a table is what its topic says, by a judge that shares no code with the platform."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from upsert_platform.changelog import lake
from upsert_platform.cli.names import check_written, complete_tables
from upsert_platform.cli.next_step import project_option
from upsert_platform.core.wording import counted

if TYPE_CHECKING:
    from upsert_platform.sync.audit import Audit

_TOLD = (
    ("missing", "missing"),
    ("extra", "should not be there"),
    ("stale", "with other values"),
    ("twice", "there more than once"),
    ("refused", "refused by the table's system (see 'quarantine list')"),
    ("open_keys", "not judged: their last record is beyond the referee"),
    ("moving", "not judged: batches that were not applied when the audit began change them"),
    ("unknown", "not judged: the topic lost its oldest records, or has keys beyond the referee"),
)


@click.command(short_help="Judge a table by its topic, independently.")
@click.argument("table", shell_complete=complete_tables)
@project_option()
@click.option("--limit", default=10, show_default=True, type=click.IntRange(0), help="Differing rows to show.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def audit(table: str, project: Path | None, limit: int, *, as_json: bool) -> None:
    """Judge TABLE, which an insert writes, by its topic; ends with 1 if they differ or if not all could be judged.

    A referee that shares no code with the platform reads the whole topic up to the offsets that the table has applied,
    reads the whole table with the vendor's client, and compares them row by row. It evaluates inserts of columns as
    they are, with comparisons of columns with constants; an insert that computes more is refused, not guessed.
    """
    from upsert_platform.cli.location import project_binding
    from upsert_platform.referee.errors import RefereeError
    from upsert_platform.sync.audit import audit as run_audit

    binding = project_binding(project)
    try:
        check_written(binding, table)
    except click.ClickException as error:  # 1 is the end of an audit that finds differences
        raise click.BadParameter(error.message) from None
    try:
        found = run_audit(binding.targets[table], lake.default_lake())
    except RefereeError as error:
        raise click.ClickException(f"not judged: {error}") from error
    if as_json:
        told = {"table": table, "batch": found.batch, "behind": found.behind}
        click.echo(json.dumps({**told, **json.loads(found.verdict.to_json())}, ensure_ascii=False))
    else:
        _print(table, found, limit)
    if not found.verdict.equal or not found.verdict.whole:
        sys.exit(1)


def _print(table: str, found: Audit, limit: int) -> None:
    verdict = found.verdict
    topic = verdict.topic
    word = "differs" if not verdict.equal else "equal" if verdict.whole else "equal as far as it could be judged"
    click.echo(f"{table}: {word}; {counted(verdict.equal_rows, 'row')} as {topic['records']} records say")
    click.echo(
        f"  judged up to batch {found.batch}"
        + (f"; {found.behind} later ones are not applied yet" if found.behind else "")
    )
    click.echo(
        f"  records: {topic['values']} values, {topic['tombstones']} tombstones, {topic['undecodable']} undecodable,"
        f" {topic['unjudged']} beyond the referee, {topic['set_aside']} in quarantine that decode as declared now;"
        f" {counted(topic['several'], 'key')} in several partitions"
    )
    for name, words in _TOLD:
        if count := getattr(verdict, name):
            click.echo(f"  {counted(count, 'row')} {words}")
    for item in verdict.differences[:limit]:
        click.echo(f"    {item.status} {item.key} {item.detail}".rstrip())
    for note in [*verdict.notes, *topic["first"][:limit]]:
        click.echo(f"  {note}")
