"""`upsert-platform explain-error`: cause, remedy and example of an error, by its identifier."""

from __future__ import annotations

import sys

import click
from click.shell_completion import CompletionItem


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from upsert_platform.core.error_catalogue import rows

    wanted = incomplete.upper().removeprefix("UP-")
    named = incomplete[:1].isdigit()  # a shell keeps what begins with the typed word alone
    return [
        CompletionItem(row.id.removeprefix("UP-") if named else row.id, help=row.title)
        for row in rows().values()
        if row.id.removeprefix("UP-").startswith(wanted)
    ]


@click.command(short_help="Explain an error by its identifier.")
@click.argument("error", nargs=-1, shell_complete=_complete)
def explain_error(error: tuple[str, ...]) -> None:
    """Show cause, remedy and an example of ERROR, the identifier after a message, such as UP-1101 or 1101.

    Words instead of an identifier list the errors whose titles, causes or messages have them all; without ERROR, all
    are listed. Ends with 1 if there is none.
    """
    from upsert_platform.core.error_catalogue import rows

    text = " ".join(error)
    number = text.strip("[]").upper().removeprefix("UP-")
    found = rows().get(f"UP-{number}")
    if found is not None:
        click.echo(f"{found.id}: {found.title} ({found.group})\n")
        click.echo(f"Cause:   {found.cause}\nRemedy:  {found.remedy}\nExample: {found.example}")
        return
    words = text.lower().split()
    listed = [row for row in rows().values() if all(word in " ".join(row.words()).lower() for word in words)]
    group = ""
    for row in listed:
        if row.group != group:
            group = row.group
            click.echo(group)
        click.echo(f"  {row.id}  {row.title}")
    if not listed:
        click.echo(f"no error is named '{text}' or has these words; without ERROR, all are listed", err=True)
        sys.exit(1)
