"""Text output of commands: numbers in words, and foreign text made safe for a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from upsert_platform.core.errors import Problem


_WIDEST: Final = 1_000
"""Columns of a terminal, at most."""


def console_for(*tables: Table) -> Console:
    """Return a console that is as wide as tables need for each word of theirs to stand on one line.

    A terminal that is narrower wraps lines by itself; names and numbers are then still whole.
    """
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(highlight=False)
    unbounded = console.options.update(max_width=_WIDEST)
    least = max((Measurement.get(console, unbounded, table).minimum for table in tables), default=0)
    return Console(highlight=False, width=max(console.width, least))


def natural_width(table: Table) -> int:
    """Return the columns of a terminal that a table needs to fold nothing."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(width=_WIDEST)
    return Measurement.get(console, console.options, table).maximum


def print_rows(table: Table) -> None:
    """Print the rows of a table; on a terminal that is too narrow for them each row as lines of name and value."""
    from rich.console import Console
    from rich.table import Table as Grid

    console = console_for(table)
    if not console.is_terminal or natural_width(table) <= Console().width:
        console.print(table)
        return
    console = Console(highlight=False)
    cells = [list(column.cells) for column in table.columns]
    for at in range(table.row_count):
        grid = Grid(box=None, pad_edge=False, show_header=False)
        grid.add_column(no_wrap=True, style="bold")
        grid.add_column(overflow="fold")
        for column, found in zip(table.columns, cells, strict=True):
            grid.add_row(column.header, found[at])
        console.print(*([""] if at else []), grid, sep="\n")


def problem_data(problem: Problem) -> dict[str, Any]:
    """A problem of a declaration, for JSON."""
    place = problem.location
    from upsert_platform.core.error_catalogue import identifier

    told = {"id": identifier(problem), "severity": problem.severity, "message": problem.message}
    return {**told, "file": place.file if place else None, "line": place.line if place else None}


def printable(text: str) -> Text:
    """Text of others as a terminal may have it: no markup, and control characters as JSON escapes them."""
    from rich.text import Text

    return Text("".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text), overflow="fold")
