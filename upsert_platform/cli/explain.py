"""The command `explain`: how statements are carried out."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command(short_help="Show how the statements of a project are carried out.")
@click.argument("file", required=False, type=click.Path(path_type=Path, exists=True))
def explain(file: Path | None) -> None:
    """Show what each INSERT INTO reads, computes and remembers, as a tree; for queries, how large their state is.

    FILE is a project folder, or a file of one: then only its statements are shown. If left out, the project is
    UPSERT_PLATFORM_PROJECT, or the demo that ships with the package. Opens no connection and starts no JVM.
    """
    from upsert_platform.changelog import lake
    from upsert_platform.errors import DeclarationError, UpsertPlatformError
    from upsert_platform.hops.binding import bind, load, query_store
    from upsert_platform.queries.explain import explain_plan, explain_state

    folder = lake.project_path() if file is None else file if file.is_dir() else file.parent
    declared, problems = load(folder)
    try:
        binding = bind(declared, problems)
    except DeclarationError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    for insert in declared.inserts:
        if file is not None and file.is_file() and Path(insert.location.file).name != file.name:
            continue
        click.echo(f"{insert.location}: {insert.target}")
        target = binding.targets[insert.target]
        for line in target.connector.explained(target.checked):
            click.echo(f"  {line}")
        if insert.query is None:
            where = f" where {insert.predicate}" if insert.predicate else ""
            click.echo(f"  project and filter rows of {insert.source}{where}: no state, a batch costs its rows")
            continue
        store = query_store(binding.queries[insert.query.name], lake.default_lake())
        try:
            state = explain_state(store)
        except UpsertPlatformError as error:
            state = str(error)
        click.echo(f"  key ({', '.join(insert.query.key) or 'none: rows are only added'}); {state}")
        for line in explain_plan(insert.query.plan):
            click.echo(f"    {line}")
