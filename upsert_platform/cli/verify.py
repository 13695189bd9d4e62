"""`upsert-platform verify` and `reconcile`: compare tables with their changelogs, and repair what differs."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from upsert_platform.changelog import lake
from upsert_platform.cli.names import check_written, complete_tables
from upsert_platform.cli.next_step import project_option
from upsert_platform.cli.text import printable
from upsert_platform.core.wording import counted

if TYPE_CHECKING:
    from upsert_platform.core.destination import DestinationState
    from upsert_platform.sync.binding import Binding, Target
    from upsert_platform.sync.comparison import Comparison
    from upsert_platform.sync.destination_hop import DestinationHop
    from upsert_platform.sync.reconcile import Reconciliation

DIFFERS: Final = 3
"""Exit code where a table differs; 1 is an error, and 2 a command that was written wrongly."""
_SHOWN: Final = 10
_project = project_option()
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object a table, and nothing else.")


@dataclass(frozen=True, slots=True)
class _Result:
    """The check result of a table.

    Attributes:
        compared: None where nothing could be compared; `told` says why.
        failed: whether that is an error.
        untold: whether no row of the table can be compared.
        by_key: whether rows have keys, by which those that differ can be repaired.
    """

    table: str
    told: str
    compared: Comparison | None = None
    written: tuple[int, int] | None = None
    failed: bool = False
    untold: bool = False
    by_key: bool = True


@click.command(short_help="Compare every row of tables with their changelogs.")
@click.argument("table", required=False, shell_complete=complete_tables)
@_project
@_json
def verify(table: str | None, project: Path | None, *, as_json: bool) -> None:
    """Compare every row of TABLE (of all tables, if left out) with the last values per key of its changelog.

    Writes nothing but the verdict, which 'status' shows and the next run heeds. Does what the job 'verify' does,
    without Dagster. Ends with 0 if all are equal, 3 if one differs, 1 after an error.
    """
    from upsert_platform.cli.session import spark_session
    from upsert_platform.core.error_catalogue import shown
    from upsert_platform.core.errors import UpsertPlatformError
    from upsert_platform.sync.appended_rows import appended_remedy
    from upsert_platform.sync.comparison import keep_verdict
    from upsert_platform.sync.verify import check_everything, is_comparable

    results = []
    for target in _targets(project, table):
        name = target.table.name
        try:
            with _hop(target) as hop:
                reason, failed, state = _nothing_to_compare(hop)
                if reason:
                    results.append(_Result(name, reason, failed=failed))
                else:
                    with spark_session(f"comparing {name}") as (spark, _):
                        found = check_everything(spark, hop, upto=state.applied_batch)
                    if found.untold:
                        results.append(_Result(name, found.untold, untold=True))
                    else:
                        kept = keep_verdict(hop, found, state)
                        told = (
                            "" if kept else "another check found meanwhile that rows differ, which stands: verify again"
                        )
                        told = told if found.passed or is_comparable(hop) else appended_remedy(hop)
                        results.append(_Result(name, told, found, by_key=is_comparable(hop)))
        except UpsertPlatformError as error:  # the other tables are compared all the same
            results.append(_Result(name, shown(error), failed=True))
        _tell(results[-1], as_json=as_json)
    _end(results)


@click.command(short_help="Write the rows of a table that differ, and no others.")
@click.argument("table", shell_complete=complete_tables)
@click.option("--dry-run", is_flag=True, help="Only show what differs.")
@_project
@_json
def reconcile(table: str, project: Path | None, *, dry_run: bool, as_json: bool) -> None:
    """Write the rows of TABLE that differ from the last values per key of its changelog, and delete the extra ones.

    The table serves on meanwhile; its lease is held, so that no run writes at the same time. Does what the job
    'reconcile' does, without Dagster. Ends with 0 if the table is equal now, 3 if it differs, 1 after an error.
    """
    from upsert_platform.cli.session import spark_session
    from upsert_platform.sync.reconcile import reconcile as repair

    (target,) = _targets(project, table)
    with _hop(target) as hop, spark_session(f"comparing {table}") as (spark, tell):
        done = repair(spark, hop, dry_run=dry_run, tell=tell)
    result = _repaired(table, done)
    _tell(result, as_json=as_json)
    _end([result] if done.report is None else [_Result(table, "", done.last)])


def _repaired(table: str, done: Reconciliation) -> _Result:
    report = done.report
    if report is None:
        return _Result(table, "", done.before)
    told = f"{report.upserts} put, {report.deletes} deleted, {report.refused_count} refused"
    if done.after is not None and not done.after.passed:
        told += f"; it still differs ({done.after.detail}): does another program write it?"
    return _Result(table, told, done.before, (report.upserts, report.deletes))


def _targets(project: Path | None, table: str | None) -> Sequence[Target]:
    from upsert_platform.cli.location import project_binding

    binding: Binding = project_binding(project)
    if table is None:
        return list(binding.targets.values())
    check_written(binding, table)
    return [binding.targets[table]]


@contextmanager
def _hop(target: Target) -> Iterator[DestinationHop]:
    from upsert_platform.changelog.refused import RefusedStore
    from upsert_platform.sync.binding import changelog_of
    from upsert_platform.sync.destination_hop import DestinationHop

    where = lake.default_lake()
    refused = RefusedStore(where.refused(target.table.name))
    destination = target.open()
    try:
        yield DestinationHop(
            target,
            changelog_of(target.source, where),
            destination,
            refused=refused,
            run=f"command-{uuid.uuid4().hex[:8]}",
        )
    finally:
        destination.close()


def _nothing_to_compare(hop: DestinationHop) -> tuple[str, bool, DestinationState]:
    """Return why a table cannot be compared (empty if it can), whether that is an error, and the table's state."""
    state = hop.plan().state
    if state.lost:
        return state.lost, True, state
    if not state.applied_batch:
        return "nothing was written yet: there is nothing to compare", False, state
    return "", False, state


