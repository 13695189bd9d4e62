"""A task beside a worker's turns: the next one waits for it, and what it fails with is raised once."""

from __future__ import annotations

import threading

import pytest

from upsert_platform.sync.streaming.beside import Beside


def test_a_task_goes_on_while_its_owner_does_and_the_next_waits_for_it() -> None:
    beside, goes_on, happened = Beside("test"), threading.Event(), list[str]()

    def first() -> None:
        assert goes_on.wait(10)
        happened.append("first")

    beside.begin(first)
    assert beside.is_busy
    beside.look()  # does not wait
    assert happened == []
    goes_on.set()
    beside.begin(lambda: happened.append("second"))
    beside.wait()
    assert happened == ["first", "second"]
    assert not beside.is_busy


def test_a_failure_is_raised_once_and_holds_up_no_later_task() -> None:
    beside, happened = Beside("test"), list[str]()

    def failing() -> None:
        raise OSError("the file is gone")

    beside.begin(failing)
    with pytest.raises(OSError, match="gone"):
        beside.begin(lambda: happened.append("second"))
    beside.wait()
    assert happened == ["second"]
    beside.begin(failing)
    with pytest.raises(OSError, match="gone"):
        beside.wait()
    beside.look()
