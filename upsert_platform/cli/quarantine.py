"""`upsert-platform quarantine`: records that could not be decoded, and rows that a destination refused."""

from __future__ import annotations

import getpass
import json
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from upsert_platform.changelog import lake, rows
from upsert_platform.changelog.quarantine import discarded, quarantined_places, quarantined_records
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.cli.location import project_binding
from upsert_platform.cli.names import complete_tables_and_topics
from upsert_platform.cli.next_step import for_typed_project, project_option
from upsert_platform.cli.session import spark_session
from upsert_platform.cli.text import printable as _printable
from upsert_platform.core.masking import Mask
from upsert_platform.core.source import Source
from upsert_platform.core.wording import counted
from upsert_platform.sync.binding import Binding, Target, changelog_of
from upsert_platform.sync.shown_rows import masked_record

_SHOWN: Final = 20


def _kept(table: str) -> RefusedStore:
    return RefusedStore(lake.default_lake().refused(table))


def _source(binding: Binding, table: str) -> tuple[Source, ChangelogStore]:
    source = binding.sources.get(table)
    if source is None:
        known = ", ".join(sorted({*binding.sources, *binding.targets})) or "none"
        raise click.BadParameter(f"no table '{table}' is read or written by an insert; there are: {known}")
    return source, changelog_of(source, lake.default_lake())


@click.group(short_help="List, show, replay and discard what was kept aside.")
def quarantine() -> None:
    """Records that could not be decoded, and rows that a destination refused."""


@quarantine.command(name="list", short_help="List what is in quarantine.")
@click.argument("table", required=False, shell_complete=complete_tables_and_topics)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1), help="Rows to show per table.")
@click.option("--discarded", "given_up", is_flag=True, help="Show what was discarded instead, by whom, when and why.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a record or row, and nothing else.")
@project_option()
def show_all(table: str | None, limit: int, project: Path | None, *, given_up: bool, as_json: bool) -> None:
    """List what is in quarantine: of TABLE, or of every table of the project."""
    binding = project_binding(project)
    if as_json:
        if table is not None and (given_up or table not in binding.targets):
            _source(binding, table)  # refuses a name that nothing is kept of
        for name in [table] if table else dict.fromkeys([*binding.sources, *binding.targets]):
            for told in _listed(binding, name, limit, given_up=given_up):
                click.echo(json.dumps({"table": name, **told}, ensure_ascii=False))
        return
    console = Console(highlight=False)
    named = [table] if table else [*binding.sources, *binding.targets]
    for name in named:
        if given_up:
            if table or name in binding.sources:
                _list_discarded(console, name, _source(binding, name)[1], limit)
        elif name in binding.targets:
            _list_refused(console, name, limit, Mask.of(binding.targets[name].table))
        else:
            source, store = _source(binding, name)
            _list_records(console, name, store, limit, Mask.of(source.table))


def _listed(binding: Binding, name: str, limit: int, *, given_up: bool) -> Iterator[dict[str, Any]]:
    """Yield the entries of a table's quarantine, or the discarded ones: a record's place or a row's key, with the
    reason.
    """
    if name in binding.targets and not given_up:
        mask = Mask.of(binding.targets[name].table)
        for row in _kept(name).read(limit=limit).to_pylist():
            told = {"key": mask.object(row["key"]), "reason": mask.reason(row["reason"])}
            yield {"kind": "row", "batch": row["batch"], **told}
        return
    if name not in binding.sources:
        return
    source, store = _source(binding, name)
    if given_up:
        for (topic, partition, offset), mark in discarded(store)[:limit]:
            place = {"topic": topic, "partition": partition, "offset": offset}
            yield {"kind": "discarded", **place, "by": mark.by, "at": mark.at.isoformat(), "why": mark.why}
        return
    for found in quarantined_records(store, limit=limit).to_pylist():
        row = masked_record(found, Mask.of(source.table))
        place = {"topic": row[rows.TOPIC], "partition": row[rows.PARTITION], "offset": row[rows.OFFSET]}
        told = {"key": _shown(row[rows.RAW_KEY]), "reason": row[rows.REASON]}
        yield {"kind": "record", **place, "batch": row[rows.BATCH], **told}


def _list_records(console: Console, name: str, store: ChangelogStore, limit: int, mask: Mask) -> None:
    count = quarantined_places(store).num_rows
    given_up = discarded(store)
    told = f", {len(given_up)} more discarded (--discarded)" if given_up else ""
    console.print(Text.assemble((name, "bold"), f": {counted(count, 'record')} could not be decoded{told}"))
    if not count:
        return
    shown = Table("topic-partition@offset", "batch", "key", "reason", box=None)
    for found in quarantined_records(store, limit=limit).to_pylist():
        row = masked_record(found, mask)
        place = f"{row[rows.TOPIC]}-{row[rows.PARTITION]}@{row[rows.OFFSET]}"
        key, reason = _shortened(row[rows.RAW_KEY], 40), _printable(row[rows.REASON] or "")
        shown.add_row(Text(place), str(row[rows.BATCH]), key, reason)
    console.print(shown)
    if count > limit:
        console.print(f"... and {count - limit} more (--limit)")


