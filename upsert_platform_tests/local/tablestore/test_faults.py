"""Injected faults as a client meets them, and rules that are refused."""

from __future__ import annotations

import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tablestore import BatchWriteRowRequest, Condition, OTSClientError, PutRowItem, Row, TableInBatchWriteRowItem
from tablestore.retry import NoDelayRetryPolicy
from urllib3.exceptions import HTTPError

from upsert_platform.local.tablestore.faults import Faults, read_fault
from upsert_platform_tests.local.tablestore.conftest import connect, create_table, error_of
from upsert_platform_tests.local.tablestore.server import ServerHandle, tablestore_server

KEY = [("k", "a")]
WRITE = Row(KEY, [("c", 1)])


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with tablestore_server(tmp_path_factory.mktemp("faulty")) as handle:
        create_table(connect(handle), "t", [("k", "STRING")])
        yield handle


@pytest.fixture
def handle(faulty: ServerHandle) -> Iterator[ServerHandle]:
    connect(faulty).delete_row("t", Row(KEY), Condition("IGNORE"))
    yield faulty
    faulty.faults()


def read(handle: ServerHandle) -> Any:
    return connect(handle).get_row("t", KEY, max_version=1)[1]


def test_a_whole_request_fails(handle: ServerHandle) -> None:
    handle.faults("error:code=OTSServerBusy,operation=PutRow,times=2")
    client = connect(handle)
    assert error_of(lambda: client.put_row("t", WRITE)) == (503, "OTSServerBusy")
    assert read(handle) is None
    connect(handle, retry_policy=NoDelayRetryPolicy()).put_row("t", WRITE)
    assert read(handle) is not None


def test_rows_of_a_batch_fail(handle: ServerHandle) -> None:
    handle.faults("row-error:code=OTSNotEnoughCapacityUnit,table=t,rows=3+7,times=2")
    request = BatchWriteRowRequest()
    items = [PutRowItem(Row([("k", f"{i}")], [("c", 1)]), Condition("IGNORE")) for i in range(10)]
    request.add(TableInBatchWriteRowItem("t", items))
    client = connect(handle)
    codes = [row.error_code for row in client.batch_write_row(request).table_of_put["t"]]
    assert codes == ["OTSNotEnoughCapacityUnit" if i in (3, 7) else None for i in range(10)]
    assert client.batch_write_row(request).is_all_succeed()


@pytest.mark.parametrize(("kind", "applied"), [("cut-before", False), ("cut-after", True)])
def test_a_connection_is_cut(handle: ServerHandle, kind: str, applied: bool) -> None:
    handle.faults(f"{kind}:operation=PutRow,times=1")
    with pytest.raises(HTTPError):
        connect(handle).put_row("t", WRITE)
    assert (read(handle) is not None) is applied


def test_bad_gateway(handle: ServerHandle) -> None:
    handle.faults("bad-gateway:operation=PutRow,times=1")
    with pytest.raises(OTSClientError) as raised:
        connect(handle).put_row("t", WRITE)
    assert raised.value.http_status == 502


def test_delay(handle: ServerHandle) -> None:
    handle.faults("delay:seconds=0.4,operation=GetRow,times=1")
    started = time.monotonic()
    read(handle)
    assert time.monotonic() - started >= 0.4


def test_a_new_table_is_not_ready(handle: ServerHandle) -> None:
    handle.faults("not-ready:seconds=1.2")
    client = connect(handle)
    create_table(client, "fresh", [("k", "STRING")])
    assert error_of(lambda: client.put_row("fresh", WRITE)) == (404, "OTSTableNotReady")
    assert client.describe_table("fresh").table_meta.table_name == "fresh"
    time.sleep(1.3)
    client.put_row("fresh", WRITE)
    client.delete_table("fresh")


def test_probability_follows_the_seed() -> None:
    def strikes(seed: int) -> list[bool]:
        faults = Faults(["error:probability=0.5"], seed=seed)
        return [bool(faults.strike("PutRow")) for _ in range(200)]

    assert strikes(1) == strikes(1)
    assert strikes(1) != strikes(2)
    assert 60 < sum(strikes(1)) < 140


def test_skip_lets_the_first_pass() -> None:
    faults = Faults(["error:skip=2,times=1"])
    assert [bool(faults.strike("x")) for _ in range(4)] == [False, False, True, False]


@pytest.mark.parametrize(
    "rule",
    ["boom", "error:code=OTSNothing", "error:probability=2", "error:wrong=1", "delay:seconds=0", "error:times=x"],
)
def test_refused_rules(handle: ServerHandle, rule: str) -> None:
    with pytest.raises(ValueError, match="fault '"):
        read_fault(rule)
    handle.faults("delay:seconds=0.01")
    with pytest.raises(urllib.error.HTTPError) as raised:
        handle.faults(rule)
    assert raised.value.code == 400
    assert handle.page("/faults").startswith("delay:seconds=0.01 ")


def test_drop_mode_and_faults_from_the_command(tmp_path: Path) -> None:
    with tablestore_server(tmp_path, drop=True, faults=["error:operation=ListTable"]) as dropping:
        client = connect(dropping)
        create_table(client, "t", [("k", "STRING")])
        request = BatchWriteRowRequest()
        request.add(TableInBatchWriteRowItem("t", [PutRowItem(WRITE, Condition("IGNORE"))]))
        assert client.batch_write_row(request).is_all_succeed()
        assert read(dropping) is None
        assert error_of(client.list_table) == (503, "OTSServerBusy")


def test_metrics_and_journal(handle: ServerHandle) -> None:
    connect(handle).put_row("t", WRITE)
    assert 'tablestore_requests_total{operation="PutRow",status="200",code=""}' in handle.page("/metrics")
    assert " PutRow 200 - " in handle.page("/journal").splitlines()[-1]
