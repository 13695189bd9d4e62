"""Endpoints that were not reached, within looks that wait for each of them once."""

from __future__ import annotations

import time

import pymysql
import pytest

from upsert_platform.core.errors import EndpointError
from upsert_platform.core.unreachable import reaching, wait_once_for, waiting_once
from upsert_platform.kafka import endpoint as kafka
from upsert_platform.local.process import free_port
from upsert_platform.mysql.connection import Connection, Server


def fail(endpoint: object, text: str) -> str:
    """Fails to reach an endpoint; the message that a caller sees."""
    with pytest.raises(EndpointError) as caught, reaching(endpoint):
        raise EndpointError(text)
    return str(caught.value)


def test_an_endpoint_is_waited_for_once_within_a_look() -> None:
    with waiting_once():
        assert fail(("a", 1), "first") == "first"
        assert fail(("a", 1), "second") == "first"
        assert fail(("a", 2), "other") == "other"
        with reaching(("b", 1)):
            pass
        with waiting_once():
            assert fail(("a", 1), "a look within") == "a look within"
        assert fail(("a", 2), "again") == "other"
    assert fail(("a", 1), "behind it") == "behind it"


def test_an_endpoint_is_waited_for_once_and_tried_again_later() -> None:
    wait_once_for(0.3)
    try:
        assert fail("a", "first") == "first"
        assert fail("a", "second") == "first"
        with waiting_once():
            assert fail("a", "a look within") == "a look within"
        time.sleep(0.35)
        with reaching("a"):
            pass
        assert fail("a", "third") == "third"
    finally:
        wait_once_for(None)
    assert fail("a", "behind it") == "behind it"


def test_another_failure_is_not_the_endpoints() -> None:
    with waiting_once():
        with pytest.raises(KeyError), reaching("a"):
            raise KeyError
        with reaching("a"):
            pass


def test_brokers_that_are_away_are_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "REQUEST_SECONDS", 1.5)
    servers = f"127.0.0.1:{free_port()}"
    errors: list[str] = []
    started = time.monotonic()
    with waiting_once():
        for number in range(20):
            with pytest.raises(EndpointError) as caught, kafka.KafkaEndpoint(servers).admin() as admin:
                admin.has_topic(f"t{number}")
            errors.append(str(caught.value))
    assert time.monotonic() - started < 10
    assert "not reachable" in errors[0]
    assert set(errors) == {errors[0]}


def test_a_server_of_mysql_that_is_away_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("127.0.0.1", free_port(), "nobody", "")
    with waiting_once():
        with pytest.raises(EndpointError, match="Connection refused"):
            Connection(server)
        monkeypatch.setattr(pymysql.connections.Connection, "connect", None)
        with pytest.raises(EndpointError, match="Connection refused"):
            Connection(server)
        with pytest.raises(TypeError):
            Connection(Server("127.0.0.1", free_port(), "nobody", ""))
