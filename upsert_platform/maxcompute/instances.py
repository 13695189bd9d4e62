"""A running statement (an instance of MaxCompute) for people: where to look at it, and how far it is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlparse

from upsert_platform.maxcompute.connection import Connection, is_foreign

if TYPE_CHECKING:
    from odps.models import Instance

_LOGGER = logging.getLogger(__name__)
FIRST_WORD_SECONDS: Final = 10.0
"""After which a statement that still runs is told of."""
NEXT_WORD_SECONDS: Final = 30.0
_LOGVIEW: Final = "https://logview.aliyun.com/logview/?"
_THIS_MACHINE: Final = ("127.0.0.1", "localhost", "::1")


class RunningStatement:
    """Reports one instance while it runs.

    Args:
        shown: the beginning of the statement.
        started: seconds on a clock of the caller's, as `look` takes them.
    """

    def __init__(self, instance: Instance, connection: Connection, *, shown: str, started: float) -> None:
        self._instance = instance
        self._shown = shown
        self._started = started
        self._next = started + FIRST_WORD_SECONDS
        self.where = whereabouts(str(instance.id), connection)

    def look(self, now: float) -> None:
        """Logs how far the statement is, when it is time to."""
        if now < self._next:
            return
        self._next = now + NEXT_WORD_SECONDS
        done = self._progress()
        _LOGGER.info("'%s' runs for %.0f s%s (%s)", self._shown, now - self._started, done, self.where)

    def _progress(self) -> str:
        try:
            stages = self._instance.get_task_progress().stages or ()
        except Exception as error:
            if not is_foreign(error):
                raise
            return ""  # nice to know, and the statement runs all the same
        return share_done(stages)


def share_done(stages: Any) -> str:
    """The workers of all stages that ended, as text; empty when the service tells of none."""
    total = sum(stage.total_workers or 0 for stage in stages)
    ended = sum(stage.terminated_workers or 0 for stage in stages)
    return f", {ended} of {total} workers ended" if total else ""


def whereabouts(instance_id: str, connection: Connection) -> str:
    """The instance, and its Logview page where the service has one.

    The link carries no token, which would be a secret: it opens for who is logged in.
    """
    if urlparse(connection.endpoint).hostname in _THIS_MACHINE:
        return f"instance {instance_id}"
    asked = {"h": connection.endpoint, "p": connection.project, "i": instance_id}
    return f"instance {instance_id}, {_LOGVIEW}{urlencode(asked)}"
