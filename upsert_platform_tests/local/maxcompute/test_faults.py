"""Faults on demand, and what an unmodified PyODPS makes of them (spec 0, 3.7, 3.12, 4.5)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import requests
from odps.errors import BadGatewayError, ODPSError
from odps.maxstorage import MaxStorageClient
from odps.tunnel import TableTunnel

from upsert_platform_tests.local.maxcompute.server import ServerHandle, maxcompute_server

Rows = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture(autouse=True)
def no_faults_left(server: ServerHandle) -> Iterator[None]:
    yield
    server.faults()


@pytest.fixture
def session(odps: Any, name: str) -> Any:
    odps.create_table(
        name,
        "k bigint not null, v string",
        transactional=True,
        primary_key="k",
        table_properties={"write.bucket.num": "1"},
    )
    return TableTunnel(odps).create_upsert_session(name)


def upsert(session: Any, *keys: int) -> None:
    with session.open_upsert_stream() as stream:
        for key in keys:
            stream.upsert(session.new_record([key, "v"]))


def test_308_without_location_loses_rows_in_the_client(
    server: ServerHandle, session: Any, name: str, rows: Rows
) -> None:
    address = f"127.0.0.1:{server.port}"
    server.faults({"operation": "upsert.write", "action": "redirect", "server": address})
    upsert(session, 1)
    upsert(session, 2)
    session.commit()
    assert rows(f"select k from {name}") == [(2,)]
    assert [entry["status"] for entry in server.journal("upsert.write") if name in entry["path"]] == [308, 200]


def test_308_with_location_is_followed(server: ServerHandle, session: Any, name: str, rows: Rows) -> None:
    server.faults({"operation": "upsert.write", "action": "redirect", "location": True})
    upsert(session, 1)
    session.commit()
    assert rows(f"select k from {name}") == [(1,)]


def test_308_on_a_storage_commit_passes_for_success(server: ServerHandle, odps: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, "k bigint")
    written = MaxStorageClient(odps).create_table_write_session(name)
    writer = written.open_arrow_writer("0")
    writer.write_batch(pa.table({"k": [1]}))
    writer.close()
    server.faults({"operation": "maxstorage.TableCommitWriteSession", "action": "redirect"})
    written.commit()
    assert rows(f"select * from {name}") == []


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param({"action": "answer", "status": 429, "code": "FlowExceeded"}, id="429"),
        pytest.param({"action": "answer", "status": 503, "code": "ServiceUnavailable"}, id="503"),
        pytest.param({"action": "answer", "status": 502, "code": "html"}, id="502-page"),
        pytest.param({"action": "drop"}, id="connection-dropped-before"),
        pytest.param({"action": "drop-after"}, id="connection-dropped-after"),
    ],
)
def test_a_write_that_goes_wrong_once_is_repeated(
    server: ServerHandle, session: Any, name: str, rows: Rows, rule: dict[str, Any]
) -> None:
    server.faults({"operation": "upsert.write", **rule})
    upsert(session, 1, 2)
    session.commit()
    assert rows(f"select k from {name}") == [(1,), (2,)]
    statuses = [entry["status"] for entry in server.journal("upsert.write") if name in entry["path"]]
    assert statuses == [rule.get("status", 0), 200]


@pytest.mark.parametrize(
    ("status", "code"),
    [pytest.param(500, "InternalServerError", id="500"), pytest.param(404, "UpsertSessionNotFound", id="404")],
)
def test_a_commit_that_succeeds_and_says_otherwise(
    server: ServerHandle, session: Any, name: str, rows: Rows, status: int, code: str
) -> None:
    upsert(session, 1)
    server.faults({"operation": "upsert.commit", "action": "answer-after", "status": status, "code": code})
    if status == 404:
        with pytest.raises(ODPSError):
            session.commit()
    else:
        session.commit()
    assert rows(f"select k from {name}") == [(1,)]
    session.reload()
    assert session.status.value == "COMMITTED"


def test_an_expired_session(server: ServerHandle, session: Any, name: str, rows: Rows) -> None:
    upsert(session, 1)
    server.faults({"operation": "upsert.commit", "action": "expire"})
    with pytest.raises(ODPSError) as caught:
        session.commit()
    assert caught.value.code == "SessionExpired"
    assert rows(f"select * from {name}") == []


def test_a_table_that_was_modified(server: ServerHandle, session: Any, name: str, rows: Rows) -> None:
    upsert(session, 1)
    server.faults({"operation": "upsert.*", "action": "answer", "status": 409, "code": "TableModified", "table": name})
    with pytest.raises(ODPSError) as caught:
        session.commit()
    assert caught.value.code == "TableModified"
    assert rows(f"select * from {name}") == []


def test_rules_are_counted(server: ServerHandle, odps: Any, name: str) -> None:
    odps.create_table(name, "k bigint")
    server.faults(
        {"operation": "table.get", "table": name, "action": "answer", "status": 403, "code": "NoPermission", "skip": 1},
        {"operation": "table.get", "table": name, "action": "delay", "seconds": 0.2},
    )
    table = odps.get_table(name)
    started = time.perf_counter()
    table.reload()
    assert time.perf_counter() - started > 0.2
    with pytest.raises(ODPSError) as caught:
        table.reload()
    assert caught.value.code == "NoPermission"
    table.reload()
    assert [rule["hits"] for rule in server.control("/control/faults")] == [1, 1]


def test_a_gateway_page_over_rest(server: ServerHandle, odps: Any, name: str) -> None:
    odps.create_table(name, "k bigint")
    rule = {"operation": "table.get", "table": name, "action": "answer", "status": 502, "code": "html", "times": -1}
    server.faults(rule)
    with pytest.raises(BadGatewayError):
        odps.get_table(name).reload()


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        pytest.param({"operation": "x"}, "action", id="no-action"),
        pytest.param({"operation": "x", "action": "explode"}, "action", id="unknown-action"),
        pytest.param({"operation": "x", "action": "drop", "time": 3}, "no field time", id="unknown-field"),
    ],
)
def test_malformed_rules_are_refused(server: ServerHandle, rule: dict[str, Any], reason: str) -> None:
    response = requests.post(f"{server.endpoint}/control/faults", json=[rule], timeout=10)
    assert response.status_code == 400
    assert reason in response.text


def test_faults_from_the_command_line(tmp_path: Path) -> None:
    rule = {"operation": "table.get", "action": "answer", "status": 403, "code": "NoPermission"}
    with maxcompute_server(tmp_path, faults=[rule]) as handle, pytest.raises(ODPSError) as caught:
        handle.odps().get_table("t").reload()
    assert caught.value.code == "NoPermission"


def test_a_server_that_drops_takes_writes_and_keeps_none(tmp_path: Path) -> None:
    with maxcompute_server(tmp_path, drop=True) as handle:
        odps = handle.odps()
        odps.create_table("t", "k bigint not null, v string", transactional=True, primary_key="k")
        session = TableTunnel(odps).create_upsert_session("t")
        upsert(session, 1, 2, 3)
        session.commit()
        written = MaxStorageClient(odps).create_table_write_session("t")
        writer = written.open_arrow_writer("0")
        rows = pa.table({"k": np.arange(1000), "__operation": np.full(1000, 85, np.int8)})
        writer.write_batch(rows)
        writer.close()
        written.commit(["0"], [1])
        with odps.execute_sql("select count(*) from t").open_reader(tunnel=True) as reader:
            assert [record.values for record in reader] == [[0]]


def test_rows_in_another_bucket_are_counted_and_refused_by_a_strict_server(tmp_path: Path) -> None:
    with maxcompute_server(tmp_path, arguments=["--strict-buckets"]) as handle:
        odps = handle.odps()
        columns = "k decimal(10,0) not null, v string"
        odps.create_table("t", columns, transactional=True, primary_key="k")
        session = TableTunnel(odps).create_upsert_session("t")
        with pytest.raises(ODPSError) as caught:
            upsert(session, *range(1, 9))
        assert caught.value.code == "InvalidBucket"
