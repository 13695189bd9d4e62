"""What may stand between a writer and PostgreSQL: TLS, PgBouncer, a network that fails, a server that is killed."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg
import pyarrow as pa
import pytest

from upsert_platform.core.destination import BatchSpan
from upsert_platform.core.errors import EndpointError, LeaseHeldError, UpsertPlatformError
from upsert_platform.local import supervisor
from upsert_platform.local.postgres import answers_postgres, postgres_server
from upsert_platform.local.process import Server, free_port, start, stop
from upsert_platform.postgres.client import Session
from upsert_platform.postgres.destination import PostgresDestination
from upsert_platform.postgres.table import PostgresTable
from upsert_platform_tests.postgres.declared import changes, found_rows, table_on, write
from upsert_platform_tests.secure_kafka import Certificates, make_certificates
from upsert_platform_tests.systems.faults.of_servers import Proxy
from upsert_platform_tests.systems.postgres import postgres
from upsert_platform_tests.task_rows import task_rows

pytestmark = [pytest.mark.systems, pytest.mark.timeout(300)]
COLUMNS = {"id": "BIGINT", "name": "STRING"}
PGBOUNCER = "/usr/sbin/pgbouncer"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("postgres-tls") / "certificates")


@pytest.fixture(scope="module")
def server(certificates: Certificates) -> Iterator[str]:
    """A server with TLS, whose certificate is for 127.0.0.1 and localhost."""
    files = {
        "ssl_cert_file": Path(certificates.path("broker.pem")),
        "ssl_key_file": Path(certificates.path("broker.key")),
    }
    with postgres({"ssl": "on", "listen_addresses": "127.0.0.1,127.0.0.2"}, files) as url:
        yield url


def _through(server: str, port: int | None = None, host: str = "127.0.0.1", query: str = "") -> str:
    parts = urlsplit(server)
    return f"postgresql://{parts.username}:{parts.password}@{host}:{port or parts.port}{parts.path}{query}"


def _table(server: str, *, name: str = "", query: str = "", **options: str) -> PostgresTable:
    parts = urlsplit(server)
    url = f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}{query}"
    return table_on(server, COLUMNS, name=name, **{"url": url, **options})


def _rows(server: str, table: PostgresTable) -> list[tuple[object, ...]]:
    with psycopg.connect(server, autocommit=True) as connection:
        return connection.execute(f"SELECT * FROM {table.place.sql} ORDER BY id".encode()).fetchall()


@pytest.mark.parametrize(
    ("mode", "host", "authority", "accepted"),
    [
        ("require", "127.0.0.1", None, True),
        ("verify-ca", "127.0.0.2", "ca.pem", True),
        ("verify-full", "127.0.0.1", "ca.pem", True),
        ("verify-full", "localhost", "ca.pem", True),
        ("verify-full", "127.0.0.2", "ca.pem", False),
        ("verify-ca", "127.0.0.1", "stranger-ca.pem", False),
        ("verify-full", "127.0.0.1", "stranger-ca.pem", False),
    ],
)
def test_tls_modes_are_those_of_libpq(
    mode: str, host: str, authority: str | None, accepted: bool, server: str, certificates: Certificates
) -> None:
    query = f"?sslmode={mode}" + (f"&sslrootcert={certificates.path(authority)}" if authority else "")
    table = _table(_through(server, host=host), query=query)
    if not accepted:
        with pytest.raises(EndpointError, match="certificate"):
            write(table, changes(COLUMNS, (1, "a", "U")))
        return
    assert write(table, changes(COLUMNS, (1, "a", "U"))).upserts == 1
    session = Session(table.settings)
    (row,) = session.rows("SELECT ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    session.close()
    assert row[0] is True
    assert row[1].startswith("TLSv1.")


@pytest.fixture
def pooled(server: str, tmp_path: Path) -> Iterator[str]:
    """PgBouncer in transaction mode with two sessions of the server; gives the URL through it."""
    parts, port, folder = urlsplit(server), free_port(), Path(f"/tmp/pgbouncer-{free_port()}")
    folder.mkdir()
    users, settings = folder / "users.txt", folder / "pgbouncer.ini"
    users.write_text(f'"{parts.username}" "{parts.password}"\n')
    settings.write_text(
        f"[databases]\npostgres = host=127.0.0.1 port={parts.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nauth_type = scram-sha-256\nauth_file = {users}\npool_mode = transaction\n"
        "default_pool_size = 2\nunix_socket_dir =\nadmin_users = dagster\n"
    )
    account = "postgres" if os.geteuid() == 0 else None
    for path in (folder, users, settings):
        if account is not None:
            shutil.chown(path, account)
    command = (PGBOUNCER, str(settings))
    process = Server("PgBouncer", command, folder, port, lambda: answers_postgres(port), account=account)
    start(process)
    try:
        yield _through(server, port)
    finally:
        stop(process)
        shutil.rmtree(folder)


def test_pgbouncer_in_transaction_mode(pooled: str, server: str) -> None:
    """More writers than sessions, each with a lease of its own: rows, deletes, and rows read back by key."""
    failures: list[BaseException] = []

    def follow(table: PostgresTable) -> None:
        try:
            for batch in range(1, 5):
                rows = [(number, f"n{batch}", "U") for number in range(batch * 10, batch * 10 + 300)]
                write(table, changes(COLUMNS, *rows, (batch * 10 - 1, None, "D")), batch)
        except BaseException as error:  # noqa: BLE001 (the main thread raises it)
            failures.append(error)

    tables = [_table(pooled, **{"sink.buffer-flush.max-rows": "100"}) for _ in range(4)]
    threads = [threading.Thread(target=follow, args=(table,)) for table in tables]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    expected = [(number, f"n{min(4, number // 10)}") for number in range(10, 340) if number not in (19, 29, 39)]
    for table in tables:
        assert _rows(server, table) == expected
    wanted = changes(COLUMNS, *[(number, None, "U") for number in range(25, 35)]).select(["id"])
    found = [tuple(row.values()) for row in found_rows(tables[0], wanted).to_pylist()]
    assert found == [row for row in expected if 25 <= int(str(row[0])) < 35]
    with psycopg.connect(_through(pooled).rpartition("/")[0] + "/pgbouncer", autocommit=True) as console:
        pools = [row for row in console.execute(b"SHOW POOLS").fetchall() if row[0] == "postgres"]
    assert "transaction" in pools[0]


@pytest.mark.parametrize("how", ["silent", "resetting", "truncating", "slow"])
def test_a_network_that_fails_leaves_whole_batches(how: str, server: str) -> None:
    direct = _table(server)
    write(direct, changes(COLUMNS, (1, "first", "U"), (2, "first", "U")))
    parts = urlsplit(server)
    proxy = Proxy((str(parts.hostname), int(parts.port or 0)), how=how)
    patience = {"connection.max-retry-timeout": "3 s"}
    disturbed = _table(_through(server, proxy.port), name=direct.name, **patience)
    second = changes(COLUMNS, (2, "second", "U"), (3, "second", "U"), (1, None, "D"))
    try:
        if how == "slow":
            assert write(disturbed, second, 2).upserts == 2
        else:
            with pytest.raises(EndpointError):
                write(disturbed, second, 2)
            assert _rows(server, direct) == [(1, "first"), (2, "first")]
        assert proxy.met > 0
    finally:
        proxy.close()
    write(direct, second, 2)
    assert _rows(server, direct) == [(2, "second"), (3, "second")]


def test_a_server_that_is_killed_holds_whole_batches_when_it_is_back(tmp_path: Path) -> None:
    """Staged tables are unlogged: the server empties them, and the next writer drops them."""
    folder = Path(f"/tmp/postgres-killed-{free_port()}")
    # As a program leaves it that was killed while it filled the directory.
    (folder / "filling").mkdir(parents=True)
    (folder / "filling" / "PG_VERSION").write_text("15\n")
    made = postgres_server(folder, port=free_port(), password="of-a-test", user="dagster", settings={"fsync": "on"})
    url = f"postgresql://dagster:of-a-test@127.0.0.1:{made.port}/postgres"
    start(made)
    try:
        table = _table(url)
        written = 0
        for turn in range(1, 4):
            timer = threading.Timer(0.4 * turn, lambda: _kill(made))
            timer.start()
            with pytest.raises(UpsertPlatformError):
                while True:
                    batch = written + 1
                    rows = [(number, f"n{batch}", "U") for number in range(2000)]
                    _written(table, changes(COLUMNS, *rows), batch)
                    written = batch
            timer.join()
            start(made)
            names = {name for _, name in _rows(url, table)} if written else {"n0"}
            assert len(names) == 1
            written = int(str(names.pop())[1:])  # an answer may be lost behind its commit
        assert written > 0
        _written(table, changes(COLUMNS, (1, "last", "U")), written + 1)
        with psycopg.connect(url) as connection:
            left = connection.execute(b"SELECT count(*) FROM pg_class WHERE relname LIKE '\\_upsert\\_%'").fetchone()
        assert left == (0,)
    finally:
        stop(made, timeout=5)
        shutil.rmtree(folder)


def _written(table: PostgresTable, rows: pa.Table, batch: int) -> None:
    """Writes under a lease of two seconds, once that of a writer that died is over."""
    with closing(PostgresDestination(table)) as destination:
        destination.prepare()
        while True:
            try:
                with destination.lease(owner=f"batch-{batch}", duration=timedelta(seconds=2)) as lease:
                    span = BatchSpan(batch - 1, batch, "changelog", "run")
                    destination.write(task_rows(rows), span=span, lease=lease)
                    return
            except LeaseHeldError as error:
                if "is being written by" not in str(error):
                    raise
                time.sleep(0.2)


def _kill(server: Server) -> None:
    process = psutil.Process(int(json.loads(server.pid_file.read_text("utf-8"))["pid"]))
    sessions = process.children(recursive=True)
    process.kill()
    process.wait(30)
    psutil.wait_procs(sessions, timeout=30)  # they end by themselves; until then the server does not start


def test_local_up_brings_up_a_server_with_a_user_of_its_own() -> None:
    folder = Path(f"/tmp/postgres-local-{free_port()}")
    folder.mkdir()
    folder.chmod(0o755)
    try:
        found = supervisor.up(folder, only=("postgres",))
        address = {"url": found["UPSERT_POSTGRES_URL"], "username": found["UPSERT_POSTGRES_USER"]}
        options = {**address, "password": found["UPSERT_POSTGRES_PASSWORD"]}
        table = table_on("postgresql://none:none@127.0.0.1:1/none", COLUMNS, **options)
        assert write(table, changes(COLUMNS, (1, "a", "U"))).upserts == 1
        supervisor.down(folder)
        assert supervisor.up(folder, only=("postgres",)) == found  # data and password stay
        assert write(table, changes(COLUMNS, (2, "b", "U")), 2).upserts == 1
    finally:
        supervisor.down(folder)
        shutil.rmtree(folder)
