"""`upsert-platform status`: how far every topic, changelog and table of a project is."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from upsert_platform.changelog import lake
from upsert_platform.cli.next_step import project_option
from upsert_platform.cli.text import console_for, natural_width

if TYPE_CHECKING:
    from upsert_platform.sync.status import ChangelogStatus, Status, TableStatus

_HEADINGS: Final = ("table", "from", "system", "applied", "behind", "delay", "refused", "last check")


@click.command(short_help="Show how far topics, changelogs and tables are.")
@project_option()
@click.option("--watch", is_flag=True, help="Ask again every few seconds, until Ctrl-C.")
@click.option("--interval", default=5.0, show_default=True, type=click.FloatRange(1), help="Seconds between looks.")
@click.option(
    "--timeout", default=20.0, show_default=True, type=click.FloatRange(1), help="Seconds to wait for answers."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a look.")
def status(project: Path | None, interval: float, timeout: float, *, watch: bool, as_json: bool) -> None:
    """Show how far topics, changelogs and tables are: lag, applied batches, last checks, what waits in quarantine.

    The delay of a table is the age of the oldest record that is not in it. Asks all of them at once, starts no Spark
    and writes nothing. Ends with 1 if one did not answer, the lake or a table is not as it is declared, all records
    of a topic are in quarantine, the last check of a table failed, or its delay is above its 'freshness.max-delay';
    being behind is no fault by itself.
    """
    from upsert_platform.cli.location import project_binding
    from upsert_platform.sync.status import as_data, status_of

    binding, where = project_binding(project), lake.default_lake()
    console = Console(highlight=False)

    def look() -> Status:
        return status_of(binding, where, timeout=timeout)

    if as_json:
        while True:
            found = look()
            click.echo(json.dumps(as_data(found), ensure_ascii=False))
            if not watch:
                break
            time.sleep(interval)
    elif watch:
        _watch(console, look, interval)
        return
    else:
        found = look()
        shown = _shown(found, width=console.width if console.is_terminal else None)
        console_for(*(item for item in shown.renderables if isinstance(item, Table))).print(shown)
    if not found.healthy:
        sys.exit(1)


def _watch(console: Console, look: Callable[[], Status], interval: float) -> None:
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                live.update(_shown(look(), width=console.width), refresh=True)
                time.sleep(interval)
        except KeyboardInterrupt:  # how a watch ends
            return


def _shown(status: Status, *, width: int | None = None) -> Group:
    """Return tables of topics and of tables.

    Args:
        width: of the terminal; a narrow one leaves out where rows come from and the system, which `--json` has.
    """
    read = Table(box=None, pad_edge=False, header_style="bold")
    read.add_column("topic")
    read.add_column("changelog", no_wrap=True)
    for heading in ("lag", "batch", "committed", "quarantined"):
        read.add_column(heading, justify="right", no_wrap=True)
    for item in status.changelogs:
        read.add_row(*_changelog_cells(item))
    written = _written(status, _HEADINGS)
    if width is not None and natural_width(written) > width:
        written = _written(status, [name for name in _HEADINGS if name not in ("from", "system")])
    errors = [Text(f"{name}: {reason}", style="red") for name, reason in status.errors]
    errors += [Text(item.empty, style="red") for item in status.changelogs if item.empty]
    errors += [
        Text(f"{item.table}: {item.late}", style="red" if item.stale else "") for item in status.tables if item.late
    ]
    warnings = [Text(told, style="yellow") for item in status.changelogs for told in item.warnings]
    asked = Text(f"asked in {status.seconds:.1f} s", style="dim")
    return Group(read, "", written, "", *errors, *warnings, asked)


def _written(status: Status, headings: Sequence[str]) -> Table:
    written = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        number = heading in ("applied", "behind", "delay", "refused")
        written.add_column(heading, justify="right" if number else "left", no_wrap=heading != "last check")
    for table in status.tables:
        cells = dict(zip(_HEADINGS, _table_cells(table), strict=True))
        style = "red" if table.stale else "yellow" if table.late else ""
        written.add_row(*(cells[heading] for heading in headings), style=style)
    return written


def _changelog_cells(item: ChangelogStatus) -> tuple[str, ...]:
    if item.error:
        return "?", item.table, "?", "?", "?", "?"
    return (
        ", ".join(item.streams),
        item.table,
        str(item.lag),
        str(item.batch or "none"),
        _ago(item.committed_at),
        str(item.quarantined),
    )


def _table_cells(item: TableStatus) -> tuple[str, ...]:
    if item.error:
        return item.table, item.source, item.connector, "?", "?", "?", "?", "?"
    checked = "none" if item.checked is None else f"{'passed' if item.checked else 'FAILED'} {_ago(item.checked_at)}"
    written = f"; written by {item.holder}" if item.holder else ""
    written += f"; {item.paused}" if item.paused else ""
    return (
        item.table,
        item.source,
        item.connector,
        str(item.applied or "none"),
        str(item.behind),
        "?" if item.delay is None else _span(item.delay),
        str(item.refused),
        f"{checked}{written}",
    )


def _ago(moment: object) -> str:
    from datetime import datetime

    from upsert_platform.sync.status import age_of

    seconds = age_of(moment) if isinstance(moment, datetime) else None
    return "never" if seconds is None else f"{_span(seconds)} ago"


def _span(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
