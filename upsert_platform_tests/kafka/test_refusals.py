"""Which events of a client end a wait, and how they are told."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from upsert_platform.core.errors import EndpointError
from upsert_platform.kafka.refusals import raise_if_refused

ALERT = "ssl://b:1/bootstrap: Receive failed: error:0A000412:SSL routines::ssl/tls alert bad certificate"


@pytest.mark.parametrize(
    ("code", "reason", "text"),
    [
        (KafkaError._AUTHENTICATION, "wrong hunter2", r"refuse the login: _AUTHENTICATION: wrong \*\*\*;"),
        (KafkaError._SSL, "self-signed", "no TLS connection: _SSL: self-signed; check"),
        (KafkaError._TRANSPORT, ALERT, r"no TLS connection: .*properties\.ssl\.keystore"),
        (KafkaError._RESOLVE, "b", r"the host is not known: .*properties\.bootstrap\.servers"),
    ],
)
def test_no_retry_mends_it(code: int, reason: str, text: str) -> None:
    with pytest.raises(EndpointError, match=text) as caught:
        raise_if_refused(
            [KafkaError(KafkaError._TRANSPORT), KafkaError(code, reason)], servers="b:1", secrets=("hunter2",)
        )
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "servers", "connected"),
    [
        (KafkaError._TRANSPORT, "b:1", False),
        (KafkaError._ALL_BROKERS_DOWN, "b:1", False),
        (KafkaError._RESOLVE, "b:1,c:1", False),
        (KafkaError._RESOLVE, "b:1", True),
    ],
)
def test_the_client_may_mend_it(code: int, servers: str, connected: bool) -> None:
    raise_if_refused([KafkaError(code, "gone")], servers=servers, secrets=(), connected=connected)
