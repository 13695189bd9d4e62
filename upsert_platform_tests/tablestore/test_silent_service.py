"""A service that accepts requests and stays silent, and answers that are not the service's, hold nobody for long."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from pydantic import SecretStr

from upsert_platform.core.destination import BatchSpan
from upsert_platform.core.errors import EndpointError, LeaseHeldError
from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.control import ControlTable
from upsert_platform.tablestore.failures import ClockError, ServiceError
from upsert_platform.tablestore.transport import Endpoint, Transport
from upsert_platform.tablestore.writer import writing_task
from upsert_platform.writing.lease import RenewedLease
from upsert_platform_tests.local.tablestore.server import ServerHandle, tablestore_server
from upsert_platform_tests.tablestore.declared import change_batch, table_on
from upsert_platform_tests.tablestore.writing import COLUMNS, prepared, rows_of

SECONDS = 3.0
"""Of the lease. Its margin is a third; requests may take longer than all of it."""


@contextmanager
def frozen(server: ServerHandle) -> Iterator[None]:
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


def test_a_write_into_a_silent_service_ends_with_its_lease(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tablestore_server(tmp_path) as server:
        options = {"retry.deadline": "3 min", "request.timeout": "30 s"}
        table = prepared(table_on(server, COLUMNS, ["id"], options))
        client = Client.of(table.settings)
        control = ControlTable(client, table.settings, table.table_name)
        lease = RenewedLease(control, "table 'users'", owner="me", duration=timedelta(seconds=SECONDS))
        silence = frozen(server)
        ended: list[float] = []

        def batches() -> Iterator[pa.RecordBatch]:
            yield change_batch(table, rows_of(100))
            silence.__enter__()
            ended.append(time.monotonic())
            yield change_batch(table, rows_of(400))

        try:
            with lease:
                with pytest.raises(LeaseHeldError, match=r"table 'users': the lease of this write ends at"):
                    list(writing_task(table, terms=lease.terms)(batches()))
                task_seconds = time.monotonic() - ended[0]
                with pytest.raises((LeaseHeldError, EndpointError)):
                    control.record_applied(lease, BatchSpan(0, 1, "log", "run"), created=1)
            seconds = time.monotonic() - ended[0]
        finally:
            silence.__exit__(None, None, None)
        record = control.read()
        assert record is not None
        assert record.applied_batch == 0
        assert task_seconds < 2 * SECONDS
        assert seconds < 3 * SECONDS
        assert "trying again" in caplog.text
        client.close()


def test_one_thread_asks_for_the_lease_and_the_others_go_on(server: ServerHandle) -> None:
    """See `test_lease.py` for clocks; this is about threads."""
    from upsert_platform.writing.lease import LeaseGuard, Tenure, Terms

    asked, answer = threading.Event(), threading.Event()

    def read() -> Tenure:
        asked.set()
        answer.wait(10)
        return Tenure("7", time.time() + 30, "me")

    guard = LeaseGuard(Terms("table 'users'", "7", time.time() + 14, 30.0), read)
    asking = threading.Thread(target=guard.check)
    asking.start()
    assert asked.wait(5)
    began = time.monotonic()
    guard.check()  # 14 s are left of 30, so 4 s before the margin
    assert time.monotonic() - began < 1
    answer.set()
    asking.join(5)
    guard.check()


@contextmanager
def answering(status: int, body: bytes = b"<html>log in</html>", **headers: str) -> Iterator[tuple[str, list[str]]]:
    """An HTTP server that answers everything alike; yields its address, and the paths that were asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            paths.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            return None

    httpd = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_address[1]}", paths
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


def _client(address: str) -> Client:
    endpoint = Endpoint(address, "shop", SecretStr("id"), SecretStr("secret"))
    return Client(endpoint, timeout=timedelta(seconds=5), retry_deadline=timedelta(minutes=5))


@pytest.mark.parametrize("status", [301, 401, 403, 404, 407])
def test_an_unsigned_refusal_is_reported_at_once(status: int) -> None:
    with answering(status) as (address, paths):
        client = _client(address)
        with pytest.raises(ServiceError, match=rf"list_table: HTTP status {status}: .*'tablestore.endpoint'"):
            client.ask("list_table")
        client.close()
        assert len(paths) == 1


def test_an_unsigned_server_error_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upsert_platform.tablestore.client.ASK_SECONDS", 1.0)
    with answering(502) as (address, paths):
        client = _client(address)
        with pytest.raises(ServiceError, match=r"HTTP status 502"):
            client.ask("list_table")
        client.close()
        assert len(paths) > 1


def test_clocks_that_differ_are_reported_at_once(server: ServerHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = {
        "x_ots_contentmd5": "rL0Y20zC+Fzt72VPzMSk2A==",
        "x_ots_requestid": "1",
        "x_ots_date": "2001-01-01T00:00:00.000Z",
        "x_ots_contenttype": "protocol buffer",
        "authorization": "OTS id:x",
    }
    with answering(200, b"foo", **headers) as (address, paths):
        client = _client(address)
        with pytest.raises(ClockError, match=r"list_table: the clock of this machine differs .* set it"):
            client.ask("list_table")
        transport = Transport(client.endpoint, connections=1)
        with pytest.raises(ClockError, match=r"ListTable: the clock of this machine differs"):
            transport.call("ListTable", b"", timeout=5)
        transport.close()
        client.close()
        assert len(paths) == 2
