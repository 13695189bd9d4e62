"""The command `explain`: how statements are carried out."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from upsert_platform.core.model import Insert


@click.command(short_help="Show how the statements of a project are carried out.")
@click.argument("file", required=False, type=click.Path(path_type=Path, exists=True))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a statement, and nothing else.")
def explain(file: Path | None, *, as_json: bool) -> None:
    """Show what each INSERT INTO reads, computes and remembers, as a tree; for queries, how large their state is.

    FILE is a project folder, or a file of one: then only its statements are shown. If left out, the project is
    UPSERT_PLATFORM_PROJECT, every project of the code location that this folder's pyproject.toml declares, or the
    demo that ships with the package. Opens no connection and starts no JVM, so
    variables of endpoints and logins need not be set.
    """
    from upsert_platform.changelog import lake
    from upsert_platform.cli.location import located_projects
    from upsert_platform.core.error_catalogue import shown
    from upsert_platform.core.errors import DeclarationError, UpsertPlatformError
    from upsert_platform.engine.explain import explain_query, explain_state, through_spark
    from upsert_platform.sync.arrow_insert import left_to_spark
    from upsert_platform.sync.binding import query_store
    from upsert_platform.sync.located import joined
    from upsert_platform.sync.stand_ins import unset_value, without_places

    bindings = []
    try:
        for project in located_projects(file if file is None or file.is_dir() else file.parent):
            declared, problems = project.load(unset=unset_value)
            bindings.append(project.bind(without_places(declared), problems))
        binding = joined(bindings)
    except DeclarationError as error:
        click.echo(shown(error), err=True)
        sys.exit(1)
    for insert in binding.project.inserts:
        if file is not None and file.is_file() and Path(insert.location.file).name != file.name:
            continue
        target = binding.targets[insert.target]
        spark = left_to_spark(insert, target.source.table, target.table)
        left = [f"    {through_spark(spark)}"] if spark else []
        told = [f"  {line}" for line in target.connector.explained(target.checked)]
        if insert.query is None:
            where = f" where {insert.predicate}" if insert.predicate else ""
            told.append(f"  project and filter rows of {insert.source}{where}: no state, a batch costs its rows")
            told += left
            _tell(insert, told, as_json=as_json)
            continue
        store = query_store(binding.queries[insert.query.name], lake.default_lake())
        try:
            state = explain_state(store)
        except UpsertPlatformError as error:
            state = str(error)
        told.append(f"  key ({', '.join(insert.query.key) or 'none: rows are only added'}); {state}")
        told += left
        told += [f"    {line}" for line in explain_query(insert.query)]
        _tell(insert, told, as_json=as_json)


def _tell(insert: Insert, told: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        place = {"file": insert.location.file, "line": insert.location.line}
        reads = list(insert.tables)
        click.echo(json.dumps({"table": insert.target, **place, "reads": reads, "plan": [line[2:] for line in told]}))
        return
    click.echo("\n".join([f"{insert.location}: {insert.target}", *told]))