def _list_discarded(console: Console, name: str, store: ChangelogStore, limit: int) -> None:
    found = discarded(store)
    console.print(Text.assemble((name, "bold"), f": {counted(len(found), 'record')} discarded"))
    if not found:
        return
    shown = Table("topic-partition@offset", "by", "at", "why", box=None)
    for (topic, partition, offset), mark in found[:limit]:
        at = mark.at.isoformat(timespec="seconds")
        shown.add_row(Text(f"{topic}-{partition}@{offset}"), _printable(mark.by), at, _printable(mark.why))
    console.print(shown)
    if len(found) > limit:
        console.print(f"... and {len(found) - limit} more (--limit)")


def _list_refused(console: Console, name: str, limit: int, mask: Mask) -> None:
    kept = _kept(name)
    count = kept.count()
    console.print(Text.assemble((name, "bold"), f": {counted(count, 'row')} refused by the destination"))
    if not count:
        return
    shown = Table("batch", "key", "reason", box=None)
    for row in kept.read(limit=limit).to_pylist():
        shown.add_row(str(row["batch"]), _printable(mask.object(row["key"])), _printable(mask.reason(row["reason"])))
    console.print(shown)
    if count > limit:
        console.print(f"... and {count - limit} more (--limit)")


@quarantine.command(short_help="Show one record or row whole, as JSON.")
@click.argument("table", shell_complete=complete_tables_and_topics)
@click.argument("place")
@project_option()
def show(table: str, place: str, project: Path | None) -> None:
    """Show one record or refused row of TABLE whole, as JSON.

    PLACE is topic-partition@offset, or the key of a refused row, as `list` prints it.
    """
    binding = project_binding(project)
    if table in binding.targets:
        _show_refused(table, place, Mask.of(binding.targets[table].table))
        return
    wanted = _place(place)
    source, store = _source(binding, table)
    for found in quarantined_records(store, places={wanted}).to_pylist():
        row = masked_record(found, Mask.of(source.table))
        click.echo(json.dumps({name.lstrip("_"): _shown(value) for name, value in row.items()}, indent=2))
        return
    raise click.ClickException(f"{place} is not in the quarantine of '{table}'; it may have been replayed or discarded")


def _show_refused(table: str, place: str, mask: Mask) -> None:
    kept = _kept(table)
    (key,) = _keys((place,), kept.keys()["key"].to_pylist(), table)
    for row in kept.read(key=key).to_pylist():
        told = {"key": mask.object(row["key"]), "row": mask.mapping(json.loads(row["row"]))}
        told |= {"reason": mask.reason(row["reason"]), "at": str(row["at"])}
        click.echo(json.dumps({**row, **told}, indent=2))


@quarantine.command(short_help="Try what is in quarantine again, as declared now.")
@click.argument("table", shell_complete=complete_tables_and_topics)
@click.argument("places", nargs=-1)
@project_option()
def replay(table: str, places: tuple[str, ...], project: Path | None) -> None:
    """Try records or refused rows of TABLE again, as the table is declared now.

    Records of a table that is read are decoded again, and what is not outdated is committed; the next sync brings it to
    the destinations. Of a table that is written, refused keys are given the value that they have by now. PLACES are
    topic-partition@offset or keys of rows, as `list` prints them; all that is in quarantine, if left out.
    """
    binding = project_binding(project)
    if table in binding.targets:
        _replay_refused(binding.targets[table], places)
    else:
        _replay_records(binding, table, places)


