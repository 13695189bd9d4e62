"""Leases as tasks know them, and holders that die."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from upsert_platform.writing.lease import RenewedLease, Terms


def terms(left: float = 600) -> Terms:
    """A lease of ten minutes that ends in `left` seconds."""
    return Terms("table 'users'", "token", time.time() + left, 600)


def die(lease: Any, *, left: float) -> None:
    """As if the holder's process were frozen, so many seconds before its lease ends: nobody renews any more."""
    assert isinstance(lease, RenewedLease)
    lease._ended.set()
    lease._thread.join()
    lease.seconds = left
    asked_at = time.monotonic()
    lease._put(replace(lease._tenure, expires=time.time() + left), {})
    lease._until = 0.0  # or the longer end that it had would count
    lease._extended(asked_at)
