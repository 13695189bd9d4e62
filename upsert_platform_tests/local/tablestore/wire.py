"""Requests by hand, for what the Python SDK does not send."""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.error
import urllib.request
import zlib
from datetime import UTC, datetime

from upsert_platform_tests.local.tablestore.server import ServerHandle


def sign(
    operation: str, body: bytes, *, key: str, secret: str, instance: str, extra: dict[str, str] | None = None
) -> dict[str, str]:
    """The headers of a request, signed by version 2."""
    headers = {
        "x-ots-date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "x-ots-apiversion": "2015-12-31",
        "x-ots-accesskeyid": key,
        "x-ots-instancename": instance,
        "x-ots-contentmd5": base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode(),
        **(extra or {}),
    }
    text = "\n".join([f"/{operation}", "POST", "", *sorted(f"{k}:{v}" for k, v in headers.items()), ""])
    headers["x-ots-signature"] = base64.b64encode(hmac.digest(secret.encode(), text.encode(), "sha1")).decode()
    return headers


def call(handle: ServerHandle, operation: str, body: bytes, *, compress: bool = False) -> tuple[int, bytes]:
    """Sends a signed request; returns status and body of the answer."""
    extra = {}
    if compress:
        extra = {"x-ots-request-compress-type": "deflate", "x-ots-request-compress-size": str(len(body))}
        body = zlib.compress(body)
    headers = sign(
        operation,
        body,
        key=handle.access_key_id,
        secret=handle.access_key_secret,
        instance=handle.instance,
        extra=extra,
    )
    request = urllib.request.Request(f"{handle.endpoint}/{operation}", data=body, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