@quarantine.command("discard", short_help="Say that records are not needed, and why.")
@click.argument("table", shell_complete=complete_tables_and_topics)
@click.argument("places", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All records of the table that are in quarantine.")
@click.option("--reason", required=True, help="Why; kept with the records.")
@click.option("--by", default=getpass.getuser, show_default="the user of this process", help="Who says so.")
@project_option()
def discard_records(
    table: str, places: tuple[str, ...], reason: str, by: str, project: Path | None, *, every: bool
) -> None:
    """Say that records of TABLE, which could not be decoded, are not needed.

    They are not counted as in quarantine any more, checks do not warn of them, and `quarantine replay` leaves them
    alone. They stay in the changelog, with who discarded them, when and why: `quarantine list --discarded`. PLACES are
    topic-partition@offset, as `list` prints them.
    """
    from upsert_platform.sync.discard import discard

    if bool(places) == every:
        raise click.UsageError("name the records as topic-partition@offset, or give --all")
    if not reason.strip():
        raise click.BadParameter("say why, for those who ask later", param_hint="'--reason'")
    binding = project_binding(project)
    if table in binding.targets and table not in binding.sources:
        raise click.BadParameter(
            f"'{table}' is written: rows that it refused go when they are replayed, or a later value of their key is"
            " written"
        )
    _, store = _source(binding, table)
    wanted = None if every else {_place(place) for place in places}
    done = discard(store, by=by, why=reason.strip(), run=f"discard-{uuid.uuid4().hex[:8]}", places=wanted)
    if done.batch is None:
        click.echo(f"nothing of '{table}' is in quarantine")
    else:
        click.echo(f"{counted(done.count, 'record')} discarded; batch {done.batch}")


def _replay_records(binding: Binding, table: str, places: tuple[str, ...]) -> None:
    from upsert_platform.sync.replay import replay_in_turn

    source, store = _source(binding, table)
    if not quarantined_places(store).num_rows:
        click.echo(f"nothing of '{table}' is in quarantine")
        return
    wanted = [_place(place) for place in places] or None
    with spark_session(f"replaying records of {table}") as (spark, _):
        done = replay_in_turn(spark, source, store, binding=binding, run=_run(), offsets=wanted)
    click.echo(
        f"{done.replayed} replayed, {done.superseded} superseded by later records, {done.refused_count} still refused"
        + (f"; batch {done.batch}" if done.batch else "")
    )
    for (topic, partition, offset), reason in list(done.refused.items())[:_SHOWN]:
        click.echo(f"  {topic}-{partition}@{offset}: {Mask.of(source.table).reason(reason)}")
    if done.batch:
        click.echo(f"next: {for_typed_project('upsert-platform sync')}")


def _replay_refused(target: Target, places: tuple[str, ...]) -> None:
    from upsert_platform.sync.destination_hop import DestinationHop
    from upsert_platform.sync.replay_refused import check_replayable, replay_refused

    table, mask = target.table.name, Mask.of(target.table)
    refused = _kept(table)
    kept = refused.keys()["key"].to_pylist()
    if not kept:
        click.echo(f"nothing of '{table}' is in quarantine")
        return
    keys = _keys(places, kept, table) if places else None
    destination = target.open()
    try:
        check_replayable(destination)
        hop = DestinationHop(
            target, changelog_of(target.source, lake.default_lake()), destination, refused=refused, run=_run()
        )
        with spark_session(f"replaying rows of {table}") as (spark, tell):
            done = replay_refused(spark, hop, keys=keys, tell=tell)
    finally:
        destination.close()
    click.echo(
        f"{done.replayed} replayed, {done.superseded} superseded by later values, {done.refused_count} still refused"
    )
    for row in done.refused[:_SHOWN]:
        click.echo(f"  {mask.told(row)}")
    for key in done.unknown[:_SHOWN]:
        told = "the insert gives no row of this key, as it is declared now; the row stays in quarantine"
        click.echo(f"  {mask.object(key)}: {told}")


def _run() -> str:
    return f"replay-{uuid.uuid4().hex[:8]}"


def _keys(places: Sequence[str], kept: Sequence[str], table: str) -> list[str]:
    """Keys of refused rows, as they are kept: given as JSON or, of records, as topic-partition@offset."""
    known = {_canonical(key): key for key in kept}
    found = []
    for place in places:
        if place.lstrip().startswith("{"):
            try:
                wanted = _canonical(place)
            except ValueError as error:
                raise click.BadParameter(f"'{place}' is not a key as 'quarantine list' prints it: {error}") from None
        else:
            topic, partition, offset = _place(place, key=True)
            wanted = _canonical(json.dumps({"topic": topic, "partition": partition, "offset": offset}))
        if wanted not in known:
            raise click.ClickException(f"{place} is not in the quarantine of '{table}'; it may have been replayed")
        found.append(known[wanted])
    return found


def _canonical(key: str) -> str:
    return json.dumps(json.loads(key, parse_float=str), sort_keys=True)


def _place(text: str, *, key: bool = False) -> tuple[str, int, int]:
    topic_partition, _, offset = text.rpartition("@")
    topic, _, partition = topic_partition.rpartition("-")
    if not (topic and partition.isdigit() and offset.isdigit()):
        other = ", nor the key of a row such as '{\"id\":1}'" if key else ""
        raise click.BadParameter(f"'{text}' is not topic-partition@offset, for example users-0@42{other}")
    return topic, int(partition), int(offset)


def _shortened(value: bytes | str | None, most: int) -> Text:
    if value is None:
        return Text("(null)")
    shown = _printable(value if isinstance(value, str) else value.decode("utf-8", "backslashreplace"))
    shown.truncate(most, overflow="ellipsis")
    return shown


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
