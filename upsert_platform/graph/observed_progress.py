"""Lines of a long write as observations of its asset, so that its page and its plots show how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import dagster as dg

from upsert_platform.changelog.progress import ProgressLine

EVERY: Final = 15.0
"""Seconds between two observations; lines come more often."""


def observing(context: dg.OutputContext, key: dg.AssetKey) -> Callable[[str], None]:
    """Logs each line that it is given and, now and then, observes the asset with the numbers of one."""
    last = time.monotonic()

    def tell(line: str) -> None:
        nonlocal last
        context.log.info(line)
        now = time.monotonic()
        if not isinstance(line, ProgressLine) or now - last < EVERY:
            return
        last = now
        numbers = {"rows_done": line.rows, "rows_per_second": round(line.rate, 1)}
        if line.most is not None:
            numbers["rows_at_most"] = line.most
        if line.seconds_left is not None:
            numbers["seconds_left"] = round(line.seconds_left, 1)
        context.log_event(dg.AssetObservation(asset_key=key, description=str(line), metadata=numbers))

    return tell
