"""`upsert-platform apply`: carries out a plan, or refuses where the world moved."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from upsert_platform.changelog import lake
from upsert_platform.cli.next_step import project_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from upsert_platform.proofs.apply import Applied
    from upsert_platform.proofs.plan_file import PlanFile

DIFFERS: Final = 3
"""The exit code where a table differs at the end."""


@click.command(short_help="Carry out a plan, or refuse where the world moved.")
@click.argument("plan_file", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--yes", is_flag=True, help="Without PLAN_FILE: apply the plan without a question.")
@project_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def apply(plan_file: Path | None, project: Path | None, *, yes: bool, as_json: bool) -> None:
    """Carry out what `upsert-platform plan --json` has printed into PLAN_FILE; without it, plan, ask, and apply.

    Refuses where declarations, the lake or the position of a table are others than the plan saw. Changed queries are
    computed anew beside their old results, which serve until the new ones are complete; then the rows that differ are
    written. Type the same command again after a kill. Ends with 0 if every table is equal, 3 if one differs, 1 after an
    error.
    """
    from upsert_platform.cli.location import project_binding
    from upsert_platform.cli.plan import print_plan
    from upsert_platform.cli.session import spark_session
    from upsert_platform.proofs.apply import apply as carry_out
    from upsert_platform.proofs.apply import check_applicable
    from upsert_platform.proofs.plan import plan_project
    from upsert_platform.proofs.plan_file import plan_data, plan_of

    if as_json and plan_file is None and not yes:
        raise click.UsageError("--json asks nothing: give PLAN_FILE, or --yes")
    binding, where = project_binding(project), lake.default_lake()
    planned = None if plan_file is None else plan_of(_read(plan_file))
    if planned is not None:
        check_applicable(planned, binding, where)  # before Spark starts

    def quiet(message: str) -> None:
        pass

    if planned is None:
        with spark_session("planning") as (spark, tell):
            found = plan_project(spark, binding, where, tell=quiet if as_json else tell)
        planned = plan_of(plan_data(found))
        if not as_json:
            print_plan(found)
        if found.changes and not yes:
            click.confirm("apply this plan?", abort=True, err=True)
    done: Sequence[Applied] = ()
    if planned.due:
        with spark_session("applying") as (spark, tell):
            done = carry_out(spark, planned, binding, where, tell=quiet if as_json else tell)
    equal = all(item.equal is not False for item in done)
    if as_json:
        click.echo(json.dumps({"plan": planned.id, "equal": equal, "tables": [asdict(item) for item in done]}))
    else:
        _print(planned, done)
    if not equal:
        sys.exit(DIFFERS)


def _read(file: Path) -> object:
    try:
        return json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise click.ClickException(
            f"{file} is no plan: give what 'upsert-platform plan --json' has printed ({error})"
        ) from error


def _print(plan: PlanFile, done: Sequence[Applied]) -> None:
    for item in done:
        state = {True: "; equal", False: "; still differs: does another program write it?", None: ""}[item.equal]
        click.echo(f"{item.table}: {item.put} put, {item.deleted} deleted, {item.refused} refused{state}")
    click.echo(f"plan {plan.id} is applied" if done else "nothing to apply")