def _tell(result: _Result, *, as_json: bool) -> None:
    found = result.compared
    if as_json:
        counts = _counts(found) if found is not None else {"compared": 0} if result.untold else {}
        written = {} if result.written is None else dict(zip(("put", "deleted"), result.written, strict=True))
        click.echo(json.dumps({"table": result.table, "told": result.told, **counts, **written}, ensure_ascii=False))
        return
    if found is None:
        click.echo(f"{result.table}: {result.told}", err=result.failed)
        return
    told = f"; {result.told}" if result.told else ""
    compared = f"{counted(found.compared, 'key' if result.by_key else 'row')} compared"
    if found.passed:
        beside = f", {counted(found.beside, 'row')} of others beside them" if found.beside else ""
        click.echo(f"{result.table}: equal, {compared}{beside}{told}")
        return
    differing = f"{found.missing} missing, {found.extra} extra, {found.stale} stale"
    click.echo(f"{result.table}: {differing} of {compared}{told}")
    for row in found.sample[:_SHOWN]:
        difference = f": {row['difference']}" if row.get("difference") else ""
        click.echo(f"  {row['status']} {printable(row['key']).plain}{printable(difference).plain}")
    if result.written is None and result.by_key:
        click.echo(f"  'upsert-platform reconcile {result.table}' writes just these")


def _counts(found: Comparison) -> dict[str, object]:
    names = ("compared", "missing", "extra", "stale", "refused", "expired")
    beside = {"beside": found.beside} if found.beside else {}
    return {"equal": found.passed, "batch": found.batch, **{name: getattr(found, name) for name in names}, **beside}


def _end(results: Sequence[_Result]) -> None:
    if any(result.failed for result in results):
        sys.exit(1)
    if any(result.compared is not None and not result.compared.passed for result in results):
        sys.exit(DIFFERS)
