"""`upsert-platform session`: a Spark session that outlives runs, kept by a process of its own."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from upsert_platform.cli.durations import Seconds
from upsert_platform.spark.warm_start import LOG

if TYPE_CHECKING:
    from upsert_platform.spark.warm_offer import Offer

_UP_SECONDS: Final = 180.0
_DOWN_SECONDS: Final = 60.0
_TAIL_LINES: Final = 15


@click.group(short_help="Keep a Spark session open between runs.")
def session() -> None:
    """Keep a Spark session open between runs, so that they need not wait for a JVM."""


@session.command(short_help="Open a session in the background.")
@click.option("--idle", type=Seconds(), default="30 min", show_default=True, help="End after so long without a run.")
@click.option("--profile", help="Where Spark runs, as for runs; UPSERT_SPARK_PROFILE if left out.")
def up(idle: float, profile: str | None) -> None:
    """Open a session in the background. Runs of this user from the same folder, with the same settings, work in it.

    One at a time: a run that finds it at work opens a session of its own, as all do without this command.
    """
    from upsert_platform.spark.warm_offer import Offer
    from upsert_platform.spark.warm_process import ANOTHER_IS_UP
    from upsert_platform.spark.warm_start import start_process

    where = _folder()
    found = Offer.read(where)
    if found is not None and found.is_alive():
        click.echo(_told(found, where))
        return
    log = where / LOG
    process = start_process(where, idle=idle, profile=profile)
    deadline = time.monotonic() + _UP_SECONDS
    while (found := Offer.read(where)) is None or found.pid != process.pid:
        ended = process.poll()
        if ended == ANOTHER_IS_UP:
            raise click.ClickException("another 'session up' is at it: see 'upsert-platform session status'")
        if ended is not None or time.monotonic() > deadline:
            process.terminate()
            why = f"did not open within {_UP_SECONDS:.0f} s" if ended is None else f"did not open (status {ended})"
            lines = "\n".join(log.read_text("utf-8", "replace").splitlines()[-_TAIL_LINES:])
            raise click.ClickException(f"the session {why}; {log} ends with:\n{lines}")
        time.sleep(0.1)
    click.echo(_told(found, where))


@session.command(short_help="Show the session.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def status(*, as_json: bool) -> None:
    """Show the session. Ends with 0 if it is up, 1 if there is none."""
    from upsert_platform.spark.warm_offer import Offer

    where = _folder()
    found = Offer.read(where)
    alive = found is not None and found.is_alive()
    if as_json:
        shown = _numbers(found, where) if found is not None and alive else {"up": False}
        click.echo(json.dumps(shown))
    elif found is None:
        click.echo("there is no warm session: 'upsert-platform session up' opens one")
    else:
        click.echo(_told(found, where) if alive else f"the session of process {found.pid} is gone; see {where / LOG}")
    if not alive:
        raise SystemExit(1)


@session.command(short_help="End the session.")
@click.option("--now", is_flag=True, help="Also if a run works in it, which then fails.")
def down(*, now: bool) -> None:
    """End the session. One that a run works in is left alone."""
    from upsert_platform.spark.warm_offer import Offer, Turn, withdraw

    where = _folder()
    found = Offer.read(where)
    if found is None or not found.is_alive():
        if found is not None:
            withdraw(where, found)
        click.echo("there is no warm session")
        return
    turn = Turn.take(where, seconds=2.0)
    if turn is None and not now:
        raise click.ClickException(
            f"process {Turn.holder(where)} works in the session: wait for it, or end both with --now"
        )
    withdraw(where, found)  # nobody begins to work there while it ends
    if turn is not None:
        turn.end(left=turn.left)
    os.kill(found.pid, signal.SIGTERM)
    deadline = time.monotonic() + _DOWN_SECONDS
    while found.is_alive():
        if time.monotonic() > deadline:
            raise click.ClickException(f"process {found.pid} does not end; see {where / LOG}")
        time.sleep(0.1)
    click.echo(f"the session of process {found.pid} has ended")


def _folder() -> Path:
    from upsert_platform.spark.warm_offer import FOLDER_VARIABLE, folder

    found = folder()
    if found is None:
        raise click.ClickException(f"{FOLDER_VARIABLE}=off: warm sessions are not used")
    return found


def _numbers(offer: Offer, where: Path) -> dict[str, object]:
    import psutil

    from upsert_platform.spark.warm_offer import Turn

    try:
        memory = sum(psutil.Process(pid).memory_info().rss for pid in (offer.pid, offer.jvm))
    except psutil.NoSuchProcess:
        memory = 0
    return {
        "up": True,
        "process": offer.pid,
        "master": offer.master,
        "seconds": round(time.time() - offer.began),
        "used_by": int(Turn.holder(where) or 0) or None,
        "idle_seconds": offer.idle_seconds,
        "memory_bytes": memory,
        "log": str(where / LOG),
    }


def _told(offer: Offer, where: Path) -> str:
    told = _numbers(offer, where)
    at_work = f"process {told['used_by']} works in it" if told["used_by"] else "free"
    return (
        f"up since {_since(offer)}: process {offer.pid}, {offer.master}, {int(str(told['memory_bytes'])) >> 20} MB,"
        f" {at_work}; ends after {offer.idle_seconds / 60:.0f} min without a run"
    )


def _since(offer: Offer) -> str:
    """Return the time at which the session was opened, as text."""
    return time.strftime("%H:%M:%S", time.localtime(offer.began))
