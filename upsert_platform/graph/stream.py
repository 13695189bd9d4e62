"""Job `stream`: continuous mode as a run of Dagster, until it is terminated.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from typing import Final

import dagster as dg
from pydantic import Field

from upsert_platform.core.error_catalogue import shown
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.model import Project
from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.op_jobs import job_of
from upsert_platform.graph.resources import PlatformResource, SparkResource
from upsert_platform.graph.stream_events import events_of, version_of
from upsert_platform.sync.freshness import Judgement
from upsert_platform.sync.on_demand import stream_local_rows
from upsert_platform.sync.streaming.loop import StreamLoop, StreamSettings
from upsert_platform.sync.streaming.metrics_page import metrics_page
from upsert_platform.sync.streaming.reports import Report, Reporter

STREAM: Final = "stream"
_STEP: Final = "loop"
"""A job and a step of one name cannot be loaded as a code location."""
_LOOK_SECONDS: Final = 0.2


class StreamConfig(dg.Config):
    """Run configuration of continuous mode; see `upsert-platform stream`."""

    tables: list[str] = Field(default_factory=list, description="Declared names of tables; all, if left out.")
    max_delay_seconds: float = Field(1.0, gt=0, description="How old a record may get before it is in its tables.")
    report_every_seconds: float = Field(60.0, gt=0, description="Between two materialisations and checks of a table.")
    metrics_port: int = Field(0, ge=0, le=65535, description="Of 127.0.0.1, for Prometheus; 0 serves none.")
    local_rows: int | None = Field(
        None,
        ge=0,
        description="Up to so many rows of a batch this process does the work, without Spark; UPSERT_STREAM_LOCAL_ROWS,"
        " or 250,000, if left out.",
    )
    last_seconds: float = Field(0.0, ge=0, description="Ends after so long; 0 runs until it is terminated.")


def stream_job(project: Project, names: AssetKeys = AS_DECLARED) -> dg.JobDefinition:
    """One step, which ends when the run is terminated."""
    targets = ", ".join(sorted({insert.target for insert in project.inserts}))

    @dg.op(
        name=names.named(_STEP),
        description=f"Keeps tables equal to their topics: {targets}.",
        tags={"dagster/kind/kafka": ""},
        out=dg.Out(dg.Nothing),
    )
    @names.bound
    def step(
        context: dg.OpExecutionContext, config: StreamConfig, platform: PlatformResource, spark: SparkResource
    ) -> None:
        with told_plainly():
            _stream(context, config, platform, spark, names)

    return job_of(
        names.named(STREAM),
        step,
        description="Continuous mode: every changelog, query and table is kept up with its topics, second by second,"
        " until the run is terminated. While it runs no sync can write its tables.",
    )


def _stream(
    context: dg.OpExecutionContext,
    config: StreamConfig,
    platform: PlatformResource,
    spark: SparkResource,
    names: AssetKeys,
) -> None:
    spark.refuse_wrong(platform, writes=True)
    settings = StreamSettings(
        tables=tuple(config.tables),
        max_delay=config.max_delay_seconds,
        check_seconds=config.report_every_seconds,
        local_rows=stream_local_rows(spark.little_rows if config.local_rows is None else config.local_rows),
    )
    # Workers are threads, and Dagster logs from the thread of the step.
    lines: SimpleQueue[str] = SimpleQueue()
    loop = StreamLoop(platform.lake, settings, open_session=lambda: spark.spark_session, tell=lines.put)
    reporter = Reporter()

    def report(judged: Mapping[str, Judgement] | None = None) -> None:
        _log(context, lines)
        for item in reporter.reports(loop.numbers(), judged):
            _report(context, item, loop.run, names, version_of(item, platform.binding(), platform.lake))

    with ExitStack() as stack:
        if config.metrics_port:
            stack.enter_context(metrics_page(config.metrics_port, loop.numbers))
        loop.declare(platform.binding())
        stack.callback(report)
        stack.callback(loop.stop)
        end = time.monotonic() + config.last_seconds if config.last_seconds else float("inf")
        due = time.monotonic() + config.report_every_seconds
        while time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
            loop.raise_if_died()
            if loop.takes_stale():
                _declare_again(loop, platform, lines.put)
            _log(context, lines)
            if time.monotonic() >= due:
                due += config.report_every_seconds
                report(loop.judgements())


def _declare_again(loop: StreamLoop, platform: PlatformResource, tell: Callable[[str], None]) -> None:
    """Gives a loop the declarations as they are now; with errors in them, those that run go on as they were."""
    try:
        loop.declare(platform.read_again())
        tell("declarations are read again")
    except UpsertPlatformError as error:
        tell(f"declarations were not taken up: {shown(error)}")


def _log(context: dg.OpExecutionContext, lines: SimpleQueue[str]) -> None:
    """Logs the lines that workers have told."""
    while True:
        try:
            context.log.warning(lines.get_nowait())
        except Empty:
            return


def _report(context: dg.OpExecutionContext, report: Report, run: str, names: AssetKeys, version: str | None) -> None:
    context.log.info(report.line())
    for event in events_of(report, run=run, names=names, version=version):
        if isinstance(event, dg.AssetMaterialization):
            context.log_event(event)
        else:
            context.instance.report_runless_asset_event(event)
