"""Signatures on the wire, and answers that are not the service's (specification section 6.1)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr

from upsert_platform.tablestore.failures import NoAnswerError, Remedy, ServiceError, remedy_for
from upsert_platform.tablestore.transport import Endpoint, Transport
from upsert_platform_tests.local.tablestore.server import ServerHandle


def _endpoint(server: ServerHandle, **changed: Any) -> Endpoint:
    fields: dict[str, Any] = {
        "address": server.endpoint,
        "instance": server.instance,
        "access_key_id": SecretStr(server.access_key_id),
        "access_key_secret": SecretStr(server.access_key_secret),
    }
    return Endpoint(**{**fields, **changed})


@pytest.fixture
def call() -> Callable[..., bytes]:
    def send(endpoint: Endpoint, *, timeout: float = 5) -> bytes:
        transport = Transport(endpoint, connections=1)
        try:
            return transport.call("ListTable", b"", timeout=timeout)
        finally:
            transport.close()

    return send


@pytest.mark.parametrize("region", [None, "cn-hangzhou"], ids=["v2", "v4"])
@pytest.mark.parametrize("token", [None, SecretStr("a-token")], ids=["aksk", "sts"])
def test_6_1_signed_requests_are_answered(
    server: ServerHandle, call: Callable[..., bytes], region: str | None, token: SecretStr | None
) -> None:
    assert isinstance(call(_endpoint(server, region=region, sts_token=token)), bytes)


def test_a_wrong_secret_is_a_service_error(server: ServerHandle, call: Callable[..., bytes]) -> None:
    with pytest.raises(ServiceError, match="OTSAuthFailed") as failure:
        call(_endpoint(server, access_key_secret=SecretStr("hidden-wrong")))
    assert failure.value.status == 403
    assert remedy_for(failure.value) is Remedy.STOP
    assert "hidden-wrong" not in str(failure.value)


def test_nobody_listens(call: Callable[..., bytes], server: ServerHandle) -> None:
    with pytest.raises(NoAnswerError, match=r"ListTable: no answer from instance 'local' at http://127.0.0.1:1"):
        call(_endpoint(server, address="http://127.0.0.1:1"))


@pytest.mark.parametrize("fault", ["cut-before", "cut-after"])
def test_a_cut_connection_is_no_answer(disturbed: ServerHandle, call: Callable[..., bytes], fault: str) -> None:
    disturbed.faults(f"{fault}:operation=ListTable,times=1")
    with pytest.raises(NoAnswerError):
        call(_endpoint(disturbed))
    assert isinstance(call(_endpoint(disturbed)), bytes)


def test_a_late_answer_is_no_answer(disturbed: ServerHandle, call: Callable[..., bytes]) -> None:
    disturbed.faults("delay:seconds=2,operation=ListTable,times=1")
    with pytest.raises(NoAnswerError, match="Timeout"):
        call(_endpoint(disturbed), timeout=0.2)


def test_a_gateways_error_is_repeatable(disturbed: ServerHandle, call: Callable[..., bytes]) -> None:
    disturbed.faults("bad-gateway:operation=ListTable,times=1")
    with pytest.raises(ServiceError, match="HTTP status 502") as failure:
        call(_endpoint(disturbed))
    assert remedy_for(failure.value) is Remedy.RETRY


def test_an_unsigned_answer_is_no_answer(server: ServerHandle, call: Callable[..., bytes]) -> None:
    transport = Transport(_endpoint(server), connections=1)
    with pytest.raises(NoAnswerError, match="lacks x-ots-contentmd5"):
        transport._verify("ListTable", "/ListTable", {}, b"ok", transport._context(transport._credentials))
    transport.close()


def test_an_endpoint_travels_to_workers_and_shows_no_secret(server: ServerHandle) -> None:
    endpoint = _endpoint(server, sts_token=SecretStr("hidden-token"))
    again = pickle.loads(pickle.dumps(endpoint))
    assert again == endpoint
    assert "hidden" not in repr(again) + str(again)
    assert server.access_key_secret not in repr(again) + str(again)


REMEDIES = [
    (Remedy.SLOW_DOWN, 503, "OTSServerBusy"),
    (Remedy.SLOW_DOWN, 403, "OTSQuotaExhausted"),
    (Remedy.SLOW_DOWN, 403, "OTSNotEnoughCapacityUnit"),
    (Remedy.SLOW_DOWN, 429, "OTSFlowControl"),
    (Remedy.SLOW_DOWN, 429, ""),
    (Remedy.RETRY, 500, "OTSInternalServerError"),
    (Remedy.RETRY, 503, "OTSPartitionUnavailable"),
    (Remedy.RETRY, 503, "OTSTimeout"),
    (Remedy.RETRY, 503, "OTSServerUnavailable"),
    (Remedy.RETRY, 409, "OTSRowOperationConflict"),
    (Remedy.RETRY, 404, "OTSTableNotReady"),
    (Remedy.RETRY, 408, "OTSRequestTimeout"),
    (Remedy.RETRY, 502, ""),
    (Remedy.REFUSE, 400, "OTSParameterInvalid"),
    (Remedy.REFUSE, 400, "OTSInvalidPK"),
    (Remedy.REFUSE, 400, "OTSOutOfRowSizeLimit"),
    (Remedy.REFUSE, 400, "OTSOutOfColumnCountLimit"),
    (Remedy.REFUSE, 413, "OTSRequestBodyTooLarge"),
    (Remedy.SUPERSEDED, 403, "OTSConditionCheckFail"),
    (Remedy.STOP, 403, "OTSAuthFailed"),
    (Remedy.STOP, 403, "OTSNoPermissionAccess"),
    (Remedy.STOP, 403, "OTSCapacityUnitExhausted"),
    (Remedy.STOP, 404, "OTSObjectNotExist"),
    (Remedy.STOP, 405, "OTSMethodNotAllowed"),
]


@pytest.mark.parametrize(("remedy", "status", "code"), REMEDIES, ids=[f"5.4-{case[2]}" for case in REMEDIES])
def test_5_4_remedies(remedy: Remedy, status: int, code: str) -> None:
    assert remedy_for(ServiceError(api="BatchWriteRow", status=status, code=code, message="")) is remedy
