"""The control table: position, lease and last verdict of each written table of a schema, a row each.

A write changes its row in the transaction of the rows (`Session.within`), under the condition that its lease is
still the stored one. The row stays locked until the commit: no other holder can come between.
"""

from __future__ import annotations

from typing import Any, Final

from upsert_platform.core.destination import Verdict
from upsert_platform.core.errors import DestinationError
from upsert_platform.postgres.client import Session
from upsert_platform.postgres.sql import literal
from upsert_platform.postgres.table import PostgresTable
from upsert_platform.writing.controlled import Control, ControlRecord
from upsert_platform.writing.lease import Tenure

_NUMBER, _TEXT = "bigint NOT NULL DEFAULT 0", "text NOT NULL DEFAULT ''"
_COLUMNS: Final = {
    "token": _TEXT, "expires": "double precision NOT NULL DEFAULT 0", "holder": _TEXT, "epoch": _NUMBER,
    "applied_batch": _NUMBER, "changelog_id": _TEXT, "commit_id": _TEXT, "table_id": _NUMBER, "verdict": "text",
    "run": _TEXT,
}  # fmt: skip
_MISSING: Final = "SQLSTATE 42P01"


class ControlTable(Control):
    """The row of one table."""

    def __init__(self, session: Session, table: PostgresTable) -> None:
        self._session = session
        self._is_hologres, self._place, self._name = table.settings.is_hologres, table.place, table.control.sql
        self._sql = self._name.replace("%", "%%")  # in statements with arguments

    def read(self) -> tuple[ControlRecord, int]:
        """The row, of initial values where there is none, and the table's oid as it is, 0 where it does not exist.

        The `table_id` of the record is the oid when the position was recorded: another table has other rows.
        """
        columns, found_id = ", ".join(list(_COLUMNS)[:-1]), "coalesce(to_regclass(%s)::oid::bigint, 0)"
        try:
            sql = f"SELECT {columns}, {found_id} FROM {self._sql} WHERE name = %s"
            found = self._session.rows(sql, (self._place.sql, self._place.table))
        except DestinationError as error:
            if _MISSING not in str(error):
                raise
            found = []
        if not found:
            return ControlRecord(), self._session.rows(f"SELECT {found_id}", (self._place.sql,))[0][0]
        *lease, applied, changelog, commit, table_id, verdict, now = found[0]
        return ControlRecord(Tenure(*lease), applied, changelog, commit, table_id, Verdict.from_json(verdict)), now

    def tenure(self) -> Tenure:
        """The lease of the row."""
        return self.read()[0].tenure

    def swap(self, old: Tenure, new: Tenure, **values: Any) -> bool:
        """Stores a lease, and columns beside it. Creates the control table and the row when they are missing."""
        if not old.epoch:
            self._create()
        cells = {"epoch": new.epoch, "token": new.token, "expires": new.expires, "holder": new.holder, **values}
        changes = ", ".join(f"{name} = %s" for name in cells)
        changed = self._session.rows(
            f"UPDATE {self._sql} SET {changes} WHERE name = %s AND epoch = %s AND token = %s AND expires = %s",
            (*cells.values(), self._place.table, old.epoch, old.token, old.expires),
        )
        return changed == [(1,)]

    def _create(self) -> None:
        """Creates the control table and the row, where they are missing."""
        if self._session.rows("SELECT to_regclass(%s)", (self._name,)) == [(None,)]:
            columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
            sql = f"CREATE TABLE IF NOT EXISTS {self._name} (name text PRIMARY KEY, {columns})"
            if not self._is_hologres:
                # Two that create it at once would meet in the catalogue.
                lock = f"PERFORM pg_advisory_xact_lock(hashtext({literal(self._name)}))"
                sql = f"DO {literal(f'BEGIN {lock}; {sql}; END')}"
            self._session.rows(sql)
        inserted = f"INSERT INTO {self._sql} (name) VALUES (%s) ON CONFLICT (name) DO NOTHING"
        self._session.rows(inserted, (self._place.table,))

    def record_verdict(self, verdict: Verdict) -> None:
        """Keeps a verdict, whoever holds the lease."""
        self._create()
        sql = f"UPDATE {self._sql} SET verdict = %s WHERE name = %s"
        self._session.rows(sql, (verdict.to_json(), self._place.table))

    def swap_verdict(self, old: Verdict | None, new: Verdict) -> bool:
        """Keeps a verdict in the place of another one, by its stored text: an earlier version has its own."""
        self._create()
        ((stored,),) = self._session.rows(f"SELECT verdict FROM {self._sql} WHERE name = %s", (self._place.table,))
        if Verdict.from_json(stored) != old:
            return False
        sql = f"UPDATE {self._sql} SET verdict = %s WHERE name = %s AND coalesce(verdict, '') = %s"
        return self._session.rows(sql, (new.to_json(), self._place.table, stored or "")) == [(1,)]
