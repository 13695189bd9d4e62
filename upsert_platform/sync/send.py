"""Rows as JSON lines to records of a topic, encoded as its table is declared.

A line is a JSON object of columns. `_kind` = ``-D`` makes it a tombstone, of which the key columns count alone. What
`peek` prints of a topic is taken as it is: columns that tell where a row came from are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.connector import Writable
from upsert_platform.core.errors import DeclarationError, Problem, TopicError, UpsertPlatformError
from upsert_platform.core.model import ColumnKind, Options, Table
from upsert_platform.formats import validate_format
from upsert_platform.kafka.change_topic import CHANGES
from upsert_platform.kafka.metadata import WRITABLE, metadata_key
from upsert_platform.kafka.refusals import remedy
from upsert_platform.kafka.table import FormatSide, KafkaTable, read_kafka_table
from upsert_platform.kafka.topics import create_topic, describe_topic
from upsert_platform.sync.binding import Binding
from upsert_platform.sync.connectors import connector_of, is_topic
from upsert_platform.sync.row_lines import LineReader
from upsert_platform.writing.judge import NotNull, not_null_columns

if TYPE_CHECKING:
    from upsert_platform.kafka.sink.encode import RecordEncoder
    from upsert_platform.kafka.sink.written_metadata import RecordMetadata

BLOCK_LINES: Final = 1_000
SHOWN: Final = 20
"""Refused lines that are told one by one."""


@dataclass(slots=True)
class Sent:
    """The result of sending lines; each line is in exactly one count.

    Attributes:
        puts: records with a value.
        deletes: tombstones.
        refused: lines of which no record was made.
        undelivered: records that the brokers did not take.
        reasons: of the first refused lines and undelivered records, by line.
    """

    topic: str
    puts: int = 0
    deletes: int = 0
    refused: int = 0
    undelivered: int = 0
    reasons: list[tuple[int, str]] = field(default_factory=list)

    def tell(self, line: int, reason: str) -> None:
        """Keeps a reason, if there is room for it."""
        if len(self.reasons) < SHOWN:
            self.reasons.append((line, reason))


def written_table(binding: Binding, name: str, *, topic: str | None = None, force: bool = False) -> KafkaTable:
    """The table whose topic is sent to, checked as one that is written.

    Args:
        topic: which of several.
        force: also a topic that an insert keeps equal to its table.

    Raises:
        UpsertPlatformError: no such table, a topic of which nobody knows, or one that an insert writes.
        DeclarationError: what the table reads cannot be written.
    """
    declared = {known.name: known for known in binding.project.tables.values() if is_topic(known)}
    table = declared.get(name)
    if table is None:
        known_names = ", ".join(sorted(declared)) or "none"
        raise UpsertPlatformError(f"no table '{name}' with a topic is declared; there are: {known_names}")
    if name in binding.targets and not force:
        raise UpsertPlatformError(
            f"table '{name}' is written by an INSERT INTO, which takes every other row for a difference; send to what"
            " the insert reads, or give --force to spoil the table on purpose"
        )
    source = binding.sources.get(name)
    table = source.table if source is not None else table
    topics = [part.strip() for part in table.options.get("topic", "").split(";") if part.strip()]
    if topic is None and len(topics) != 1:
        raise UpsertPlatformError(f"table '{name}' reads several topics: name one with --topic")
    if topic is not None and topics and topic not in topics:
        raise UpsertPlatformError(f"table '{name}' does not read topic '{topic}'; it reads {', '.join(topics)}")
    pattern = table.options.get("topic-pattern")
    if topic is not None and pattern is not None and not re.fullmatch(pattern, topic):
        raise UpsertPlatformError(f"table '{name}' does not read topic '{topic}': 'topic-pattern' is '{pattern}'")
    return _checked(_of_one_topic(table, topic or topics[0]))


def make_topic(table: KafkaTable) -> bool:
    """Creates the topic of a table, compacted, with the partitions and copies that the brokers give it by themselves.

    Returns:
        Whether it was not there.

    Raises:
        EndpointError: the brokers cannot be reached, or refuse to create it.
    """
    name = table.settings.topic[0]
    if describe_topic(table.endpoint, name) is not None:
        return False
    config = {"cleanup.policy": "compact"} if table.is_upsert else {}
    create_topic(table.endpoint, name, partitions=None, replication=None, config=config)
    return True


def _of_one_topic(table: Table, topic: str) -> Table:
    options = {name: value for name, value in table.options.items() if name != "topic-pattern"}
    places = {name: place for name in options if (place := table.options.location(name)) is not None}
    columns = tuple(
        replace(column, virtual=True)
        if column.kind is ColumnKind.METADATA and metadata_key(column) not in WRITABLE
        else column
        for column in table.columns
    )
    return replace(table, options=Options({**options, "topic": topic}, places), columns=columns)


def _checked(table: Table) -> KafkaTable:
    upserts = isinstance(connector_of(table), Writable)
    if table.connector == CHANGES:
        told = f"table '{table.name}' tells what rows were before, which a single row does not know; write its source"
        raise DeclarationError([Problem(told, table.location)])
    kafka, problems = read_kafka_table(table, writes=upserts)
    if kafka is not None and not upserts:
        sides: list[FormatSide] = [kafka.value] if kafka.key is None else [kafka.key, kafka.value]
        for side in sides:
            problems += validate_format(
                side.format, side.options, side.format_columns, side="value" if side is kafka.value else "key",
                direction="sink", subject=f"table '{table.name}'", location=table.location,
            )  # fmt: skip
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors or kafka is None:
        raise DeclarationError([Problem(f"cannot be sent to: {item.message}", item.location) for item in errors])
    return kafka


def send_lines(
    table: KafkaTable,
    lines: Iterable[bytes],
    *,
    deletes: bool = False,
    dry_run: bool = False,
    take: Callable[[EncodedRecords], None] | None = None,
) -> Sent:
    """Sends one record per line, in order; lines of blanks are passed over.

    Args:
        lines: JSON objects in UTF-8.
        deletes: every line is a tombstone.
        dry_run: encode and count, send nothing.
        take: is given the records instead of the brokers.

    Raises:
        TopicError: the topic does not exist.
        EndpointError: the brokers cannot be reached, or refuse the login.
    """
    from upsert_platform.kafka.sink.encode import RecordEncoder
    from upsert_platform.kafka.sink.written_metadata import RecordMetadata

    sent = Sent(table.settings.topic[0])
    reader = LineReader(table, deletes=deletes)
    encoder, metadata = RecordEncoder(table), RecordMetadata(table)
    not_null = not_null_columns((*table.table.physical_columns, *table.written_metadata), table.primary_key)
    sender = None if dry_run or take is not None else _Sender(table, sent)
    take = sender.send if sender is not None else take
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    while block := list(islice(numbered, BLOCK_LINES)):
        for records in _records(block, reader, encoder, metadata, not_null, sent):
            if take is not None:
                take(records)
    if sender is not None:
        sender.finish()
    sent.reasons.sort()
    return sent


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """Encoded records with the lines that they come from."""

    lines: list[int]
    pairs: list[tuple[bytes, bytes | None]]
    timestamps: list[int] | None
    headers: list[Any] | None


def _records(
    block: Sequence[tuple[int, bytes]],
    reader: LineReader,
    encoder: RecordEncoder,
    metadata: RecordMetadata,
    not_null: NotNull,
    sent: Sent,
) -> Iterator[EncodedRecords]:
    """The records of a block of lines, counted; refused lines are told instead."""
    import pyarrow as pa

    from upsert_platform.writing.not_null import null_refusals

    numbers, changes, refusals = reader.read(block)
    for number, reason in refusals:
        sent.refused += 1
        sent.tell(number, reason)
    if not numbers:
        return
    encoded = encoder.encode(changes)
    encoded.refused.update(null_refusals(changes, not_null))
    encoder.refuse_too_large(encoded)
    timestamps = metadata.timestamps(changes, encoded.refused)
    headers = metadata.headers(changes)
    for index, reason in encoded.refused.items():
        sent.refused += 1
        sent.tell(numbers[index], reader.mask.reason(reason))
    kept = [index for index in range(len(numbers)) if index not in encoded.refused]
    sent.deletes += int(encoded.deletes[kept].sum())
    sent.puts += len(kept) - int(encoded.deletes[kept].sum())
    taken = pa.array(kept, pa.int64())
    yield EncodedRecords(
        [numbers[index] for index in kept],
        list(zip(encoded.keys.take(taken).to_pylist(), encoded.values.take(taken).to_pylist(), strict=True)),
        None if timestamps is None else [timestamps[index] for index in kept],
        None if headers is None else [headers[index] for index in kept],
    )


class _Sender:
    """A producer that tells of each record by the line it comes from."""

    def __init__(self, table: KafkaTable, sent: Sent) -> None:
        with table.endpoint.admin() as admin:
            if not admin.has_topic(sent.topic):  # a producer may create what it does not find
                raise TopicError(
                    f"topic '{sent.topic}' does not exist on {table.settings.bootstrap_servers}; create it"
                    " (--create-topic), or correct 'topic'"
                )
        overrides: dict[str, str | int] = {}
        if "delivery.timeout.ms" not in table.properties.producer:
            overrides["delivery.timeout.ms"] = 30_000
        self._producer = table.endpoint.open_producer(**overrides)
        self._sent = sent

    def send(self, records: EncodedRecords) -> None:
        """Queues records."""
        from upsert_platform.kafka.sink.send import send

        for place, line in enumerate(records.lines):
            send(
                self._producer,
                self._sent.topic,
                [records.pairs[place]],
                timestamps=None if records.timestamps is None else [records.timestamps[place]],
                headers=None if records.headers is None else [records.headers[place]],
                on_delivery=self._told(line),
                while_waiting=lambda: None,
            )
        self._producer.poll(0)

    def finish(self) -> None:
        """Waits until every record is delivered or given up; the client's own time limit bounds it."""
        while self._producer.flush(1):
            pass

    def _told(self, line: int) -> Any:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                return
            sent = self._sent
            sent.undelivered += 1
            if message.value() is None:
                sent.deletes -= 1
            else:
                sent.puts -= 1
            sent.tell(line, f"the brokers did not take the record: {error.str()}{remedy(error.name())}")

        return delivered
