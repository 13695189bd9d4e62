"""Of two checks that end at once none loses what the other has found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from upsert_platform.core.destination import DestinationState, Verdict
from upsert_platform.core.errors import DestinationError
from upsert_platform.sync.comparison import Comparison, keep_verdict
from upsert_platform_tests.sync.test_one_task import hop_to
from upsert_platform_tests.writing.in_memory import MemoryDestination, Place

SOME = Comparison(7, complete=False, compared=1, missing=0, extra=0, stale=0, refused=0, sample=())
ALL = replace(SOME, complete=True)
WRONG = replace(SOME, missing=1)
FAILED = Verdict(7, False, False, datetime(2026, 1, 2, tzinfo=UTC), "stale 1", "changelog", "table")
PASSED = replace(FAILED, passed=True, detail="")
Case = tuple[Comparison, Verdict | None, Verdict | None, bool]

CASES: dict[str, Case] = {
    "some rows are equal, nothing was recorded": (SOME, None, None, True),
    "some rows are equal, others were meanwhile": (SOME, None, PASSED, True),
    "some rows are equal, others differed before": (SOME, FAILED, FAILED, False),
    "some rows are equal, others differ meanwhile": (SOME, None, FAILED, False),
    "all rows are equal, some differed before": (ALL, FAILED, FAILED, True),
    "all rows are equal, some differ meanwhile": (ALL, None, FAILED, False),
    "all rows are equal, others differ meanwhile": (ALL, replace(FAILED, detail="missing 1"), FAILED, False),
    "rows differ, others did before": (WRONG, FAILED, FAILED, True),
    "rows differ, others are equal meanwhile": (WRONG, None, PASSED, True),
}
"""What was found, the verdict when the look began and when it ended, and whether the own one is kept then."""


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("last_moment", [False, True], ids=["before it is read", "after it was read"])
def test_what_was_recorded_meanwhile_is_seen(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, last_moment: bool
) -> None:
    """Whenever the other check records its verdict: before this one reads what stands, or after that."""
    found, before, meanwhile, kept = CASES[case]
    place = Place()
    place.state = DestinationState(7, "changelog", before, table_id="table")
    state, hop = place.state, hop_to(place, tmp_path)

    def record() -> None:
        place.state = replace(place.state, last_verdict=meanwhile)

    if last_moment:
        _before_first(monkeypatch, record)
    else:
        record()
    assert keep_verdict(hop, found, state) is kept
    last = place.state.last_verdict
    assert last is not None
    if kept:
        assert (last.passed, last.complete) == (found.passed, found.complete)
    else:
        assert last == meanwhile


def _before_first(monkeypatch: pytest.MonkeyPatch, record: Callable[[], None]) -> None:
    swap, waiting = MemoryDestination.swap_verdict, [record]

    def late(self: MemoryDestination, old: Verdict | None, new: Verdict) -> bool:
        if waiting:
            waiting.pop()()
        return swap(self, old, new)

    monkeypatch.setattr(MemoryDestination, "swap_verdict", late)


def test_it_is_given_up_where_others_never_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryDestination, "swap_verdict", lambda self, old, new: False)
    with pytest.raises(DestinationError, match="the verdict could not be stored"):
        keep_verdict(hop_to(Place(), tmp_path), SOME, DestinationState())
