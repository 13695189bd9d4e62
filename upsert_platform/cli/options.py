"""`upsert-platform options`: the options reference in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from rich.console import Console

    from upsert_platform.reference.rows import Section

_WIDE: Final = 110
"""Columns of a terminal from which default and origin stand in columns of their own."""
_DEFAULT_WIDTH: Final = 23
_STYLES: Final = {"": "cyan", "no effect": "dim", "refused": "red"}


class _SectionName(click.ParamType):
    """A name of the reference; settings models are loaded when one is needed, not when help is shown."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from upsert_platform.core.options import nearest
        from upsert_platform.reference.markdown import sections

        lowered = value.strip().lower()
        if lowered not in sections():
            known = ", ".join(sections())
            hint = nearest(lowered, sections()).rstrip("?")
            self.fail(f"there is no connector or format '{value}'{hint}; there are: {known}", param, ctx)
        return lowered

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from upsert_platform.reference.markdown import sections

        return [
            CompletionItem(section.name, help=section.title)
            for section in sections().values()
            if section.name.startswith(incomplete.lower())
        ]


@click.command(short_help="Show the options of a connector or format.")
@click.argument("connector", required=False, type=_SectionName())
@click.option("--json-schema", is_flag=True, help="Print the JSON schema of declarations in YAML, for editors.")
def options(connector: str | None, *, json_schema: bool) -> None:
    """Show the options of CONNECTOR, which may be a format too: default, origin and meaning.

    Without CONNECTOR, list what there is.
    """
    from rich.console import Console

    from upsert_platform.reference.markdown import sections

    if json_schema:
        import json

        from upsert_platform.reference.json_schema import json_schema as schema

        click.echo(json.dumps(schema(), indent=2, ensure_ascii=False))
        return
    console = Console(highlight=False)
    if connector is None:
        _list(console)
    else:
        _show(console, sections()[connector])


def _list(console: Console) -> None:
    from rich.table import Table

    from upsert_platform.reference.markdown import sections

    table = Table("name", "", "options", box=None, header_style="bold", pad_edge=False)
    for section in sections().values():
        table.add_row(section.name, section.title, str(len(section.rows)))
    table.columns[2].justify = "right"
    console.print(table)
    console.print("\nupsert-platform options <name> shows them; docs/options.md has all of them.", style="dim")


def _show(console: Console, section: Section) -> None:
    """Four columns; on narrow terminals default and origin stand below the option's name."""
    from rich.table import Table
    from rich.text import Text

    wide = console.width >= _WIDE
    first, second, third, meaning = section.headings
    widths = [min(max(len(row.name) for row in section.rows), console.width * 55 // 100)]
    if wide:
        widths.append(min(max(len(second), *(len(row.second) for row in section.rows)), _DEFAULT_WIDTH))
        widths.append(max(len(third), *(len(row.third) for row in section.rows)))
    widths.append(console.width - sum(widths) - 2 * len(widths))
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    for heading, width in zip((first, second, third, meaning) if wide else (first, meaning), widths, strict=True):
        table.add_column(heading, overflow="fold", width=width)
    if not wide:
        table.add_row(Text(f"  {second}, {third}", style="dim"), "")
    for row in section.rows:
        name = Text(row.name, style=_STYLES[row.status])
        below = ", ".join(part for part in (row.second, row.third) if part)
        if below and not wide:
            name.append(f"\n  {below}", style="dim")
        beside = (Text(row.second), Text(row.third, style="dim")) if wide else ()
        table.add_row(name, *beside, Text(_plain(row.text)))
    console.print(Text(section.title, style="bold"))
    console.print(Text(f"{_plain(section.about)}\n"))
    console.print(table)


def _plain(text: str) -> str:
    """A sentence without Markdown's marks."""
    return text.replace("`", "")
