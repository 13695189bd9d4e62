"""`upsert-platform import`: files of other platforms into a project folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from upsert_platform.changelog import lake
from upsert_platform.cli.text import problem_data
from upsert_platform.wording import counted


@click.command(name="import", short_help="Take files of other platforms into a project.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--into", "folder", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of the project."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def import_files(files: tuple[Path, ...], folder: Path, *, as_json: bool) -> None:
    """Take FILES of other platforms into the project folder DIR, and tell what changes.

    FILES are Flink SQL (.sql), configurations of the Tablestore sink connector for Kafka Connect (.properties, .json)
    and ingestion pipelines (.yaml). Secrets become variables, whose values are not written anywhere; so does what a
    configuration provider of Kafka Connect would have put in. Then the project is checked with those values, and told
    is what does not mean here what it meant there. Nothing is overwritten. Ends with 1 if the project has an error.
    """
    from upsert_platform.declarations.importing import plan_import, write_import
    from upsert_platform.declarations.project import load_project
    from upsert_platform.errors import DeclarationError
    from upsert_platform.hops.binding import bind
    from upsert_platform.hops.connectors import CONNECTORS

    plan = plan_import(files, folder)
    written = list(zip(plan.files, write_import(plan, folder), strict=True))
    for item, path in written if not as_json else ():
        click.echo(f"wrote {path}: {item.kind}")
        for moved in item.moved:
            why = "a configuration provider's" if moved.provided else "a secret"
            click.echo(f"  line {moved.line}: '{moved.option}' is now ${{{moved.variable}}} ({why})")
        for line, statement in item.silenced:
            click.echo(f"  line {line}: {statement} is a comment now: state keeps all that results follow from")
    values = {**lake.local_variables(lake.home()), **plan.values}
    project, problems = load_project(folder, values, connectors=CONNECTORS)
    failed = False
    try:
        bind(project, problems)
    except DeclarationError:
        failed = True
    wanted = list(dict.fromkeys(moved.variable for item in plan.files for moved in item.moved))
    if as_json:
        paths = [
            {"path": str(path), "kind": item.kind, "silenced": [text for _, text in item.silenced]}
            for item, path in written
        ]
        told = [problem_data(problem) for problem in problems]
        click.echo(json.dumps({"files": paths, "variables": wanted, "problems": told}))
        sys.exit(1 if failed else 0)
    for problem in problems:
        click.echo(str(problem), err=problem.severity == "error")
    if wanted:
        click.echo("set before the first run, in the environment or in variables.yaml:")
        for name in wanted:
            click.echo(f"  {name}")
    errors = sum(problem.severity == "error" for problem in problems)
    tables = counted(len(project.tables), "table")
    click.echo(f"{tables}, {counted(len(project.inserts), 'insert')}: {counted(errors, 'error')}")
    if failed:
        sys.exit(1)
