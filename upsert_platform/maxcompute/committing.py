"""Commits what was recorded, through the interface that it was sent through."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from upsert_platform.maxcompute.connection import Connection, ServiceError, may_pass
from upsert_platform.maxcompute.control import Pending
from upsert_platform.maxcompute.maxstorage import MaxStorage, WriteSession, is_committed, is_gone
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.maxcompute.tunnel import UpsertTunnel


class PartlyCommittedError(ServiceError):
    """A session was refused after others of the same record were committed."""

    @staticmethod
    def of(error: ServiceError) -> PartlyCommittedError:
        """The refusal, as one that came after commits."""
        return PartlyCommittedError(str(error), status=error.status, code=error.code, sure=error.sure)


class Committing(Protocol):
    """Finishes recorded commits. What it does may be asked for again and again."""

    connection: Connection

    def commit(self, pending: Pending, *, deadline: float) -> None:
        """Commits every session of a record.

        Raises:
            ServiceError: not all are committed; the failure that may pass is raised before others.
        """

    def drop(self, pending: Pending) -> None:
        """Aborts every session of a record, so that nobody who was cut off can commit it.

        Raises:
            ServiceError: one may still be committed.
        """


class MaxStorageCommitting:
    """Of MaxStorage sessions."""

    def __init__(self, storage: MaxStorage, table: MaxComputeTable) -> None:
        self.connection = storage.connection
        self._storage = storage
        self._retries, self._threads = table.settings.commit_retries, table.settings.insert_commit_threads

    def commit(self, pending: Pending, *, deadline: float) -> None:
        """Commits the streams of the session; of sessions with a stream each, several at once.

        Raises:
            PartlyCommittedError: other sessions of the record are committed.
        """

        def commit(place: int) -> ServiceError | None:
            session = WriteSession(pending.sessions[place][1])
            try:
                self._storage.commit(session, pending.streams_of(place), retries=self._retries, deadline=deadline)
            except ServiceError as error:
                return None if is_committed(error) else error
            return None

        with ThreadPoolExecutor(self._threads, thread_name_prefix="maxcompute-commit") as pool:
            failures = [failure for failure in pool.map(commit, range(len(pending.sessions))) if failure is not None]
        if failures:
            worst = min(failures, key=lambda failure: (not may_pass(failure), not is_gone(failure)))
            raise PartlyCommittedError.of(worst) if len(failures) < len(pending.sessions) else worst

    def drop(self, pending: Pending) -> None:
        """Aborts the session."""
        for _, session_id in pending.sessions:
            try:
                self._storage.abort(WriteSession(session_id))
            except ServiceError as error:
                if not is_gone(error):
                    raise


class TunnelCommitting:
    """Of upsert sessions, several at once. Each partition becomes visible on its own."""

    def __init__(self, tunnel: UpsertTunnel, table: MaxComputeTable) -> None:
        self.connection = tunnel.connection
        self._tunnel = tunnel
        self._retries, self._threads = table.settings.commit_retries, table.settings.commit_threads

    def commit(self, pending: Pending, *, deadline: float) -> None:
        """Commits every session, and waits for all of them."""

        def commit(session: tuple[str, str]) -> ServiceError | None:
            try:
                self._tunnel.commit(*session, retries=self._retries, deadline=deadline)
            except ServiceError as error:
                return error
            return None

        with ThreadPoolExecutor(self._threads, thread_name_prefix="maxcompute-commit") as pool:
            failures = [failure for failure in pool.map(commit, pending.sessions) if failure is not None]
        if failures:
            raise min(failures, key=lambda failure: not may_pass(failure))

    def drop(self, pending: Pending) -> None:
        """Aborts every session that is not committed."""
        for partition, session_id in pending.sessions:
            try:
                self._tunnel.abort(partition, session_id)
            except ServiceError as error:
                if not is_gone(error) and not is_committed(error):
                    raise
