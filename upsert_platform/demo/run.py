"""Runs the demo: local stack, two waves of users, two syncs, and an independent look at both tables."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from upsert_platform.changelog import lake
from upsert_platform.changelog.tables import is_uri
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.demo.instance import dagster_home, environment
from upsert_platform.demo.pageviews import TOPIC as VIEWS_TOPIC
from upsert_platform.demo.pageviews import Pageviews, Rows, expected, tables
from upsert_platform.demo.users import TOPIC, Users, produce
from upsert_platform.local import supervisor

if TYPE_CHECKING:
    from upsert_platform.referee.verdict import Verdict

FIRST_WAVE = 3000
SECOND_WAVE = 1500
VIEWS = 5000
"""Page views per wave."""
TABLES = ("users_serving", "users_warehouse")
"""What the referee judges; the tables behind queries are compared with what the demo counted."""
_PROGRESS = re.compile(r"\d\d:\d\d:\d\d ")
"""Begins the lines that a run tells about itself."""
_END_SECONDS = 15.0
_COMMAND = "upsert-platform"


class DemoError(UpsertPlatformError):
    """A step of the demo did not do what it should; the message says where to look."""


def _quiet_clients() -> None:
    """The vendor's client says at each start that it runs without its C++ part, which it has for Python 3.12 alone."""
    logging.getLogger("tablestore").setLevel(logging.ERROR)


def run_demo(console: Console, *, keep: bool = False) -> None:
    """Runs the whole demo.

    Args:
        keep: leave the local servers running at the end.

    Raises:
        DemoError: a run failed, or a table is not what it should be.
    """
    _quiet_clients()
    directory = supervisor.default_directory()
    already = {item.name for item in supervisor.status(directory) if item.state == "running"}
    try:
        with console.status("starting Kafka, Tablestore and MaxCompute on this machine"):
            variables = supervisor.up(directory)
        console.print(f"[green]✓[/] local stack is up ({', '.join(sorted(_names(directory)))})")
        elsewhere = bool(os.environ.get(lake.PROJECT_VARIABLE))
        with _own_project(variables):
            _waves(console, variables, command=f"{lake.PROJECT_VARIABLE}= {_COMMAND}" if elsewhere else _COMMAND)
    finally:
        if not keep and not already:
            with console.status("stopping what was started"):
                supervisor.down(directory)
            console.print("[green]✓[/] local stack is stopped; its data stay")


@contextmanager
def _own_project(variables: Mapping[str, str]) -> Iterator[None]:
    """The project that ships with the package, on local servers, whatever the environment names.

    A project of the user's, or servers elsewhere, are none of the demo's business: it would write there.
    """
    before = dict(os.environ)
    os.environ.pop(lake.PROJECT_VARIABLE, None)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _names(directory: Path) -> list[str]:
    return [item.name for item in supervisor.status(directory) if item.state == "running"]


def _waves(console: Console, variables: Mapping[str, str], *, command: str) -> None:
    truth = Users(seed=int(time.time())), Pageviews(seed=int(time.time()))
    users = truth[0]
    _wave(console, variables, truth, "first wave: inserts", users.first_wave(FIRST_WAVE))
    _wave(console, variables, truth, "second wave: updates, deletes, re-inserts", users.second_wave(SECOND_WAVE))
    console.print("\n[bold]Where to look next[/]")
    hints = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    hints.add_column(no_wrap=True)
    hints.add_column(overflow="fold")  # a path is never cut
    hints.add_row("these runs, their metadata and checks", f"{command} ui")
    hints.add_row("the servers again, with their data", "upsert-platform local up")
    hints.add_row("records that could not be decoded", f"{command} quarantine list")
    hints.add_row("the declarations", _shown(lake.project_path()))
    home = lake.home()
    shown = home if is_uri(home) else _shown(Path(home))
    hints.add_row("the lake, data of the servers, DAGSTER_HOME", Text(shown))
    console.print(hints)


def _wave(
    console: Console,
    variables: Mapping[str, str],
    truth: tuple[Users, Pageviews],
    title: str,
    records: Iterator[tuple[bytes, bytes | None]],
) -> None:
    with console.status(f"{title}: producing"):
        servers = variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]
        sent = produce(servers, records)
        users, views = truth
        looked = views.wave(VIEWS, most_users=max(users.rows))
        viewed = produce(servers, looked, topic=VIEWS_TOPIC, compacted=False)
    console.print(
        f"[green]✓[/] {title}: {sent} records in topic '{TOPIC}', {viewed} in topic '{VIEWS_TOPIC}'", highlight=False
    )
    started = time.monotonic()
    log = dagster_home().parent / "demo.log"
    with console.status("dagster job execute -m upsert_platform.definitions -j sync") as spinner:
        room = console.width - 4  # beside the spinner
        _sync(log, lambda line: spinner.update(Text(f"sync: {line}"[:room])))
    console.print(f"[green]✓[/] sync in {time.monotonic() - started:.0f} s (log: {_shown(log)})")
    with console.status("a referee reads the topic, and the tables with the vendors' clients"):
        found = _audited()
        pairs = zip(("regions_serving", "last_views"), tables(variables), expected(servers), strict=True)
        behind_queries = list(pairs)
    console.print(_summary(found))
    console.print(_spark_work())
    for name, verdict in found.items():
        if not verdict.equal or not verdict.whole:
            first = next((f"{item.status} {item.key} {item.detail}" for item in verdict.differences), "")
            raise DemoError(
                f"{name} is not what topic '{TOPIC}' says in {verdict.differing} places, the first: {first}"
            )
    for name, rows, wanted in behind_queries:
        _compare(name, rows, wanted, console)


