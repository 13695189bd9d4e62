"""A partition without a leader: it was just made, or moves to another broker. Whoever asks for its offsets waits."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.core.errors import EndpointError
from upsert_platform.kafka.endpoint import ClusterAdmin, KafkaEndpoint
from upsert_platform.kafka.leaders import ask_offsets
from upsert_platform.kafka.sink.control import ControlTopic
from upsert_platform.kafka.source.fetch import first_offset
from upsert_platform.referee.topic import _bounds


class Asked:
    """A consumer that is refused its question a few times."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.client = self

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return 3, 7

    def poll(self, timeout: float) -> None:
        """No events."""

    def raise_if_refused(self) -> None:
        """No login was refused."""


NOT_LEADER, NO_RIGHT = KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.TOPIC_AUTHORIZATION_FAILED


def control(kafka_bootstrap: str) -> ControlTopic:
    control = object.__new__(ControlTopic)
    control.endpoint = type("Endpoint", (), {"servers": kafka_bootstrap})()  # type: ignore[assignment]
    return control


def test_a_partition_without_a_leader_is_asked_for_again() -> None:
    codes = (KafkaError.LEADER_NOT_AVAILABLE, NOT_LEADER, NOT_LEADER)
    assert control("here")._beginning(Asked(*codes), "control", 0) == 3  # type: ignore[arg-type]
    assert first_offset(Asked(*codes), OffsetRange("t", 0, 0, 5)) == 3  # type: ignore[arg-type]
    assert _bounds(Asked(*codes), "t", 0) == (3, 7)  # type: ignore[arg-type]


class Listing:
    """A client whose first answers about offsets are refusals, as codes per partition; then every offset is 7."""

    def __init__(self, *answers: dict[int, int]) -> None:
        self.answers = list(answers)
        self.asked: list[list[int]] = []

    def list_offsets(self, specs: Any, *, isolation_level: Any, request_timeout: float) -> dict[Any, Future[Any]]:
        refused = self.answers.pop(0) if self.answers else {}
        self.asked.append([place.partition for place in specs])
        futures: dict[Any, Future[Any]] = {place: Future() for place in specs}
        for place, future in futures.items():
            if place.partition in refused:
                future.set_exception(KafkaException(KafkaError(refused[place.partition])))
            else:
                future.set_result(SimpleNamespace(offset=7))
        return futures


def listed(client: Listing) -> dict[tuple[str, int], int]:
    admin = ClusterAdmin(KafkaEndpoint("here"), client, [])  # type: ignore[arg-type]
    return ask_offsets(admin, {("t", 0): OffsetSpec.latest(), ("t", 1): OffsetSpec.latest()}, committed=True)()


def test_offsets_that_an_administrator_lists_are_asked_for_until_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Listing({1: KafkaError.LEADER_NOT_AVAILABLE}, {1: KafkaError._NOENT})
    assert listed(client) == {("t", 0): 7, ("t", 1): 7}
    assert client.asked == [[0, 1], [1], [1]]
    monkeypatch.setattr("upsert_platform.kafka.leaders.REQUEST_SECONDS", 0.3)
    with pytest.raises(EndpointError, match=r"listing offsets of t-0 failed: NOT_LEADER"):
        listed(Listing(*[{0: NOT_LEADER}] * 100))
    client = Listing({0: NO_RIGHT})
    with pytest.raises(EndpointError, match=r"t-0 failed.*give the user the right"):
        listed(client)
    assert client.asked == [[0, 1]]


def test_another_refusal_is_told_at_once() -> None:
    with pytest.raises(EndpointError, match=r"control topic 'control' cannot be read.*give the user the right"):
        control("here")._beginning(Asked(NO_RIGHT), "control", 0)  # type: ignore[arg-type]
    with pytest.raises(EndpointError, match="t-0"):
        first_offset(Asked(NO_RIGHT), OffsetRange("t", 0, 0, 5))  # type: ignore[arg-type]
    with pytest.raises(KafkaException):
        _bounds(Asked(NO_RIGHT), "t", 0)  # type: ignore[arg-type]
