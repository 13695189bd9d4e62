"""The official SDK's client, with the platform's errors and retries. For everything but bulk writes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

from upsert_platform.tablestore.credentials import sdk_provider
from upsert_platform.tablestore.failures import ClockError, NoAnswerError, Remedy, ServiceError, remedy_for
from upsert_platform.tablestore.options import TablestoreSettings
from upsert_platform.tablestore.pace import pause_before_attempt
from upsert_platform.tablestore.sdk import LOGGER, silence_sdk
from upsert_platform.tablestore.transport import Endpoint, Transport, request_seconds
from upsert_platform.writing.time_limit import time_left

_LOG: Final = logging.getLogger(__name__)
T = TypeVar("T")
ASK_SECONDS = 60.0
"""How long a service that does not answer is asked for the state of a table."""
_CLOCK: Final = "more than 15 minutes"
"""Part of the SDK's error about an answer whose date is far from this machine's."""
_CONNECTIONS = 32
"""Requests at a time; a further one waits."""


class Client:
    """Calls operations of one instance. Opens its connections at the first call; its owner closes it."""

    def __init__(self, endpoint: Endpoint, *, timeout: timedelta, retry_deadline: timedelta) -> None:
        self.endpoint = endpoint
        self._timeout = timeout.total_seconds()
        self._retry_seconds = retry_deadline.total_seconds()
        self._sdk: Any = None
        self._transport: Transport | None = None

    @staticmethod
    def of(settings: TablestoreSettings) -> Client:
        """A client as a table's options say."""
        return Client(Endpoint.of(settings), timeout=settings.request_timeout, retry_deadline=settings.retry_deadline)

    def close(self) -> None:
        """Closes the connections. Idempotent; a later call opens new ones."""
        if self._sdk is not None:
            self._sdk.connection.pool.clear()
            self._sdk = None
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def once(self, operation: str, *arguments: Any, **options: Any) -> Any:
        """Calls a method of the SDK's client once.

        Raises:
            ServiceError: the service answered with an error.
            NoAnswerError: whether the request was applied is unknown.
        """
        client = self._open()
        from tablestore.error import OTSClientError, OTSServiceError
        from urllib3.exceptions import HTTPError

        try:
            return getattr(client, operation)(*arguments, **options)
        except OTSServiceError as error:
            raise ServiceError(
                api=operation, status=error.http_status, code=error.code, message=error.message,
                request_id=error.request_id,
            ) from error  # fmt: skip
        except OTSClientError as error:
            status = error.http_status
            if status is None:
                raise
            if _CLOCK in error.message:
                raise ClockError(operation, self.endpoint) from error
            if status >= 300:  # of a gateway or proxy; the SDK could not read it as an answer of the service
                raise ServiceError(
                    api=operation, status=status, code="", message=f"{error.message} ({self.endpoint})"
                ) from error
            raise NoAnswerError(f"{operation}: {error.message} ({self.endpoint})") from error
        except (HTTPError, OSError) as error:
            raise NoAnswerError(
                f"{operation}: no answer from {self.endpoint}: {type(error).__name__}; check 'tablestore.endpoint', and"
                " that it can be reached from here"
            ) from error

    def repeat(self, operation: str, *arguments: Any, **options: Any) -> Any:
        """Calls an operation that may be repeated, again after passing failures, until the retry deadline."""
        return repeat_until(self._retry_seconds, lambda: self.once(operation, *arguments, **options))

    def ask(self, operation: str, *arguments: Any, **options: Any) -> Any:
        """As `repeat`, for what a run asks before it has done anything: somebody may be waiting at a console."""
        patience = min(self._retry_seconds, ASK_SECONDS)
        return repeat_until(patience, lambda: self.once(operation, *arguments, **options))

    def post(self, api: str, body: bytes) -> bytes:
        """Sends a request that may be repeated and is encoded already, until the retry deadline; its answer's body."""
        if self._transport is None:
            self._transport = Transport(self.endpoint, connections=1)
        transport = self._transport
        return repeat_until(self._retry_seconds, lambda: transport.call(api, body, timeout=self._timeout))

    def _open(self) -> Any:
        if self._sdk is None:
            silence_sdk()
            from tablestore import OTSClient
            from tablestore.retry import NoRetryPolicy

            endpoint = self.endpoint
            self._sdk = OTSClient(
                endpoint.address,
                instance_name=endpoint.instance,
                credentials_provider=sdk_provider(endpoint.key),
                region=endpoint.region,
                socket_timeout=self._timeout,
                # A queue of 500, as the SDK makes it by itself, takes as long to fill and to clear as a request.
                max_connection=_CONNECTIONS,
                retry_policy=NoRetryPolicy(),
                logger_name=LOGGER,
            )
            _bound_requests(self._sdk.connection.pool, self._timeout)
        return self._sdk


def _bound_requests(pool: Any, seconds: float) -> None:
    """Makes each request of the SDK end in time: the SDK has one time for all, and urllib3 connects four times."""
    from urllib3 import Timeout

    send = pool.urlopen

    def urlopen(method: str, url: str, **options: Any) -> Any:
        left = request_seconds(seconds)
        return send(method, url, **{**options, "timeout": Timeout(total=left), "pool_timeout": left, "retries": False})

    pool.urlopen = urlopen


def repeat_until(seconds: float, call: Callable[[], T]) -> T:
    """Calls until it succeeds, fails for good, or the time is over: then its last error is raised."""
    deadline = time.monotonic() + min(seconds, time_left())
    attempt = 0
    while True:
        try:
            return call()
        except (ServiceError, NoAnswerError) as error:
            attempt += 1
            pause = pause_before_attempt(attempt)
            if not may_repeat(error) or time.monotonic() + pause > deadline:
                raise
            if attempt == 1 and isinstance(error, NoAnswerError):
                _LOG.warning("%s; trying again for up to %.0f s", error, deadline - time.monotonic())
            time.sleep(pause)


def may_repeat(error: ServiceError | NoAnswerError) -> bool:
    """Return whether a failure may pass."""
    return isinstance(error, NoAnswerError) or remedy_for(error) in (Remedy.RETRY, Remedy.SLOW_DOWN)


def is_missing(error: ServiceError) -> bool:
    """Return whether the failure says that the table does not exist."""
    return error.code == "OTSObjectNotExist"
