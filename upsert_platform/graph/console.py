"""Console output of `dagster job execute`: one line per step of interest, not one per Dagster event.

The event log in the UI has everything all the same.
"""

import logging
import sys
from collections.abc import Mapping
from typing import Any, Final

import dagster as dg

CONSOLE: Final = "console"
RUN_CONFIG: Final[Mapping[str, Any]] = {"loggers": {CONSOLE: {}}}
"""Default configuration of a job: Dagster takes a logger only where the run's configuration names it."""
_NO_OUTPUT: Final = "did not yield or return expected outputs"
"""Part of what Dagster says of a check that has nothing to look at, which is its right."""
_FAILED_CHECK: Final = "DagsterAssetCheckFailedError"
_SHOWN: Final = (
    "upserts",
    "deletes",
    "records",
    "superseded",
    "quarantined",
    "refused",
    "compared",
    "missing",
    "extra",
    "stale",
    "lag",
    "batches_behind",
)
"""Metadata that a line about an asset or a check repeats, in this order."""


_ENDS: Final = (
    dg.DagsterEventType.RUN_FAILURE, dg.DagsterEventType.RUN_SUCCESS, dg.DagsterEventType.RUN_CANCELED,
)  # fmt: skip
SUMMARISED: Final[Mapping[str, Any]] = {"loggers": {CONSOLE: {"config": {"reasons": False}}}}
"""Configuration of a run whose caller says by itself why it failed."""
_failed: Final[dict[str, dict[str, str]]] = {}
"""Why steps of each run of this process failed: Dagster makes one logger for a run's steps and another for its end."""
_OWN_SHOWN: Final = 8
_LONGEST: Final = 60


class ConsoleFormatter(logging.Formatter):
    """Time, step and message; of events only those that tell a result, or all.

    The line of a failed run repeats why its steps failed. While steps run, Dagster captures the error output in a file
    and has it copied to the console by ``tail``, which it ends with the last step: lines that ``tail`` has not read by
    then never reach the console. The end of a run is written after that.

    Args:
        everything: shows every event.
        reasons: whether the line of a failed run repeats them.
    """

    def __init__(self, *, everything: bool, reasons: bool = True) -> None:
        super().__init__()
        self.everything = everything
        self.reasons = reasons

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, or an empty text."""
        found: Mapping[str, Any] = getattr(record, "dagster_meta", {})
        event: dg.DagsterEvent | None = found.get("dagster_event")
        message = str(found.get("orig_message") or record.getMessage())
        if event is not None:
            told = _told(event, message)
            run = str(found.get("run_id"))
            if _fails(event) and told:
                failed, step = _failed.setdefault(run, {}), str(found.get("step_key"))
                if event.event_type is dg.DagsterEventType.STEP_FAILURE and failed.get(step, "").endswith(
                    failure_of(event)
                ):
                    told = ""  # a check of the step has said so
                else:
                    failed[step] = told
            elif event.event_type in _ENDS:
                reasons = _failed.pop(run, {})
                if event.event_type is dg.DagsterEventType.RUN_FAILURE and self.reasons:
                    told += "".join(f"\n    {name}: {reason}" for name, reason in joined_by_reason(reasons).items())
            message = f"{event.event_type_value} {message}" if self.everything else told
        elif not self.everything and (record.levelno < logging.INFO or _NO_OUTPUT in message):
            return ""
        elif record.levelno >= logging.WARNING:
            message = f"{record.levelname.lower()}: {message}"
        if not message:
            return ""
        where = found.get("step_key") or found.get("job_name") or record.name
        return f"{self.formatTime(record, '%H:%M:%S')} {where}  {message}"


class _Lines(logging.StreamHandler[Any]):
    """Writes what the formatter has a line for; to the error output that the process has by then."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        line = self.format(record)
        if line:
            self.stream.write(line + self.terminator)
            self.flush()


def joined_by_reason(reasons: Mapping[str, str]) -> dict[str, str]:
    """Return names with their reason, with one entry, of names joined by commas, for each reason."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    return {", ".join(found): reason for reason, found in names.items()}


def _fails(event: dg.DagsterEvent) -> bool:
    """Return whether an event says that a step failed, or a check that fails its step."""
    if event.event_type is dg.DagsterEventType.STEP_FAILURE:
        return True
    if event.event_type is not dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        return False
    data: Any = event.event_specific_data
    return not data.passed and data.severity is not dg.AssetCheckSeverity.WARN


def _told(event: dg.DagsterEvent, message: str) -> str:
    """Return the console text of an event: the end of an asset, a check, a step or the run; empty for others."""
    data: Any = event.event_specific_data
    match event.event_type:
        case dg.DagsterEventType.ASSET_MATERIALIZATION:
            return f"done{_numbers(data.materialization.metadata)}"
        case dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            failed = "warns" if data.severity is dg.AssetCheckSeverity.WARN else "FAILED"
            verdict = "passed" if data.passed else failed
            more = f": {data.description}" if data.description and not data.passed else ""
            return f"{data.check_name} {verdict}{_numbers(data.metadata)}{more}"
        case dg.DagsterEventType.STEP_FAILURE:
            reason = failure_of(event)
            return f"failed: {reason}" if reason else ""
        case dg.DagsterEventType.RUN_SUCCESS:
            return "succeeded"
        case dg.DagsterEventType.RUN_FAILURE:
            return f"failed: {message}"
    return ""


def failure_of(event: dg.DagsterEvent) -> str:
    """Return why a step failed; empty where a failed check says so itself, and the event is only the step's end."""
    data: Any = event.event_specific_data
    told = data.user_failure_data and data.user_failure_data.description
    reason = str(told or _reason(data.error))
    return "" if _FAILED_CHECK in reason else reason


def _numbers(metadata: Mapping[str, Any]) -> str:
    values = {name: getattr(metadata[name], "value", None) for name in _SHOWN if name in metadata}
    if not values:  # of an asset of one's own
        found = {name: getattr(value, "value", None) for name, value in metadata.items() if "/" not in name}
        values = {name: value for name, value in found.items() if isinstance(value, (int, float, str))}
        values = dict(list(values.items())[:_OWN_SHOWN])
    shown = ", ".join(f"{name} {_short(value)}" for name, value in values.items() if value is not None)
    return f" ({shown})" if shown else ""


def _short(value: object) -> str:
    line = str(value).partition("\n")[0]
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def _reason(error: Any) -> str:
    """The message of an error, with that of its cause where Dagster wrapped it."""
    while error is not None and error.cause is not None:
        error = error.cause
    return "" if error is None else str(error.message).strip()


@dg.logger(
    config_schema={
        "log_level": dg.Field(str, default_value="INFO", description="DEBUG shows every event of Dagster's."),
        "reasons": dg.Field(bool, default_value=True, description="A failed run repeats why its steps failed."),
    },
    description="A line per result of a run, on the error output.",
)
def console(context: dg.InitLoggerContext) -> logging.Logger:
    """The logger that jobs of a project use."""
    everything = context.logger_config["log_level"].upper() == "DEBUG"
    handler = _Lines()
    handler.setFormatter(ConsoleFormatter(everything=everything, reasons=context.logger_config["reasons"]))
    found = logging.Logger(CONSOLE, level=logging.DEBUG)
    found.addHandler(handler)
    return found
