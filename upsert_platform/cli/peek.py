"""`upsert-platform peek`: rows of a topic, a changelog, a query or a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from upsert_platform.changelog import lake, rows
from upsert_platform.cli.names import complete_nodes
from upsert_platform.cli.next_step import project_option
from upsert_platform.cli.text import print_rows, printable

_SHORT: Final = ("place", rows.TIMESTAMP, rows.KIND, rows.BATCH)
"""Columns whose values are never folded."""


@click.command(short_help="Show rows of a topic, changelog, query or table.")
@click.argument("node", shell_complete=complete_nodes)
@click.option("--limit", default=10, show_default=True, type=click.IntRange(1, 10_000), help="Rows to show.")
@click.option(
    "--as-of", help="Of a changelog or query: batch, offsets (0:42,1:17), or time, up to which rows are shown."
)
@project_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a row, and nothing else.")
def peek(node: str, limit: int, as_of: str | None, project: Path | None, *, as_json: bool) -> None:
    """Show rows of NODE: a topic's newest records as they are declared, the newest rows of a changelog or query, the
    first rows of a table.

    NODE is a name as assets have it (topics/users, changelogs/users, queries/totals, tables/serving), or the name
    alone: then the topic is meant before the table; with --as-of the changelog, or the query. Records that cannot be
    decoded are shown with the reason. Reads with the systems' own clients, starts no Spark, and keeps no position. What
    --json prints of a topic, 'send' takes.
    """
    from upsert_platform.cli.location import project_binding
    from upsert_platform.proofs.as_of import moment_of
    from upsert_platform.sync.peek import peek as look

    moment = None if as_of is None else moment_of(as_of)
    found = look(project_binding(project), node, limit=limit, lake=lake.default_lake(), as_of=moment)
    if as_json:
        for text in found.texts:
            click.echo(text)
        return
    _print(found.node, found.about, [json.loads(text, parse_float=str) for text in found.texts])


def _print(node: str, about: str, shown: Sequence[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text.assemble((node, "bold"), f": {about}"))
    if not shown:
        console.print("no row")
        return
    broken = [row for row in shown if row.get(rows.KIND) == rows.KIND_QUARANTINED]
    _print_rows([row for row in shown if row.get(rows.KIND) != rows.KIND_QUARANTINED])
    for row in broken:
        place = f"{row.get(rows.TOPIC)}-{row.get(rows.PARTITION)}@{row.get(rows.OFFSET)}"
        console.print(Text.assemble((place, "bold"), " cannot be read: ", printable(str(row.get(rows.REASON)))))
        for name, told in ((rows.RAW_KEY, "key"), (rows.RAW_VALUE, "value")):
            text = printable(str(row[name])) if row.get(name) is not None else Text("null", style="dim")
            text = Text.assemble(f"  {told} ", text)
            text.truncate(console.width, overflow="ellipsis")
            console.print(text, soft_wrap=True)


def _print_rows(shown: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table

    if not shown:
        return
    shown = _placed(shown)
    names = list(dict.fromkeys(name for row in shown for name in row))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(printable(name), overflow="fold", no_wrap=name in _SHORT)
    for row in shown:
        table.add_row(*(_cell(row, name) for name in names))
    print_rows(table)


def _placed(shown: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows whose place is one column, ``partition@offset``, with the topic before it where there are several."""
    topics = {row.get(rows.TOPIC) for row in shown}
    found = []
    for row in shown:
        rest = dict(row)
        topic, partition, offset = (rest.pop(name, None) for name in (rows.TOPIC, rows.PARTITION, rows.OFFSET))
        if isinstance(rest.get(rows.TIMESTAMP), str):
            rest[rows.TIMESTAMP] = rest[rows.TIMESTAMP].replace("000+00:00", "Z").replace("+00:00", "Z")
        place = {} if offset is None else {"place": f"{f'{topic}-' if len(topics) > 1 else ''}{partition}@{offset}"}
        found.append({**place, **rest})
    return found


def _cell(row: dict[str, Any], name: str) -> Any:
    from rich.text import Text

    value = row.get(name)
    if value is None:
        return Text("null" if name in row else "", style="dim")
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
