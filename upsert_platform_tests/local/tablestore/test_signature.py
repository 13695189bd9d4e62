"""Signatures: the vectors of the protocol notes (section 6.1), and what clients see of a refusal."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from upsert_platform.local.tablestore import signature
from upsert_platform.local.tablestore.signature import Signer
from upsert_platform_tests.local.tablestore.conftest import connect, error_of
from upsert_platform_tests.local.tablestore.server import ServerHandle

HEADERS = {
    "x-ots-date": "2024-01-02T03:04:05.000Z",
    "x-ots-apiversion": "2015-12-31",
    "x-ots-accesskeyid": "AK",
    "x-ots-instancename": "inst",
    "x-ots-contentmd5": "1B2M2Y8AsgTpgAmY7PhCfg==",
}
SIGNER = Signer(access_key_id="AK", access_key_secret=SecretStr("SK"), instance="inst")


@pytest.fixture
def frozen_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signature, "_check_date", lambda text: None)


@pytest.mark.usefixtures("frozen_clock")
def test_vector_version_2() -> None:
    sent = HEADERS | {"x-ots-signature": "mkx02dwUowmuj5f5yr+pdcs9NTA="}
    assert SIGNER.check("/ListTable", "", sent, b"") == b"SK"


@pytest.mark.usefixtures("frozen_clock")
def test_vector_version_4() -> None:
    sent = HEADERS | {
        "x-ots-signdate": "20240102",
        "x-ots-signregion": "cn-hangzhou",
        "x-ots-signaturev4": "QBSiEZgu1oUSd2R371+RT4BtW7YZWXFQOyENr3vozRI=",
    }
    assert SIGNER.check("/ListTable", "", sent, b"") == b"0Y9FKCV0EwWONQa/pIq3Tm7XJUx1RKzD9G6zeztI3/o="


def test_vector_response() -> None:
    headers = {
        "x-ots-contentmd5": HEADERS["x-ots-contentmd5"],
        "x-ots-contenttype": "protocol buffer",
        "x-ots-date": HEADERS["x-ots-date"],
        "x-ots-requestid": "rid",
    }
    assert SIGNER.sign_response("/ListTable", headers, b"SK") == "OTS AK:USkOmnDaq2w2wXPMQXpWGRLPbUc="


@pytest.mark.parametrize(
    "wrong", [{"access_key_secret": "wrong"}, {"access_key_id": "wrong"}, {"instance": "wrong"}], ids=str
)
@pytest.mark.parametrize("region", [None, "cn-hangzhou"], ids=["v2", "v4"])
def test_wrong_credentials(server: ServerHandle, wrong: dict[str, str], region: str | None) -> None:
    options: dict[str, Any] = {"region": region} if region else {}
    assert error_of(connect(server, **wrong, **options).list_table) == (403, "OTSAuthFailed")


@pytest.mark.parametrize("region", [None, "cn-hangzhou"], ids=["v2", "v4"])
def test_the_sdk_accepts_the_signed_response(server: ServerHandle, region: str | None) -> None:
    options = {"region": region} if region else {}
    assert isinstance(connect(server, **options).list_table(), tuple)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"x-ots-contentmd5": "AAAA"}, "OTSAuthFailed"),
        ({"x-ots-date": "2014-06-07T14:25:40.000Z"}, "OTSAuthFailed"),
        ({"x-ots-date": "Sat, 07 Jun 2014"}, "OTSParameterInvalid"),
        ({"x-ots-apiversion": None}, "OTSParameterInvalid"),
    ],
    ids=["digest", "clock", "date form", "missing header"],
)
def test_refused_headers(change: dict[str, str | None], code: str) -> None:
    from datetime import UTC, datetime

    from upsert_platform.local.tablestore.errors import ServiceError

    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    changed = HEADERS | {"x-ots-date": now, "x-ots-signature": "x"} | change
    sent = {name: value for name, value in changed.items() if value is not None}
    with pytest.raises(ServiceError) as raised:
        SIGNER.check("/ListTable", "", sent, b"")
    assert raised.value.code == code


def test_the_secret_is_not_shown(server: ServerHandle) -> None:
    assert "SK" not in repr(SIGNER.__dict__)
    assert server.access_key_secret not in repr(server) + server.log() + server.page("/journal")
