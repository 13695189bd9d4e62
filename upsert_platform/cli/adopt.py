"""`upsert-platform adopt`: takes over a table that another writer filled, without writing the rows that are right."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from upsert_platform.changelog import lake
from upsert_platform.cli.durations import Seconds
from upsert_platform.cli.names import complete_tables
from upsert_platform.cli.next_step import project_option
from upsert_platform.cli.prove import print_proof, told_proof
from upsert_platform.cli.text import printable
from upsert_platform.cli.verify import DIFFERS
from upsert_platform.core.wording import counted

if TYPE_CHECKING:
    from upsert_platform.proofs.adopt import Adoption
    from upsert_platform.proofs.ends import At


@click.command(short_help="Take over a table that another writer filled.")
@click.argument("table", shell_complete=complete_tables)
@click.option("--from-offsets", metavar="OFFSETS", help="The writer stopped before these offsets, such as 0:42,1:17.")
@click.option("--from-group", metavar="GROUP", help="It stopped at the offsets that this consumer group has committed.")
@click.option("--from-time", metavar="TIME", help="It stopped before the first records that are not older.")
@click.option("--from-latest", is_flag=True, help="It has written all that the topics hold.")
@click.option("--repair", is_flag=True, help="Go on where rows differ at that offset, and write those too.")
@click.option(
    "--delete-unknown",
    is_flag=True,
    help="Delete rows whose key no record names, where the topics have let go of records or are not read from their"
    " start; without it a table with such rows is left alone.",
)
@click.option("--dry-run", is_flag=True, help="Only prove the table at that offset.")
@click.option(
    "--shadow-suffix",
    metavar="SUFFIX",
    help="Take nothing over yet: fill a second table or topic, of TABLE's name with this suffix, beside the other"
    " writer, and compare both again and again.",
)
@click.option(
    "--every", type=Seconds(zero=True), help="With --shadow-suffix: pause between two comparisons.  [default: 30s]"
)
@click.option("--for", "lasting", type=Seconds(), help="With --shadow-suffix: end after so long; left out: at Ctrl-C.")
@click.option(
    "--settle",
    type=Seconds(zero=True),
    help="With --shadow-suffix: look again at rows that differ for so long.  [default: 60s]",
)
@click.option("--examples", default=20, show_default=True, type=click.IntRange(0), help="Rows that differ to show.")
@project_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def adopt(
    table: str,
    from_offsets: str | None,
    from_group: str | None,
    from_time: str | None,
    shadow_suffix: str | None,
    every: float | None,
    lasting: float | None,
    settle: float | None,
    examples: int,
    project: Path | None,
    *,
    from_latest: bool,
    repair: bool,
    delete_unknown: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Take over TABLE, which another writer filled and no longer writes; syncs go on from there.

    TABLE is proven at the offset at which its writer stopped. Then the topics are read into the lake up to their ends,
    and the rows that differ from those are written and recorded as applied; equal rows are not written. A table that
    differs at that offset is left alone, unless --repair is given, and so is one with rows that no record names, unless
    --delete-unknown is given. With --shadow-suffix nothing is taken over: the
    writer goes on, and a second table of the same declarations is filled and compared with TABLE. Ends with 0 if TABLE
    is equal at last, 3 if it differs, 1 after an error.
    """
    from upsert_platform.cli.location import project_binding
    from upsert_platform.cli.session import spark_session
    from upsert_platform.proofs.adopt import adopt as adopt_table

    starts = _given(from_offsets, from_group, from_time, latest=from_latest)
    if shadow_suffix is not None:
        flags = {"--repair": repair, "--delete-unknown": delete_unknown, "--dry-run": dry_run}
        wrong = [*starts, *(name for name, given in flags.items() if given)]
        if wrong:
            raise click.UsageError(f"--shadow-suffix takes nothing over: leave {', '.join(wrong)} out")
    elif (every, lasting, settle) != (None, None, None):
        raise click.UsageError("--every, --for and --settle are of two tables that are compared: add --shadow-suffix")
    at = None if shadow_suffix is not None else _stated(starts)
    binding = project_binding(project)
    if table not in binding.targets:
        known = ", ".join(sorted(binding.targets)) or "none"
        raise click.ClickException(f"no insert writes table '{table}'; written are: {known}")
    if at is None:
        from upsert_platform.cli.shadow import shadow

        suffix = shadow_suffix or ""
        shadow(table, binding, suffix, every, lasting, settle, examples=examples, as_json=as_json)
        return
    with spark_session(f"adopting {table}") as (spark, tell):
        found = adopt_table(
            spark,
            binding.targets[table],
            binding,
            lake.default_lake(),
            at=at,
            run=f"adopt-{uuid.uuid4().hex[:8]}",
            repair=repair,
            delete_unknown=delete_unknown,
            dry_run=dry_run,
            examples=examples,
            tell=(lambda message: None) if as_json else tell,
        )
    if as_json:
        click.echo(json.dumps(_told(found), ensure_ascii=False))
    else:
        _print(table, found, dry_run=dry_run)
    if not found.equal:
        sys.exit(DIFFERS)


