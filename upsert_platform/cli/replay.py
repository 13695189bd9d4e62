"""`upsert-platform replay`: reads a topic again, into the same tables or into new ones."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from upsert_platform.changelog import lake
from upsert_platform.cli.names import complete_topics
from upsert_platform.cli.next_step import project_option
from upsert_platform.core.wording import counted

if TYPE_CHECKING:
    from upsert_platform.core.source import Start
    from upsert_platform.sync.binding import Binding


@click.command(short_help="Read a topic again, into the same tables or new ones.")
@click.argument("table", shell_complete=complete_topics)
@click.option("--timestamp", help="Start there: ISO 8601, or milliseconds; at the first record if left out.")
@click.option("--offset", "offsets", multiple=True, help="Start there: PARTITION:OFFSET; once per partition.")
@click.option("--into", multiple=True, help="TABLE=NEW: write a new table instead of correcting TABLE.")
@click.option("--dry-run", is_flag=True, help="Only show what would be read and written.")
@project_option()
def replay(
    table: str,
    timestamp: str | None,
    offsets: Sequence[str],
    into: Sequence[str],
    project: Path | None,
    *,
    dry_run: bool,
) -> None:
    """Read the topics of TABLE again, as it is declared now: a table that is read, with one that is written behind it.

    The rows that then count are committed in one batch and its tables corrected; an older value never takes the place
    of a newer one. With --into, new tables are written, with a changelog of their own. Does what the job 'replay' does,
    without Dagster. Ends with 3 if a new table differs from its topic.
    """
    from upsert_platform.cli.location import project_binding
    from upsert_platform.sync.replay_start import start_of

    start = start_of(timestamp=timestamp, offsets={name: int(value) for name, value in _pairs(offsets, ":", "0:42")})
    binding = project_binding(project)
    if table not in binding.sources:
        known = ", ".join(sorted(binding.sources)) or "none"
        raise click.ClickException(f"no insert reads a table '{table}'; read are: {known}")
    if into:
        _into_new(binding, table, dict(_pairs(into, "=", "orders=orders_2")), start, dry_run=dry_run)
    else:
        _into_same(binding, table, start, dry_run=dry_run)


def _pairs(texts: Sequence[str], separator: str, example: str) -> list[tuple[str, str]]:
    found = []
    for text in texts:
        name, met, value = text.partition(separator)
        if not (name and met and value) or (separator == ":" and not value.isdigit()):
            raise click.BadParameter(f"'{text}' is not of the form {example}")
        found.append((name, value))
    return found


def _into_same(binding: Binding, table: str, start: Start, *, dry_run: bool) -> None:
    from upsert_platform.cli.session import spark_session
    from upsert_platform.sync.binding import changelog_of
    from upsert_platform.sync.following import follow
    from upsert_platform.sync.replay_order import check_keys
    from upsert_platform.sync.replay_topic import replay_topic

    source, where, run = binding.sources[table], lake.default_lake(), _run()
    check_keys(binding, table)
    with spark_session(f"reading {table} again") as (spark, tell):
        store = changelog_of(source, where)
        done = replay_topic(spark, source, store, start=start, run=run, dry_run=dry_run, tell=tell)
        for name, value in done.counts().items():
            click.echo(f"{name.replace('_', ' ')}: {value}")
        if done.uncertain:
            click.echo(done.warning(), err=True)
        if done.batch is None:
            return
        for name, written in follow(spark, binding, where, table, run=run, tell=tell):
            report = None if written is None else written.report
            click.echo(
                f"{name}: {report.upserts} put, {report.deletes} deleted" if report else f"{name}: nothing to write"
            )


def _into_new(binding: Binding, table: str, into: dict[str, str], start: Start, *, dry_run: bool) -> None:
    from upsert_platform.cli.session import spark_session
    from upsert_platform.cli.verify import DIFFERS
    from upsert_platform.sync.replay_into import new_targets, replay_into

    targets = new_targets(binding, table, into, start=start)
    differs = False
    with spark_session("reading the topic again") as (spark, tell):
        for name, target in targets.items():
            done = replay_into(spark, target, lake.default_lake(), start=start, run=_run(), dry_run=dry_run, tell=tell)
            told = f"{name} into {into[name]}: {counted(done.offsets, 'offset')} to read"
            if done.written is not None:
                told += f", {done.written.report.upserts} put, {done.written.report.deletes} deleted"
            if done.compared is not None:
                differs = differs or not done.compared.passed
                told += f"; {done.compared.detail or f'equal, {done.compared.compared} keys compared'}"
            click.echo(told)
            click.echo(f"its changelog: {done.changelog}")
    if differs:
        sys.exit(DIFFERS)


def _run() -> str:
    return f"replay-{uuid.uuid4().hex[:8]}"
