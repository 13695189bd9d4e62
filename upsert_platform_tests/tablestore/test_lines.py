"""Connections and threads that serve one bulk write after the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace

import pytest
from pydantic import SecretStr

from upsert_platform.tablestore import lines
from upsert_platform.tablestore.transport import Endpoint

ENDPOINT = Endpoint("http://127.0.0.1:9", "instance", SecretStr("id"), SecretStr("secret"))


@pytest.fixture(autouse=True)
def no_idle_ones(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept: list[lines.Line] = []
    monkeypatch.setattr(lines, "_idle", kept)
    yield
    for line in kept:
        line.close()


def test_a_line_serves_one_task_after_the_other_and_never_two_at_once() -> None:
    first, second = lines.take_line(ENDPOINT, requests=2), lines.take_line(ENDPOINT, requests=2)
    assert first is not second
    assert first.places == 2 * lines.PLACES_PER_REQUEST
    lines.give_back(second)
    assert lines.take_line(ENDPOINT, requests=2) is second
    for line in (first, second):
        lines.give_back(line)


@pytest.mark.parametrize(
    ("other", "requests"),
    [
        (replace(ENDPOINT, address="http://127.0.0.1:10"), 2),
        (replace(ENDPOINT, access_key_secret=SecretStr("other")), 2),
        (ENDPOINT, 3),
    ],
)
def test_another_endpoint_key_or_number_of_requests_has_lines_of_its_own(other: Endpoint, requests: int) -> None:
    line = lines.take_line(ENDPOINT, requests=2)
    lines.give_back(line)
    found = lines.take_line(other, requests=requests)
    assert found is not line
    lines.give_back(found)


def test_a_line_is_not_carried_into_a_forked_process(monkeypatch: pytest.MonkeyPatch) -> None:
    line = lines.take_line(ENDPOINT, requests=1)
    lines.give_back(line)
    monkeypatch.setattr(lines.os, "getpid", lambda: -1)
    found = lines.take_line(ENDPOINT, requests=1)
    assert found is not line
    lines.give_back(found)


def test_few_idle_lines_are_kept_and_the_threads_of_others_end() -> None:
    taken = [lines.take_line(ENDPOINT, requests=1) for _ in range(lines._KEPT + 2)]
    at_work: list[Future[str]] = [line.threads.submit(lambda: threading.current_thread().name) for line in taken]
    assert all(future.result().startswith("tablestore") for future in at_work)
    for line in taken:
        lines.give_back(line)
    for line in taken[:2]:
        with pytest.raises(RuntimeError, match="shutdown"):
            line.threads.submit(int)
    assert [lines.take_line(ENDPOINT, requests=1) for _ in range(lines._KEPT)] == taken[2:]
    for line in taken[2:]:
        lines.give_back(line)
