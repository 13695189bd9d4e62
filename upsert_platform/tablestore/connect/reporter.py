"""Reports records that were kept aside where the configuration wants them, besides the lake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from upsert_platform.core.errors import DestinationError
from upsert_platform.tablestore.connect.record import JSON_SIDE, SideFormat
from upsert_platform.tablestore.connect.refusals import UNDECODABLE, RefusedRecord
from upsert_platform.tablestore.connect.reports import ReportMessage, ReportTopics, dead_letter, error_message
from upsert_platform.tablestore.connect.table import ConnectSink
from upsert_platform.tablestore.transport import Endpoint
from upsert_platform.writing.lease import LeaseGuard, RenewedLease, Tenure

if TYPE_CHECKING:
    from upsert_platform.tablestore.connect.change import RowChange


class Reporter:
    """Sends reports of one sink. A report that is repeated is a second message in a topic, and the same row in a table.

    Args:
        reports: sends messages to topics; needed where the sink reports there.
        read_tenure: the lease of the sink's table as it is now.
    """

    def __init__(self, sink: ConnectSink, reports: ReportTopics | None, *, read_tenure: Callable[[], Tenure]) -> None:
        self._sink = sink
        self._failures = sink.failures
        self._reports = reports
        self._read_tenure = read_tenure

    def prepare(self) -> None:
        """Sees to it that the topics are there; tables are prepared with the sink's own.

        Raises:
            DestinationError: a topic is missing and may not be created.
        """
        failures = self._failures
        if failures.reports_to_topic and failures.topic:
            create = self._sink.settings.auto_create
            self._topics.prepare(failures.topic, servers=failures.bootstrap_servers, create=create, replication=None)
        if failures.copies_undecodable and failures.dead_letters:
            replication = failures.dead_letter_replication
            self._topics.prepare(failures.dead_letters, servers=None, create=True, replication=replication)

    @property
    def _topics(self) -> ReportTopics:
        if self._reports is None:
            raise DestinationError(
                f"connector '{self._sink.connector}': records are to be reported in a topic, and this destination was"
                " opened without a Kafka client; open it with one"
            )
        return self._reports

    def report(self, refused: Sequence[RefusedRecord], lease: RenewedLease) -> None:
        """Reports records; returns when all reports are safe.

        Raises:
            DestinationError: a report could not be delivered, so the write must not be recorded.
        """
        failures = self._failures
        undecodable = [item for item in refused if item.error == UNDECODABLE]
        others = [item for item in refused if item.error != UNDECODABLE]
        if undecodable and failures.copies_undecodable and failures.dead_letters:
            context = failures.dead_letter_context
            copies = [dead_letter(item, connector=self._sink.connector, context=context) for item in undecodable]
            self._topics.send(failures.dead_letters, copies, servers=None)
        if others and failures.reports_to_topic and failures.topic:
            messages: list[ReportMessage] = [error_message(item, *self._sides(item)) for item in others]
            self._topics.send(failures.topic, messages, servers=failures.bootstrap_servers)
        if others and failures.reports_to_table and failures.table:
            from upsert_platform.tablestore.connect.error_rows import error_row

            self._write(failures.table, [error_row(item, *self._sides(item)) for item in others], lease)

    def _sides(self, refused: RefusedRecord) -> tuple[SideFormat, SideFormat]:
        if self._sink.points is not None:
            return JSON_SIDE, self._sink.points.value_side
        table = self._sink.tables[refused.record.topic]
        return table.key_side, table.value_side

    def _write(self, table: str, rows: Sequence[RowChange], lease: RenewedLease) -> None:
        import numpy as np

        from upsert_platform.tablestore.connect.encode import encode_changes
        from upsert_platform.tablestore.lines import give_back, take_line
        from upsert_platform.tablestore.rows import Block, requests_of
        from upsert_platform.tablestore.sender import Sender

        settings = self._sink.settings
        line = take_line(Endpoint.of(settings), requests=1)
        guard = LeaseGuard(lease.terms, self._read_tenure, longest=settings.request_timeout.total_seconds())
        sender = Sender(line, table=table, guard=guard, retry_deadline=settings.retry_deadline, concurrency=1)
        operations = np.fromiter((row.operation for row in rows), np.uint8, len(rows))
        block = Block(len(rows), encode_changes(rows), np.arange(len(rows)), operations, {}, lambda row, reason: [])
        try:
            for chosen in requests_of(block.encoded, max_rows=settings.flush_rows, max_bytes=settings.flush_bytes):
                for position, reason in sender.deliver(block.encoded, chosen).refused.items():
                    place = "@".join(str(value) for _, value in rows[position].key)
                    raise DestinationError(
                        f"connector '{self._sink.connector}': the error row of {place} was not taken by table"
                        f" '{table}': {reason}; nothing was recorded as applied"
                    )
        finally:
            sender.close()
            give_back(line)
