"""Leases as tasks know them."""

from __future__ import annotations

import time

from upsert_platform.writing.lease import Terms


def terms(left: float = 600, *, identity: str = "1", seconds: float = 600) -> Terms:
    """A lease of ten minutes that ends in `left` seconds."""
    return Terms("table 'users'", identity, time.time() + left, seconds)
