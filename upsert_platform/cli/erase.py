"""`upsert-platform erase`: takes one key out of tables and lake, history included, and reads back that it is gone."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from upsert_platform.changelog import lake
from upsert_platform.cli.names import complete_topics
from upsert_platform.cli.next_step import project_option
from upsert_platform.core.wording import counted

if TYPE_CHECKING:
    from upsert_platform.sync.erase import Erased, Erasure, Held


@click.command(short_help="Erase a key from tables and lake, history included.")
@click.argument("table", shell_complete=complete_topics)
@click.argument("key")
@click.option("--tombstone", is_flag=True, help="Also send tombstones, so that the topic's compaction forgets it.")
@click.option("--leave", multiple=True, help="A table or query that is seen to otherwise; may be given several times.")
@click.option("--dry-run", is_flag=True, help="Only show what holds the key; with --tombstone, the topic too.")
@project_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def erase(
    table: str,
    key: str,
    leave: Sequence[str],
    project: Path | None,
    *,
    tombstone: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Erase KEY of TABLE, which inserts read: from the tables written from it, and from the lake with its history.

    KEY is a JSON object of the primary key columns, or the value alone where there is one. Tables are written under
    their leases and read back; then files of the lake that hold the key are rewritten, older ones deleted, and refused
    and quarantined records of it dropped. Who did it and when is noted in the lake, with a hash of the key.

    The topic keeps its records until its own retention or compaction removes them: unless --tombstone is given, a
    replay, or a changelog that is made anew, brings the key back.
    Run it again after it was stopped. Ends with 0 if nothing of the key is left, which it also tells of a key that
    nothing held, with 3 if something is left, and with 1 after an error.
    """
    from upsert_platform.cli.location import project_binding
    from upsert_platform.cli.session import spark_session
    from upsert_platform.sync.erase import Erasure
    from upsert_platform.sync.erased_key import erasable_source, parsed_key
    from upsert_platform.sync.erasures import record_erasure

    binding, where = project_binding(project), lake.default_lake()
    values = parsed_key(key, erasable_source(binding, table).kafka)
    erasure = Erasure(binding, where, table, values, leave=leave)
    if dry_run:
        _show(erasure, erasure.held(topics=tombstone), as_json=as_json)
        return
    run = f"erase-{uuid.uuid4().hex[:8]}"
    with spark_session(f"erasing a key of {table}") as (spark, tell):
        done = erasure.run(spark, run=run, tombstone=tombstone, tell=tell)
    record_erasure(where, table, values, done, run=run)
    _tell(table, done, _summary(done), tombstone=tombstone, as_json=as_json)
    if done.left:
        from upsert_platform.cli.verify import DIFFERS

        sys.exit(DIFFERS)


def _show(erasure: Erasure, held: Held, *, as_json: bool) -> None:
    topics = None if held.topics is None else sum(item.records for item in held.topics)
    told = {
        "rows": held.rows,
        "quarantined": held.quarantined,
        "older_files": held.older,
        "tables": list(held.tables),
        "records_in_topics": topics,
        "untold_quarantined": held.untold,
        "refused_rows": held.refused,
        "refused_rows_unsought": list(held.unsought),
        "elsewhere": list(held.elsewhere),
    }
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    rows = f"{counted(held.rows, 'row')} of the key, {held.quarantined} of them in quarantine"
    click.echo(f"changelog {erasure.store.uri}: {rows}; {counted(held.older, 'older file')} with the key")
    click.echo(f"tables that would lose the row: {', '.join(held.tables) or 'none'}")
    if topics is not None:
        click.echo(f"topic: {counted(topics, 'record')} of the key")
    if held.refused:
        click.echo(f"refused by tables: {counted(held.refused, 'row')} of the key")
    for name in held.unsought:
        click.echo(f"rows that table '{name}' has refused were not looked for: its key is computed by Spark", err=True)
    _tell_untold(erasure.source.table.name, held.untold)
    for line in held.elsewhere:
        click.echo(f"would be left: {line}")
    click.echo("nothing was written")


def _summary(done: Erased) -> Mapping[str, Any]:
    return {
        "found": done.found,
        "batch": done.batch,
        "rows": done.rows,
        "files_rewritten": done.files,
        "older_files_deleted": done.deleted,
        "refused_rows": done.refused,
        "untold_quarantined": done.untold,
        "tables_read_back": list(done.tables),
        "tombstones": done.tombstones,
        "read_by_other_tables": list(done.readers),
        "left": done.left,
    }


def _tell(table: str, done: Erased, summary: Mapping[str, Any], *, tombstone: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(summary, ensure_ascii=False))
        return
    if done.found:
        lake_told = f"{counted(done.rows, 'row')} out of the changelog, {counted(done.deleted, 'older file')} deleted"
        click.echo(f"{table}: {lake_told}, {counted(done.refused, 'refused row')} dropped")
    else:
        click.echo(
            f"{table}: nothing held the key, neither the changelog nor what tables refused; is it written right?"
        )
    click.echo(f"read back, without the key: {', '.join(done.tables) or 'no table'}")
    for line in done.left:
        click.echo(f"left: {line}", err=True)
    _tell_untold(table, done.untold)
    for name in done.readers:
        click.echo(
            f"table '{name}' reads the same topics, or what is written from '{table}': erase the key there too",
            err=True,
        )
    if tombstone:
        click.echo(
            f"topic: {counted(done.tombstones, 'tombstone')} sent; the older records go when the brokers compact the"
            " topic, or when its retention ends"
        )
    else:
        click.echo(
            "the topic keeps its records of the key until its own compaction or retention removes them: a replay, or a"
            " changelog that is made anew, brings the key back; --tombstone sends tombstones, so that compaction"
            " forgets it"
        )


def _tell_untold(table: str, count: int) -> None:
    if count:
        click.echo(
            f"{counted(count, 'record')} in quarantine with a key that cannot be decoded: nobody can tell whose; see"
            f" 'upsert-platform quarantine list {table}'",
            err=True,
        )
