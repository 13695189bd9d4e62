"""Delivers encoded rows: several requests in flight, failed rows alone again, the guilty row found by bisection."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from datetime import timedelta

from upsert_platform.core.errors import DestinationError
from upsert_platform.tablestore.encoder import EncodedRows, batch_write_body
from upsert_platform.tablestore.failures import NoAnswerError, Remedy, ServiceError, remedy_for
from upsert_platform.tablestore.lines import Line
from upsert_platform.tablestore.pace import Pace, pause_before_attempt
from upsert_platform.writing.lease import LeaseGuard

_API = "BatchWriteRow"
_WAITING_BYTES = 64 * 1024 * 1024
"""Rows of deliveries under way, from which on the next one waits for one of them to end."""


@dataclass(slots=True)
class Delivery:
    """The outcome of the rows of one request.

    Attributes:
        refused: position of an encoded row to the reason, for rows that the service will not take.
        superseded: positions of rows whose condition did not hold, because a newer version is there.
        requests: sent, repeated ones included.
        retried: rows sent again.
        throttled: answers that asked to slow down.
    """

    refused: dict[int, str] = field(default_factory=dict)
    superseded: list[int] = field(default_factory=list)
    requests: int = 0
    retried: int = 0
    throttled: int = 0
    bytes: int = 0


class Sender:
    """Writes rows of one table through one line. One task owns it and closes it."""

    def __init__(
        self, line: Line, *, table: str, guard: LeaseGuard, retry_deadline: timedelta, concurrency: int
    ) -> None:
        self._line = line
        self._transport = line.transport
        self._table = table
        self._guard = guard
        self._retry_seconds = retry_deadline.total_seconds()
        self._pace = Pace()
        self._stopped = threading.Event()
        self._in_flight = threading.BoundedSemaphore(concurrency)
        self._waiting: dict[Future[tuple[object, Delivery]], int] = {}

    def close(self) -> None:
        """Gives up what is in flight, and waits for its end."""
        self._stopped.set()
        for future in self._waiting:
            future.cancel()
        wait(self._waiting)

    def submit(self, tag: object, rows: EncodedRows, chosen: range) -> Iterator[tuple[object, Delivery]]:
        """Queues one request and yields deliveries that ended, at least one when the queue is full.

        Args:
            tag: comes back with the delivery.
        """
        while len(self._waiting) > self._line.places or sum(self._waiting.values()) > _WAITING_BYTES:
            yield from self._ended(block=True)
        yield from self._ended(block=False)
        size = int(rows.offsets[chosen.stop] - rows.offsets[chosen.start])
        self._waiting[self._line.threads.submit(lambda: (tag, self.deliver(rows, chosen)))] = size

    def drain(self) -> Iterator[tuple[object, Delivery]]:
        """Waits for everything in flight."""
        while self._waiting:
            yield from self._ended(block=True)

    def _ended(self, *, block: bool) -> Iterator[tuple[object, Delivery]]:
        if not self._waiting:
            return
        done, _ = wait(self._waiting, timeout=None if block else 0, return_when=FIRST_COMPLETED)
        for future in done:
            del self._waiting[future]
            yield future.result()

    def deliver(self, rows: EncodedRows, chosen: Sequence[int]) -> Delivery:
        """Writes rows until each was taken, refused or superseded.

        Raises:
            DestinationError: the retry deadline passed, or nothing can be written at all.
            LeaseHeldError: the lease ends or was lost.
        """
        delivery = Delivery()
        groups: list[Sequence[int]] = [chosen]
        while groups:
            refusal = self._deliver_group(rows, groups.pop(), delivery)
            if refusal is None:
                continue
            failure, group = refusal
            if len(group) == 1:
                delivery.refused[group[0]] = f"{failure.code}: {failure.detail}"
            else:
                middle = len(group) // 2
                groups.extend((group[middle:], group[:middle]))
        return delivery

    def _deliver_group(
        self, rows: EncodedRows, group: Sequence[int], delivery: Delivery
    ) -> tuple[ServiceError, Sequence[int]] | None:
        """Returns the failure when the service refuses a request as a whole for one of its rows, and those rows."""
        pending: Sequence[int] = group
        first_failure: float | None = None
        attempt = fruitless = 0
        while True:
            problem = self._attempt(rows, pending, delivery)
            if isinstance(problem, ServiceError):
                return problem, pending
            left, reason = problem
            if not left:
                return None
            now = time.monotonic()
            first_failure = first_failure or now
            attempt += 1
            # Pauses grow while nothing gets through; rows that were throttled among others begin anew.
            fruitless = fruitless + 1 if len(left) == len(pending) else 1
            pending = left
            pause = pause_before_attempt(fruitless)
            if now + pause - first_failure > self._retry_seconds:
                raise DestinationError(
                    f"table '{self._table}': {len(pending)} rows could not be written within"
                    f" {self._retry_seconds:g} s ('retry.deadline'), {attempt} attempts, last {reason}. Nothing was"
                    " recorded as applied; run the write again when the service is well"
                )
            delivery.retried += len(pending)
            self._stopped.wait(pause)

    def _attempt(
        self, rows: EncodedRows, pending: Sequence[int], delivery: Delivery
    ) -> tuple[Sequence[int], str] | ServiceError:
        """Sends once. Returns the rows to send again and why, or the refusal of the whole request."""
        with self._in_flight:
            sent = self._pace.wait(self._stopped)
            if self._stopped.is_set():
                raise DestinationError(f"table '{self._table}': the write was given up")
            if isinstance(pending, range):
                body = batch_write_body(self._table, rows.slice(pending.start, pending.stop))
            else:
                body = batch_write_body(self._table, rows.select(pending))
            try:
                self._transport.prepare()
                timeout = self._guard.time_for_request()
                delivery.requests += 1
                delivery.bytes += len(body)
                answer = self._transport.call(_API, body, timeout=timeout)
            except NoAnswerError as error:
                return pending, str(error)
            except ServiceError as error:
                return self._whole_request_failed(error, pending, delivery, sent)
        return self._read_answer(answer, pending, delivery, sent)

    def _whole_request_failed(
        self, error: ServiceError, pending: Sequence[int], delivery: Delivery, sent: float
    ) -> tuple[Sequence[int], str] | ServiceError:
        match remedy_for(error):
            case Remedy.SLOW_DOWN:
                delivery.throttled += 1
                self._pace.answered(sent, rows=len(pending), throttled=len(pending))
                return pending, str(error)
            case Remedy.RETRY:
                return pending, str(error)
            case Remedy.REFUSE:
                return error
        raise self._hopeless(error) from error

    def _read_answer(
        self, answer: bytes, pending: Sequence[int], delivery: Delivery, sent: float
    ) -> tuple[Sequence[int], str] | ServiceError:
        from google.protobuf.message import DecodeError
        from tablestore.protobuf.table_store_pb2 import BatchWriteRowResponse

        response = BatchWriteRowResponse()
        try:
            response.ParseFromString(answer)
        except DecodeError:
            return pending, "an answer that is not a BatchWriteRow response"
        results = response.tables[0].rows if len(response.tables) == 1 else ()
        if len(results) != len(pending):
            return pending, f"an answer with {len(results)} results for {len(pending)} rows"
        failed = [position for position, result in enumerate(results) if not result.is_ok]
        if not failed:
            self._pace.answered(sent, rows=len(pending), throttled=0)
            return (), ""
        again: list[int] = []
        reason = ""
        throttled = 0
        for position in failed:
            row, error = pending[position], results[position].error
            failure = ServiceError(api=_API, status=200, code=error.code, message=error.message)
            match remedy_for(failure):
                case Remedy.REFUSE:
                    delivery.refused[row] = f"{error.code}: {error.message}"
                case Remedy.SUPERSEDED:
                    delivery.superseded.append(row)
                case Remedy.STOP:
                    raise self._hopeless(failure)
                case remedy:
                    throttled += remedy is Remedy.SLOW_DOWN
                    again.append(row)
                    reason = str(failure)
        delivery.throttled += throttled > 0
        self._pace.answered(sent, rows=len(pending), throttled=throttled)
        return again, reason

    def _hopeless(self, error: ServiceError) -> DestinationError:
        return DestinationError(
            f"table '{self._table}': {error}. Nothing was recorded as applied; mend the cause and run the write again"
        )
