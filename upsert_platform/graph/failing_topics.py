"""Topics that the project writes and whose last check failed: a request without that check reads nothing on from them.

In a run with both, the blocking check of the written table stops the changelog of its topic. A request for the topic's
new offsets alone has no such check, and would carry on what the run before was kept from reading.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from upsert_platform.core.error_catalogue import shown
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.platform_options import platform_settings
from upsert_platform.graph.affected import Affected, following
from upsert_platform.sync.connectors import topic_writers

if TYPE_CHECKING:
    from upsert_platform.core.model import Project
    from upsert_platform.graph.resources import PlatformResource


class FailingTopics:
    """Asks the tables that write topics for their last verdicts, each once, and only where their topics are to be read.

    Attributes:
        held: tables that are not read to why.
    """

    def __init__(self, platform: PlatformResource, project: Project) -> None:
        self._platform, self._project = platform, project
        self._writers = topic_writers(project)
        self._told: dict[str, str] = {}
        self.held: dict[str, str] = {}

    def following(self, due: Collection[str], *, without: Collection[str]) -> Affected:
        """As `affected.following`, without tables whose topics a table has written that fails and is not asked for.

        Args:
            due: tables that are read.
            without: tables that are not written now.
        """
        while True:
            left = [name for name in due if name not in self.held]
            part = following(self._project, left, without=without, unread=self.held)
            found = {name: told for name in part.sources if (told := self._reason(name, part.targets))}
            if not found:
                return part
            self.held |= found

    def _reason(self, source: str, asked: Collection[str]) -> str:
        """Return why a table is not read; the check of a writer that is asked for decides by itself."""
        reasons = (self._verdict(name) for name in self._writers.get(source, ()) if name not in asked)
        return next((told for told in reasons if told), "")

    def _verdict(self, writer: str) -> str:
        if writer not in self._told:
            self._told[writer] = self._asked(writer)
        return self._told[writer]

    def _asked(self, writer: str) -> str:
        if not platform_settings(self._project.tables[writer]).last_value_blocking:
            return ""
        try:
            hop = self._platform.destination_hop(writer, run="sensor")
            try:
                verdict = hop.plan().state.verdict
            finally:
                hop.destination.close()
        except UpsertPlatformError as error:  # what is not known to be right is not read either
            return shown(error)
        if verdict is None or verdict.passed:
            return ""
        return f"the last check of table '{writer}', which writes its topic, failed ({verdict.detail})"
