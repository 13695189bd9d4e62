"""`upsert-platform quarantine`: records that could not be decoded, and rows that a destination refused."""

from __future__ import annotations

import json
import uuid
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from upsert_platform.changelog import rows
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.cli_text import counted
from upsert_platform.graph import lake
from upsert_platform.graph.binding import Binding, Source, bind, load


def _binding() -> Binding:
    return bind(*load())


def _source(binding: Binding, table: str) -> tuple[Source, ChangelogStore]:
    source = binding.sources.get(table)
    if source is None:
        known = ", ".join(sorted(binding.sources)) or "none"
        raise click.BadParameter(f"no source table '{table}' is declared; there are: {known}")
    return source, source.store(lake.home())


@click.group(short_help="List, show and replay what was kept aside.")
def quarantine() -> None:
    """Records that could not be decoded, and rows that a destination refused."""


@quarantine.command(name="list", short_help="List what is in quarantine.")
@click.argument("table", required=False)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1), help="Rows to show per table.")
def show_all(table: str | None, limit: int) -> None:
    """List what is in quarantine: of TABLE, or of every table of the project."""
    binding = _binding()
    console = Console(highlight=False)
    named = [table] if table else [*binding.sources, *binding.targets]
    for name in named:
        if name in binding.targets:
            _list_refused(console, name, limit)
        else:
            _list_records(console, name, _source(binding, name)[1], limit)


def _list_records(console: Console, name: str, store: ChangelogStore, limit: int) -> None:
    found = store.quarantined()
    console.print(f"[bold]{name}[/]: {counted(found.num_rows, 'record')} could not be decoded")
    if not found.num_rows:
        return
    shown = Table("topic-partition@offset", "batch", "key", "reason", box=None)
    for row in found.slice(0, limit).to_pylist():
        place = f"{row[rows.TOPIC]}-{row[rows.PARTITION]}@{row[rows.OFFSET]}"
        shown.add_row(place, str(row[rows.BATCH]), _text(row[rows.RAW_KEY], 40), row[rows.REASON] or "")
    console.print(shown)
    if found.num_rows > limit:
        console.print(f"... and {found.num_rows - limit} more (--limit)")


def _list_refused(console: Console, name: str, limit: int) -> None:
    found = RefusedStore(lake.refused_uri(lake.home(), name)).read()
    console.print(f"[bold]{name}[/]: {counted(found.num_rows, 'row')} refused by the destination")
    if not found.num_rows:
        return
    shown = Table("batch", "key", "reason", box=None)
    for row in found.slice(0, limit).to_pylist():
        shown.add_row(str(row["batch"]), row["key"], row["reason"])
    console.print(shown)
    if found.num_rows > limit:
        console.print(f"... and {found.num_rows - limit} more (--limit)")


@quarantine.command(short_help="Show one record whole, as JSON.")
@click.argument("table")
@click.argument("place")
def show(table: str, place: str) -> None:
    """Show one record of TABLE whole, as JSON; PLACE is topic-partition@offset as `list` prints it."""
    wanted = _place(place)
    for row in _source(_binding(), table)[1].quarantined().to_pylist():
        if (row[rows.TOPIC], row[rows.PARTITION], row[rows.OFFSET]) == wanted:
            click.echo(json.dumps({name.lstrip("_"): _shown(value) for name, value in row.items()}, indent=2))
            return
    raise click.ClickException(f"{place} is not in the quarantine of '{table}'; it may have been replayed")


@quarantine.command(short_help="Decode records again, as declared now.")
@click.argument("table")
@click.argument("places", nargs=-1)
def replay(table: str, places: tuple[str, ...]) -> None:
    """Decode records of TABLE again, as the table is declared now, and commit what is not outdated.

    PLACES are topic-partition@offset; all that is in quarantine, if left out. The next sync brings the changes to the
    destinations.
    """
    from upsert_platform.graph.replay import replay as run_replay
    from upsert_platform.spark import open_session

    source, store = _source(_binding(), table)
    if not store.quarantined(limit=1).num_rows:
        click.echo(f"nothing of '{table}' is in quarantine")
        return
    wanted = [_place(place) for place in places] or None
    with Console().status("opening a Spark session") as spinner:
        spark = open_session()
        try:
            spinner.update(f"replaying records of {table}")
            done = run_replay(spark, source, store, run=f"replay-{uuid.uuid4().hex[:8]}", offsets=wanted)
        finally:
            spinner.update("closing the Spark session")
            spark.stop()
    click.echo(
        f"{done.replayed} replayed, {done.superseded} superseded by later records, {len(done.refused)} still refused"
        + (f"; batch {done.batch}" if done.batch else "")
    )
    for (topic, partition, offset), reason in list(done.refused.items())[:20]:
        click.echo(f"  {topic}-{partition}@{offset}: {reason}")


def _place(text: str) -> tuple[str, int, int]:
    topic_partition, _, offset = text.rpartition("@")
    topic, _, partition = topic_partition.rpartition("-")
    if not (topic and partition.isdigit() and offset.isdigit()):
        raise click.BadParameter(f"'{text}' is not topic-partition@offset, for example users-0@42")
    return topic, int(partition), int(offset)


def _text(value: bytes | None, most: int) -> str:
    if value is None:
        return "(null)"
    text = value.decode("utf-8", "backslashreplace")
    return text if len(text) <= most else text[: most - 1] + "…"


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"hex": value.hex()}
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if isinstance(value, dict):
        return {name: _shown(item) for name, item in value.items()}
    return value if value is None or isinstance(value, int | str) else str(value)
