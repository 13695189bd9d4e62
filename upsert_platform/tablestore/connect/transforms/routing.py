"""RegexRouter, Filter, and the predicates that say which records a transform concerns."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Protocol

from upsert_platform.tablestore.connect.transforms.record import SinkRecord

_REFERENCE = re.compile(r"\\(.)|\$(\d)|\$\{([A-Za-z][A-Za-z0-9]*)\}", re.DOTALL)


@dataclass(frozen=True)
class RegexRouter:
    """A topic whose whole name matches gets another one.

    Attributes:
        replacement: Java's: ``$1`` and ``${name}`` are groups, a backslash takes what follows as it is.
    """

    regex: re.Pattern[str]
    replacement: str

    def apply(self, record: SinkRecord) -> SinkRecord:
        return replace(record, topic=self.route(record.topic))

    def route(self, topic: str) -> str:
        """The topic's other name."""
        match = self.regex.fullmatch(topic)
        if match is None:
            return topic
        first = self.regex.search(topic)
        assert first is not None
        return topic[: first.start()] + expand(first, self.replacement) + topic[first.end() :]


def expand(match: re.Match[str], replacement: str) -> str:
    """A replacement in Java's syntax, of a match.

    Raises:
        ValueError: there is no such group.
    """

    def part(found: re.Match[str]) -> str:
        escaped, number, name = found.groups()
        if escaped is not None:
            return str(escaped)
        try:
            return match.group(int(number) if number is not None else name) or ""
        except IndexError:
            raise ValueError(f"there is no group '{number or name}'") from None

    return _REFERENCE.sub(part, replacement)


@dataclass(frozen=True)
class Filter:
    """Drops every record that it concerns."""

    def apply(self, record: SinkRecord) -> SinkRecord | None:
        del record
        return None


class Predicate(Protocol):
    """The condition under which a transform applies to a record."""

    def holds(self, record: SinkRecord) -> bool:
        """Return whether it does, of a record as the transforms before have left it."""


@dataclass(frozen=True)
class TopicNameMatches:
    """Whole names of topics."""

    pattern: re.Pattern[str]

    def holds(self, record: SinkRecord) -> bool:
        return self.pattern.fullmatch(record.topic) is not None


@dataclass(frozen=True)
class HasHeaderKey:
    """Records with a header of this name."""

    name: str

    def holds(self, record: SinkRecord) -> bool:
        return self.name in record.headers


@dataclass(frozen=True)
class RecordIsTombstone:
    """Records whose value is null."""

    def holds(self, record: SinkRecord) -> bool:
        return record.value.value is None
