"""Settings of a project's jobs, sensor and schedules, beside those of its steps, as a `defs.yaml` gives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import dagster as dg
from pydantic import Field

from upsert_platform.core.errors import DeclarationError, Problem
from upsert_platform.graph.compact import COMPACT
from upsert_platform.graph.delta_tables import MAJOR_COMPACT
from upsert_platform.graph.drain_quarantine import DRAIN
from upsert_platform.graph.jobs import AUDIT, INGEST, PLAN, PROVE, SYNC, VERIFY, WATCH
from upsert_platform.graph.keys import AssetKeys
from upsert_platform.graph.pools import ENDPOINT, is_legal
from upsert_platform.graph.rebuild import REBUILD
from upsert_platform.graph.reconcile import RECONCILE
from upsert_platform.graph.replay import REPLAY
from upsert_platform.graph.steps import Execute, OpSettings, Steps
from upsert_platform.graph.stream import STREAM
from upsert_platform.sync.connectors import CONNECTORS

JOBS: Final = (
    *(SYNC, INGEST, VERIFY, AUDIT, PROVE, PLAN, WATCH),
    *(RECONCILE, REPLAY, REBUILD, DRAIN, COMPACT, MAJOR_COMPACT, STREAM),
)
"""The jobs that a project may have."""
_UNSCHEDULED: Final = {REPLAY: "it needs the configuration of a launch", STREAM: "it runs until it is terminated"}


class JobSettings(dg.Model, dg.Resolvable):
    """Settings of a job."""

    enabled: bool = Field(default=True, description="Whether the job exists.")
    tags: dict[str, Any] = Field(
        default_factory=dict, description="Tags of its runs: `dagster/priority`, `dagster-k8s/config`."
    )


class SensorSettings(dg.Model, dg.Resolvable):
    """Settings of the sensor that requests a sync."""

    enabled: bool = Field(default=True, description="Whether the sensor exists.")
    name: str | None = Field(default=None, description="Its name, which is taken as it is; `new_offsets` if left out.")
    interval_seconds: int = Field(default=30, ge=1, description="Least seconds between two looks at the topics.")
    default_status: Literal["running", "stopped"] = Field(
        default="stopped", description="Status until somebody starts or stops it."
    )


class ScheduleSettings(dg.Model, dg.Resolvable):
    """Settings of the schedule of a job."""

    enabled: bool = Field(default=True, description="Whether the schedule exists.")
    name: str | None = Field(
        default=None, description="Its name, which is taken as it is; `JOB_schedule` where `cron` is given."
    )
    cron: str | None = Field(default=None, description="When the job starts; needed where it has no schedule itself.")
    timezone: str = Field(default="UTC", description="Time zone of `cron`, as `Asia/Shanghai`.")
    default_status: Literal["running", "stopped"] = Field(
        default="stopped", description="Status until somebody starts or stops it."
    )


@dataclass(frozen=True)
class DefinitionSettings:
    """The settings that a component gives the definitions of its project.

    Attributes:
        jobs: name of a job, without the suffix of an instance, to its settings.
        schedules: such a name to the settings of its schedule.
        execute: returns the result of an asset's step.
    """

    op: OpSettings = field(default_factory=OpSettings)
    jobs: Mapping[str, JobSettings] = field(default_factory=dict)
    sensor: SensorSettings = field(default_factory=SensorSettings)
    schedules: Mapping[str, ScheduleSettings] = field(default_factory=dict)
    execute: Execute | None = None

    @property
    def steps(self) -> Steps:
        """The settings of assets' steps.

        Raises:
            DeclarationError: a pool is given for a connector that does not exist, or has a name that no pool can have.
        """
        given = {"op.pool": self.op.pool, **{f"op.pools.{name}": pool for name, pool in self.op.pools.items()}}
        for field_, pool in given.items():
            if pool is not None and not is_legal(pool):
                raise _refused(
                    f"{field_}: '{pool}' is no name of a pool: letters, digits, '_', '-', '.', '/' and '{ENDPOINT}' are"
                )
        for name in self.op.pools:
            if name not in CONNECTORS:
                raise _refused(f"op.pools: there is no connector '{name}'; connectors are: {', '.join(CONNECTORS)}")
        return Steps(self.op, self.execute)

    def adjusted_jobs(self, jobs: Iterable[Any], names: AssetKeys) -> list[Any]:
        """Return the jobs that are enabled, with their tags.

        Raises:
            DeclarationError: there is no job of a name. One that only other projects have is no error: a declaration
                with an error takes its job away, and the others go on.
        """
        for field_, given_names in (("jobs", self.jobs), ("schedules", self.schedules)):
            for name in given_names:
                if name not in JOBS:
                    raise _refused(f"{field_}: there is no job '{name}'; jobs are: {', '.join(JOBS)}")
        given = {names.named(name): settings for name, settings in self.jobs.items()}
        kept = [job for job in jobs if job.name not in given or given[job.name].enabled]
        return [_tagged(job, given[job.name].tags) if job.name in given else job for job in kept]

    def sensor_of(self, job: str, jobs: Iterable[Any], *, by_conditions: bool) -> SensorSettings | None:
        """Return the settings of the sensor; None where there is none.

        Args:
            job: name of the job that it requests.
            by_conditions: whether conditions on data versions start runs, so that there is no sensor.

        Raises:
            DeclarationError: the sensor has settings and cannot be.
        """
        if not self.sensor.enabled:
            return None
        if by_conditions:
            if self.sensor != SensorSettings():
                raise _refused("sensor: with 'automation: conditions' there is none; leave it out")
            return None
        if job not in {item.name for item in jobs}:
            raise _refused(
                f"jobs: the sensor requests '{job}', which is not enabled; give 'sensor: {{enabled: false}}' too"
            )
        return self.sensor

    def schedules_of(
        self, jobs: Iterable[Any], names: AssetKeys, own: Mapping[str, tuple[str, str]]
    ) -> list[dg.ScheduleDefinition]:
        """Return the schedules of jobs.

        Args:
            own: job to how often it runs without settings, in words and as cron.

        Raises:
            DeclarationError: a job takes no schedule, or has none without `cron`.
        """
        made = {job.name: job for job in jobs}
        found = []
        for name in dict.fromkeys((*own, *self.schedules)):
            job, settings = made.get(names.named(name)), self.schedules.get(name, ScheduleSettings())
            if job is None:  # not enabled, or nothing in the project for it
                continue
            if not settings.enabled:
                continue
            if name in _UNSCHEDULED:
                raise _refused(f"schedules: job '{name}' takes no schedule: {_UNSCHEDULED[name]}")
            if settings.cron is None and name not in own:
                raise _refused(f"schedules: job '{name}' has no schedule of its own; give its 'cron'")
            found.append(_schedule(job, settings, *own.get(name, ("", ""))))
        return found


def _schedule(job: Any, settings: ScheduleSettings, often: str, cron: str) -> dg.ScheduleDefinition:
    named = f"{job.name}_{often}" if settings.cron is None else f"{job.name}_schedule"
    when = often if settings.cron is None else f"at '{settings.cron}' ({settings.timezone})"
    told = "stopped until you start it" if settings.default_status == "stopped" else "running until you stop it"
    return dg.ScheduleDefinition(
        name=settings.name or named,
        job=job,
        cron_schedule=settings.cron or cron,
        execution_timezone=settings.timezone,
        default_status=dg.DefaultScheduleStatus[settings.default_status.upper()],
        description=f"Starts job '{job.name}' {when}; {told}.",
    )


def _tagged(job: Any, tags: Mapping[str, Any]) -> Any:
    """Return a job, made anew with further tags."""
    if not tags:
        return job
    given = {
        "name": job.name,
        "description": job.description,
        "tags": {**(job.tags or {}), **tags},
        "executor_def": dg.in_process_executor,
    }
    if isinstance(job, dg.JobDefinition):
        return job.graph.to_job(config=job.run_config, **given)
    return dg.define_asset_job(selection=job.selection, config=job.config, **given)


def _refused(told: str) -> DeclarationError:
    return DeclarationError([Problem(told)])
