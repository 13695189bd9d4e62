"""Local transactions: a view over the rows of one partition key, applied at commit or forgotten."""

from __future__ import annotations

import re
import uuid
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field

from upsert_platform.local.tablestore import limits
from upsert_platform.local.tablestore.engine import Engine, Stored
from upsert_platform.local.tablestore.errors import ServiceError, invalid, no_such_table
from upsert_platform.local.tablestore.plainbuffer import INTEGER
from upsert_platform.local.tablestore.table import Table

_ID = re.compile(r"[0-9a-f]{32}")


def partition_of(table: Table, sortable: bytes) -> bytes:
    """The sortable form of the first key column, at the start of a sortable key."""
    if table.columns[0].kind == INTEGER:
        return sortable[:9]
    return sortable[: sortable.index(b"\0\0") + 2]


@dataclass(slots=True)
class Transaction:
    """An open transaction; its rows are seen through it alone until it is committed.

    It reads as ``Rows``: its own changes first, then what is stored.
    """

    id: str
    engine: Engine
    table: Table
    partition: bytes
    deadline: int
    changes: dict[bytes, tuple[Stored, int] | None] = field(default_factory=dict)
    size: int = 0

    def read(self, table: Table, key: bytes) -> Stored | None:
        if key in self.changes:
            change = self.changes[key]
            return change[0] if change is not None else None
        return self.engine.read(table, key)

    def write(self, table: Table, key: bytes, row: bytes, size: int, now: int) -> None:
        self.size += size
        if self.size > limits.REQUEST_DATA:
            raise invalid(f"The data of a transaction exceeds the limit, limit size: {limits.REQUEST_DATA}.")
        self.changes[key] = (Stored(row, now, size), size)

    def remove(self, table: Table, key: bytes) -> None:
        self.changes[key] = None

    def scan(
        self, table: Table, low: bytes, high: bytes, *, reverse: bool
    ) -> Generator[tuple[bytes, Stored, int], None, None]:
        """Stored rows and own changes, merged in key order."""
        own = sorted((key for key in self.changes if low <= key < high), reverse=reverse)
        position = 0
        with closing(self.engine.scan(table, low, high, reverse=reverse)) as stored:
            for entry in stored:
                while position < len(own) and (own[position] > entry[0] if reverse else own[position] < entry[0]):
                    yield from self._own(own[position])
                    position += 1
                if position < len(own) and own[position] == entry[0]:
                    yield from self._own(own[position])
                    position += 1
                else:
                    yield entry
        for key in own[position:]:
            yield from self._own(key)

    def _own(self, key: bytes) -> Generator[tuple[bytes, Stored, int], None, None]:
        change = self.changes[key]
        if change is not None:
            yield key, *change


class Transactions:
    """The open transactions of an instance; they end with the server, as an expired one does."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: dict[str, Transaction] = {}
        self._locks: dict[tuple[int, bytes], Transaction] = {}

    def start(self, table: Table, partition: bytes, now: int) -> Transaction:
        """Locks a partition key value; ``OTSRowOperationConflict`` while another transaction holds it."""
        self.check_lock(table, partition, now)
        transaction = Transaction(
            uuid.uuid4().hex, self._engine, table, partition, now + limits.TRANSACTION_SECONDS * 1000
        )
        self._open[transaction.id] = transaction
        self._locks[table.id, partition] = transaction
        return transaction

    def find(self, id: str, now: int) -> Transaction:
        """An open transaction.

        Raises:
            ServiceError: ``OTSSessionNotExist`` once it ended or expired, ``OTSParameterInvalid`` for what cannot be
                the id of one.
        """
        if _ID.fullmatch(id) is None:
            raise invalid("Invalid transaction id.")
        transaction = self._open.get(id)
        if transaction is not None and transaction.deadline <= now:
            self.end(transaction)
            transaction = None
        if transaction is None:
            raise ServiceError("OTSSessionNotExist", "The transaction does not exist or has expired.")
        return transaction

    def view(self, id: str, table: Table, sortable: bytes, now: int) -> Transaction:
        """The transaction for a row's operation; the row must be in the partition that it locked."""
        transaction = self.find(id, now)
        if transaction.table.id != table.id or not sortable.startswith(transaction.partition):
            raise invalid("Data out of scope of transaction.")
        return transaction

    def check_lock(self, table: Table, partition: bytes, now: int) -> None:
        """Refuses a write to a partition key value that a transaction holds."""
        holder = self._locks.get((table.id, partition))
        if holder is None:
            return
        if holder.deadline <= now:
            self.end(holder)
            return
        raise ServiceError("OTSRowOperationConflict")

    @property
    def any_locked(self) -> bool:
        return bool(self._locks)

    def commit(self, id: str, now: int) -> None:
        """Applies the changes; ``OTSObjectNotExist`` when the table was deleted meanwhile."""
        transaction = self.find(id, now)
        self.end(transaction)
        table = self._engine.tables.get(transaction.table.name)
        if table is None or table.id != transaction.table.id:
            raise no_such_table()
        for key, change in transaction.changes.items():
            if change is None:
                self._engine.remove(transaction.table, key)
            else:
                stored, size = change
                self._engine.write(transaction.table, key, stored.row, size, stored.written)

    def end(self, transaction: Transaction) -> None:
        """Forgets a transaction and its lock."""
        self._open.pop(transaction.id, None)
        self._locks.pop((transaction.table.id, transaction.partition), None)
