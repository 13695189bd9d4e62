"""`upsert-platform plan`: what an edited project changes, before it happens."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from upsert_platform.changelog import lake
from upsert_platform.cli.names import complete_tables
from upsert_platform.cli.next_step import project_option
from upsert_platform.cli.text import printable

if TYPE_CHECKING:
    from upsert_platform.proofs.plan import TablePlan

CHANGES: Final = 2
"""The exit code where something changes."""


@click.command(short_help="Show what an edited project changes, before it happens.")
@click.argument("tables", nargs=-1, shell_complete=complete_tables)
@click.option(
    "--deployed",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of the project as it is deployed: differences of declarations are shown, too.",
)
@click.option("--estimate", is_flag=True, help="Compare one key in 32, and estimate the counts.")
@click.option("--examples", default=20, show_default=True, type=click.IntRange(0), help="Rows that differ to show.")
@project_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def plan(
    tables: tuple[str, ...],
    deployed: Path | None,
    examples: int,
    project: Path | None,
    *,
    estimate: bool,
    as_json: bool,
) -> None:
    """Show what the project changes in TABLES (all of them if left out); write nothing.

    Inserts and queries are computed over the lake as they are declared now, and compared with the rows that the tables
    hold. Ends with 0 if nothing changes, 2 if something does, 1 after an error.
    """
    from upsert_platform.cli.session import spark_session
    from upsert_platform.proofs.plan import Kind, plan_project
    from upsert_platform.sync.binding import bind, load

    binding = bind(*load(project))
    before = None if deployed is None else load(deployed)[0]
    with spark_session("planning") as (spark, tell):
        plans = plan_project(
            spark,
            binding,
            lake.default_lake(),
            deployed=before,
            tables=tables,
            estimate=estimate,
            examples=examples,
            tell=(lambda message: None) if as_json else tell,
        )
    changes = any(item.kind is not Kind.SAME for item in plans)
    if as_json:
        click.echo(json.dumps({"changes": changes, "tables": list(map(told_plan, plans))}, ensure_ascii=False))
    else:
        for item in plans:
            print_plan(item)
        click.echo("nothing is written yet" if changes else "nothing changes")
    if changes:
        sys.exit(CHANGES)


def told_plan(plan: TablePlan) -> dict[str, Any]:
    """Return the plan of a table as one JSON object."""
    return {
        "table": plan.table,
        "kind": plan.kind.value,
        "declared": list(plan.declared),
        "added": plan.added,
        "changed": plan.changed,
        "removed": plan.removed,
        "compared": None if plan.rows is None else plan.rows.compared,
        "estimated": plan.estimated,
        "rebuilds": list(plan.rebuilds),
        "reason": plan.reason,
        "command": plan.command,
        "examples": [_example(row) for row in plan.rows.sample] if plan.rows else [],
    }


_WORDS: Final = {"missing": "added", "extra": "removed", "stale": "changed"}


def _example(row: Any) -> dict[str, str]:
    return {**row, "status": _WORDS[row["status"]]}


def print_plan(plan: TablePlan) -> None:
    """Print the plan of a table for people."""
    about = "about " if plan.estimated else ""
    rows = f"{about}{plan.added} rows added, {plan.changed} changed, {plan.removed} removed"
    click.echo(f"{plan.table}: {plan.kind.value}{'; ' + rows if plan.rows is not None else ''}")
    for line in plan.declared:
        click.echo(f"  {line}")
    for name in plan.rebuilds:
        click.echo(f"  query '{name}' is computed anew")
    if plan.reason:
        click.echo(f"  {plan.reason}")
    for row in plan.rows.sample if plan.rows else ():
        difference = f": {row['difference']}" if row.get("difference") else ""
        click.echo(f"  {_WORDS[row['status']]} {printable(row['key']).plain}{printable(difference).plain}")
    if plan.command:
        click.echo(f"  then: {plan.command}")
