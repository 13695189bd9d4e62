"""Write sessions and what they have staged, kept in the catalogue: a restart loses neither.

A session is committed once, however many ask for it at the same time: one of them finds it open and makes it
``committing``, in which state it takes no more rows, and the others wait for the table's lock and find it committed.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from upsert_platform.local.maxcompute.errors import ServiceError, no_such_table, table_modified
from upsert_platform.local.maxcompute.schema import Table
from upsert_platform.local.maxcompute.storage.ingest import Routed
from upsert_platform.local.maxcompute.storage.segments import File
from upsert_platform.local.maxcompute.storage.store import Store

_KEPT_SECONDS = 7 * 24 * 3600
NORMAL, COMMITTING, COMMITTED = "normal", "committing", "committed"
ABORTED, EXPIRED = "aborted", "expired"


@dataclass(frozen=True)
class Session:
    """A session of any kind; ``state`` holds what the kind needs besides."""

    session_id: str
    kind: str
    table_id: str
    status: str = NORMAL
    created: float = 0.0
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Staged:
    """A body that was written in a session, in the order of arrival."""

    ordinal: int
    stream: str
    stream_version: int
    routed: Routed


class Sessions:
    """Creates, finds and ends sessions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._catalogue = store.catalogue
        self._swept = 0.0
        # Whoever was committing has died before the commit's transaction: it may be asked for again.
        self._catalogue.execute("UPDATE sessions SET status = ? WHERE status = ?", NORMAL, COMMITTING)
        self._sweep()

    def _sweep(self) -> None:
        """Expires open sessions whose time has passed, and forgets ended ones after a week; at most once an hour."""
        now = time.time()
        if now < self._swept + 3600:
            return
        self._swept = now
        for kind, session_id in self._catalogue.execute(
            "SELECT kind, session_id FROM sessions WHERE status = ? AND created < ?", NORMAL, now - 3600
        ):
            self.find(kind, session_id)
        self._catalogue.execute("DELETE FROM sessions WHERE status <> ? AND created < ?", NORMAL, now - _KEPT_SECONDS)
        self._catalogue.execute("DELETE FROM streams WHERE session_id NOT IN (SELECT session_id FROM sessions)")

    def create(self, kind: str, table: Table, state: dict[str, Any]) -> Session:
        """A new session on the table."""
        self._sweep()
        moment = time.strftime("%Y%m%d%H%M%S", time.gmtime())
        session = Session(f"{moment}{uuid.uuid4().hex}", kind, table.table_id, NORMAL, time.time(), state)
        self._catalogue.execute(
            "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)",
            session.session_id,
            kind,
            table.table_id,
            NORMAL,
            session.created,
            json.dumps(state),
        )
        return session

    def find(self, kind: str, session_id: str) -> Session | None:
        """The session, expired when its lifecycle has passed."""
        rows = self._catalogue.execute(
            "SELECT session_id, kind, table_id, status, created, state FROM sessions WHERE session_id = ? AND kind = ?",
            session_id,
            kind,
        )
        if not rows:
            return None
        found, kind, table_id, status, created, state = rows[0]
        session = Session(found, kind, table_id, status, created, json.loads(state))
        hours = float(session.state.get("lifecycle") or 24)
        if session.status == NORMAL and time.time() > session.created + hours * 3600:
            return self.end(session, EXPIRED)
        return session

    def end(self, session: Session, status: str) -> Session:
        """Gives an open session a last status, and removes what it has staged; one that has ended stays as it is.

        Raises:
            ServiceError: it is being committed, or is committed.
        """
        with self._catalogue.durable():
            if not self._change(session, NORMAL, status):
                found = self._now(session)
                if found.status in (COMMITTING, COMMITTED):
                    raise session_conflict(found)
                return found
            paths = [staged.routed.file.path for staged in self.staged(session.session_id)]
            self._catalogue.execute("DELETE FROM staged WHERE session_id = ?", session.session_id)
            self._catalogue.execute("DELETE FROM streams WHERE session_id = ?", session.session_id)
        self._store.files.remove(paths)
        return replace(session, status=status)

    def commit(
        self, session: Session, table: Table, work: Callable[[list[Staged], Callable[[Sequence[Staged]], None]], None]
    ) -> Session:
        """Commits an open session, once; one that is committed already is given as it is.

        Args:
            work: is given what the session has staged, and a function to call in the commit's transaction with those
                of them that belong to the table from then on. It may still refuse, and the session then stays open.

        Raises:
            ServiceError: the session has ended otherwise, or what `work` raised.
        """
        orphans: list[str] = []

        def along(kept: Sequence[Staged]) -> None:
            kept_paths = {item.routed.file.path for item in kept}
            orphans.extend(item.routed.file.path for item in staged if item.routed.file.path not in kept_paths)
            self._change(session, COMMITTING, COMMITTED)
            self._catalogue.execute("DELETE FROM staged WHERE session_id = ?", session.session_id)

        with self._store.lock(table.table_id):
            if not self._change(session, NORMAL, COMMITTING):
                found = self._now(session)
                if found.status != COMMITTED:
                    raise session_conflict(found)
                return found
            try:
                staged = self.staged(session.session_id)
                work(staged, along)
            except BaseException:
                self._change(session, COMMITTING, NORMAL)
                raise
        self._store.files.remove(orphans)
        return replace(session, status=COMMITTED)

    def _change(self, session: Session, before: str, after: str) -> bool:
        """Changes the status if it is still the expected one, and says whether it was."""
        return bool(
            self._catalogue.execute(
                "UPDATE sessions SET status = ? WHERE session_id = ? AND status = ? RETURNING session_id",
                after,
                session.session_id,
                before,
            )
        )

    def _now(self, session: Session) -> Session:
        rows = self._catalogue.execute("SELECT status FROM sessions WHERE session_id = ?", session.session_id)
        return replace(session, status=rows[0][0] if rows else EXPIRED)

    def expire(self, session_id: str) -> None:
        """Ends an open session as if its lifecycle had passed; others stay as they are."""
        for row in self._catalogue.execute("SELECT kind FROM sessions WHERE session_id = ?", session_id):
            session = self.find(row[0], session_id)
            if session is not None and session.status == NORMAL:
                self.end(session, EXPIRED)

    def table(self, session: Session, table: Table | None, name: str) -> Table:
        """The session's table, when the name still means it.

        Raises:
            ServiceError: NoSuchTable when the name is gone, TableModified when another table has it.
        """
        if table is None:
            raise no_such_table(name)
        if table.table_id != session.table_id:
            raise table_modified(name)
        return table

    # Staging

    def stage(
        self,
        session: Session,
        stream: str,
        stream_version: int,
        routed: Sequence[Routed],
        *,
        along: Callable[[], object] = lambda: None,
    ) -> None:
        """Notes files that a write of the session has made.

        Args:
            along: what is to be written to the catalogue in the same transaction.

        Raises:
            ServiceError: the session has ended meanwhile, or is being committed: the files are removed.
        """
        try:
            with self._catalogue.atomic():
                found = self._now(session)
                if found.status != NORMAL:
                    raise session_conflict(found)
                along()
                for item in routed:
                    self._catalogue.execute(
                        "INSERT INTO staged (session_id, stream, stream_version, spec, rows, bytes, path, columns)"
                        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                        session.session_id,
                        stream,
                        stream_version,
                        item.spec,
                        item.file.rows,
                        item.file.bytes,
                        item.file.path,
                        json.dumps(item.file.columns),
                    )
        except BaseException:
            self._store.files.remove(item.file.path for item in routed)
            raise

    def staged(self, session_id: str) -> list[Staged]:
        """Return the staged data of the session in order of arrival."""
        rows = self._catalogue.execute(
            "SELECT ordinal, stream, stream_version, spec, path, rows, bytes, columns FROM staged"
            " WHERE session_id = ? ORDER BY ordinal",
            session_id,
        )
        return [
            Staged(row[0], row[1], row[2], Routed(row[3], File(row[4], row[5], row[6], tuple(json.loads(row[7])))))
            for row in rows
        ]

    def unstage(self, session: Session, stream: str, stream_version: int) -> list[str]:
        """Forgets what one stream of the session has staged.

        Returns:
            Paths of its files, which the caller removes after the transaction.
        """
        paths = self._catalogue.execute(
            "DELETE FROM staged WHERE session_id = ? AND stream = ? AND stream_version = ? RETURNING path",
            session.session_id,
            stream,
            stream_version,
        )
        return [path for (path,) in paths]


def session_conflict(session: Session) -> ServiceError:
    """Return the error for a request on an ended session (spec 2.4)."""
    match session.status:
        case "aborted":
            return ServiceError(409, "SessionAborted", f"session {session.session_id} has been aborted")
        case "expired":
            return ServiceError(410, "SessionExpired", f"session {session.session_id} has expired")
    return ServiceError(
        409, "SessionStatusConflict", f"session {session.session_id} is {session.status}, the request needs it open"
    )
