"""Connections to a server through libpq, fit for a pooler that gives each transaction another session.

Nothing outlives a transaction on the server: no statement is prepared, settings are local to a transaction.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.errors import DestinationError, EndpointError, hide
from upsert_platform.core.unreachable import reaching
from upsert_platform.postgres.options import PostgresSettings
from upsert_platform.writing.time_limit import ending, time_left

if TYPE_CHECKING:
    import psycopg

_ENDPOINT_CLASSES: Final = ("08", "28", "3D", "53", "57", "58")
"""Classes of SQLSTATE that name the server, the login, or its resources."""
_DENIED: Final = "42501"
_RIGHTS: Final = (
    "; the user needs USAGE on the schema, SELECT, INSERT, UPDATE and DELETE on the table, and CREATE on the schema for"
    " the control table and staged rows"
)
_LONGEST_MILLISECONDS: Final = 2_000_000_000


def connect(settings: PostgresSettings) -> psycopg.Connection[Any]:
    """An open connection in autocommit mode; the caller closes it. Within `time_limit` it is there in time.

    Raises:
        EndpointError: the server is not reached, or refuses the login.
    """
    import psycopg

    parameters: dict[str, Any] = {
        "application_name": "upsert-platform",
        "keepalives_idle": 10,
        "tcp_user_timeout": 60_000,
        "client_encoding": "UTF8",
        # libpq takes no less than two seconds.
        "connect_timeout": max(2, round(min(settings.connect_timeout.total_seconds(), time_left()))),
        **settings.libpq,
        "password": settings.password.get_secret_value(),
    }
    with reaching((settings.url, settings.username)), translated(settings):
        connection: psycopg.Connection[Any] = psycopg.connect(**parameters, autocommit=True, prepare_threshold=None)
        if settings.is_hologres:  # several statements in one transaction, of V2.0 and later
            connection.execute("SET hg_experimental_enable_transaction = on")
        return connection


@contextmanager
def translated(settings: PostgresSettings) -> Iterator[None]:
    """Turns errors of the client into the platform's, with SQLSTATE, without the password.

    Raises:
        EndpointError: the server is not reached, or refuses the login.
        DestinationError: it refuses a statement.
    """
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        code = error.sqlstate or ""
        text = hide(str(error).strip().replace("\n", "; "), [settings.password.get_secret_value()])
        shown = (
            f"PostgreSQL {settings.address}, user '{settings.username}': {f'SQLSTATE {code}: ' if code else ''}{text}"
        )
        if code[:2] in _ENDPOINT_CLASSES or (not code and isinstance(error, psycopg.OperationalError)):
            raise EndpointError(shown) from error
        raise DestinationError(shown + (_RIGHTS if code == _DENIED else "")) from error


@contextmanager
def connected(settings: PostgresSettings) -> Iterator[psycopg.Connection[Any]]:
    """A connection of its own, with errors `translated`."""
    with closing(connect(settings)) as connection, translated(settings):
        yield connection


class Session:
    """One connection for short statements, opened when it is first needed and after it broke; used by any thread."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._connection: psycopg.Connection[Any] | None = None
        self._lock = threading.Lock()
        self._own = threading.local()

    def close(self) -> None:
        """Ends the connection. Idempotent."""
        with self._lock:
            self._drop()

    @contextmanager
    def within(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """In the block, this thread's statements belong to the transaction of a connection."""
        self._own.connection = connection
        try:
            yield
        finally:
            self._own.connection = None

    def rows(self, sql: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows of a small result; the number of changed rows, alone, of a statement without one.

        Within `time_limit` the statement ends in time, or the connection does. Raises what `translated` does.
        """
        own: psycopg.Connection[Any] | None = getattr(self._own, "connection", None)
        if own is not None:
            return _result_of(own.execute(sql, arguments or None))
        with self._lock, translated(self._settings):
            if self._connection is None or self._connection.closed:
                self._connection = connect(self._settings)
            descriptor = self._connection.fileno()
            try:
                # A server may accept a statement and stay silent.
                with ending(lambda: _break(descriptor)), self._connection.transaction():
                    left = time_left()
                    if left != float("inf"):
                        limit = str(min(max(1, round(left * 1000)), _LONGEST_MILLISECONDS))
                        self._connection.execute("SELECT set_config('statement_timeout', %s, true)", (limit,))
                    return _result_of(self._connection.execute(sql, arguments or None))
            except BaseException:
                self._drop()
                raise

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _result_of(cursor: psycopg.Cursor[Any]) -> list[tuple[Any, ...]]:
    """See `Session.rows`."""
    return list(cursor.fetchall()) if cursor.description is not None else [(cursor.rowcount,)]


def _break(descriptor: int) -> None:
    with suppress(OSError), socket.socket(fileno=socket.dup(descriptor)) as own:
        own.shutdown(socket.SHUT_RDWR)
