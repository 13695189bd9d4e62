"""`upsert-platform sync` and `upsert-platform run`: jobs of the user's code location, without the words of Dagster."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from upsert_platform.cli.location import SHIPPED, current_location, use_project
from upsert_platform.cli.look_beside import looking_beside
from upsert_platform.cli.names import complete_tables
from upsert_platform.cli.next_step import first_named, for_typed_project, project_option, with_typed_project
from upsert_platform.cli.nothing_new import show_nothing_new
from upsert_platform.cli.text import console_for
from upsert_platform.core.collections_off import collections_off
from upsert_platform.core.wording import counted

if TYPE_CHECKING:
    import dagster as dg

    from upsert_platform.graph.job_run import CodeLocation, JobResult
    from upsert_platform.sync.looks import Asked, Look

_SYNC = "sync"
_SHOWN_REASONS = 5
_LOOKS = 10.0
"""Seconds between two looks of ``--watch``."""

_module = click.option(
    "-m",
    "--module",
    help="Python module of the code location; what pyproject.toml of this folder declares for dg or dagster, else"
    " upsert_platform.definitions, if left out.",
)
_project = project_option("Folder of the project; UPSERT_PLATFORM_PROJECT if left out.")
_config = click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Run configuration, a YAML file.",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object a run.")


@click.command(short_help="Bring tables up to their topics, and check them.")
@click.argument("tables", nargs=-1, metavar="[TABLE]...", shell_complete=complete_tables)
@_module
@_project
@_config
@click.option("--all", "everything", is_flag=True, help="Start a run of every table, whether or not anything is new.")
@click.option("--watch", is_flag=True, help="Go on when topics have new offsets, until Ctrl-C.")
@click.option(
    "--interval", default=_LOOKS, show_default=True, type=click.FloatRange(1), help="Seconds between looks of --watch."
)
@_as_json
def sync(
    tables: Sequence[str],
    module: str | None,
    project: Path | None,
    config: Path | None,
    interval: float,
    *,
    everything: bool,
    watch: bool,
    as_json: bool,
) -> None:
    """Run the job 'sync': topics to changelogs to tables, with their checks.

    With TABLE, only the tables named and what they are made of. First asks topics, changelogs and tables: the run has
    the tables with something new, those whose checks do not pass, and what is not of the platform. Where there is none
    no run is started; --all, and a run configuration, start one of every table. A code location with several projects
    has a run for each of them.

    The run is recorded in the Dagster instance of DAGSTER_HOME, or the one that `upsert-platform ui` shows. Ends with 1
    if a step or a blocking check failed.
    """
    name = _prepared(module, project)
    every = everything or config is not None
    success = True
    with ExitStack() as opened:
        looks_beside = name == SHIPPED and not tables and not every
        beside = opened.enter_context(looking_beside()) if looks_beside else None
        with collections_off(lasting=True):
            from upsert_platform.demo.instance import dagster_home
            from upsert_platform.graph.job_run import current_instance

            location = _loaded(name)
            jobs = location.jobs_of_projects(_SYNC)
            chosen: Mapping[str, Sequence[dg.AssetKey] | None] = (
                location.assets_of_jobs(tables, jobs) if tables else dict.fromkeys(jobs)
            )
            instance = opened.enter_context(current_instance(dagster_home()))
        for job, assets in chosen.items():
            wanted = assets
            if not every:
                known = beside.looks if beside is not None else None
                wanted = _pending(location, job, instance, assets, known=known, as_json=as_json)
            if wanted is None or wanted:
                success &= _run(location, job, instance, config, assets=wanted, as_json=as_json).success
        if watch:
            try:
                _watch(location, instance, config, chosen, interval=interval, as_json=as_json)
            except KeyboardInterrupt:  # how a watch ends
                return
    if not success:
        sys.exit(1)


def _complete_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from upsert_platform.core.errors import UpsertPlatformError

    try:
        names = _location(ctx.params.get("module"), ctx.params.get("project")).jobs()
    except (UpsertPlatformError, OSError):  # a shell asks while somebody types
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command(short_help="Run a job of the code location.")
@click.argument("job", shell_complete=_complete_jobs)
@_module
@_project
@_config
@_as_json
def run(job: str, module: str | None, project: Path | None, config: Path | None, *, as_json: bool) -> None:
    """Run JOB, such as sync, verify, compact or reconcile, recorded in the Dagster instance as a launched run.

    Does what `dagster job execute -m MODULE -j JOB` does. Ends with 1 if a step or a blocking check failed.
    """
    from upsert_platform.demo.instance import dagster_home
    from upsert_platform.graph.job_run import current_instance

    location = _location(module, project)
    location.job(job)
    with current_instance(dagster_home()) as instance:
        result = _run(location, job, instance, config, assets=None, as_json=as_json)
    if not result.success:
        sys.exit(1)


def _location(module: str | None, project: Path | None) -> CodeLocation:
    return _loaded(_prepared(module, project))


def _prepared(module: str | None, project: Path | None) -> str:
    """Return the module of the code location, whose environment is set."""
    from upsert_platform.changelog import lake

    name = module or current_location(Path.cwd())
    use_project(project, location=name)
    os.environ.setdefault(lake.HOME_VARIABLE, lake.home())
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    return name


def _loaded(name: str) -> CodeLocation:
    with collections_off(lasting=True):
        from upsert_platform.graph.job_run import CodeLocation

        return CodeLocation(name)


def _pending(
    location: CodeLocation,
    job: str,
    instance: dg.DagsterInstance,
    assets: Sequence[dg.AssetKey] | None,
    *,
    known: Mapping[Asked, Look] | None,
    as_json: bool,
) -> Sequence[dg.AssetKey]:
    """Return the assets that need a run, and show why; or that nothing is new."""
    started = time.monotonic()
    with collections_off():
        found = location.pending(job, instance=instance, assets=assets, known=known)
    seconds = time.monotonic() - started
    if not found.assets:
        show_nothing_new(found, job, seconds=seconds, as_json=as_json)
    elif not as_json and len(found.assets) < len(found.states):
        for name, reason in list(found.reasons.items())[:_SHOWN_REASONS]:
            click.echo(f"{name}: {reason}")
        more = len(found.reasons) - _SHOWN_REASONS
        left = len(found.states) - len(found.assets)
        click.echo(f"{f'and {more} more; ' if more > 0 else ''}nothing new, and left out: {counted(left, 'asset')}")
    return found.assets


def _run(
    location: CodeLocation,
    job: str,
    instance: dg.DagsterInstance,
    config: Path | None,
    *,
    assets: Sequence[dg.AssetKey] | None,
    as_json: bool,
    tags: Mapping[str, str] | None = None,
) -> JobResult:
    started = time.monotonic()
    result = location.run(job, instance=instance, config=_read(config), assets=assets, tags=tags)
    _show(result, job, seconds=time.monotonic() - started, as_json=as_json)
    return result


def _read(config: Path | None) -> dict[str, Any]:
    import yaml

    if config is None:
        return {}
    try:
        found = yaml.safe_load(config.read_text("utf-8"))
    except yaml.YAMLError as error:
        raise click.ClickException(f"{config} is not YAML: {error}") from error
    if found is not None and not isinstance(found, dict):
        raise click.ClickException(f"{config} does not hold a mapping, as a run configuration does")
    return found or {}


def _watch(
    location: CodeLocation,
    instance: dg.DagsterInstance,
    config: Path | None,
    chosen: Mapping[str, Sequence[dg.AssetKey] | None],
    *,
    interval: float,
    as_json: bool,
) -> None:
    for look in zip(*(location.requests(job, instance=instance) for job in chosen), strict=True):
        for job, requests in zip(chosen, look, strict=True):
            for request in [None] if requests is None else requests:
                assets = chosen[job]
                wanted = assets if request is None else request.asset_selection
                if wanted is not None and assets is not None:
                    wanted = [key for key in wanted if key in set(assets)]
                    if not wanted:
                        continue
                elif wanted is None:
                    wanted = assets
                tags = None if request is None else request.tags
                _run(location, job, instance, config, assets=wanted, as_json=as_json, tags=tags)
        time.sleep(interval)


def _show(result: JobResult, job: str, *, seconds: float, as_json: bool) -> None:
    from rich.table import Table

    if as_json:
        shown = {**asdict(result), "job": job, "seconds": round(seconds, 1)}
        click.echo(json.dumps(shown, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("asset", no_wrap=True)
    for heading in ("records", "put", "deleted", "set aside", "lag"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("checks", min_width=len("99 passed"))
    for item in result.assets:
        counts = item.counts
        aside = sum(counts[name] for name in ("quarantined", "refused") if name in counts)
        cells = [str(counts[name]) if name in counts else "" for name in ("records", "upserts", "deletes")]
        shown_aside = str(aside) if {"quarantined", "refused"} & set(counts) else ""
        failed = [name for name, passed in item.checks.items() if not passed]
        checks = "step failed" if item.failed else f"FAILED: {', '.join(failed)}" if failed else ""
        if not checks and item.checks:
            warned = sum(name in item.reasons for name in item.checks)  # none failed, so these only warn
            passed = len(item.checks) - warned
            shares = (f"{count} {verdict}" for count, verdict in ((passed, "passed"), (warned, "warned")) if count)
            checks = ", ".join(shares)
        style = "red" if item.failed or failed else ""
        table.add_row(item.asset, *cells, shown_aside, str(counts.get("lag", "")), checks, style=style)
    console = console_for(table)
    if result.assets:
        console.print(table)
    for names, reason in result.reasons.items():
        console.print(f"{names}: {with_typed_project(reason)}", style="red", markup=False, soft_wrap=True)
    for item in result.assets:
        for name, reason in item.reasons.items():
            if reason not in result.reasons.values():  # a step that failed for its check has said so
                style = "yellow" if item.checks[name] else "red"
                line = f"{item.asset}: {name}: {with_typed_project(reason)}"
                console.print(line, style=style, markup=False, soft_wrap=True)
    told = "succeeded" if result.success else "failed"
    console.print(f"{job} {told} in {seconds:.1f} s, run {result.run}", markup=False)
    command = next_command(result)
    if command:
        console.print(f"next: {for_typed_project(command)}", markup=False, soft_wrap=True)


def next_command(result: JobResult) -> str:
    """Return what to type after a run: the first command that a reason of what is wrong names; empty if all is well."""
    told = [(item.checks[name], reason) for item in result.assets for name, reason in item.reasons.items()]
    failed, warned = ([reason for passes, reason in told if passes is wanted] for wanted in (False, True))
    named = first_named([*result.reasons.values(), *failed, *warned])
    return named or ("" if result.success else "upsert-platform doctor")
