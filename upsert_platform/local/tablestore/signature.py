"""Request signatures, version 2 (HMAC-SHA1) and 4 (HMAC-SHA256 with a derived key), and signed responses."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import parse_qsl, urlencode

from pydantic import SecretStr

from upsert_platform.local.tablestore import limits
from upsert_platform.local.tablestore.errors import ServiceError, invalid

_REQUIRED = ("x-ots-date", "x-ots-apiversion", "x-ots-accesskeyid", "x-ots-instancename", "x-ots-contentmd5")
_SIGNATURES = ("x-ots-signature", "x-ots-signaturev4")


def content_md5(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()


def _sign(key: bytes, text: str, method: str) -> str:
    return base64.b64encode(hmac.digest(key, text.encode(), method)).decode()


@lru_cache(maxsize=64)
def derive_key(secret: str, date: str, region: str) -> bytes:
    """The signing key of version 4: the base64 text of a chain of HMACs over date, region and product."""
    key = ("aliyun_v4" + secret).encode()
    for part in (date, region, "ots", "aliyun_v4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return base64.b64encode(key)


class Signer:
    """Checks requests and signs responses with the one key pair of the instance."""

    def __init__(self, *, access_key_id: str, access_key_secret: SecretStr, instance: str) -> None:
        self._id = access_key_id
        self._secret = access_key_secret
        self._instance = instance

    def check(self, path: str, query: str, headers: Mapping[str, str], body: bytes) -> bytes:
        """Checks headers, clock, digest and signature of a request.

        Returns:
            The key with which the response is signed.

        Raises:
            ServiceError: ``OTSAuthFailed`` or, for a missing header or a malformed date, ``OTSParameterInvalid``.
        """
        for name in _REQUIRED:
            if name not in headers:
                raise invalid(f"Missing header: '{name}'.")
        if headers["x-ots-accesskeyid"] != self._id:
            raise ServiceError("OTSAuthFailed", "The AccessKeyID does not exist.")
        if headers["x-ots-instancename"] != self._instance:
            raise ServiceError("OTSAuthFailed", "The instance is not found.")
        _check_date(headers["x-ots-date"])
        if headers["x-ots-contentmd5"] != content_md5(body):
            raise ServiceError(
                "OTSAuthFailed", "Mismatch between MD5 value of request body and x-ots-contentmd5 in header."
            )
        secret = self._secret.get_secret_value()
        text = _canonical_request(path, query, headers)
        if sent := headers.get("x-ots-signaturev4"):
            if "x-ots-signdate" not in headers or "x-ots-signregion" not in headers:
                raise invalid("Missing header: 'x-ots-signdate' or 'x-ots-signregion'.")
            key = derive_key(secret, headers["x-ots-signdate"], headers["x-ots-signregion"])
            expected = _sign(key, text + "ots", "sha256")
        elif sent := headers.get("x-ots-signature"):
            key = secret.encode()
            expected = _sign(key, text, "sha1")
        else:
            raise invalid("Missing header: 'x-ots-signature'.")
        if not hmac.compare_digest(sent.encode(), expected.encode()):
            raise ServiceError("OTSAuthFailed", "Signature mismatch.")
        return key

    def sign_response(self, path: str, headers: Mapping[str, str], key: bytes) -> str:
        """The ``Authorization`` header of a response (HMAC-SHA1 in both versions)."""
        lines = sorted(f"{name}:{value}" for name, value in headers.items())
        return f"OTS {self._id}:{_sign(key, chr(10).join([*lines, path]), 'sha1')}"


def _check_date(text: str) -> None:
    for form in ("%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%dT%H:%M:%SZ"):
        try:
            sent = datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
        if abs((datetime.now(UTC) - sent).total_seconds()) > limits.CLOCK_SKEW_SECONDS:
            raise ServiceError("OTSAuthFailed", f"Mismatch between system time and x-ots-date: {text}.")
        return
    raise invalid(f"Invalid date format: {text}.")


def _canonical_request(path: str, query: str, headers: Mapping[str, str]) -> str:
    lines = sorted(
        f"{name}:{value}" for name, value in headers.items() if name.startswith("x-ots-") and name not in _SIGNATURES
    )
    ordered = urlencode(sorted(parse_qsl(query))) if query else ""
    return "\n".join([path, "POST", ordered, *lines, ""])
