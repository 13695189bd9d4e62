"""Sends bodies that are already encoded: signs, posts over kept connections, verifies the answer.

The official client encodes every request itself, so the bulk path speaks to the service directly, with the SDK's own
signatures (versions 2 and 4). Everything else of the connector uses the SDK's client.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from upsert_platform.tablestore.credentials import Key, KeySource, Role, sdk_provider
from upsert_platform.tablestore.failures import ClockError, NoAnswerError, ServiceError
from upsert_platform.tablestore.options import TablestoreSettings
from upsert_platform.tablestore.sdk import silence_sdk
from upsert_platform.writing.time_limit import time_left

if TYPE_CHECKING:
    import urllib3

_API_VERSION = "2015-12-31"
_CLOCK_DIFFERENCE = timedelta(minutes=15)
_SIGNED_HEADERS = ("x-ots-contentmd5", "x-ots-requestid", "x-ots-date", "x-ots-contenttype")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An instance and the credentials for it. Picklable; shows no secret."""

    address: str
    instance: str
    access_key_id: SecretStr
    access_key_secret: SecretStr
    sts_token: SecretStr | None = None
    region: str | None = None
    role: Role | None = None

    @staticmethod
    def of(settings: TablestoreSettings) -> Endpoint:
        """The endpoint that a table's options name."""
        return Endpoint(
            address=settings.endpoint,
            instance=settings.instance_name,
            access_key_id=settings.access_key_id,
            access_key_secret=settings.access_key_secret,
            sts_token=settings.sts_token,
            region=settings.region,
            role=settings.role,
        )

    @property
    def key(self) -> KeySource:
        """Return the source of the key of requests."""
        key_id = self.access_key_id.get_secret_value()
        given = Key(key_id, self.access_key_secret, self.sts_token) if key_id else None
        return KeySource(given, self.role)

    def __str__(self) -> str:
        return f"instance '{self.instance}' at {self.address}"


class Transport:
    """Connections to one endpoint; used by several threads, closed by its owner."""

    def __init__(self, endpoint: Endpoint, *, connections: int) -> None:
        import urllib3

        silence_sdk()
        from tablestore.auth import RequestContext, SignV2, SignV4

        self._endpoint = endpoint
        self._credentials = sdk_provider(endpoint.key)
        self._signer = SignV4("utf8", region=endpoint.region) if endpoint.region else SignV2("utf8")
        self._context: Any = RequestContext
        self._path = urlsplit(endpoint.address).path.rstrip("/")
        self._pool: urllib3.HTTPConnectionPool = urllib3.connection_from_url(
            endpoint.address, maxsize=connections, block=True
        )

    def close(self) -> None:
        """Closes idle connections."""
        self._pool.close()

    def prepare(self) -> None:
        """Fetches credentials that are due, which can take as long as a request, so that the next call sends at once.

        Raises:
            ServiceError: there are no credentials.
            NoAnswerError: nothing came back.
        """
        self._credentials.get_credentials()

    def call(self, api: str, body: bytes, *, timeout: float) -> bytes:
        """Sends one request and returns the body of its answer.

        Args:
            api: name of the operation, such as ``BatchWriteRow``.
            body: protobuf.
            timeout: seconds for connecting and for waiting.

        Raises:
            ServiceError: the service answered with an error, or there are no credentials.
            NoAnswerError: nothing came back, or nothing that the service signed.
        """
        import urllib3

        query = "/" + api
        context = self._context(self._credentials.get_credentials())
        headers = self._signed_headers(query, body, context)
        try:
            response = self._pool.urlopen(
                "POST",
                self._path + query,
                body=body,
                headers=headers,
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(total=request_seconds(timeout)),
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise NoAnswerError(f"{api}: no answer from {self._endpoint}: {type(error).__name__}: {error}") from error
        answered = {name.lower(): value for name, value in response.headers.items()}
        if response.status >= 300:
            raise self._failure(api, response.status, answered, response.data)
        self._verify(api, query, answered, response.data, context)
        return response.data

    def _signed_headers(self, query: str, body: bytes, context: Any) -> dict[str, str]:
        headers = {
            "x-ots-date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            "x-ots-apiversion": _API_VERSION,
            "x-ots-accesskeyid": context.get_credentials().get_access_key_id(),
            "x-ots-instancename": self._endpoint.instance,
            "x-ots-contentmd5": _md5(body),
        }
        token = context.get_credentials().get_security_token()
        if token is not None:
            headers["x-ots-ststoken"] = token
        self._signer.make_request_signature_and_add_headers(query, headers, context)
        return headers

    def _verify(self, api: str, query: str, headers: dict[str, str], body: bytes, context: Any) -> None:
        """Checks an answer as the SDK does; without a signature it may be a proxy's, so nothing is known."""
        missing = [name for name in (*_SIGNED_HEADERS, "authorization") if name not in headers]
        if missing:
            raise NoAnswerError(f"{api}: the answer of {self._endpoint} lacks {', '.join(missing)}")
        if headers["x-ots-contentmd5"] != _md5(body):
            raise NoAnswerError(f"{api}: the answer of {self._endpoint} was damaged on its way (MD5)")
        try:
            date = datetime.strptime(headers["x-ots-date"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
        except ValueError:
            raise NoAnswerError(f"{api}: the answer of {self._endpoint} has no readable date") from None
        if abs(date - datetime.now(UTC)) > _CLOCK_DIFFERENCE:
            raise ClockError(api, self._endpoint)
        signature = self._signer.make_response_signature(query, headers, self._signer.get_signing_key(context))
        if headers["authorization"] != f"OTS {context.get_credentials().get_access_key_id()}:{signature}":
            raise NoAnswerError(f"{api}: the answer of {self._endpoint} has a wrong signature")

    def _failure(self, api: str, status: int, headers: dict[str, str], body: bytes) -> ServiceError:
        from google.protobuf.message import DecodeError
        from tablestore.protobuf.table_store_pb2 import Error

        error = Error()
        try:
            error.ParseFromString(body)
            code, message = error.code, error.message
        except DecodeError:
            code, message = "", "the answer is not the service's"
        return ServiceError(
            api=api, status=status, code=code, message=message, request_id=headers.get("x-ots-requestid", "")
        )


def request_seconds(seconds: float) -> float:
    """Return how long a request may take, of so many seconds at most.

    Raises:
        NoAnswerError: the time limit of this thread has passed; nothing is sent.
    """
    left = min(seconds, time_left())
    if left <= 0:
        raise NoAnswerError("the time that was left for requests is over")
    return left


def _md5(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode("ascii")
