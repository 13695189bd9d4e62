"""Whether the process of a run still exists.

Dagster's own launcher never finds out that a run was killed: such a run counts as started for ever, in the UI too.
"""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

_SLACK_SECONDS = 5.0
"""Clocks of a process table and of an event log are read apart."""


def is_alive(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether a run that has not ended may still end by itself.

    A started run is known by the process that it named in its events. One that named none, or has not started, counts
    as alive: those Dagster's run monitoring ends. A process of another machine is taken for gone; who asks must be
    able to bear that.
    """
    if run.status is not dg.DagsterRunStatus.STARTED:
        return True
    named = [
        (int(str(found.value)), record.timestamp)
        for record in instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT).records
        if (event := record.event_log_entry.dagster_event) is not None
        and (found := event.engine_event_data.metadata.get("pid")) is not None
    ]
    if not named:
        return True
    pid, told_at = named[-1]
    began = started_at(pid)
    return began is not None and began <= told_at + _SLACK_SECONDS


def started_at(pid: int) -> float | None:
    """When a process of this machine began, in seconds since 1970; None if there is none (a zombie is none)."""
    try:
        # The name, in brackets, may hold anything; what follows it is in words.
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        (boot,) = (line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
    except (OSError, ValueError):
        return None
    state, ticks = words[0], int(words[19])
    return None if state in "ZX" else int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
