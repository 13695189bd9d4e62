"""Connections to a server: TLS, what is asked of it before its log is read, and errors in the platform's words."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self

from upsert_platform.core.errors import EndpointError, ReplicationError, hide
from upsert_platform.core.unreachable import reaching
from upsert_platform.writing.time_limit import time_left

if TYPE_CHECKING:
    import ssl

_DENIED: Final = (1044, 1045, 1142, 1143, 1227, 1698)
"""Numbers of errors that tell of credentials or grants."""
_SESSION: Final = f"SET SESSION time_zone = '+00:00', sql_mode = '', sql_select_limit = {2**64 - 1}"
"""What a server may have other defaults of, which would change values, or leave rows out without a word."""
_SETTINGS: Final = {
    "log_bin": (("1", "ON"), "start the server with 'log_bin'"),
    "binlog_format": (("ROW",), "set 'binlog_format' = 'ROW'"),
    "binlog_row_image": (("FULL",), "set 'binlog_row_image' = 'FULL'"),
    "binlog_row_value_options": (("", "PARTIAL_JSON"), "set 'binlog_row_value_options' = ''"),
}
"""Variables of a server, to the values that the log is read with and the remedy; one that it does not have is right."""


class TlsMode(StrEnum):
    """The protection of a connection."""

    DISABLED = "disabled"
    PREFERRED = "preferred"
    REQUIRED = "required"
    VERIFY_CA = "verify_ca"
    VERIFY_IDENTITY = "verify_identity"


@dataclass(frozen=True, slots=True)
class Server:
    """The address of a server and the login.

    Attributes:
        connect_timeout: seconds.
        authority: PEM file of the authority that signed the server's certificate; the system's own without one.
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    connect_timeout: float = 30.0
    tls: TlsMode = TlsMode.PREFERRED
    authority: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def tls_arguments(self) -> dict[str, Any]:
        """Return the client's arguments for the TLS mode.

        Raises:
            OSError: the authority's file cannot be read.
        """
        import ssl

        match self.tls:
            case TlsMode.DISABLED:
                return {"ssl_disabled": True}
            case TlsMode.PREFERRED:
                return {}
            case TlsMode.REQUIRED:
                return {"ssl": _unverified()}
        # Given the parts, the client would leave the name unverified where the system's own authorities are to do.
        context = ssl.create_default_context(cafile=self.authority)
        # Certificates that a server of MySQL made for itself lack what the strict rules ask.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = self.tls is TlsMode.VERIFY_IDENTITY
        return {"ssl": context}


def _unverified() -> ssl.SSLContext:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@cache
def _client() -> Any:
    from pymysql.connections import Connection as Client

    class Prompt(Client):
        """Does not load the system's authorities, which takes longer than to connect, where nobody asks them.

        Attributes:
            login_until: when the login has to be done, of `time.monotonic`; None when it is.
        """

        login_until: float | None = None

        def _read_bytes(self, count: int) -> bytes:
            if self.login_until is not None:
                self._sock.settimeout(max(self.login_until - time.monotonic(), 0.001))
            found: bytes = super()._read_bytes(count)
            return found

        def log_in(self, seconds: float, *, read_timeout: float | None) -> None:
            """Connects; a server that accepts and then says nothing, or not enough, is given up after some seconds."""
            # The handshake of TLS reads by itself, with the time that the last packet was given, read or written.
            self._allow(seconds, seconds)
            self.login_until = time.monotonic() + seconds
            self.connect()
            self.login_until = None
            self._allow(read_timeout, None)

        def _allow(self, reading: float | None, writing: float | None) -> None:
            own: Any = self
            own._read_timeout, own._write_timeout = reading, writing  # noqa: SLF001 (its own)
            own._current_timeout = -1.0  # noqa: SLF001 (one that no socket has: it is set at the next packet)

        def _create_ssl_ctx(self, given: Any) -> Any:
            return given or _unverified()

    return Prompt


