"""`upsert-platform query`: a SELECT over changelogs, topics' last values and tables, and a prompt for several."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from upsert_platform.changelog import lake
from upsert_platform.cli.next_step import project_option
from upsert_platform.cli.text import print_rows, printable
from upsert_platform.core.wording import counted

if TYPE_CHECKING:
    from upsert_platform.sync.ad_hoc import AdHoc, Answer

_WORDS: Final = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "JOIN", "LEFT JOIN", "USING", "COUNT(*)",
    "SUM(", "AVG(", "MIN(", "MAX(", "DISTINCT", "DESCRIBE", "AND", "OR", "NOT", "IS NULL", "exit", "tables",
)  # fmt: skip
_HISTORY: Final = 1_000


@click.command(short_help="Query changelogs, topics and tables with SQL.")
@click.argument("statement", required=False)
@click.option("--limit", default=1_000, show_default=True, type=click.IntRange(1), help="Rows of the result to show.")
@click.option(
    "--most", default=1_000_000, show_default=True, type=click.IntRange(1), help="Rows of a table that are read."
)
@click.option("--as-of", help="Batch of the changelog, offsets (0:42,1:17), or time, as of which rows are read.")
@project_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a row, and nothing else.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a line of names, and nothing else.")
def query(
    statement: str | None,
    limit: int,
    most: int,
    as_of: str | None,
    project: Path | None,
    *,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Carry out STATEMENT, a SELECT of DuckDB's SQL over tables by their declared names; without one, ask for them.

    A table that is read has the last row per key, as far as sync has read its topic (topics.NAME, or NAME alone);
    changelogs.NAME has every change with its place; queries.NAME and tables.NAME (or NAME alone) have the rows of a
    query and of a table that is written. With --as-of the first three have the rows of that moment, as far as the lake
    keeps them ('history.retain'). Nothing is written, no file or address is reached, masked columns stay masked.
    """
    from upsert_platform.cli.location import project_binding
    from upsert_platform.core.packages import missing_package
    from upsert_platform.proofs.as_of import moment_of
    from upsert_platform.sync.ad_hoc import AdHoc
    from upsert_platform.sync.relations import relations

    if told := missing_package("query"):
        raise click.ClickException(told)
    if as_json and as_csv:
        raise click.UsageError("give --json or --csv, not both")
    show: Callable[[Answer], None] = _as_json if as_json else _as_csv if as_csv else _as_table
    moment = None if as_of is None else moment_of(as_of)
    found = relations(project_binding(project), lake.default_lake(), as_of=moment)
    with closing(AdHoc(found, most=most)) as asked:
        if statement is None and is_terminal():
            _prompt(asked, show, limit=limit, as_json=as_json)
            return
        text = statement if statement is not None else sys.stdin.read()
        show(asked.answer(text.strip().rstrip(";"), limit=limit, as_json=as_json))


def is_terminal() -> bool:
    """Return whether somebody types statements, so that input comes from neither a file nor a pipe."""
    return sys.stdin.isatty()


def _as_json(answer: Answer) -> None:
    for text in answer.objects():
        click.echo(text)


def _as_csv(answer: Answer) -> None:
    writer = csv.writer(sys.stdout)
    writer.writerow(answer.columns)
    writer.writerows(answer.rows)


def _as_table(answer: Answer) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in answer.columns:
        table.add_column(printable(name), overflow="fold")
    for row in answer.rows:
        table.add_row(*(printable("null" if text is None else text) for text in row))
    print_rows(table)
    more = "; there are more (--limit)" if answer.more else ""
    click.echo(f"{counted(len(answer.rows), 'row')}{more}")


def _prompt(asked: AdHoc, show: Callable[[Answer], None], *, limit: int, as_json: bool) -> None:
    """Ask for statements until the end of the input; they end with a semicolon."""
    from upsert_platform.core.error_catalogue import shown
    from upsert_platform.core.errors import UpsertPlatformError

    click.echo(f"tables: {', '.join(asked.names)}\na statement ends with ;  -  Tab completes names, Ctrl-D ends")
    with _history([*asked.names, *_WORDS]):
        lines: list[str] = []
        while True:
            try:
                lines.append(input("... " if lines else "sql> "))
            except KeyboardInterrupt:
                click.echo()
                lines = []
                continue
            except EOFError:
                click.echo()
                return
            text = "\n".join(lines).strip()
            if text.rstrip(";") in ("exit", "quit"):
                return
            if text.rstrip(";") == "tables":
                click.echo("\n".join(asked.names))
            elif text and not text.endswith(";"):
                continue
            elif text:
                try:
                    show(asked.answer(text.rstrip(";"), limit=limit, as_json=as_json))
                except UpsertPlatformError as error:
                    click.echo(shown(error), err=True)
            lines = []


class _history:  # noqa: N801 - a context, named as what it keeps
    """Keeps what was typed for the next time, and completes words."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._file = Path(lake.lake_folder(lake.home())) / "query_history"

    def __enter__(self) -> None:
        with suppress(ImportError, OSError):
            import readline

            readline.set_completer(completer(self._words))
            readline.set_completer_delims(" \t\n,()=<>+-*/")
            readline.parse_and_bind("tab: complete")
            readline.set_history_length(_HISTORY)
            readline.read_history_file(self._file)

    def __exit__(self, *_: object) -> None:
        with suppress(ImportError, OSError):
            import readline

            self._file.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(self._file)
            self._file.chmod(0o600)


def completer(words: Sequence[str]) -> Callable[[str, int], str | None]:
    """Return what gives readline the completions of a word, one after the other."""

    def complete(text: str, state: int) -> str | None:
        found = [word for word in words if word.lower().startswith(text.lower())]
        return found[state] if state < len(found) else None

    return complete
