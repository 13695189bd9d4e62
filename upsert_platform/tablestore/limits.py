"""Limits of the Tablestore service, and its rule for names (service documentation: limits, naming rules)."""

from __future__ import annotations

import re
from typing import Final

MAX_PRIMARY_KEYS: Final = 4
MAX_COLUMNS_PER_ROW: Final = 1024
"""Attribute columns that one request may write to a row."""
MAX_PRIMARY_KEY_BYTES: Final = 1024
MAX_VALUE_BYTES: Final = 2 * 1024 * 1024
MAX_ROWS_PER_WRITE: Final = 200
MAX_BYTES_PER_WRITE: Final = 4 * 1024 * 1024
MAX_ROWS_PER_GET: Final = 100
MIN_TIME_TO_LIVE_SECONDS: Final = 86_400
MAX_CAPACITY_UNITS: Final = 100_000
MAX_INTEGER: Final = 2**63 - 1
MIN_INTEGER: Final = -(2**63)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


def is_valid_name(name: str) -> bool:
    """Return whether a table or column may have this name: a letter or ``_``, then letters, digits and ``_``, 255 at
    most.
    """
    return _NAME.fullmatch(name) is not None