class Connection:
    """An open connection; the caller closes it.

    Args:
        read_timeout: seconds without a byte after which it counts as broken; None to wait for ever.

    Raises:
        EndpointError: the server is not reached, or refuses the user.
    """

    def __init__(self, server: Server, *, read_timeout: float | None = 300.0) -> None:
        import pymysql

        self.server = server
        began, patience = time.monotonic(), max(min(server.connect_timeout, time_left()), 1.0)
        with reaching(server):
            _require_not_silent(server)
            try:
                self.raw = _client()(
                    host=server.host,
                    port=server.port,
                    user=server.user,
                    password=server.password.encode(),  # a text would become Latin-1
                    charset="utf8mb4",
                    autocommit=True,
                    connect_timeout=int(patience),
                    init_command=_SESSION,
                    program_name="upsert-platform",
                    defer_connect=True,
                    **server.tls_arguments(),
                )
                self.raw.log_in(patience, read_timeout=read_timeout)
            except (pymysql.Error, OSError) as error:
                raise _not_reached(server, error, seconds=time.monotonic() - began) from error
        if server.tls not in (TlsMode.DISABLED, TlsMode.PREFERRED) and not self.raw._secure:  # noqa: SLF001
            self.close()  # a client's older version goes on without a word
            raise EndpointError(
                f"MySQL server {server} offers no TLS, and 'tls.mode' is '{server.tls}'; give the server a certificate"
            )
        try:
            # Rows that are never committed stand in no log that would take them back.
            self.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        except EndpointError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, broken or not."""
        if self.raw.open:
            self.raw.close()

    def query(self, sql: str, arguments: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of a small result.

        Raises:
            EndpointError: the server refuses the statement, or the connection broke.
        """
        import pymysql

        try:
            with self.raw.cursor() as cursor:
                cursor.execute(sql, arguments or None)
                return list(cursor.fetchall())
        except (pymysql.Error, OSError) as error:
            raise endpoint_error(self.server, error) from error

    def variable(self, name: str) -> str | None:
        """A global variable of the server, as text; None where it has none of that name."""
        rows = self.query("SHOW GLOBAL VARIABLES LIKE %s", (name.replace("_", r"\_"),))
        return str(rows[0][1]) if rows else None

    def version(self) -> tuple[int, ...]:
        """Numbers of the server's version."""
        told = str(self.query("SELECT VERSION()")[0][0])
        found = re.match(r"\d+(\.\d+)*", told)
        return tuple(int(part) for part in found[0].split(".")) if found else ()

    def is_mariadb(self) -> bool:
        """Return whether the server is MariaDB, whose log has events of its own."""
        return "mariadb" in str(self.query("SELECT VERSION()")[0][0]).lower()


_silent: Final[dict[Server, tuple[float, str]]] = {}
"""Servers that did not answer in time: until when they are not tried again, of `time.monotonic`, and what was told."""


def _require_not_silent(server: Server) -> None:
    """Fails at once where the server was waited for in vain a moment ago, on behalf of another table, say."""
    until, told = _silent.get(server, (0.0, ""))
    if time.monotonic() < until:
        raise EndpointError(told)


def _not_reached(server: Server, error: Exception, *, seconds: float) -> EndpointError:
    """The error of a login; a server that used up the time for it is left alone for as long again."""
    if seconds < server.connect_timeout:
        return endpoint_error(server, error)
    told = (
        f"MySQL server {server} did not complete a login within {server.connect_timeout:g} s ('connect.timeout'), and"
        f" is tried again in {server.connect_timeout:g} s; look whether it, or what stands before it, hangs:"
        f" {endpoint_error(server, error)}"
    )
    _silent[server] = (time.monotonic() + server.connect_timeout, told)
    return EndpointError(told)


def endpoint_error(server: Server, error: Exception) -> EndpointError:
    """A client's error in the platform's words, without the password."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else None
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    told = f"MySQL server {server}, user '{server.user}': {hide(text, [server.password])}"
    if number in _DENIED:
        told += (
            "; the user needs GRANT SELECT ON the tables, and REPLICATION SLAVE, REPLICATION CLIENT ON *.* (MariaDB:"
            " BINLOG MONITOR too), and its password has to be right"
        )
    return EndpointError(told)


def require_row_log(connection: Connection) -> None:
    """Stops where a server does not log rows whole.

    Raises:
        ReplicationError: names every setting that is in the way, and its remedy.
    """
    found = []
    for name, (good, remedy) in _SETTINGS.items():
        value = connection.variable(name)
        if value is not None and value.upper() not in good:
            found.append(f"'{name}' is '{value}': {remedy}")
    if found:
        raise ReplicationError(f"MySQL server {connection.server} does not log rows whole: {'; '.join(found)}")
