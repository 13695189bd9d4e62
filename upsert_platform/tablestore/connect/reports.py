"""Messages about records that were kept aside, for an error topic or a dead letter queue.

Texts and places are those of the connector's reporters (specification section 1.4), and of Kafka Connect's dead letter
queue for records that its converters cannot read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from upsert_platform.tablestore.connect.record import Envelope, MessageFormat, SideFormat
from upsert_platform.tablestore.connect.refusals import RefusedRecord

ERROR_HEADER: Final = "ErrorInfo"
_CONTEXT: Final = "__connect.errors."
_STAGES: Final = {"transform ": "TRANSFORMATION", "the value": "VALUE_CONVERTER", "": "KEY_CONVERTER"}
"""Stages of Kafka Connect, by how the reason of an undecodable record begins."""
_TEXT_SCHEMA: Final = {"type": "string", "optional": False}


@dataclass(frozen=True, slots=True)
class ReportMessage:
    """A message for a topic.

    Attributes:
        timestamp: milliseconds since 1970; None for the time of sending.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int | None


class ReportTopics(Protocol):
    """Sends messages to topics."""

    def prepare(self, topic: str, *, servers: str | None, create: bool, replication: int | None) -> None:
        """Creates a topic where it is missing and may be created.

        Args:
            servers: brokers of the topic; those that records are read from if None.

        Raises:
            DestinationError: it is missing, and may not be created.
        """

    def send(self, topic: str, messages: Sequence[ReportMessage], *, servers: str | None) -> None:
        """Sends messages and waits until the brokers have them all.

        Raises:
            DestinationError: one was not taken.
        """


def error_message(refused: RefusedRecord, key_side: SideFormat, value_side: SideFormat) -> ReportMessage:
    """The message of the connector's Kafka reporter: key and value as JSON with their schemas, time and headers kept.

    Headers keep their bytes; ``ErrorInfo`` is added to them.
    """
    record = refused.record
    return ReportMessage(
        with_schema(record.key, key_side),
        with_schema(record.value, value_side),
        (*record.headers, (ERROR_HEADER, refused.information.encode())),
        record.timestamp,
    )


def dead_letter(refused: RefusedRecord, *, connector: str, context: bool) -> ReportMessage:
    """The message of Kafka Connect's dead letter queue: the record as it is; headers tell of the failure if wanted."""
    record = refused.record
    more = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "connector.name": connector,
        "stage": next(stage for start, stage in _STAGES.items() if refused.reason.startswith(start)),
        "exception.class.name": refused.error,
        "exception.message": refused.reason,
    }
    added = tuple((_CONTEXT + name, str(value).encode()) for name, value in more.items()) if context else ()
    return ReportMessage(record.key, record.value, (*record.headers, *added), record.timestamp)


def with_schema(data: bytes | None, side: SideFormat) -> bytes | None:
    """A side as Kafka Connect's JsonConverter writes it, with its schema; bytes that are not JSON as a text."""
    if data is None:
        return None
    text = data.decode("utf-8", "backslashreplace")
    if side.format is MessageFormat.JSON:
        try:
            found = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            found = None
        if found is not None:
            enveloped = isinstance(found, dict) and found.keys() == {"schema", "payload"}
            whole = enveloped and side.envelope is not Envelope.NEVER
            # What was read is written as it was: numbers keep their digits.
            return data if whole else b'{"schema":null,"payload":' + data + b"}"
        if text.strip() == "null":
            return None
    return json.dumps({"schema": _TEXT_SCHEMA, "payload": text}, ensure_ascii=False, separators=(",", ":")).encode()


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
