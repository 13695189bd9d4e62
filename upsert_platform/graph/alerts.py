"""Alerts: what failed is told to a hook of one's own, or to a webhook.

    from upsert_platform.graph.alerts import Alert, alert_sensors

    def tell(alert: Alert) -> None:
        print(alert.text)

    defs = dg.Definitions.merge(defs, dg.Definitions(sensors=alert_sensors(tell)))

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Final

import dagster as dg

from upsert_platform.core.errors import EndpointError

VARIABLE: Final = "UPSERT_PLATFORM_ALERT_WEBHOOK"
_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that somebody should look at.

    Attributes:
        text: all of it, in a line or a few.
        job: of the run.
        run_id: of the run.
        failed: whether the run failed; else only checks did.
        checks: checks that did not pass, each as ``error last_value_per_key of tables/users: ...``.
    """

    text: str
    job: str
    run_id: str
    failed: bool
    checks: tuple[str, ...] = field(default=())


Tell = Callable[[Alert], None]
"""Takes an alert; what it raises fails the sensor's look, which is shown in the UI."""


def webhook(url: str) -> Tell:
    """Posts alerts to a URL, as a JSON object of the attributes of `Alert`: chats show its `text`."""

    def tell(alert: Alert) -> None:
        import requests

        try:
            answer = requests.post(url, json=asdict(alert), timeout=_SECONDS)
        except requests.RequestException as error:
            # Its text names the URL, which is as good as a password.
            raise EndpointError(
                f"the webhook of alerts ({VARIABLE}) cannot be reached: {type(error).__name__}"
            ) from None
        if not answer.ok:
            raise EndpointError(f"the webhook of alerts ({VARIABLE}) answered {answer.status_code}")

    return tell


def declared_alerts() -> list[dg.SensorDefinition]:
    """The sensors of the webhook that the environment names; none without one."""
    url = os.environ.get(VARIABLE, "").strip()
    return alert_sensors(webhook(url)) if url else []


def alert_sensors(tell: Tell) -> list[dg.SensorDefinition]:
    """A sensor for runs that fail, and one for checks that do not pass in runs that succeed; both run by themselves."""

    @dg.run_status_sensor(
        name="alerts_of_failed_runs",
        run_status=dg.DagsterRunStatus.FAILURE,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells of every run that failed, with its checks that did not pass.",
    )
    def failed_runs(context: dg.RunStatusSensorContext) -> None:
        run, checks = context.dagster_run, tuple(_failed_checks(context.instance, context.dagster_run))
        reasons = list(dict.fromkeys(_reasons(context.instance, run)))
        told = "; ".join([*reasons[:3], *checks[:3]]) or "no step tells why: its process may have been killed"
        tell(Alert(f"run {run.run_id} of job '{run.job_name}' failed: {told}", run.job_name, run.run_id, True, checks))

    @dg.run_status_sensor(
        name="alerts_of_checks",
        run_status=dg.DagsterRunStatus.SUCCESS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports checks that compared something and did not pass, in runs that succeeded.",
    )
    def checks_of_runs(context: dg.RunStatusSensorContext) -> None:
        run, checks = context.dagster_run, tuple(_failed_checks(context.instance, context.dagster_run, standing=False))
        if checks:
            told = f"job '{run.job_name}': {'; '.join(checks[:3])}"
            tell(Alert(told, run.job_name, run.run_id, False, checks))

    return [failed_runs, checks_of_runs]


def _failed_checks(instance: dg.DagsterInstance, run: dg.DagsterRun, *, standing: bool = True) -> Iterator[str]:
    """Yield the checks of a run that did not pass.

    Args:
        standing: also those of which an earlier result stands, or that nothing has compared yet (metadata `new`).
    """
    found = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    for record in found.records:
        event = record.event_log_entry.dagster_event
        check = None if event is None else event.asset_check_evaluation_data
        new = None if check is None else check.metadata.get("new")
        if check is not None and not check.passed and (standing or new is None or new.value is not False):
            of = f"{check.severity.value.lower()} {check.check_name} of {check.asset_key.to_user_string()}"
            yield f"{of}: {check.description}" if check.description else of


def _reasons(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Iterator[str]:
    """Yield the messages of failed steps, without the traceback for errors made for users."""
    found = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    for record in found.records:
        event = record.event_log_entry.dagster_event
        if event is None:
            continue
        data = event.step_failure_data
        if data.user_failure_data is not None and data.user_failure_data.description:
            yield f"{event.step_key}: {data.user_failure_data.description}"
        elif data.error is not None and "DagsterAssetCheckFailedError" not in (data.error.cls_name or ""):
            yield f"{event.step_key}: {data.error.message.strip()}"
