"""Completion of names that a project declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from upsert_platform.sync.binding import Binding


def complete_nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Topics, changelogs, queries and tables, as `peek` takes them."""
    from upsert_platform.sync.peek import nodes

    return _completed(ctx, incomplete, nodes)


def complete_tables(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Tables that an insert writes."""
    return _completed(ctx, incomplete, lambda binding: dict.fromkeys(binding.targets, ""))


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Tables that are read from topics."""
    return _completed(ctx, incomplete, lambda binding: dict.fromkeys(binding.sources, ""))


def complete_tables_and_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Tables that an insert reads or writes."""
    return _completed(ctx, incomplete, lambda binding: dict.fromkeys([*binding.sources, *binding.targets], ""))


def check_written(binding: Binding, table: str) -> None:
    """Refuse the name of a table that no insert writes, with the nearest that one does."""
    from upsert_platform.core.options import nearest

    if table not in binding.targets:
        near, known = nearest(table, binding.targets).rstrip("?"), ", ".join(sorted(binding.targets)) or "none"
        raise click.ClickException(f"no insert writes table '{table}'{near}; written are: {known}")


def _completed(
    ctx: click.Context, incomplete: str, named: Callable[[Binding], Mapping[str, str]]
) -> list[CompletionItem]:
    from upsert_platform.core.errors import UpsertPlatformError
    from upsert_platform.sync.binding import bind, load
    from upsert_platform.sync.stand_ins import unset_value, without_places

    folder: Path | None = ctx.params.get("project")
    try:
        project, problems = load(folder, unset=unset_value, ask=lambda asked: ([], []))
        try:
            found = named(bind(without_places(project), problems))
        except UpsertPlatformError:  # a shell asks while somebody types: `validate` tells what is wrong
            found = dict.fromkeys(project.tables, "")
    except (UpsertPlatformError, OSError):
        return []
    return [CompletionItem(name, help=told or None) for name, told in found.items() if name.startswith(incomplete)]
