"""Writes time-series rows: encoded by the SDK, sent and answered through the platform's own transport.

The SDK's client cannot read an answer that names failed rows (it appends to a list that it never made), so answers are
read here. A row is put by its timeline and time, so sending it twice changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from upsert_platform.core.errors import DestinationError
from upsert_platform.tablestore import limits
from upsert_platform.tablestore.client import Client, is_missing, repeat_until
from upsert_platform.tablestore.connect.timeseries import TimeseriesPoint
from upsert_platform.tablestore.failures import NoAnswerError, Remedy, ServiceError, remedy_for
from upsert_platform.tablestore.transport import Transport

_API = "PutTimeseriesData"
_ENVELOPE_BYTES = 1024


def create_timeseries_table(client: Client, table: str, *, auto_create: bool, time_to_live: int = -1) -> None:
    """Creates a time-series table when it is missing.

    Raises:
        DestinationError: it is missing, and ``auto_create`` is off.
    """
    from tablestore.metadata import CreateTimeseriesTableRequest, TimeseriesTableMeta, TimeseriesTableOptions

    try:
        client.repeat("describe_timeseries_table", table)
        return
    except ServiceError as error:
        if not is_missing(error):
            raise
    if not auto_create:
        raise DestinationError(
            f"time-series table '{table}' does not exist in {client.endpoint}; create it, or set 'auto.create' = 'true'"
        )
    request = CreateTimeseriesTableRequest(TimeseriesTableMeta(table, TimeseriesTableOptions(time_to_live)))
    try:
        client.repeat("create_timeseries_table", request)
    except ServiceError as error:
        if error.code != "OTSObjectAlreadyExist":
            raise


class TimeseriesWriter:
    """Puts rows of one time-series table, several requests at once. Its owner closes it, then the transport."""

    def __init__(
        self,
        transport: Transport,
        table: str,
        *,
        time_for_request: Callable[[], float],
        retry_deadline: timedelta,
        rows_per_request: int = limits.MAX_ROWS_PER_WRITE,
        bytes_per_request: int = limits.MAX_BYTES_PER_WRITE,
        concurrency: int = 1,
    ) -> None:
        """Writes through a transport.

        Args:
            time_for_request: seconds that the next request may take; raises LeaseHeldError when there are none left.
            bytes_per_request: a single row may have more, as far as the service takes it.
            concurrency: requests in flight.
        """
        from tablestore.encoder import OTSProtoBufferEncoder

        self._transport = transport
        self._table = table
        self._time_for_request = time_for_request
        self.requests = 0
        self._retry_seconds = retry_deadline.total_seconds()
        self._rows = rows_per_request
        self._bytes = min(bytes_per_request, limits.MAX_BYTES_PER_WRITE - _ENVELOPE_BYTES)
        self._encoder = OTSProtoBufferEncoder("utf8")
        self._threads = ThreadPoolExecutor(max_workers=concurrency, thread_name_prefix="timeseries")
        self._counting = threading.Lock()
        self._stopped = False

    def close(self) -> None:
        """Gives up what is in flight and ends the threads."""
        self._stopped = True
        self._threads.shutdown(wait=True, cancel_futures=True)

    def put(self, points: Sequence[TimeseriesPoint]) -> dict[int, str]:
        """Writes rows, no two of the same timeline and time; returns those that the service refuses, index to reason.

        Raises:
            DestinationError: the retry deadline passed, or nothing can be written at all.
            LeaseHeldError: the lease ends or was lost.
        """
        parts = [range(start, min(start + self._rows, len(points))) for start in range(0, len(points), self._rows)]
        refused: dict[int, str] = {}
        for found in [self._threads.submit(self._put_part, points, part) for part in parts]:
            refused.update(found.result())
        return refused

    def _put_part(self, points: Sequence[TimeseriesPoint], part: range) -> dict[int, str]:
        refused: dict[int, str] = {}
        groups: list[list[int]] = [list(part)]
        while groups:
            group = groups.pop()
            body = self._encode([points[index] for index in group])
            is_row = len(group) == 1
            if is_row and len(body) > limits.MAX_BYTES_PER_WRITE - _ENVELOPE_BYTES:
                refused[group[0]] = f"the row has {len(body)} bytes; Tablestore takes 4 MB in a request"
                continue
            if is_row or len(body) <= self._bytes:
                failure = self._put_group(points, group, body, refused)
                if failure is None:
                    continue
                if is_row:
                    refused[group[0]] = failure
                    continue
            middle = len(group) // 2
            groups.extend((group[middle:], group[:middle]))
        return refused

    def _put_group(
        self, points: Sequence[TimeseriesPoint], group: list[int], body: bytes, refused: dict[int, str]
    ) -> str | None:
        """Writes one request's rows until each was taken or refused; the reason when it is refused as a whole."""
        waiting = group

        def send() -> None:
            nonlocal waiting, body
            if self._stopped:
                raise DestinationError(f"time-series table '{self._table}': the write was given up")
            self._transport.prepare()
            timeout = self._time_for_request()
            with self._counting:
                self.requests += 1
            failures = self._failed_rows(self._transport.call(_API, body, timeout=timeout))
            again: list[int] = []
            last: ServiceError | None = None
            for position, failure in failures.items():
                match remedy_for(failure):
                    case Remedy.RETRY | Remedy.SLOW_DOWN:
                        again.append(waiting[position])
                        last = failure
                    case Remedy.STOP:
                        raise failure
                    case _:
                        refused[waiting[position]] = f"{failure.code}: {failure.detail}"
            if last is not None:
                waiting, body = again, self._encode([points[index] for index in again])
                raise last

        try:
            repeat_until(self._retry_seconds, send)
        except ServiceError as error:
            if remedy_for(error) is Remedy.REFUSE:
                return f"{error.code}: {error.detail}"
            raise DestinationError(f"time-series table '{self._table}': {error}") from error
        except NoAnswerError as error:
            raise DestinationError(f"time-series table '{self._table}': {error}") from error
        return None

    def _encode(self, points: Sequence[TimeseriesPoint]) -> bytes:
        return bytes(
            self._encoder.encode_request(_API, self._table, [_sdk_row(point) for point in points]).SerializeToString()
        )

    @staticmethod
    def _failed_rows(answer: bytes) -> dict[int, ServiceError]:
        from tablestore.protobuf.timeseries_pb2 import PutTimeseriesDataResponse

        response = PutTimeseriesDataResponse()
        response.ParseFromString(answer)
        return {
            row.row_index: ServiceError(api=_API, status=200, code=row.error_code, message=row.error_message)
            for row in response.failed_rows
        }


def _sdk_row(point: TimeseriesPoint) -> Any:
    from tablestore.metadata import TimeseriesKey, TimeseriesRow

    fields = {name: bytearray(value) if isinstance(value, bytes) else value for name, value in point.fields.items()}
    return TimeseriesRow(TimeseriesKey(point.measurement, point.source, dict(point.tags)), fields, point.time)
