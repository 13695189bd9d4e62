"""Lines of a wait: none of a short one, one every so often of a long one, none after its end."""

import threading
import time

import pytest

from upsert_platform.sync.waiting import told_while_waiting


def test_a_long_wait_is_told_until_it_ends() -> None:
    lines: list[str] = []
    twice = threading.Event()

    def tell(line: str) -> None:
        lines.append(line)
        if len(lines) == 2:
            twice.set()

    with told_while_waiting(tell, "batch 1: reading 5,000 offsets", every=0.02):
        assert twice.wait(10)
    told = list(lines)
    time.sleep(0.1)
    assert lines == told
    assert set(lines) == {"batch 1: reading 5,000 offsets, for 0 s so far"}


def test_a_short_wait_and_one_that_nobody_hears_of_are_not_told() -> None:
    lines: list[str] = []
    with told_while_waiting(lines.append, "a", every=60):
        pass
    with told_while_waiting(None, "b", every=0.001):
        time.sleep(0.02)
    assert lines == []


def test_a_wait_that_fails_ends_its_lines() -> None:
    with pytest.raises(ValueError, match="broken"), told_while_waiting(lambda _: None, "a", every=0.01):
        raise ValueError("broken")
    assert not [thread for thread in threading.enumerate() if thread.name == "wait"]
