"""`upsert-platform import`: files of other platforms into a project folder."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from upsert_platform.changelog import lake
from upsert_platform.cli.text import problem_data
from upsert_platform.core.wording import counted

if TYPE_CHECKING:
    from upsert_platform.declarations.local_tables import LocalOptions


@click.command(name="import", short_help="Take files of other platforms into a project.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--into", "folder", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of the project."
)
@click.option("--local", is_flag=True, help="Try a Flink job here: start local servers, and put its tables on them.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def import_files(files: tuple[Path, ...], folder: Path, *, local: bool, as_json: bool) -> None:
    """Take FILES of other platforms into the project folder DIR, and tell what changes.

    FILES are Flink SQL (.sql), configurations of the Tablestore sink connector for Kafka Connect (.properties, .json)
    and ingestion pipelines (.yaml). Secrets become variables, whose values are not written anywhere; so does what a
    configuration provider of Kafka Connect would have put in. Then the project is checked with those values, and told
    is what does not mean here what it meant there. Nothing is overwritten. Ends with 1 if the project has an error.

    With --local the addresses of tables become those of servers of this machine, which are started, and their logins
    are left out: import the job again, into another folder, for its own cluster.
    """
    from upsert_platform.cli.project import start_named_servers
    from upsert_platform.core.errors import DeclarationError
    from upsert_platform.declarations.importing import plan_import, write_import
    from upsert_platform.declarations.project import load_project
    from upsert_platform.sync.binding import bind
    from upsert_platform.sync.connectors import CONNECTORS, is_topic

    plan = plan_import(files, folder, local_options() if local else None)
    written = list(zip(plan.files, write_import(plan, folder), strict=True))
    for item, path in written if not as_json else ():
        click.echo(f"wrote {path}: {item.kind}")
        for moved in item.moved:
            why = "a configuration provider's" if moved.provided else "a secret"
            click.echo(f"  line {moved.line}: '{moved.option}' is now ${{{moved.variable}}} ({why})")
        for line, change in item.changed:
            click.echo(f"  line {line}: {change}")
    started = start_named_servers(folder) if local else []
    values = {**lake.local_variables(lake.home()), **plan.values}
    project, problems = load_project(folder, values, connectors=CONNECTORS)
    failed = False
    try:
        bind(project, problems)
    except DeclarationError:
        failed = True
    wanted = list(dict.fromkeys(moved.variable for item in plan.files for moved in item.moved))
    if as_json:
        paths = [{"path": str(path), "kind": item.kind} for item, path in written]
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
    if started:
        click.echo(f"local {' and '.join(started)} up until 'upsert-platform local down'")
    place = shlex.quote(str(folder))
    if not local:
        click.echo(f"next: upsert-platform explain {place}")
        return
    targets = {insert.target for insert in project.inserts}
    read = dict.fromkeys(
        name
        for insert in project.inserts
        for name in insert.tables
        if name not in targets and is_topic(project.tables[name])
    )
    words = [f"send {name} FILE --create-topic" for name in read] + ["sync"]
    words += [f"peek {insert.target}" for insert in project.inserts[:1]]
    for at, word in enumerate(words):
        click.echo(f"{'then' if at else 'next'}: upsert-platform {word} --project {place}")


def local_options() -> Mapping[str, LocalOptions]:
    """Return how tables of each connector reach servers of this machine."""
    from upsert_platform.core.connector import Writable
    from upsert_platform.declarations.local_tables import LocalOptions
    from upsert_platform.sync.connectors import CONNECTORS
    from upsert_platform.sync.endpoints import ENDPOINT_VALUES

    found = {}
    for name, connector in CONNECTORS.items():
        values = ENDPOINT_VALUES.get(connector.endpoint, ())
        if values:
            variables = {item.option: item.variable for item in values}
            found[name] = LocalOptions(variables, isinstance(connector, Writable) and not connector.has_topics)
    return found
