"""The connection to a project: picklable, so that writing tasks open their own clients; secrets are never shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from pydantic import SecretStr

from upsert_platform.core.errors import DestinationError, EndpointError, UpsertPlatformError, hide
from upsert_platform.maxcompute.options import MaxComputeSettings
from upsert_platform.writing.time_limit import time_left, time_limit

if TYPE_CHECKING:
    from odps.rest import RestClient

T = TypeVar("T")
CONNECT_SECONDS = 10.0
_BACKOFF_SECONDS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
_ROOMS: Final = ("odps", __name__.partition(".")[0])
_CREDENTIAL_CODES = (
    "Unauthorized",
    "SignatureNotMatch",
    "InvalidAccessKeyId",
    "InvalidStsToken",
    "AuthorizationRequired",
    "AuthenticationRequestExpired",
    "RequestTimeTooSkewed",
    "NoPermission",
)


class ServiceError(Exception):
    """An answer of the service that is not a success, before it is explained to the user.

    Attributes:
        status: HTTP status; None when there was no answer.
        code: the service's error code; without one the name of the error, and empty when there was no answer.
        sure: whether the request certainly changed nothing.
        told: whether the service itself gave the code: a page of a gateway has none.
    """

    def __init__(self, text: str, *, status: int | None, code: str, sure: bool, told: bool = True) -> None:
        self.status = status
        self.code = code
        self.sure = sure
        self.told = told
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Connection:
    """Endpoint, credentials and patience.

    Attributes:
        retries: of one request, after failures that may pass.
        timeout: seconds to wait for one answer.
    """

    endpoint: str
    project: str
    access_id: SecretStr = field(repr=False)
    access_key: SecretStr = field(repr=False)
    sts_token: SecretStr | None = field(default=None, repr=False)
    tunnel_endpoint: str | None = None
    quota: str | None = None
    namespace_schema: bool = False
    retries: int = 3
    timeout: float = 120.0

    @staticmethod
    def of(settings: MaxComputeSettings) -> Connection:
        """The connection that a table's options describe."""
        return Connection(
            endpoint=settings.endpoint,
            project=settings.project,
            access_id=settings.access_id,
            access_key=settings.access_key,
            sts_token=settings.sts_token,
            tunnel_endpoint=settings.tunnel_endpoint,
            quota=settings.tunnel_quota,
            namespace_schema=settings.namespace_schema or settings.table_name.count(".") == 2,
            retries=settings.writer_retries,
            timeout=settings.request_timeout.total_seconds(),
        )

    def account(self) -> Any:
        """Credentials for PyODPS."""
        from odps.accounts import CloudAccount, StsAccount

        access_id, key = self.access_id.get_secret_value(), self.access_key.get_secret_value()
        if self.sts_token is not None:
            return StsAccount(access_id, key, self.sts_token.get_secret_value())
        return CloudAccount(access_id, key)

    def hide(self, text: str) -> str:
        """The text without any secret of this connection."""
        secrets = [secret.get_secret_value() for secret in (self.access_key, self.sts_token) if secret is not None]
        return hide(text, secrets, ids=[self.access_id.get_secret_value()])


def _until(deadline: float | None) -> AbstractContextManager[None]:
    """Requests inside wait for their answers until the deadline, rather than for the time of one answer."""
    return nullcontext() if deadline is None else time_limit(deadline - time.monotonic())


def _patience(connection: Connection) -> tuple[float, float]:
    """Seconds to wait for a connection, and for an answer.

    Raises:
        ServiceError: the deadline has passed.
    """
    left = time_left()
    if left == inf:
        return CONNECT_SECONDS, connection.timeout
    if left <= 0:
        raise ServiceError("the time that was allowed is over", status=None, code="", sure=True)
    return min(CONNECT_SECONDS, left), left


def guarded_rest(connection: Connection, endpoint: str, *, tag: str, region: str | None = None) -> RestClient:
    """A PyODPS client for which only 200 and 201 are success, that sends no usage surveys and retries nothing itself.

    PyODPS takes every status below 400 for success: an answer 308 without Location, which tells that a tunnel slot
    moved, then loses the rows it answers.
    """
    from odps.rest import RestClient

    class GuardedRest(RestClient):
        def is_ok(self, resp: Any) -> bool:
            if resp.status_code in (200, 201):
                return True
            body = resp.content or b""
            try:
                body.decode()
            except UnicodeDecodeError:  # PyODPS would end in it while it looks for the service's error
                text = f"status {resp.status_code} with {len(body)} bytes that are not an answer of the service"
                raise ServiceError(text, status=resp.status_code, code="", sure=False, told=False) from None
            return False

        def upload_survey_log(self) -> None:
            return None

        def _request(self, url: str, method: str, stream: bool = False, **kwargs: Any) -> Any:
            kwargs["timeout"] = kwargs.get("timeout") or _patience(connection)
            return super()._request(url, method, stream=stream, **kwargs)

    return GuardedRest(
        connection.account(), endpoint, connection.project, None, tag=tag, retry_enabled=False, region_name=region
    )


