"""Declared tables and records for the tests of the Kafka room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Column, ColumnKind, Options, Table
from upsert_platform.core.types import parse_type
from upsert_platform.kafka.table import KafkaTable, read_kafka_table

PLACE = SourceLocation("tables.sql", 1)
ID_NAME = {"id": "INT", "name": "STRING"}


def declare(
    columns: Mapping[str, str] | None = None,
    *,
    key: Sequence[str] = ("id",),
    metadata: Mapping[str, tuple[str, str]] | None = None,
    virtual: bool = False,
    **options: str | None,
) -> Table:
    """A table on `upsert-kafka` with JSON formats; option names are given with ``__`` for ``.``, None removes one.

    Args:
        metadata: column name to type and metadata key.
    """
    values: dict[str, str | None] = {
        "connector": "upsert-kafka",
        "topic": "users",
        "properties.bootstrap.servers": "127.0.0.1:1",
        "key.format": "json",
        "value.format": "json",
        **{name.replace("__", "."): value for name, value in options.items()},
    }
    declared = [Column(name, parse_type(kind)) for name, kind in (columns or ID_NAME).items()]
    declared += [
        Column(name, parse_type(kind), kind=ColumnKind.METADATA, metadata_key=metadata_key, virtual=virtual)
        for name, (kind, metadata_key) in (metadata or {}).items()
    ]
    given = {name: value for name, value in values.items() if value is not None}
    return Table("users", tuple(declared), tuple(key), Options(given), PLACE)


def read(table: Table, *, writes: bool = False) -> KafkaTable:
    """The table, which has to be without errors."""
    found, problems = read_kafka_table(table, writes=writes)
    assert found is not None, problems
    return found


def problems_of(table: Table, *, writes: bool = False, severity: str = "error") -> list[str]:
    """Messages of what is wrong with a table."""
    found, problems = read_kafka_table(table, writes=writes)
    errors: list[Problem] = [problem for problem in problems if problem.severity == "error"]
    assert (found is None) == bool(errors)
    return [problem.message for problem in problems if problem.severity == severity]


@dataclass
class FakeRecord:
    """A record with the methods of the client's message."""

    _offset: int
    _key: bytes | None
    _value: bytes | None
    _headers: list[tuple[str, bytes | None]] | None = None
    _time: int = 1_700_000_000_000
    _topic: str = field(default="users")

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def offset(self) -> int:
        return self._offset

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 1, self._time

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def leader_epoch(self) -> int | None:
        return 3

    def __len__(self) -> int:
        return len(self._value or b"")


def records(*pairs: tuple[str | bytes | None, str | bytes | None]) -> list[FakeRecord]:
    """Records from offset 0, of pairs of key and value."""
    return [FakeRecord(offset, _bytes(key), _bytes(value)) for offset, (key, value) in enumerate(pairs)]


def _bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
