"""The service's errors: an HTTP status, a code that clients act on, and a text."""

from __future__ import annotations

_STATUS = {
    "OTSParameterInvalid": 400,
    "OTSInvalidPK": 400,
    "OTSOutOfRowSizeLimit": 400,
    "OTSOutOfColumnCountLimit": 400,
    "OTSAuthFailed": 403,
    "OTSConditionCheckFail": 403,
    "OTSQuotaExhausted": 403,
    "OTSNotEnoughCapacityUnit": 403,
    "OTSCapacityUnitExhausted": 403,
    "OTSTooFrequentReservedThroughputAdjustment": 403,
    "OTSObjectNotExist": 404,
    "OTSTableNotReady": 404,
    "OTSSessionNotExist": 404,
    "OTSMethodNotAllowed": 405,
    "OTSRequestTimeout": 408,
    "OTSObjectAlreadyExist": 409,
    "OTSRowOperationConflict": 409,
    "OTSRequestBodyTooLarge": 413,
    "OTSFlowControl": 429,
    "OTSInternalServerError": 500,
    "OTSUnsupportOperation": 400,
    "OTSServerBusy": 503,
    "OTSPartitionUnavailable": 503,
    "OTSTimeout": 503,
    "OTSServerUnavailable": 503,
}

_TEXT = {
    "OTSConditionCheckFail": "Condition check failed.",
    "OTSFlowControl": "The requests have been throttled.",
    "OTSInternalServerError": "Internal server error.",
    "OTSNotEnoughCapacityUnit": "Remaining capacity unit is not enough.",
    "OTSPartitionUnavailable": "The partition is not available.",
    "OTSQuotaExhausted": "Too frequent table operations.",
    "OTSRequestTimeout": "Request timeout.",
    "OTSRowOperationConflict": "Data is being modified by the other request.",
    "OTSServerBusy": "Server is busy.",
    "OTSServerUnavailable": "Server is not available.",
    "OTSTableNotReady": "The table is not ready.",
    "OTSTimeout": "Operation timeout.",
}


def status_of(code: str) -> int:
    """HTTP status of an error code; ``ValueError`` for a code that the service does not have."""
    try:
        return _STATUS[code]
    except KeyError:
        raise ValueError(f"unknown error code {code!r}; known: {', '.join(sorted(_STATUS))}") from None


def default_text(code: str) -> str:
    """The service's usual text of a code."""
    return _TEXT.get(code, code)


class ServiceError(Exception):
    """Refuses a request, or one row of it.

    Attributes:
        code: what clients branch on, such as ``OTSParameterInvalid``.
        status: HTTP status that belongs to the code.
    """

    def __init__(self, code: str, message: str | None = None) -> None:
        self.code = code
        self.status = status_of(code)
        self.message = default_text(code) if message is None else message
        super().__init__(f"{code}: {self.message}")


def invalid(message: str) -> ServiceError:
    """A request that can never succeed."""
    return ServiceError("OTSParameterInvalid", message)


def wrong_key(message: str) -> ServiceError:
    """A primary key that does not fit the table."""
    return ServiceError("OTSInvalidPK", message)


def no_such_table() -> ServiceError:
    return ServiceError("OTSObjectNotExist", "Requested table does not exist.")
