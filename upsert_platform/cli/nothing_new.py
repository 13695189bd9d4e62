"""Output of a sync that finds nothing new: what was asked, and how it stands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from upsert_platform.cli.next_step import for_typed_project
from upsert_platform.cli.text import console_for
from upsert_platform.core.wording import counted

if TYPE_CHECKING:
    from upsert_platform.graph.pending import AssetState, Pending


def show_nothing_new(found: Pending, job: str, *, seconds: float, as_json: bool) -> None:
    """Print the state of every asset, and that no run was started.

    Args:
        seconds: that the look took.
        as_json: prints one object with the keys of a run's summary; ``run`` is null.
    """
    if as_json:
        assets = [_as_data(item) for item in found.states]
        summary = {"run": None, "success": True, "assets": assets, "job": job, "seconds": round(seconds, 1)}
        click.echo(json.dumps(summary, ensure_ascii=False))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("asset", no_wrap=True)
    for heading in ("batch", "offsets read"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("checks")
    for item in found.states:
        checks = f"{len(item.checks)} passed" if item.checks else ""
        shown = "; ".join(text for text in (checks, item.note) if text)
        table.add_row(item.key.to_user_string(), str(item.batch), f"{item.offsets:,}" if item.offsets else "", shown)
    console = console_for(table)
    console.print(table)
    offsets, passed = sum(item.offsets for item in found.states), sum(len(item.checks) for item in found.states)
    command = for_typed_project("upsert-platform sync --all")
    console.print(
        f"nothing is new: {counted(len(found.states), 'asset')} asked in {seconds:.1f} s, {offsets:,} offsets read,"
        f" {counted(passed, 'check')} passed; no run was started ('{command}' starts one)",
        markup=False,
        soft_wrap=True,
    )


def _as_data(item: AssetState) -> dict[str, object]:
    found: dict[str, object] = {"asset": item.key.to_user_string(), "batch": item.batch, "offsets": item.offsets}
    return {**found, "checks": dict(item.checks), **({"note": item.note} if item.note else {})}
