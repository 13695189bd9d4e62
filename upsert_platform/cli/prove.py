"""`upsert-platform prove`: whether a table holds what its topics say, whoever wrote it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from upsert_platform.changelog import lake
from upsert_platform.cli.durations import Seconds
from upsert_platform.cli.names import check_written, complete_tables
from upsert_platform.cli.next_step import project_option
from upsert_platform.cli.text import printable
from upsert_platform.cli.verify import DIFFERS
from upsert_platform.core.wording import counted

if TYPE_CHECKING:
    from upsert_platform.proofs.database import DatabaseProof
    from upsert_platform.proofs.proof import Proof
    from upsert_platform.sync.binding import Target


@click.command(short_help="Prove that a table equals its topics, whoever wrote it.")
@click.argument("table", shell_complete=complete_tables)
@click.option(
    "--source",
    type=click.Choice(["topic", "database", "lake"]),
    help="Compare with the topics, with the table of MySQL or MariaDB that TABLE follows, or with what the lake has of"
    " them. Left out: what it is written from, and the lake where --at states a batch.",
)
@click.option(
    "--at",
    "stated",
    metavar="END",
    help="Where the topics end: applied, latest, group:NAME (its committed offsets), offsets such as 0:42,1:17, or a"
    " time such as 2026-11-01T12:00:00Z; of the lake also a batch such as 41."
    " Left out: what the platform has applied, or the latest offsets of a table that somebody else writes.",
)
@click.option(
    "--settle",
    type=Seconds(zero=True),
    default="60s",
    show_default=True,
    help="Look again at rows that differ for so long, while the table is written.",
)
@click.option(
    "--max-load",
    type=click.IntRange(1),
    metavar="THREADS",
    help="With --source database: wait while more threads of the server run (Threads_running).",
)
@click.option(
    "--max-lag",
    type=Seconds(zero=True),
    help="With --source database: wait while the server, if it is a replica, is further behind.",
)
@click.option("--resume", is_flag=True, help="With --source database: go on where a killed proof has stopped.")
@click.option("--examples", default=20, show_default=True, type=click.IntRange(0), help="Rows that differ to show.")
@project_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def prove(
    table: str,
    source: str | None,
    stated: str | None,
    settle: float,
    max_load: int | None,
    max_lag: float | None,
    examples: int,
    project: Path | None,
    *,
    resume: bool,
    as_json: bool,
) -> None:
    """Prove that TABLE, which an insert writes, equals its topics up to a stated end; write nothing.

    The topics are read anew, whatever the lake holds, and every row of the table is compared. The table may have been
    filled by anybody: it needs no control record of the platform. Rows that differ are looked at again while the table
    is written. With --source database the table is compared with the one of MySQL or MariaDB that it follows, with
    --source lake with the rows that the lake has as of a batch, offsets or a time, as long as it has them. Does what
    the job 'prove' does, without Dagster. Ends with 0 if they are equal, 3 if they differ, 1 after an error.
    """
    from upsert_platform.cli.location import project_binding
    from upsert_platform.cli.session import spark_session
    from upsert_platform.proofs.ends import At
    from upsert_platform.proofs.lake_proof import DATABASE, LAKE, prove_by_lake, source_of
    from upsert_platform.proofs.proof import prove as prove_table

    binding = project_binding(project)
    check_written(binding, table)
    target = binding.targets[table]
    source = source_of(target, source, stated)
    _refuse_others(source, database=(max_load is not None, max_lag is not None, resume))
    if source == DATABASE:
        _prove_database(target, max_load, max_lag, resume=resume, examples=examples, as_json=as_json)
        return
    at = None if stated is None or source == LAKE else At.parse(stated)
    with spark_session(f"proving {table}") as (spark, tell):
        told = (lambda message: None) if as_json else tell
        here = lake.default_lake()
        if source == LAKE:
            proof = prove_by_lake(spark, target, here, at=stated, settle=settle, examples=examples, tell=told)
        else:
            proof = prove_table(spark, target, binding, here, at=at, settle=settle, examples=examples, tell=told)
    if as_json:
        click.echo(json.dumps(told_proof(proof), ensure_ascii=False))
    else:
        print_proof(proof)
    if not proof.equal:
        sys.exit(DIFFERS)


def _refuse_others(source: str, *, database: tuple[bool, bool, bool]) -> None:
    given = [name for name, is_given in zip(("--max-load", "--max-lag", "--resume"), database, strict=True) if is_given]
    if source != "database" and given:
        raise click.UsageError(f"{given[0]} is of a database: add --source database, or leave it out")


def _prove_database(
    target: Target, max_load: int | None, max_lag: float | None, *, resume: bool, examples: int, as_json: bool
) -> None:
    """Prove a table against its database, print the proof, and end with 3 where rows differ."""
    from upsert_platform.cli.session import spark_session
    from upsert_platform.proofs.database import prove_database

    with spark_session(f"proving {target.table.name}") as (spark, tell):
        proof = prove_database(
            spark,
            target,
            lake.default_lake(),
            max_threads=max_load,
            max_lag=max_lag,
            resume=resume,
            examples=examples,
            tell=(lambda message: None) if as_json else tell,
        )
    if as_json:
        click.echo(json.dumps(told_database_proof(proof), ensure_ascii=False))
    else:
        differs = f"{proof.missing} missing, {proof.extra} extra, {proof.stale} stale"
        click.echo(
            f"{proof.table}: {'equal' if proof.equal else 'differs'} through {proof.through} of {proof.stream}"
            f"{'' if proof.equal else ': ' + differs}, {counted(proof.changelog.rows, 'row')} compared"
        )
        for row in proof.examples:
            difference = f": {row['difference']}" if row.get("difference") else ""
            click.echo(
                f"  {row['status']} in the {row['in']}: {printable(row['key']).plain}{printable(difference).plain}"
            )
        _print_refused(proof.table, proof.refused)
        if proof.expired:
            click.echo(f"  {counted(proof.expired, 'row')} not there, so old that the table may have let them expire")
    if not proof.equal:
        sys.exit(DIFFERS)


def told_database_proof(proof: DatabaseProof) -> dict[str, Any]:
    """Return a proof against a database as one JSON object."""
    return {
        "table": proof.table,
        "source": proof.stream,
        "equal": proof.equal,
        "proven_through": {"file": proof.through.file, "position": proof.through.offset, "gtids": proof.through.gtids},
        "proven_at": proof.proven_at.isoformat(timespec="seconds"),
        "compared": proof.changelog.rows,
        "missing": proof.missing,
        "extra": proof.extra,
        "stale": proof.stale,
        "refused": proof.refused,
        "expired": proof.expired,
        "chunks": proof.changelog.chunks,
        "fetched_chunks": proof.changelog.fetched,
        "seconds": round(proof.seconds, 1),
        "examples": proof.examples,
    }


def told_proof(proof: Proof) -> dict[str, Any]:
    """Return a proof as one JSON object."""
    found = proof.found
    return {
        "table": proof.table,
        "equal": proof.equal,
        "at": proof.at,
        "proven_through": {
            topic: {str(partition): end for partition, end in read.end.items()}
            for topic, read in sorted(proof.through.items())
        },
        "proven_at": proof.proven_at.isoformat(timespec="seconds"),
        "compared": found.compared,
        "missing": found.missing,
        "extra": found.extra,
        "stale": found.stale,
        "duplicates": proof.duplicates,
        "refused": found.refused,
        "moving": proof.moving,
        "unknown": proof.unknown,
        "quarantined": proof.quarantined,
        "batch": proof.batch,
        "history": proof.history,
        "looks": proof.looks,
        "seconds": round(proof.seconds, 1),
        "examples": [dict(row) for row in found.sample],
        "duplicate_keys": list(proof.duplicate_keys),
        "moving_keys": list(proof.moving_keys),
        "unknown_keys": list(proof.unknown_keys),
    }


def print_proof(proof: Proof, *, of_moving: str = "a longer --settle may judge them") -> None:
    """Print a proof for people.

    Args:
        of_moving: what becomes of keys that move.
    """
    found = proof.found
    through = f"through {proof.position or 'the beginning'} ({proof.at})"
    if proof.batch is not None and proof.history is not None:
        offsets = f", {proof.position}" if proof.position else ""
        through = (
            f"as of batch {proof.batch} of the lake ({proof.at}{offsets}), which has batches from {proof.history} on"
        )
    if proof.equal:
        click.echo(f"{proof.table}: equal {through}, {counted(found.compared, 'row')} compared")
    else:
        duplicates = f", {proof.duplicates} more than once" if proof.duplicates else ""
        click.echo(
            f"{proof.table}: differs {through}: {found.missing} missing, {found.extra} extra, {found.stale}"
            f" stale{duplicates}, of {counted(found.compared, 'row')} compared"
        )
    for row in found.sample:
        difference = f": {row['difference']}" if row.get("difference") else ""
        click.echo(f"  {row['status']} {printable(row['key']).plain}{printable(difference).plain}")
    for key in proof.duplicate_keys:
        click.echo(f"  in several partitions: {printable(key).plain}")
    if proof.moving:
        keys = "; ".join(printable(key).plain for key in proof.moving_keys[:5])
        click.echo(
            f"  {counted(proof.moving, 'key')} moving, not judged: the topic changed them meanwhile ({keys});"
            f" {of_moving}"
        )
    if proof.unknown:
        keys = "; ".join(printable(key).plain for key in proof.unknown_keys[:5])
        click.echo(
            f"  {counted(proof.unknown, 'row')} not judged: no record names the key, and the topic is not read from its"
            f" first record or has let go of some{f' ({keys})' if keys else ''}"
        )
    _print_refused(proof.table, found.refused)
    if proof.quarantined:
        click.echo(f"  {counted(proof.quarantined, 'record')} not compared: undecodable")


def _print_refused(table: str, count: int) -> None:
    if count:
        click.echo(f"  {counted(count, 'row')} refused by the table; see 'quarantine list {table}'")
