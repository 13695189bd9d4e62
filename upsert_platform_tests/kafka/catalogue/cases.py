"""The 134 behaviours of the upsert-kafka connector, by number: which the platform has by design, and which not yet.

A test of one is named with `case` or `behaviour`, so `pytest -k case-49` finds it; `test_complete.py` sees to it that
no number is forgotten.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

LAST: Final = 134

NOT_YET: Final = {
    2: "GROUP BY: an insert projects and filters one table, and is refused by name when it groups",
    3: "GROUP BY over a grouped table, and HAVING: as 2",
    32: "an event-time join with a versioned table: an insert reads one table, and is refused by name when it joins",
    61: "several target topics: a delete holds the key alone and cannot say which topic holds its row, so a list is"
    " refused when declared (the refusal is tested)",
    62: "a pattern of target topics: as 61",
    63: "a list of target topics with exactly-once: as 61",
}
"""Numbers without a test of the whole behaviour, with the reason."""

NOT_APPLICABLE: Final = {
    11: "time to live of a stream processor's keyed state: the changelog keeps a key until its tombstone",
    71: "rows that wait in a writer's memory between writes: a write hands over all its rows before it ends",
    73: "rows that wait in a writer's memory after a flush: as 71",
}
"""Numbers that concern settings of an engine that the platform does not have, with the reason."""

UPSERT_VIEW: Final = {
    1: "-U before +U",
    4: "-U before +U",
    6: "the full row in -D",
    8: "one -D for two tombstones",
    9: "the full row in -D",
    10: "no event for a repeated value; -U before +U",
    12: "no event for a repeated value; -U before +U; the full row in -D",
    13: "-U before +U; the full row in -D",
    16: "the full row in -D",
    17: "no -D for a row that was never in the result",
    18: "-U before +U; the full row in -D",
    31: "-U before +U",
    34: "-U before +U",
    35: "-U before +U",
}
"""Numbers that tell a retract stream: the platform keeps the upsert stream, which lacks what is told here.

Their tests compare the table that both streams end in, and the upsert stream itself.
"""


def case(number: int, text: str, *values: Any) -> Any:
    """A parameter set of the test of a behaviour."""
    return pytest.param(*values, id=f"case-{number}-{text}")


def behaviour(number: int, text: str) -> pytest.MarkDecorator:
    """Names a test that has no other parameters."""
    return pytest.mark.parametrize((), [pytest.param(id=f"case-{number}-{text}")])
