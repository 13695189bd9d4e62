"""Detection of runs whose process has ended.

Dagster's own launcher never finds out that a run was killed: such a run counts as started for ever, in the UI too.
"""

from __future__ import annotations

import socket
import time
from typing import Final

import dagster as dg
import psutil

HOST_TAG: Final = "upsert/host"
"""Tag of a run: the host that carries it out."""
_SLACK_SECONDS: Final = 5.0
"""Clocks of a process table and of an event log are read apart."""
_NAMING_SECONDS: Final = 120.0
"""A run that has named its process, but not its host by then, was killed in between."""


def name_host(instance: dg.DagsterInstance, run_id: str, **more: str) -> None:
    """Notes with a run that it is carried out on this host.

    Args:
        more: tags that are noted with it.
    """
    instance.add_run_tags(run_id, {HOST_TAG: socket.gethostname(), **more})


def is_alive(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Return whether a run that has not ended may still end by itself.

    A started run is known by the process that it named in its events, and by the host in its tags. One of another
    host, one that named no process, and one that has not started count as alive: those Dagster's run monitoring ends,
    or who terminates them in the UI.
    """
    if run.status is not dg.DagsterRunStatus.STARTED:
        return True
    named = [
        (int(str(found.value)), record.timestamp)
        for record in instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT).records
        if (event := record.event_log_entry.dagster_event) is not None
        and (found := event.engine_event_data.metadata.get("pid")) is not None
    ]
    host = run.tags.get(HOST_TAG)
    if not named or host not in (None, socket.gethostname()):
        return True
    pid, told_at = named[-1]
    began = started_at(pid)
    if began is not None and began <= told_at + _SLACK_SECONDS:
        return True
    return host is None and time.time() <= told_at + _NAMING_SECONDS


def started_at(pid: int) -> float | None:
    """Return the start time of a process of this host in seconds since 1970, or None if it does not run (a zombie has
    ended).
    """
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None