def to_service_error(error: Exception, connection: Connection) -> ServiceError:
    """Return a service error for a PyODPS or network error, without secrets."""
    import requests
    from odps.errors import BaseODPSError
    from urllib3.exceptions import MaxRetryError, NewConnectionError

    if isinstance(error, ServiceError):
        return error
    text = connection.hide(f"{type(error).__name__}: {error}")[:2000]
    if _is_unreadable(error):
        return ServiceError(f"an answer that cannot be read ({text})", status=None, code="", sure=False, told=False)
    if isinstance(error, BaseODPSError):
        status = error.status_code
        code = str(error.code or type(error).__name__).split(":", 1)[0].strip()
        refused_for_now = status == 429 or (status is not None and 400 <= status < 500 and status != 408)
        told = bool(error.code) and code != str(status)
        return ServiceError(text, status=status, code=code, sure=refused_for_now, told=told)
    wrapped = error.args[0] if error.args else None
    never_sent = isinstance(wrapped, MaxRetryError) and isinstance(wrapped.reason, NewConnectionError)
    sure = never_sent or isinstance(error, requests.exceptions.ConnectTimeout)
    return ServiceError(text, status=None, code="", sure=sure)


def backoff_seconds(attempt: int) -> float:
    """Return the pause in seconds before a retry, counted from 1."""
    return _BACKOFF_SECONDS[min(attempt, len(_BACKOFF_SECONDS)) - 1]


def may_pass(error: ServiceError) -> bool:
    """Return whether the same request can succeed later: no answer, moved slot, timeout, too many requests, server
    fault.
    """
    return error.status is None or error.status in (308, 408, 429) or error.status >= 500


_GONE: Final = frozenset(
    (
        *("SessionNotFound", "UpsertSessionNotFound", "StreamSessionNotFound", "SessionAborted", "SessionExpired"),
        *("TableModified", "NoSuchTable", "NoSuchPartition", "ODPS-0130131"),
    )
)


def refuses(error: ServiceError) -> bool:
    """Return whether the service itself answered, and will answer the same again."""
    return error.told and error.status is not None and 400 <= error.status < 500 and error.status not in (408, 429)


def is_gone(error: ServiceError) -> bool:
    """Return whether the service says that a session no longer exists, or can no longer be committed."""
    return refuses(error) and (error.status in (404, 410) or error.code in _GONE)


def with_retries(
    request: Callable[[], T],
    connection: Connection,
    *,
    retries: int | None = None,
    deadline: float | None = None,
    only_sure: bool = False,
) -> T:
    """Runs a request, again after failures that may pass.

    Args:
        retries: most repetitions; the connection's if None.
        deadline: `time.monotonic()` until which an answer is waited for, and after which nothing is repeated; None
            waits as long as the connection does for each answer.
        only_sure: repeat only what certainly changed nothing.

    Raises:
        ServiceError: the last failure.
    """
    attempt = 0
    while True:
        try:
            with _until(deadline):
                return request()
        except Exception as error:
            if not is_foreign(error):
                raise
            failure = to_service_error(error, connection)
        attempt += 1
        wait = backoff_seconds(attempt)
        late = (deadline is not None and time.monotonic() + wait > deadline) or wait > time_left()
        if attempt > (connection.retries if retries is None else retries) or late or not may_pass(failure):
            raise failure from None
        if only_sure and not failure.sure:
            raise failure from None
        time.sleep(wait)


def is_foreign(error: Exception) -> bool:
    """Return whether an error comes from PyODPS, the network or `ServiceError`, rather than from a fault of ours."""
    import requests
    from odps.errors import BaseODPSError

    known = BaseODPSError | requests.RequestException | ServiceError | OSError
    return isinstance(error, known) or _is_unreadable(error)


def _is_unreadable(error: Exception) -> bool:
    """Return whether PyODPS failed in reading an answer: a body cut short, or a page of a gateway, with the status of
    success.

    It looks into bodies without a net, so that they end in errors of parsers, or of what it does with what they gave.
    """
    if not isinstance(error, SyntaxError | ValueError | TypeError | AttributeError | LookupError):
        return False
    rooms = []  # of whoever ran, from our call inwards
    trace = error.__traceback__
    while trace is not None:
        rooms.append(str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0])
        trace = trace.tb_next
    return next((room for room in reversed(rooms) if room in _ROOMS), "") == "odps"


def explain(error: Exception, connection: Connection, doing: str) -> NoReturn:
    """Raises the platform's error for a failed request.

    Args:
        doing: what was attempted, for example ``commit of batch 7 to p.t``.

    Raises:
        EndpointError: no answer, or the credentials were refused.
        DestinationError: anything else.
    """
    if isinstance(error, UpsertPlatformError) or not is_foreign(error):
        raise error
    failure = to_service_error(error, connection)
    text = f"{doing}: {failure}"
    if failure.status is None and not failure.code:
        raise EndpointError(
            f"{text}. Check 'odps.end.point' ({connection.endpoint}) and 'odps.tunnel.end.point'"
            f" ({connection.tunnel_endpoint or 'found by the project'}), and that they are reachable from here"
        ) from None
    if failure.status in (401, 403) or failure.code in _CREDENTIAL_CODES:
        raise EndpointError(
            f"{text}. Check 'odps.access.id', 'odps.access.key' and the rights they have in project"
            f" '{connection.project}'"
        ) from None
    raise DestinationError(text) from None
