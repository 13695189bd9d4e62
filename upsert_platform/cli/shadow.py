"""The part of `upsert-platform adopt` that fills a second table beside another writer's, and compares both."""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from upsert_platform.changelog import lake
from upsert_platform.cli.prove import print_proof, told_proof
from upsert_platform.cli.text import printable
from upsert_platform.cli.verify import DIFFERS
from upsert_platform.core.wording import counted

if TYPE_CHECKING:
    from upsert_platform.proofs.shadow import Round, Shadowing
    from upsert_platform.sync.binding import Binding

_EVERY: Final = 30.0


def shadow(
    table: str,
    binding: Binding,
    suffix: str,
    every: float | None,
    lasting: float | None,
    settle: float | None,
    *,
    examples: int,
    as_json: bool,
) -> None:
    """Fill a second table and compare it with the first until the time is over or somebody interrupts.

    The first table is paused, so that no sync of the platform writes it. The process ends with 0 if both were equal in
    the last round, with 3 if they differed.

    Args:
        every: seconds between two rounds.
        lasting: seconds after which no round begins any more; None goes on.
        settle: seconds that the other writer has in each round.
    """
    from upsert_platform.changelog import pauses
    from upsert_platform.cli.session import spark_session
    from upsert_platform.proofs.proof import SETTLE_SECONDS
    from upsert_platform.proofs.shadow import Shadowing

    if not suffix:
        raise click.UsageError("--shadow-suffix is empty: the second table needs a name of its own, such as _new")
    here = lake.default_lake()
    with spark_session(f"comparing {table} with {table}{suffix}") as (spark, tell):
        told = (lambda message: None) if as_json else tell
        shadowing = Shadowing(
            spark, binding.targets[table], binding, here, suffix=suffix, run=f"shadow-{uuid.uuid4().hex[:8]}"
        )
        pauses.pause(here, table, reason=f"its other writer is compared with {table}{suffix}")
        told(f"{table} is paused, so that no sync writes it; 'upsert-platform resume {table}' ends that")
        last: Round | None = None
        try:
            for _ in _turns(_EVERY if every is None else every, lasting):
                last = shadowing.compare(
                    settle=SETTLE_SECONDS if settle is None else settle, examples=examples, tell=told
                )
                _print(shadowing, last, as_json=as_json)
        except KeyboardInterrupt:
            told("stopped; both tables stay as they are")
    if last is None or not last.equal:
        sys.exit(DIFFERS)


def _turns(every: float, lasting: float | None) -> Iterator[int]:
    """Yield at once, and then so many seconds after each turn."""
    end, turn = None if lasting is None else time.monotonic() + lasting, 0
    while True:
        yield turn
        turn += 1
        if end is not None and time.monotonic() + every >= end:
            return
        time.sleep(every)


def _print(shadowing: Shadowing, found: Round, *, as_json: bool) -> None:
    first, second = shadowing.first.table.name, shadowing.second.table.name
    if as_json:
        click.echo(json.dumps(_told(first, second, found), ensure_ascii=False))
        return
    click.echo(f"{datetime.now(UTC):%H:%M:%S} {first} and {second}: {'equal' if found.equal else 'differ'}")
    print_proof(found.first)
    own = found.second
    if own.passed:
        click.echo(f"{second}: equal, {counted(own.compared, 'row')} compared")
    else:
        click.echo(f"{second}: differs: {own.detail}")
        for row in own.sample:
            click.echo(f"  {row['status']} {printable(row['key']).plain}")


def _told(first: str, second: str, found: Round) -> dict[str, Any]:
    own = found.second
    return {
        "equal": found.equal,
        "first": {**told_proof(found.first), "table": first},
        "second": {
            "table": second,
            "equal": own.passed,
            "batch": own.batch,
            "compared": own.compared,
            "missing": own.missing,
            "extra": own.extra,
            "stale": own.stale,
            "examples": [dict(row) for row in own.sample],
        },
        "seconds": round(found.seconds, 1),
    }
