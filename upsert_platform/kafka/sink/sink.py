"""The task that writes one share of a change frame to a topic. Runs in Spark workers, through ``mapInArrow``.

With `sink.delivery-guarantee` = exactly-once a share is one transaction: its rows and a control record that says so.
The transactional id belongs to the share, so a task that lost its place is fenced, and a task that finds the record of
its own write writes nothing twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.collections_off import collections_off
from upsert_platform.core.destination import SEQUENCE, BatchSpan
from upsert_platform.core.errors import DestinationError, EndpointError, LeaseHeldError, RecordError
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.masking import Mask
from upsert_platform.kafka.change_topic import ChangeTopicSettings, PartitionStrategy
from upsert_platform.kafka.modes import DeliveryGuarantee, OnError
from upsert_platform.kafka.options import UpsertKafkaSettings
from upsert_platform.kafka.sink.control import ControlTopic, Share
from upsert_platform.kafka.sink.encode import EncodedBlock
from upsert_platform.kafka.sink.encode_changes import encoder_of
from upsert_platform.kafka.sink.send import send
from upsert_platform.kafka.sink.transactions import Fenced, commit, failure_of_transaction, open_transactional
from upsert_platform.kafka.sink.written_metadata import Header, RecordMetadata, table_id_headers
from upsert_platform.kafka.table import KafkaTable
from upsert_platform.writing.lease import LeaseGuard, Terms
from upsert_platform.writing.outcomes import TaskStats as Counts
from upsert_platform.writing.refused_output import KEEP_ASIDE, OpenFile, RefusedOutput
from upsert_platform.writing.row_text import refused_row

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

SHARE: Final = internal("share")
"""INT column of the frame that is written: which share a row belongs to."""
DELIVERY_MS: Final = 30_000
"""How long a record may wait in a producer where `delivery.timeout.ms` is not declared."""
TRANSACTION_MS: Final = 900_000
"""How long a share may take where `transaction.timeout.ms` is not declared: the most that brokers allow by default."""
_PURGE_SECONDS: Final = 10
_BLOCK_ROWS: Final = 10_000
_REMEDIES: Final = {
    "INVALID_TIMESTAMP": "; the topic takes times within its message.timestamp.before.max.ms and .after.max.ms",
    "MSG_SIZE_TOO_LARGE": "; the topic's max.message.bytes is less than 'properties.max.request.size'",
    "TOPIC_AUTHORIZATION_FAILED": "; give the user the right to write it",
}


@dataclass(slots=True)
class TaskStats(Counts):
    """Counts of one task; a row is in exactly one of the first five.

    Attributes:
        replayed: rows that an earlier attempt had committed already.
        undelivered: rows that the brokers did not take (`sink.delivery-guarantee` = none).
        flushes: how often the producer was emptied before the end (`sink.buffer-flush`).
        undelivered_reason: of one of those rows.
    """

    upserts: int = 0
    deletes: int = 0
    replayed: int = 0
    undelivered: int = 0
    bytes: int = 0
    flushes: int = 0
    seconds: float = 0.0
    undelivered_reason: str = ""


@dataclass(frozen=True, slots=True)
class WritingTask:
    """The function for ``mapInArrow``.

    Attributes:
        topic_id: of the topic that is written.
        shares: into how many the frame is divided, by `SHARE`.
        terms: of the lease.
        write: identity of the write: that of the one which broke off and is resumed, else its own. Empty where every
            row is written whatever tasks have committed.
        open_file: opens a file for refused rows; without it the task yields them.
    """

    table: KafkaTable
    span: BatchSpan
    topic_id: str
    shares: int
    terms: Terms
    write: str = ""
    open_file: OpenFile | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = _Task(self)
        try:
            yield from task.run(batches)
        finally:
            task.close()


class _Task:
    def __init__(self, plan: WritingTask) -> None:
        settings = plan.table.settings
        assert isinstance(settings, UpsertKafkaSettings)
        self._plan = plan
        self._settings = settings
        self._topic = settings.topic[0]
        self._endpoint = plan.table.endpoint
        self._control = ControlTopic.of(plan.table)
        self._guard = LeaseGuard(plan.terms, lambda: self._control.read().lease)
        self._encoder = encoder_of(plan.table)
        fixed = table_id_headers(plan.table.name) if settings.table_id_header else ()
        self._partition: int | None = None
        if isinstance(settings, ChangeTopicSettings):
            fixed += tuple((name, text.encode()) for name, text in settings.custom_headers)
            self._partition = 0 if settings.partition_strategy is PartitionStrategy.ALL_TO_ZERO else None
        self._metadata = RecordMetadata(plan.table, headers=fixed)
        self._stats = TaskStats()
        self._failures: list[tuple[KafkaError, str]] = []
        self._share = Share(plan.span.changelog_id, plan.topic_id, plan.span.upto, plan.shares, plan.write)
        self._producer: Producer | None = None
        self._committed: Share | None = None
        self._output = RefusedOutput(f"table '{plan.table.name}'", open_file=plan.open_file)
        self._since_flush = 0
        self._flushed_at = time.monotonic()

    @property
    def _exactly_once(self) -> bool:
        return self._settings.delivery_guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def close(self) -> None:
        """Gives up a file of refused rows that was not ended, and the producer, which holds this task's callback."""
        self._output.close()
        self._producer = None

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Writes all rows, then commits; yields outcomes.

        Raises:
            DestinationError, EndpointError: nothing of the share is committed (exactly-once), or some rows are written
                that a replay writes again.
            LeaseHeldError: another writer has taken over.
            RecordError: a row cannot be written, and ``on-error`` is ``fail``.
        """
        from confluent_kafka import KafkaException

        started = time.monotonic()
        try:
            yield from self._write_all(batches)
        except Fenced:
            raise LeaseHeldError(f"topic '{self._topic}': another writer took this one's place; run it again") from None
        except KafkaException as error:
            if not self._exactly_once or self._producer is None:
                raise DestinationError(f"topic '{self._topic}': a write failed: {error.args[0].str()}") from None
            reason = failure_of_transaction(self._producer, error)
            kind = LeaseHeldError if isinstance(reason, Fenced) else DestinationError
            raise kind(f"topic '{self._topic}': {reason}; run the write again") from None
        except BaseException:
            self._give_up()
            raise
        self._stats.seconds = round(time.monotonic() - started, 3)
        yield self._output.end(self._stats.to_json())

    def _write_all(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        share: int | None = None
        for batch in batches:
            for start in range(0, batch.num_rows, _BLOCK_ROWS):
                block = batch.slice(start, _BLOCK_ROWS)
                if share is None:
                    share = int(block.column(SHARE)[0].as_py())
                    self._open(share)
                yield from self._write(block)
        if share is not None:
            self._finish(share)

    def _give_up(self) -> None:
        """Sends nothing more: what is queued is dropped, an open transaction ended.

        The transaction would hold up every reader of the topic until it times out.
        """
        from confluent_kafka import KafkaException

        if self._producer is None:
            return
        if self._exactly_once:
            with suppress(KafkaException):  # what led here is the better message
                self._producer.abort_transaction(_PURGE_SECONDS)
        else:
            self._producer.purge()

    def _open(self, share: int) -> None:
        declared = self._plan.table.properties.producer
        overrides: dict[str, Any] = {"delivery.report.only.error": True, "on_delivery": self._delivered}
        if "delivery.timeout.ms" not in declared:
            overrides["delivery.timeout.ms"] = DELIVERY_MS
        if self._exactly_once:
            if "transaction.timeout.ms" not in declared:
                overrides["transaction.timeout.ms"] = TRANSACTION_MS
            prefix = self._settings.transactional_id_prefix
            near = self._control.name
            self._producer = open_transactional(self._endpoint, f"{prefix}-{share}", near=near, **overrides)
            # Read behind init_transactions, which ends what an earlier attempt left open: nothing can be added now.
            self._committed = self._control.shares().get(share)
            self._producer.begin_transaction()
        else:
            if self._settings.delivery_guarantee is DeliveryGuarantee.NONE and "acks" not in declared:
                overrides |= {"acks": 1, "enable.idempotence": "false"}
            self._producer = self._endpoint.open_producer(**overrides)
        self._flushed_at = time.monotonic()

    def _write(self, changes: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._guard.check()
        block = self._encoder.encode(changes)
        self._encoder.refuse_too_large(block)
        timestamps = self._metadata.timestamps(changes, block.refused)
        if block.refused:
            table = self._plan.table
            names = [column.name for column in table.table.physical_columns]
            refused = [
                refused_row(changes, row, columns=names, key=table.primary_key, reason=reason)
                for row, reason in block.refused.items()
            ]
            if self._settings.on_error is OnError.FAIL:
                mask = Mask.of(table.table)
                raise RecordError(
                    f"topic '{self._topic}': row {mask.object(refused[0].key)} cannot be written:"
                    f" {mask.reason(refused[0].reason)}; mend it"
                    + ("" if isinstance(self._settings, ChangeTopicSettings) else KEEP_ASIDE)
                )
            self._stats.refused += len(refused)
            yield from self._output.add(refused)
        self._produce(block, self._wanted(changes, block), timestamps, self._metadata.headers(changes))

    def _wanted(self, changes: pa.RecordBatch, block: EncodedBlock) -> np.ndarray:
        """Rows to send: not refused, and not committed by an earlier attempt on the same write.

        The last version of a key up to batch n is still the last one up to a later batch, unless a later batch has it.
        """
        wanted = np.ones(changes.num_rows, bool)
        wanted[list(block.refused)] = False
        done = None if self._plan.span.repeats else self._committed
        if done is not None and done.is_of(self._share):
            replayed = wanted & (changes.column(SEQUENCE).to_numpy(zero_copy_only=False) <= done.upto)
            self._stats.replayed += int(replayed.sum())
            wanted &= ~replayed
        return wanted

    def _produce(
        self,
        block: EncodedBlock,
        wanted: np.ndarray,
        timestamps: list[int] | None,
        headers: list[list[Header]] | None,
    ) -> None:
        assert self._producer is not None
        keys, values, chosen = block.keys, block.values, np.flatnonzero(wanted)
        if len(chosen) < len(wanted):
            keys, values = keys.take(pa.array(chosen)), values.take(pa.array(chosen))
            timestamps = None if timestamps is None else [timestamps[row] for row in chosen]
            headers = None if headers is None else [headers[row] for row in chosen]
        with collections_off():  # of as many pairs there would be several
            send(
                self._producer,
                self._topic,
                list(zip(keys.to_pylist(), values.to_pylist(), strict=True)),
                timestamps=timestamps,
                headers=headers,
                partition=self._partition,
                while_waiting=self._guard.check,
            )
        self._stats.bytes += sum(pc.sum(pc.binary_length(side)).as_py() or 0 for side in (keys, values))
        removed = int((block.deletes & wanted).sum())
        self._stats.deletes += removed
        self._stats.upserts += len(chosen) - removed
        self._producer.poll(0)
        self._raise_failures()
        self._flush_when_due(len(chosen))

    def _flush_when_due(self, added: int) -> None:
        """`sink.buffer-flush`: rows of a key are reduced already, what is left is when the producer is emptied."""
        most, interval = self._settings.buffer_flush_max_rows, self._settings.buffer_flush_interval
        if not most or interval is None:
            return
        self._since_flush += added
        if self._since_flush >= most or time.monotonic() - self._flushed_at >= interval.total_seconds():
            self._flush()
            self._stats.flushes += 1
            self._since_flush, self._flushed_at = 0, time.monotonic()

    def _flush(self) -> None:
        assert self._producer is not None
        while self._producer.flush(1):
            self._guard.check()
        self._raise_failures()

    def _finish(self, share: int) -> None:
        assert self._producer is not None
        self._flush()
        if self._exactly_once:
            self._control.produce_share(self._producer, share, self._share)
            self._guard.check()
            commit(self._producer)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            return
        key = (message.key() or b"").decode(errors="replace")
        if self._settings.delivery_guarantee is not DeliveryGuarantee.NONE:
            if len(self._failures) < 10:
                self._failures.append((error, key))
            return
        stats = self._stats
        stats.undelivered += 1
        stats.upserts -= message.value() is not None
        stats.deletes -= message.value() is None
        stats.undelivered_reason = stats.undelivered_reason or f"key {key}: {error.str()}{_remedy(error)}"

    def _raise_failures(self) -> None:
        if not self._failures:
            return
        error, key = self._failures[0]
        if error.name() in ("_PURGE_QUEUE", "_FENCED"):
            raise Fenced(error.str())
        kind = EndpointError if error.name() in ("_MSG_TIMED_OUT", "_TRANSPORT") else DestinationError
        raise kind(f"topic '{self._topic}': the record with key {key} was not written: {error.str()}{_remedy(error)}")


def _remedy(error: KafkaError) -> str:
    return _REMEDIES.get(error.name(), "")
