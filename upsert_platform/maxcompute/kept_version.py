"""The version that a Delta table keeps of a commit, how long, and how users read it."""

from __future__ import annotations

import logging

from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.maxcompute.client import Client
from upsert_platform.maxcompute.connection import ServiceError
from upsert_platform.maxcompute.table import MaxComputeTable

_LOGGER = logging.getLogger(__name__)


def kept_version(client: Client, table: MaxComputeTable, what: str) -> dict[str, int | float | str]:
    """Metrics of the newest version; none of a table that keeps no versions, or whose version is not known.

    Args:
        what: is written, for messages.
    """
    if not table.upserts:
        return {}
    try:
        actual = client.table(table.target)
    except (UpsertPlatformError, ServiceError) as error:
        _LOGGER.warning("%s: its version is not known: %s", what, error)
        return {}
    if actual is None or actual.version is None:
        return {}
    found: dict[str, int | float | str] = {
        "table_version": actual.version,
        "time_travel": f"SELECT * FROM {table.target} VERSION AS OF {actual.version}",
    }
    return found | ({} if actual.history_hours is None else {"history_hours": actual.history_hours})
