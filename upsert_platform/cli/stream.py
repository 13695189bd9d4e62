"""`upsert-platform stream`: keeps tables equal to their topics, second by second, until it is stopped."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from upsert_platform.cli.durations import Seconds
from upsert_platform.cli.next_step import project_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from upsert_platform.core.model import Project
    from upsert_platform.graph.stream_events import AssetKeys
    from upsert_platform.sync.binding import Binding
    from upsert_platform.sync.streaming.reports import Report

_LOOK_SECONDS: Final = 0.2


@click.command(short_help="Keep tables equal to their topics, second by second.")
@project_option()
@click.option("--tables", multiple=True, help="Destination table, or several joined by commas; all if left out.")
@click.option("--max-delay", type=Seconds(), default="1s", show_default=True, help="How old a record may get.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve Prometheus metrics on 127.0.0.1.")
@click.option(
    "--report-every", type=Seconds(), default="60s", show_default=True, help="Lines, checks and events for Dagster."
)
@click.option(
    "--local-rows",
    type=click.IntRange(0),
    help="Rows of a batch up to which this process does the work, without Spark; UPSERT_STREAM_LOCAL_ROWS, or 250,000,"
    " if left out.",
)
@click.option("--for", "lasting", type=Seconds(), help="End after so long; until it is stopped if left out.")
def stream(
    project: Path | None,
    tables: tuple[str, ...],
    max_delay: float,
    metrics_port: int | None,
    report_every: float,
    local_rows: int | None,
    lasting: float | None,
) -> None:
    """Keep tables equal to their topics, second by second, until SIGTERM or Ctrl-C.

    Commits, positions and leases are those of job 'sync': both may alternate, and while this runs it alone writes its
    tables. What was read when it is stopped is brought to the tables first. SIGHUP reads the declarations
    again; so does a table of a database that gets columns. With
    DAGSTER_HOME set, a materialisation and a check per interval appear in the Dagster UI.
    """
    from upsert_platform.changelog import lake
    from upsert_platform.cli.location import project_binding
    from upsert_platform.core.errors import UpsertPlatformError
    from upsert_platform.spark.placement import refuse_wrong
    from upsert_platform.spark.profiles import spark_place
    from upsert_platform.sync.on_demand import stream_local_rows
    from upsert_platform.sync.streaming.loop import StreamLoop, StreamSettings
    from upsert_platform.sync.streaming.metrics_page import metrics_page
    from upsert_platform.sync.streaming.reports import Reporter

    binding = project_binding(project)
    shown_as = _asset_keys(binding.project)
    lake.check_writable(lake.home())
    refuse_wrong(spark_place(), lake=lake.home())
    names = tuple(name for text in tables for name in text.split(",") if name)
    settings = StreamSettings(
        tables=names, max_delay=max_delay, check_seconds=report_every, local_rows=stream_local_rows(local_rows)
    )
    with ExitStack() as stack:
        loop = StreamLoop(lake.default_lake(), settings, open_session=stack.enter_context(_session()), tell=_tell)
        stops, reloads = _signals(stack)
        if metrics_port is not None:
            port = stack.enter_context(metrics_page(metrics_port, loop.numbers))
            _tell(f"metrics on http://127.0.0.1:{port}/metrics")
        report = stack.enter_context(_reports(loop.run, lambda: shown_as, lambda: binding))
        stack.callback(lambda: report(reporter.reports(loop.numbers())))
        reporter = Reporter()
        loop.declare(binding)
        stack.callback(loop.stop)
        _tell(f"streaming to {', '.join(names or binding.targets)} ({loop.run})")
        end = None if lasting is None else time.monotonic() + lasting
        due = time.monotonic() + report_every
        while not stops.wait(_LOOK_SECONDS) and (end is None or time.monotonic() < end):
            loop.raise_if_died()
            if reloads.is_set() or loop.takes_stale():
                reloads.clear()
                try:
                    found = project_binding(project)
                    renamed = _asset_keys(found.project)
                    loop.declare(found)
                    shown_as, binding = renamed, found
                    _tell("declarations are read again")
                except UpsertPlatformError as error:  # those that run go on as they were declared
                    _tell(f"declarations were not taken up: {error}")
            if time.monotonic() >= due:
                due += report_every
                report(reporter.reports(loop.numbers(), loop.judgements()))
        _tell("stopping: what was read is brought to its tables")
    _tell("stopped")


def _tell(line: str) -> None:
    click.echo(f"{datetime.now().astimezone():%H:%M:%S} {line}", err=True)


def _tell_lines(reports: Sequence[Report]) -> None:
    for report in reports:
        _tell(report.line())


def _signals(stack: ExitStack) -> tuple[threading.Event, threading.Event]:
    """Events that SIGTERM or SIGINT, and SIGHUP, set; the handlers before are put back at the end."""
    stops, reloads = threading.Event(), threading.Event()
    for number, event in ((signal.SIGTERM, stops), (signal.SIGINT, stops), (signal.SIGHUP, reloads)):
        before = signal.signal(number, partial(_set, event))
        stack.callback(signal.signal, number, before)
    return stops, reloads


def _set(event: threading.Event, _number: int, _frame: object) -> None:
    event.set()


@contextmanager
def _session() -> Iterator[Callable[[], SparkSession]]:
    """Gives what opens Spark's session, at its first call; it is closed at the end."""
    opened: list[SparkSession] = []

    def open_once() -> SparkSession:
        if not opened:
            from upsert_platform.changelog import lake
            from upsert_platform.spark.session import open_session

            _tell("opening Spark: there are more rows than --local-rows, or an expression that Spark computes")
            opened.append(open_session(lake=lake.home()))
        return opened[0]

    try:
        yield open_once
    finally:
        for session in opened:
            session.stop()


def _asset_keys(project: Project) -> AssetKeys | None:
    """Keys of assets, if there is a Dagster instance that is told of them."""
    if not os.environ.get("DAGSTER_HOME"):
        return None
    from upsert_platform.graph.stream_events import asset_keys

    return asset_keys(project)


@contextmanager
def _reports(
    run: str, names: Callable[[], AssetKeys | None], binding: Callable[[], Binding]
) -> Iterator[Callable[[Sequence[Report]], None]]:
    """Gives what tells people of an interval, and Dagster where it is."""
    with ExitStack() as stack:
        told: list[Callable[[Sequence[Report]], None]] = [_tell_lines]
        if names() is not None:
            from upsert_platform.changelog.lake import default_lake
            from upsert_platform.graph.stream_events import reports_to_instance, version_of

            def version(report: Report) -> str | None:
                return version_of(report, binding(), default_lake())

            told.append(stack.enter_context(reports_to_instance(run, names, version)))

        def tell(reports: Sequence[Report]) -> None:
            for one in told:
                one(reports)

        yield tell
