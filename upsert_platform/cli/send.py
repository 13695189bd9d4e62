"""`upsert-platform send`: JSON lines to records of a topic."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import BinaryIO

import click

from upsert_platform.cli.names import complete_topics
from upsert_platform.cli.next_step import project_option
from upsert_platform.core.wording import counted


@click.command(short_help="Send JSON lines to a topic, as its table is declared.")
@click.argument("table", shell_complete=complete_topics)
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--delete", is_flag=True, help="Make every line a tombstone: its key columns count alone.")
@click.option("--topic", help="Which topic, where the table reads several.")
@click.option("--create-topic", is_flag=True, help="Create the topic if it does not exist; compacted for upserts.")
@click.option("--dry-run", is_flag=True, help="Encode and count; send nothing.")
@click.option("--force", is_flag=True, help="Also to a table that an insert writes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
@project_option()
def send(
    table: str,
    file: BinaryIO,
    topic: str | None,
    project: Path | None,
    *,
    delete: bool,
    create_topic: bool,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Send lines of FILE (standard input, if left out or -) to the topic of TABLE.

    A line is a JSON object of the table's columns, times in ISO 8601 and bytes in Base64; it becomes a record with the
    key and value formats that the table declares. A line with "_kind":"-D" becomes a tombstone. Columns that are left
    out are null; a column that the table does not have is refused, and so is a value of another type. What
    'peek --json' prints of a topic is taken as it is.

    Refused lines are told with line, column and rule, and the others are sent. Ends with 1 if a line was refused or a
    record not delivered.
    """
    from upsert_platform.cli.location import project_binding
    from upsert_platform.sync.send import make_topic, send_lines, written_table

    target = written_table(project_binding(project), table, topic=topic, force=force)
    made = create_topic and not dry_run and make_topic(target)
    if made and not as_json:
        click.echo(f"created topic {target.settings.topic[0]}{', compacted' if target.is_upsert else ''}")
    done = send_lines(target, file, deletes=delete, dry_run=dry_run)
    if as_json:
        counts = {"topic": done.topic, "created": made, "records": done.puts, "tombstones": done.deletes}
        refused = [{"line": line, "reason": reason} for line, reason in done.reasons]
        counts |= {"refused": done.refused, "undelivered": done.undelivered, "dry_run": dry_run}
        click.echo(json.dumps({**counts, "reasons": refused}, ensure_ascii=False))
        sys.exit(1 if done.refused + done.undelivered else 0)
    word = "would be sent to" if dry_run else "sent to"
    told = f"{counted(done.puts, 'record')} and {counted(done.deletes, 'tombstone')} {word} {done.topic}"
    failed = done.refused + done.undelivered
    if failed:
        told += f"; {counted(done.refused, 'line')} refused, {done.undelivered} not delivered"
    click.echo(told)
    for line, reason in done.reasons:
        click.echo(f"  line {line}: {reason}", err=True)
    if failed > len(done.reasons):
        click.echo(f"  ... and {failed - len(done.reasons)} more", err=True)
    if failed:
        sys.exit(1)
