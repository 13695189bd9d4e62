"""Pages of Spark about a session: its own page while it lives, and the page of the history server afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HISTORY_SERVER: Final = "spark.yarn.historyServer.address"
"""Spark's own setting for the address of a history server, on any cluster: ``host:port`` or a URL."""


def pages_of(session: SparkSession) -> dict[str, str]:
    """Return the pages of a session, name to URL.

    ``spark_ui`` needs `spark.ui.enabled`. ``spark_history`` needs `spark.eventLog.enabled` and HISTORY_SERVER, and its
    page stays when the session has ended.
    """
    context = session.sparkContext
    conf = context.getConf()
    found = {} if context.uiWebUrl is None else {"spark_ui": context.uiWebUrl}
    server = (conf.get(HISTORY_SERVER) or "").strip().rstrip("/")
    if server and (conf.get("spark.eventLog.enabled") or "").strip().lower() == "true":
        address = server if "://" in server else f"http://{server}"
        found["spark_history"] = f"{address}/history/{context.applicationId}/jobs/"
    return found