def _compare(name: str, rows: Rows, wanted: Rows, console: Console) -> None:
    """Compares a table behind a query with what follows from everything that was produced."""
    if rows != wanted:
        first = next((pair for pair in zip(rows, wanted, strict=False) if pair[0] != pair[1]), (len(rows), len(wanted)))
        raise DemoError(f"{name} is not what the records say; the first difference: {first[0]}, should be {first[1]}")
    console.print(f"[green]✓[/] query result in {name}: {len(rows)} rows, equal to a plain count of the records")


def _audited() -> dict[str, Verdict]:
    """Return the referee's verdict for both tables."""
    from upsert_platform.sync.audit import audit
    from upsert_platform.sync.binding import bind, load

    binding = bind(*load())
    return {name: audit(binding.targets[name], lake.default_lake()).verdict for name in TABLES}


def _sync(log: Path, tell: Callable[[str], None]) -> None:
    """Runs job `sync` as a user would, handing on each line of its console without the time.

    A run that is interrupted is ended before its servers are.
    """
    command = [str(Path(sys.executable).parent / "dagster"), "job", "execute"]
    command += ["-m", "upsert_platform.definitions", "-j", "sync"]
    with (
        log.open("w", encoding="utf-8") as kept,
        subprocess.Popen(
            command,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                kept.write(line)
                if _PROGRESS.match(line):
                    tell(line[len("hh:mm:ss ") :].strip())
        except BaseException:
            _end(process)
            raise
    if process.returncode:
        raise DemoError(f"the run failed (exit code {process.returncode}); its log is {log}")


def _end(process: subprocess.Popen[str]) -> None:
    """Interrupts a run, which Dagster notes as canceled; kills it if it does not end."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _summary(found: Mapping[str, Verdict]) -> Table:
    """The table that a wave ends with, from what Dagster knows of the run and from the referee."""
    import dagster as dg

    from upsert_platform.graph import keys

    shown = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for heading in (
        "destination",
        "rows",
        "upserts",
        "deletes",
        "superseded",
        "quarantined",
        "lag",
        "check",
        "referee",
    ):
        left = heading in ("destination", "check", "referee")
        shown.add_column(heading, justify="left" if left else "right", no_wrap=True)
    os.environ.setdefault("DAGSTER_HOME", str(dagster_home()))
    with dg.DagsterInstance.get() as instance:
        changelog = _latest(instance, keys.changelog_key("users"))
        for name, verdict in found.items():
            key = keys.destination_key(name)
            done = _latest(instance, key)
            check = dg.AssetCheckKey(key, keys.CHECK_LAST_VALUE)
            record = instance.event_log_storage.get_latest_asset_check_execution_by_key([check]).get(check)
            passed = record is not None and record.status.value == "SUCCEEDED"
            shown.add_row(
                name,
                str(verdict.equal_rows),
                *(str(done.get(item, 0)) for item in ("upserts", "deletes")),
                *(str(changelog.get(item, 0)) for item in ("superseded", "quarantined", "lag")),
                "[green]passed[/]" if passed else "[red]failed[/]",
                "[green]equal[/]" if verdict.equal else f"[red]{verdict.differing} differ[/]",
            )
    return shown


def _spark_work() -> str:
    """Return Spark's jobs, stages and tasks of the newest run, from the metadata of its materialisations and checks."""
    import dagster as dg

    counts = dict.fromkeys(("jobs", "stages", "tasks"), 0)
    os.environ.setdefault("DAGSTER_HOME", str(dagster_home()))
    with dg.DagsterInstance.get() as instance:
        (run,) = instance.get_runs(limit=1)
        for entry in instance.all_logs(run.run_id):
            event = entry.dagster_event
            done: Any = None if event is None else event.event_specific_data
            made = getattr(done, "materialization", done)
            shown = getattr(made, "metadata", {})
            for name in counts:
                value = shown.get(f"spark_{name}")
                counts[name] += int(value.value) if value is not None else 0
    return "Spark: " + ", ".join(f"{count} {name}" for name, count in counts.items())


def _latest(instance: Any, key: Any) -> dict[str, Any]:
    event = instance.get_latest_materialization_event(key)
    found = event.asset_materialization.metadata if event is not None and event.asset_materialization else {}
    return {name: value.value for name, value in found.items()}


def _shown(path: Path) -> str:
    """A path as short as it can be told."""
    absolute = path.absolute()
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)