def _given(offsets: str | None, group: str | None, time: str | None, *, latest: bool) -> dict[str, str]:
    """Return the options that state where the writer stopped, each with the end that it states."""
    from upsert_platform.proofs.ends import LATEST

    given = {
        "--from-offsets": offsets,
        "--from-group": group and f"group:{group}",
        "--from-time": time,
        "--from-latest": LATEST if latest else None,
    }
    return {name: text for name, text in given.items() if text is not None}


def _stated(stated: dict[str, str]) -> At:
    from upsert_platform.proofs.ends import At

    forms = {"--from-offsets": "offsets", "--from-group": "group", "--from-time": "time", "--from-latest": "latest"}
    if len(stated) != 1:
        raise click.UsageError(f"state where the writer stopped, by one of {', '.join(forms)}")
    ((name, text),) = stated.items()
    at = At.parse(text)
    if at.form != forms[name]:
        raise click.BadParameter(f"'{text}' states no {forms[name]}", param_hint=name)
    return at


def _told(found: Adoption) -> dict[str, Any]:
    told: dict[str, Any] = {**told_proof(found.proof), "adopted": found.done is not None}
    if found.done is not None and found.done.report is not None:
        last = found.done.last
        told |= {"deleted_unknown": found.done.unnamed}
        told |= {"put": found.done.report.upserts, "deleted": found.done.report.deletes, "equal_after": last.passed}
        told |= {"applied_batch": last.batch, "duplicates_after": list(found.duplicate_keys)}
    return told


def _print(table: str, found: Adoption, *, dry_run: bool) -> None:
    print_proof(found.proof, of_moving="an adoption brings them to the topics' ends")
    if found.done is None:
        if dry_run:
            click.echo("nothing was written: --dry-run")
            if found.proof.unknown:
                click.echo(
                    "without --delete-unknown the table is left alone if the lake does not know these rows either"
                )
        elif not found.proof.equal:
            click.echo("nothing was written: --repair goes on and writes these rows")
        return
    report, last = found.done.report, found.done.last
    if report is not None:
        click.echo(
            f"{table}: adopted at batch {last.batch}: {report.upserts} put, {report.deletes} deleted,"
            f" {report.refused_count} refused"
        )
    if found.done.unnamed:
        click.echo(f"{table}: {counted(found.done.unnamed, 'row')} deleted whose key no record names")
    if found.duplicates:
        click.echo(
            f"{table}: {counted(found.duplicates, 'key')} now with values in several partitions, since the old writer"
            f" partitioned otherwise: {'; '.join(printable(key).plain for key in found.duplicate_keys[:5])}"
        )
    if last.passed:
        click.echo(f"{table}: equal, {counted(last.compared, 'row')} compared; 'upsert-platform sync' goes on")
    else:
        click.echo(f"{table}: still differs ({last.detail}): does its old writer still write it?")
