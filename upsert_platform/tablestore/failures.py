"""The consequence of a service error for the rows of a request (service documentation: error codes)."""

from __future__ import annotations

from enum import Enum, auto

from upsert_platform.core.errors import EndpointError

_CREDENTIALS = {"OTSAuthFailed", "OTSNoPermissionAccess"}
_CHECK_CREDENTIALS = (
    "; check 'tablestore.access.key.id', 'tablestore.access.key.secret' and the rights they have on the instance"
)
_NOT_OF_THE_SERVICE = (
    "; this answer is not the service's own: check 'tablestore.endpoint', and proxies and gateways on the way to it"
)


class ServiceError(EndpointError):
    """The service answered a request, or one of its rows, with an error.

    Attributes:
        status: HTTP status; 200 for an error of a single row.
        code: the service's error code; empty when the answer was none of the service's.
    """

    def __init__(self, *, api: str, status: int, code: str, message: str, request_id: str = "") -> None:
        self.status = status
        self.code = code
        self.detail = message
        identity = f", request {request_id}" if request_id else ""
        remedy = _CHECK_CREDENTIALS if code in _CREDENTIALS else ""
        if not code and 300 <= status < 500 and status not in (408, 429):
            remedy = _NOT_OF_THE_SERVICE
        super().__init__(f"{api}: {code or f'HTTP status {status}'}: {message}{identity}{remedy}")


class NoAnswerError(EndpointError):
    """The connection failed, or the answer is not the service's: whether the request was applied is unknown."""


class ClockError(EndpointError):
    """The clocks of this machine and of the service differ by more than the service allows; trying again is no help."""

    def __init__(self, api: str, endpoint: object) -> None:
        super().__init__(
            f"{api}: the clock of this machine differs from that of {endpoint} by more than 15 minutes; set it (NTP),"
            " and run this again"
        )


class Remedy(Enum):
    """The remedy of a failure."""

    RETRY = auto()
    SLOW_DOWN = auto()
    """Retry, and send less often."""
    REFUSE = auto()
    """Some row breaks a rule: find it and set it aside."""
    SUPERSEDED = auto()
    """The row's condition does not hold: a newer version is there."""
    STOP = auto()
    """No row can be written: credentials, permissions, a missing table, or a code that nobody documented."""


_SLOW_DOWN = {
    "OTSServerBusy", "OTSNotEnoughCapacityUnit", "OTSOperationThrottled", "OTSFlowControl", "OTSQuotaExhausted",
    "OTSTooFrequentReservedThroughputAdjustment",
}  # fmt: skip
_RETRY = {
    "OTSInternalServerError", "OTSPartitionUnavailable", "OTSTimeout", "OTSServerUnavailable", "OTSRequestTimeout",
    "OTSRowOperationConflict", "OTSOperationConflict", "OTSTableNotReady", "OTSStorageServerBusy",
}  # fmt: skip
_REFUSE = {
    "OTSParameterInvalid", "OTSInvalidPK", "OTSOutOfRowSizeLimit", "OTSOutOfColumnCountLimit",
    "OTSRequestBodyTooLarge",
}  # fmt: skip


def remedy_for(failure: ServiceError) -> Remedy:
    """The remedy for an error of a request or of a row. Writes are idempotent, so an unclear one is repeated."""
    if failure.code in _SLOW_DOWN or failure.status == 429:
        return Remedy.SLOW_DOWN
    if failure.code in _REFUSE:
        return Remedy.REFUSE
    if failure.code == "OTSConditionCheckFail":
        return Remedy.SUPERSEDED
    if failure.code in _RETRY or failure.status >= 500 or failure.status == 408:
        return Remedy.RETRY
    return Remedy.STOP
