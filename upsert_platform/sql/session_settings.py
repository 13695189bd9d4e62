"""SET statements: what takes their place here, and which are refused because ignoring them would change results."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final

from upsert_platform.core.errors import Problem
from upsert_platform.core.options import parse_duration
from upsert_platform.sql.reader import TokenReader

REPLACED: Final = (
    (
        "execution.checkpointing.",
        "batches are committed whole; how often one runs is the schedule or sensor in Dagster",
    ),
    ("execution.runtime-mode", "each run reads what is new and ends"),
    ("execution.", "Dagster runs the jobs"),
    ("parallelism.", "set Spark's cores and partitions"),
    ("pipeline.name", "assets are named after their tables"),
    ("pipeline.", "Dagster runs the jobs"),
    ("state.", "state is the changelog in the lake"),
    ("table.exec.mini-batch.", "every run is a batch"),
    ("table.exec.source.", "micro-batches need no watermarks"),
    ("table.exec.", "Spark executes the query"),
    ("table.optimizer.", "Spark plans the query"),
    ("table.dml-sync", "a run ends when its batch is written"),
    ("sql-client.", "there is no SQL client"),
    ("fs.", "no connector reads or writes files through Hadoop; a lake on HDFS takes the login of Spark"),
    ("odps.", "this is a session flag of MaxCompute; it belongs to statements that run there"),
)
"""Beginnings of settings that are accepted with a warning, with what takes their place."""
REFUSED: Final = {
    ("table.exec.sink.not-null-enforcer", "DROP"): "rows are never dropped silently; remove the setting",
    ("table.exec.sink.type-length-enforcer", "TRIM_PAD"): "write CAST(column AS CHAR(n)) where a text is to be cut",
    ("table.exec.legacy-cast-behaviour", "ENABLED"): "write TRY_CAST where a failed cast is to give NULL",
}
"""Settings and values that are errors, with what to do instead."""
STATE_TTL: Final = "table.exec.state.ttl"
STATE_TTL_MEANS: Final = (
    "the statements behind it let go of state that nothing has changed for so long: a key that comes later begins"
    " anew, and what is shown of it stays until then. With 0 nothing is let go of. The hint"
    " STATE_TTL('table' = '1 d') says it of one side of a join, or of a grouping"
)
LATENESS: Final = "table.exec.emit.allow-lateness"
LATENESS_MEANS: Final = (
    "windows of the statements behind it close so long after their end; rows that come later are counted and left out."
    " Without it windows close at their end where the target has no key, and no others do"
)
MATERIALIZE: Final = "table.exec.sink.upsert-materialize"
MATERIALIZE_MEANS: Final = (
    "where the primary key of a target does not tell the rows of a query apart, the row of each key that arrived last"
    " is shown, and the one before it when that is taken back; with NONE such statements are refused. Of a topic of"
    " changes (Debezium, Canal, Maxwell, OGG) that is declared without a key, AUTO takes it that each key of the target"
    " has one row at a time; FORCE keeps all of them"
)


class Materializes(StrEnum):
    """A choice of when the rows of a query are kept by the key of its target, so that the last of each is shown."""

    AUTO = "AUTO"
    FORCE = "FORCE"
    NONE = "NONE"


def materializes_by(value: str) -> Materializes:
    """Return what the value of a setting says; one that is none counts as the default, and `judge_setting` names it."""
    return next((item for item in Materializes if item == value.upper()), Materializes.AUTO)


KERBEROS_LOGIN: Final = "security.kerberos.login."
"""Begins the settings of a job's Kerberos login, which Kafka tables take as options of the same names."""
_UTC: Final = ("UTC", "ETC/UTC", "GMT", "Z", "+00:00", "UTC+0", "GMT+00:00")


def read_duration(value: str) -> int | None:
    """Microseconds of a duration as Flink writes it; None for another text."""
    try:
        found = parse_duration(value)
    except ValueError:
        return None
    return found // timedelta(microseconds=1) if isinstance(found, timedelta) else None


def setting_of(reader: TokenReader) -> tuple[str, str]:
    """Name, in lower case, and value of ``SET 'name' = 'value'``; the reader stays where it is."""
    at = reader.at
    reader.accept("SET")
    name = "".join(token.value for token in reader.take_until("=")).strip()
    reader.accept("=")
    value = "".join(token.value for token in reader.take_until())
    reader.at = at
    return name.lower(), value


def judge_setting(reader: TokenReader) -> list[Problem]:
    """Reads ``SET 'name' = 'value'``, ``SET name = value`` or ``RESET ...``.

    Returns:
        A warning that names what replaces the setting, or the reason why it is refused.
    """
    location = reader.location
    if reader.accept("RESET"):
        return [Problem("RESET has no effect: SET statements are not executed here", location, "warning")]
    reader.accept("SET")
    name = "".join(token.value for token in reader.take_until("=")).strip()
    reader.accept("=")
    value = "".join(token.value for token in reader.take_until())
    if not name:
        return [Problem("SET has no effect: settings of a session do not exist here", location, "warning")]
    lowered = name.lower()
    if lowered == "table.local-time-zone":
        if value.upper() in _UTC:
            return []
        reason = "times are computed in UTC; convert with CONVERT_TZ, or set UTC"
        return [Problem(f"SET '{name}': {reason}", location)]
    if lowered == STATE_TTL:
        fine = read_duration(value) is not None
        return [] if fine else [Problem(f"SET '{name}': takes a duration: '36 h'", location)]
    if lowered.startswith(KERBEROS_LOGIN):
        return []  # options of the tables of the file: `statements.read_statements`
    if lowered == MATERIALIZE:
        taken = value.upper() in list(Materializes)
        return [] if taken else [Problem(f"SET '{name}': takes {', '.join(Materializes)}, not '{value}'", location)]
    if lowered == LATENESS:
        return [] if read_duration(value) is not None else [Problem(f"SET '{name}': takes a duration: '1 h'", location)]
    refused = REFUSED.get((lowered, value.upper()))
    if refused is not None:
        return [Problem(f"SET '{name}': {refused}", location)]
    for prefix, replacement in REPLACED:
        if lowered.startswith(prefix):
            return [Problem(f"SET '{name}' has no effect: {replacement}", location, "warning")]
    return [Problem(f"SET '{name}' has no effect here; remove it", location, "warning")]
