"""The position of a reader in a server's log: file and offset, and the transactions read, by global id."""

from __future__ import annotations

import json
import re
import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from upsert_platform.core.errors import ReplicationError

_FILE: Final = re.compile(r"(.*)\.(\d+)")
_SPAN: Final = re.compile(r"(\d+)(?:-(\d+))?")
_MARIADB: Final = re.compile(r"(\d+)-(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class GtidSet:
    """Transactions of MySQL: per server UUID the numbers seen, as spans of which neither touches another.

    Spans with a hole between them stay apart: what is missing was not read.

    Attributes:
        spans: UUID to spans (first, last), ascending.
    """

    spans: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads ``uuid:1-5:7,uuid:3``; blanks and line ends do not count.

        Raises:
            ReplicationError: it is not of that form, or has tags, which are not read.
        """
        found: dict[str, list[tuple[int, int]]] = {}
        for part in "".join(text.split()).split(","):
            if not part:
                continue
            source, _, numbers = part.partition(":")
            for span in numbers.split(":"):
                match = _SPAN.fullmatch(span)
                if match is None or int(match[2] or match[1]) < int(match[1]):
                    raise ReplicationError(f"'{part}' is not a set of global ids of the form uuid:1-5:7, without tags")
                found.setdefault(source.lower(), []).append((int(match[1]), int(match[2] or match[1])))
        return cls({source: _joined(spans) for source, spans in found.items()})

    def with_transaction(self, gtid: str) -> GtidSet:
        """This set and one transaction, ``uuid:number``."""
        source, _, number = gtid.rpartition(":")
        span = (int(number), int(number))
        return GtidSet({**self.spans, source: _joined([*self.spans.get(source, ()), span])})

    def union(self, other: GtidSet) -> GtidSet:
        """The transactions of both sets."""
        sources = {*self.spans, *other.spans}
        return GtidSet({name: _joined([*self.spans.get(name, ()), *other.spans.get(name, ())]) for name in sources})

    def has(self, other: GtidSet) -> bool:
        """Return whether every transaction of another set is in this one."""
        return all(
            any(start <= first and last <= end for start, end in self.spans.get(source, ()))
            for source, spans in other.spans.items()
            for first, last in spans
        )

    def to_bytes(self) -> bytes:
        """As COM_BINLOG_DUMP_GTID has it: per server the UUID and its spans, each with the number behind its last."""
        found = struct.pack("<Q", len(self.spans))
        for source, spans in sorted(self.spans.items()):
            found += uuid.UUID(source).bytes + struct.pack("<Q", len(spans))
            found += b"".join(struct.pack("<QQ", first, last + 1) for first, last in spans)
        return found

    def __str__(self) -> str:
        return ",".join(
            ":".join([source, *(f"{first}-{last}" if last > first else str(first) for first, last in spans)])
            for source, spans in sorted(self.spans.items())
        )


def _joined(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class MariaDbGtids:
    """The last transaction of every domain of MariaDB.

    Attributes:
        last: domain to (server id, number).
    """

    last: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads ``0-1-7,1-1-3``.

        Raises:
            ReplicationError: it is not of that form.
        """
        found: dict[int, tuple[int, int]] = {}
        for part in filter(None, "".join(text.split()).split(",")):
            match = _MARIADB.fullmatch(part)
            if match is None:
                raise ReplicationError(f"'{part}' is not a global id of the form domain-server-number")
            found[int(match[1])] = (int(match[2]), int(match[3]))
        return cls(found)

    def with_transaction(self, gtid: str) -> MariaDbGtids:
        """These, one transaction later."""
        return MariaDbGtids({**self.last, **MariaDbGtids.parse(gtid).last})

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self.last.items()))


def holds_transactions(own: str, wanted: str) -> bool:
    """Return whether global ids hold all others, of either server; of MariaDB's, each domain one as late.

    False where none are wanted: nothing is known of them then.
    """
    if not wanted or (":" in wanted) is not (":" in own):
        return False
    if ":" in wanted:
        return GtidSet.parse(own).has(GtidSet.parse(wanted))
    known, last = MariaDbGtids.parse(own).last, MariaDbGtids.parse(wanted).last
    return all(domain in known and known[domain][1] >= number for domain, (_, number) in last.items())


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A place between two transactions.

    Attributes:
        file: of the log.
        offset: bytes in the file.
        gtids: all transactions up to here, as the server writes them; empty where they are not known, or have no ids.
    """

    file: str
    offset: int
    gtids: str = ""

    def order(self) -> tuple[int, int]:
        """Return the sort key of positions of one server: the number of the file, never its name, then the offset.

        Raises:
            ReplicationError: the file's name does not end with a number.
        """
        match = _FILE.fullmatch(self.file)
        if match is None:
            raise ReplicationError(f"'{self.file}' does not end with a number, as files of a log do")
        return int(match[2]), self.offset

    @property
    def number(self) -> int:
        """One number that grows with the position: the file's number times 2^32, and the offset."""
        file, offset = self.order()
        return (file << 32) + offset

    def to_json(self) -> str:
        """As text, for what is kept."""
        return json.dumps({"file": self.file, "offset": self.offset, "gtids": self.gtids})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the progress that `to_json` wrote."""
        found = json.loads(text)
        return cls(found["file"], found["offset"], found["gtids"])

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A transaction in two phases (XA) that was prepared, and neither committed nor rolled back up to a position.

    Attributes:
        xid: its id, as servers log it: ``X'6162',X'',1``.
        place: a position before it, behind the transaction before; None where that is not known.
        followed: whether it has rows of tables that are followed.
    """

    xid: str
    place: LogPosition | None
    followed: bool
