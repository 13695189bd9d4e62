"""Checks signatures, versions 2 and 4 (spec 3.2)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from email.utils import parsedate_to_datetime
from urllib.parse import parse_qsl, unquote, urlsplit

from upsert_platform.local.maxcompute.errors import ServiceError
from upsert_platform.local.maxcompute.http import Request

MAXIMUM_SKEW_SECONDS = 15 * 60
_PLAIN_HEADERS = ("content-md5", "content-type", "date")


def canonical_text(request: Request, *, prefix: str = "") -> str:
    """The text that a client signs.

    Args:
        prefix: the path of the endpoint, which is not signed.
    """
    target = unquote(request.target[len(prefix) :] if request.target.startswith(prefix) else request.target)
    parts = urlsplit(target, allow_fragments=False)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    signed = {name: request.headers.get(name) or "" for name in _PLAIN_HEADERS}
    for name in request.headers:
        if name.lower().startswith("x-odps-"):
            signed[name.lower()] = request.headers[name]
    signed.update({name: value for name, value in parameters.items() if name.startswith("x-odps-")})
    lines = [request.method]
    lines += [f"{name}:{signed[name]}" if name.startswith("x-odps-") else signed[name] for name in sorted(signed)]
    resource = parts.path
    if parameters:
        items = (f"{name}={value}" if value else name for name, value in sorted(parameters.items()))
        resource += "?" + "&".join(items)
    lines.append(resource)
    return "\n".join(lines)


class Authenticator:
    """Knows one access id and its secret."""

    def __init__(self, access_id: str, secret: str) -> None:
        self._access_id = access_id
        self._secret = secret

    def __repr__(self) -> str:
        return f"Authenticator({self._access_id!r})"

    def check(self, request: Request, *, prefix: str = "") -> None:
        """Returns when the request is signed by the known key.

        Raises:
            ServiceError: Unauthorized for a missing header or another access id, SignatureNotMatch for another
                secret, RequestTimeTooSkewed for a clock that is off by more than a quarter of an hour.
        """
        header = request.headers.get("Authorization") or ""
        if not header.startswith("ODPS ") or ":" not in header:
            raise ServiceError(
                401, "Unauthorized", "ODPS-0410031:Authentication signature is required - no Authorization header"
            )
        credential, signature = header[5:].rsplit(":", 1)
        parts = credential.split("/")
        if parts[0] != self._access_id:
            raise ServiceError(
                401, "Unauthorized", f"ODPS-0410051:Invalid credentials - accessKeyId not found: {parts[0]}"
            )
        key = self._secret.encode()
        if len(parts) == 5:
            _, date, region, service, version = parts
            key = version.removesuffix("_request").encode() + key
            for step in (date, region, service, version):
                key = hmac.new(key, step.encode(), hashlib.sha256).digest()
        elif len(parts) != 1:
            raise ServiceError(401, "Unauthorized", "ODPS-0410051:Invalid credentials - malformed credential scope")
        text = canonical_text(request, prefix=prefix)
        expected = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha1).digest()).decode()
        if not hmac.compare_digest(expected, signature):
            raise ServiceError(
                401,
                "SignatureNotMatch",
                "ODPS-0410042:Invalid signature value - the request signature calculated does not match",
            )
        self._check_date(request)

    def _check_date(self, request: Request) -> None:
        try:
            moment = parsedate_to_datetime(request.headers.get("Date") or "").timestamp()
        except (TypeError, ValueError) as error:
            raise ServiceError(400, "InvalidArgument", "the Date header is missing or malformed") from error
        if abs(time.time() - moment) > MAXIMUM_SKEW_SECONDS:
            raise ServiceError(
                403, "RequestTimeTooSkewed", "the request date differs from the server's clock by more than 15 minutes"
            )
