"""The rhythm of a task: when throttling slows it down, and when it does not."""

from __future__ import annotations

import time

import pytest

from upsert_platform.tablestore.pace import Pace, pause_before_attempt


def _answers(pace: Pace, *answers: tuple[int, int]) -> float:
    for rows, throttled in answers:
        pace.answered(time.monotonic(), rows=rows, throttled=throttled)
    return pace.interval


def test_a_busy_service_is_sent_less_and_less_until_it_takes_rows_again() -> None:
    pace = Pace()
    slow = _answers(pace, *[(200, 200)] * 6)
    assert 0.02 < slow <= 1.0
    assert _answers(pace, *[(200, 0)] * 8) < slow
    assert _answers(pace, *[(200, 0)] * 50) == 0.0


@pytest.mark.parametrize(
    "answers",
    [
        [(200, 20)] * 100,  # a tenth of all rows
        [(1, 1)] * 100 + [(200, 0)] * 30,  # retries of single rows that met it again
        [*[(200, 0)] * 9, (200, 200)] * 10,  # every tenth request as a whole
    ],
    ids=["rows", "retries", "requests"],
)
def test_a_little_throttling_slows_nothing_down(answers: list[tuple[int, int]]) -> None:
    assert _answers(Pace(), *answers) == 0.0


def test_requests_that_were_in_flight_together_count_once() -> None:
    pace = Pace()
    together = time.monotonic()
    for _ in range(20):
        pace.answered(together, rows=200, throttled=200)
    assert pace.interval == 0.02


def test_pauses_grow_and_have_an_end() -> None:
    pauses = [pause_before_attempt(attempt) for attempt in range(1, 30)]
    assert pauses[0] <= 0.05
    assert max(pauses) <= 2.0
    assert pauses[-1] >= 1.0
