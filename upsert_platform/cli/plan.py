"""`upsert-platform plan`: what an edited project changes, before it happens."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from upsert_platform.changelog import lake
from upsert_platform.cli.names import complete_tables
from upsert_platform.cli.next_step import ProjectFolder, project_option

if TYPE_CHECKING:
    from upsert_platform.proofs.plan import ProjectPlan

CHANGES: Final = 2
"""The exit code where something changes."""


@click.command(short_help="Show what an edited project changes, before it happens.")
@click.argument("tables", nargs=-1, shell_complete=complete_tables)
@click.option(
    "--deployed",
    type=ProjectFolder(),
    help="Folder of the project as it is deployed: shows differences of declarations, spares --estimate the tables.",
)
@click.option(
    "--estimate", is_flag=True, help="Compare one key in 32, or fewer of a large table, and estimate the counts."
)
@click.option("--examples", default=20, show_default=True, type=click.IntRange(0), help="Rows that differ to show.")
@project_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, which `apply` takes, and nothing else.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown for a pull request, and nothing else.")
def plan(
    tables: tuple[str, ...],
    deployed: Path | None,
    examples: int,
    project: Path | None,
    *,
    estimate: bool,
    as_json: bool,
    as_markdown: bool,
) -> None:
    """Show what the project changes in TABLES (all of them if left out); write nothing.

    Inserts and queries are computed over the lake as they are declared now, and compared with the rows that the tables
    hold. `upsert-platform apply` carries out what --json prints. Ends with 0 if nothing changes, 2 if something does, 1
    after an error.
    """
    if as_json and as_markdown:
        raise click.UsageError("--json and --markdown: give one of them")
    from upsert_platform.cli.location import deployed_project, project_binding
    from upsert_platform.cli.session import spark_session
    from upsert_platform.proofs.plan import plan_project
    from upsert_platform.proofs.plan_file import plan_data

    binding = project_binding(project)
    before = None if deployed is None else deployed_project(deployed, project)
    quiet = as_json or as_markdown
    with spark_session("planning") as (spark, tell):
        found = plan_project(
            spark,
            binding,
            lake.default_lake(),
            deployed=before,
            tables=tables,
            estimate=estimate,
            examples=examples,
            tell=(lambda message: None) if quiet else tell,
        )
    if as_json:
        click.echo(json.dumps(plan_data(found), ensure_ascii=False))
    else:
        print_plan(found, markdown=as_markdown)
    if found.changes:
        sys.exit(CHANGES)


def print_plan(plan: ProjectPlan, *, markdown: bool = False) -> None:
    """Print a plan for people."""
    from upsert_platform.cli.plan_text import markdown_lines, plan_lines

    if markdown:
        click.echo("\n".join(markdown_lines(plan)))
        return
    for item in plan.tables:
        for line in plan_lines(item):
            click.echo(line)
    click.echo("nothing is written yet" if plan.changes else "nothing changes")
