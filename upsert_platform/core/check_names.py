"""Names of the checks that a sync evaluates."""

from __future__ import annotations

from typing import Final

LAST_VALUE: Final = "last_value_per_key"
ACCOUNTED: Final = "offsets_accounted"
QUARANTINE: Final = "quarantine_below"
FRESHNESS: Final = "freshness"
OF_SYNC: Final = frozenset({LAST_VALUE, ACCOUNTED, QUARANTINE, FRESHNESS})
"""All others of a job are evaluated by its runs alone."""
