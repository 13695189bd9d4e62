"""Commits what was recorded, through the interface that it was sent through, and says what became of every session.

A refusal is judged by its code and by the session's own status, never by its text: a conflict may tell of others that
are committed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Final

from upsert_platform.maxcompute.connection import Connection, ServiceError, is_gone, may_pass
from upsert_platform.maxcompute.control import Pending
from upsert_platform.maxcompute.maxstorage import MaxStorage, WriteSession
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.maxcompute.tunnel import UpsertTunnel


class Fate(Enum):
    """The known fate of the rows of a session.

    Attributes:
        COMMITTED: they are in the table.
        NOT_COMMITTED: they are not, and nobody can commit them any more.
        UNKNOWN: the service no longer tells.
        UNDECIDED: no answer; asking again later settles it.
    """

    COMMITTED = "committed"
    NOT_COMMITTED = "not committed"
    UNKNOWN = "unknown"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a session, with the refusal or failure that it received."""

    fate: Fate
    failure: ServiceError | None = None


_OPEN: Final = "normal"
_FATES: Final = {"committed": Fate.COMMITTED, "aborted": Fate.NOT_COMMITTED, "expired": Fate.NOT_COMMITTED}
_NOT_THERE: Final = ("SessionAborted", "TableModified", "NoSuchTable", "ODPS-0130131")
"""Codes after which the rows are certainly not in the table: it may be that the table is another one by now."""


class Committing(ABC):
    """Finishes recorded commits. What it does may be asked for again and again.

    Args:
        threads: sessions that are committed at once.
    """

    def __init__(self, connection: Connection, *, threads: int) -> None:
        self.connection = connection
        self._threads = threads

    def commit(self, pending: Pending, *, deadline: float) -> tuple[Outcome, ...]:
        """Commits every session of a record, and says what became of each, in their order.

        Args:
            deadline: `time.monotonic()` until which answers are waited for.
        """
        with ThreadPoolExecutor(self._threads, thread_name_prefix="maxcompute-commit") as pool:
            return tuple(pool.map(lambda place: self._settle(pending, place, deadline), range(len(pending.sessions))))

    def drop(self, pending: Pending) -> None:
        """Aborts every session of a record that is not committed, so that nobody who was cut off can commit it.

        Raises:
            ServiceError: one may still be committed.
        """
        for place in range(len(pending.sessions)):
            try:
                self._abort(pending, place)
            except ServiceError as error:
                if not is_gone(error) and (may_pass(error) or self._status(pending, place) not in _FATES):
                    raise

    def _settle(self, pending: Pending, place: int, deadline: float) -> Outcome:
        try:
            self._commit(pending, place, deadline)
        except ServiceError as error:
            if may_pass(error):
                return Outcome(Fate.UNDECIDED, error)
            try:
                return Outcome(self._fate(pending, place, error), error)
            except ServiceError as failure:
                return Outcome(Fate.UNDECIDED, failure)
        return Outcome(Fate.COMMITTED)

    def _fate(self, pending: Pending, place: int, refusal: ServiceError) -> Fate:
        """Return the fate of a session whose commit was refused; an open session is aborted first.

        Raises:
            ServiceError: no answer, or no right to ask.
        """
        try:
            status = self._status(pending, place)
            if status == _OPEN:
                self._abort(pending, place)
                status = self._status(pending, place)
        except ServiceError as error:
            if not is_gone(error):
                raise
            return Fate.NOT_COMMITTED if error.code in _NOT_THERE or refusal.code in _NOT_THERE else Fate.UNKNOWN
        if not status and refusal.code in _NOT_THERE:
            return Fate.NOT_COMMITTED
        return _FATES.get(status, Fate.UNKNOWN)

    @abstractmethod
    def _commit(self, pending: Pending, place: int, deadline: float) -> None:
        """Commits one session of a record.

        Raises:
            ServiceError: refused, or no answer.
        """

    @abstractmethod
    def _status(self, pending: Pending, place: int) -> str:
        """The status of one session, in lower case; empty where the service does not tell it.

        Raises:
            ServiceError: it is not known, or no answer.
        """

    @abstractmethod
    def _abort(self, pending: Pending, place: int) -> None:
        """Aborts one session.

        Raises:
            ServiceError: refused, or no answer.
        """


class MaxStorageCommitting(Committing):
    """Commits the streams that tasks closed in MaxStorage sessions."""

    def __init__(self, storage: MaxStorage, table: MaxComputeTable) -> None:
        super().__init__(storage.connection, threads=table.settings.insert_commit_threads)
        self._storage, self._retries = storage, table.settings.commit_retries

    def _commit(self, pending: Pending, place: int, deadline: float) -> None:
        streams = pending.streams_of(place)
        self._storage.commit(_session(pending, place), streams, retries=self._retries, deadline=deadline)

    def _status(self, pending: Pending, place: int) -> str:
        return self._storage.status(_session(pending, place))

    def _abort(self, pending: Pending, place: int) -> None:
        self._storage.abort(_session(pending, place))


class TunnelCommitting(Committing):
    """Commits upsert sessions. Each partition becomes visible on its own."""

    def __init__(self, tunnel: UpsertTunnel, table: MaxComputeTable) -> None:
        super().__init__(tunnel.connection, threads=table.settings.commit_threads)
        self._tunnel, self._retries = tunnel, table.settings.commit_retries

    def _commit(self, pending: Pending, place: int, deadline: float) -> None:
        self._tunnel.commit(*pending.sessions[place], retries=self._retries, deadline=deadline)

    def _status(self, pending: Pending, place: int) -> str:
        return self._tunnel.load(*pending.sessions[place]).status

    def _abort(self, pending: Pending, place: int) -> None:
        self._tunnel.abort(*pending.sessions[place])


def _session(pending: Pending, place: int) -> WriteSession:
    return WriteSession(pending.sessions[place][1])
