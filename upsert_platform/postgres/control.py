"""The control table: position, lease and last verdict of each written table of a schema, a row each.

A write changes its row in the transaction of the rows (`ControlTable.within`), under the condition that its lease is
still the stored one. The row stays locked until the commit: no other holder can come between.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.destination import Verdict
from upsert_platform.errors import DestinationError
from upsert_platform.postgres.client import Session, result_of
from upsert_platform.postgres.names import literal
from upsert_platform.postgres.table import PostgresTable
from upsert_platform.writing.lease import LeaseStore, Tenure

if TYPE_CHECKING:
    import psycopg

_COLUMNS: Final = {
    "epoch": "bigint NOT NULL DEFAULT 0",
    "token": "text NOT NULL DEFAULT ''",
    "expires": "double precision NOT NULL DEFAULT 0",
    "holder": "text NOT NULL DEFAULT ''",
    "applied_batch": "bigint NOT NULL DEFAULT 0",
    "changelog_id": "text NOT NULL DEFAULT ''",
    "commit_id": "text NOT NULL DEFAULT ''",
    "run": "text NOT NULL DEFAULT ''",
    "table_id": "bigint NOT NULL DEFAULT 0",
    "verdict": "text",
}
_MISSING: Final = "42P01"


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """The control record of one table.

    Attributes:
        table_id: the table's oid when the position was recorded: another one has other rows.
    """

    tenure: Tenure = field(default_factory=Tenure)
    applied_batch: int = 0
    changelog_id: str = ""
    commit: str = ""
    table_id: int = 0
    verdict: Verdict | None = None


class ControlTable(LeaseStore):
    """The row of one table."""

    def __init__(self, session: Session, table: PostgresTable) -> None:
        self._session = session
        self._table = table
        self._name = table.control.sql
        self._sql = self._name.replace("%", "%%")  # in statements with arguments
        self._own = threading.local()

    @contextmanager
    def within(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """In the block, this thread's reads and changes of the row belong to the transaction of a connection."""
        self._own.connection = connection
        try:
            yield
        finally:
            self._own.connection = None

    def _rows(self, sql: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        connection = getattr(self._own, "connection", None)
        if connection is not None:
            return result_of(connection.execute(sql, arguments))
        return self._session.rows(sql, arguments)

    def read(self) -> tuple[ControlRecord, int]:
        """The row, and the oid of the table as it is: 0 where it does not exist."""
        there, place = "coalesce(to_regclass(%s)::oid::bigint, 0)", self._table.place
        try:
            found = self._rows(
                "SELECT token, expires, holder, epoch, applied_batch, changelog_id, commit_id, table_id, verdict,"
                f" {there} FROM {self._sql} WHERE name = %s",
                (place.sql, place.table),
            )
        except DestinationError as error:
            if f"SQLSTATE {_MISSING}" not in str(error):
                raise
            found = []
        if not found:
            return ControlRecord(), int(self._session.rows(f"SELECT {there}", (place.sql,))[0][0])
        token, expires, holder, epoch, applied, changelog, commit, table_id, verdict, now = found[0]
        tenure = Tenure(token, expires, holder, epoch)
        return ControlRecord(tenure, applied, changelog, commit, table_id, _read_verdict(verdict)), now

    def tenure(self) -> Tenure:
        """The lease of the row."""
        return self.read()[0].tenure

    def swap(self, old: Tenure, new: Tenure, **values: Any) -> bool:
        """Stores a lease, and columns beside it. Creates the control table and the row when they are missing."""
        if not old.epoch:
            self.create()
        cells = {"epoch": new.epoch, "token": new.token, "expires": new.expires, "holder": new.holder, **values}
        changes = ", ".join(f"{name} = %s" for name in cells)
        changed = self._rows(
            f"UPDATE {self._sql} SET {changes} WHERE name = %s AND epoch = %s AND token = %s AND expires = %s",
            (*cells.values(), self._table.place.table, old.epoch, old.token, old.expires),
        )
        return changed == [(1,)]

    def create(self) -> None:
        """Creates the control table and the row, where they are missing."""
        columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
        if self._session.rows("SELECT to_regclass(%s)", (self._name,)) == [(None,)]:
            # Two that create it at once would meet in the catalogue.
            lock = f"PERFORM pg_advisory_xact_lock(hashtext({literal(self._name)}))"
            made = f"CREATE TABLE IF NOT EXISTS {self._name} (name text PRIMARY KEY, {columns})"
            self._session.rows(f"DO {literal(f'BEGIN {lock}; {made}; END')}")
        self._session.rows(
            f"INSERT INTO {self._sql} (name) VALUES (%s) ON CONFLICT DO NOTHING", (self._table.place.table,)
        )

    def record_verdict(self, verdict: Verdict) -> None:
        """Keeps a verdict, whoever holds the lease."""
        self.create()
        text = json.dumps({**asdict(verdict), "at": verdict.at.astimezone(UTC).isoformat()}, ensure_ascii=False)
        self._rows(f"UPDATE {self._sql} SET verdict = %s WHERE name = %s", (text, self._table.place.table))


def _read_verdict(text: str | None) -> Verdict | None:
    if text is None:
        return None
    data = json.loads(text)
    return Verdict(**{**data, "at": datetime.fromisoformat(data["at"])})
