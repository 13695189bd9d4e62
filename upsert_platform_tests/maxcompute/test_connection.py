"""How a project is reached: schemas, quotas, tokens, retries, and errors that tell no secret (sections 3.1 to 3.5)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests

from upsert_platform.core.errors import DestinationError, EndpointError, hide
from upsert_platform.maxcompute.client import Client
from upsert_platform.maxcompute.connection import Connection, ServiceError, explain, guarded_rest, with_retries
from upsert_platform.maxcompute.control import ControlTable, destination_key
from upsert_platform.maxcompute.ddl import prepare_table
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform_tests.local.maxcompute.server import ServerHandle, maxcompute_server
from upsert_platform_tests.maxcompute.fault_proxy import Fault, fault_proxy
from upsert_platform_tests.maxcompute.frames import stored
from upsert_platform_tests.maxcompute.sending import batch, open_job, send

Make = Callable[..., MaxComputeTable]


def test_schemas_of_a_three_tier_project(tmp_path: Path, make_table: Make) -> None:
    with maxcompute_server(tmp_path, arguments=["--three-tier"]) as server:
        server.odps().create_schema("sales")
        plain = make_table(server=server, table_name="t", odps_namespace_schema="true", control_table="c")
        inside = make_table(server=server, table_name="sales.t", odps_namespace_schema="true", control_table="c")
        for number, table in enumerate((plain, inside)):
            job, storage, _ = open_job(table)
            send(job, [batch(table, [("U", (number, table.target.schema))])])
            storage.commit(job.session, [("0", 1)])
            with closing(Client(Connection.of(table.settings))) as client:
                control = ControlTable(
                    client, table.target.sibling("c"), key=destination_key(table.target, ""), label="x"
                )
                assert control.ensure().revision == 1
        hints = {"odps.namespace.schema": "true"}
        found = []
        for name in ("default.t", "sales.t"):
            instance = server.odps().execute_sql(f"SELECT * FROM {name}", hints=hints)
            with instance.open_reader(tunnel=False) as reader:
                found.append([tuple(map(str, record.values)) for record in reader])
        assert found == [[("0", "default")], [("1", "sales")]]


def test_the_tunnel_is_asked_for_unless_it_is_declared(client: Client, maxcompute: ServerHandle) -> None:
    assert client.tunnel_endpoint() == maxcompute.endpoint


def test_quota_and_token_travel_with_requests(make_table: Make, maxcompute: ServerHandle) -> None:
    table = make_table(odps_tunnel_quota_name="q1", odps_sts_token="a-token")
    connection = Connection.of(table.settings)
    assert connection.quota == "q1"
    maxcompute.control("/control/journal", method="DELETE")
    with closing(Client(connection)) as opened:
        opened.tunnel_endpoint()
    asked = [entry for entry in maxcompute.control("/control/journal") if entry["path"].endswith("/tunnel")]
    assert asked[-1]["query"]["quotaName"] == "q1"
    request = requests.Request("GET", f"{maxcompute.endpoint}/projects/p").prepare()
    connection.account().sign_request(request, maxcompute.endpoint)
    assert request.headers["authorization-sts-token"] == "a-token"


@pytest.mark.parametrize(("status", "fine"), [(200, True), (201, True), (202, False), (308, False), (404, False)])
def test_only_200_and_201_are_success(make_table: Make, status: int, fine: bool) -> None:
    rest = guarded_rest(Connection.of(make_table().settings), "http://127.0.0.1:9", tag="ODPS")
    answer = requests.Response()
    answer.status_code = status
    assert rest.is_ok(answer) is fine


def test_bytes_under_a_wrong_status_are_told(maxcompute: ServerHandle, make_table: Make) -> None:
    with fault_proxy(maxcompute) as proxy:
        table = make_table(upsert_writer_max__retries="1")
        proxy.faults.append(Fault(f"GET {table.target.table}", times=9, status=500, body=b"\xff\xff\xff\xff"))
        settings = table.settings.model_copy(update={"endpoint": proxy.endpoint})
        with closing(Client(Connection.of(settings))) as client:
            with pytest.raises(
                (DestinationError, EndpointError), match="status 500 with 4 bytes that are not an answer"
            ):
                client.table(table.target)
            proxy.faults.clear()
            assert client.table(table.target) is None


@pytest.mark.parametrize("body", [b"", b"<Table><Name>cut", b"<html><p>sign in</p></html>", b'{"half'])
def test_answers_of_success_that_cannot_be_read_are_told(
    maxcompute: ServerHandle, make_table: Make, body: bytes
) -> None:
    with fault_proxy(maxcompute) as proxy:
        settings = make_table(upsert_writer_max__retries="1").settings
        settings = settings.model_copy(update={"endpoint": proxy.endpoint})
        proxy.faults.append(Fault("GET tenants", times=99, status=200, body=body))
        with closing(Client(Connection.of(settings))) as client:
            with pytest.raises(EndpointError, match="cannot be read"):
                client.query("SELECT 1 AS one")
            proxy.faults.clear()
            assert client.query("SELECT 1 AS one") == [{"one": "1"}]


@pytest.mark.parametrize("body", [b"", b"<Table><Name>cut"])
def test_a_table_that_is_told_by_half_is_asked_for_again(
    maxcompute: ServerHandle, make_table: Make, body: bytes
) -> None:
    with fault_proxy(maxcompute) as proxy:
        table = make_table(upsert_writer_max__retries="1")
        settings = table.settings.model_copy(update={"endpoint": proxy.endpoint})
        proxy.faults.append(Fault(f"GET {table.target.table}", times=1, status=200, body=body))
        with closing(Client(Connection.of(settings))) as client:
            assert client.table(table.target) is None


def test_retries_end(make_table: Make) -> None:
    connection = Connection.of(make_table(upsert_writer_max__retries="2").settings)
    calls = []

    def fail() -> None:
        calls.append(1)
        raise ServiceError("busy", status=503, code="Busy", sure=False)

    with pytest.raises(ServiceError, match="busy"):
        with_retries(fail, connection)
    assert len(calls) == 3
    calls.clear()
    with pytest.raises(ServiceError):
        with_retries(fail, connection, only_sure=True)
    assert len(calls) == 1


def test_a_fault_of_ours_is_not_retried_nor_hidden(make_table: Make) -> None:
    calls = []

    def fail() -> None:
        calls.append(1)
        raise KeyError("ours")

    with pytest.raises(KeyError):
        with_retries(fail, Connection.of(make_table().settings))
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("status", "code", "expected", "words"),
    [
        (None, "", EndpointError, r"odps\.end\.point"),
        (401, "Unauthorized", EndpointError, r"odps\.access\.id"),
        (403, "NoPermission", EndpointError, r"odps\.access\.id"),
        (400, "InvalidStsToken", EndpointError, r"odps\.access\.id"),
        (400, "DataStoreError", DestinationError, "reading table"),
    ],
)
def test_failures_name_what_to_check_and_no_secret(
    make_table: Make, status: int | None, code: str, expected: type[Exception], words: str
) -> None:
    connection = Connection.of(make_table().settings)
    text = connection.hide("refused test_key of test_id")
    with pytest.raises(expected, match=words) as raised:
        explain(ServiceError(text, status=status, code=code, sure=True), connection, "reading table 't'")
    assert "refused *** of ***" in str(raised.value)


def test_an_access_id_that_is_a_word_takes_no_word_out_of_a_text() -> None:
    told = hide("the local server refuses sekret of LTAI5tEXAMPLE1", ["sekret"], ids=["local", "LTAI5tEXAMPLE1"])
    assert told == "the local server refuses *** of ***"


def test_statements_that_fail_keep_the_service_code(client: Client) -> None:
    with pytest.raises(ServiceError) as raised:
        client.run_sql("SELECT * FROM no_such_table")
    assert "no_such_table" in str(raised.value)


def test_results_have_nulls_and_any_text(client: Client) -> None:
    rows = client.query("SELECT CAST(NULL AS STRING) AS a, 'x,\"y\"\\nz' AS b, 7 AS c")
    assert rows == [{"a": None, "b": 'x,"y"\nz', "c": "7"}]


def test_large_results_are_read_in_splits(client: Client, make_table: Make, monkeypatch: Any) -> None:
    monkeypatch.setattr("upsert_platform.maxcompute.client._SPLIT_ROWS", 40)
    table = make_table()
    prepare_table(client, table)
    values = ", ".join(f"({number}, 'n{number}')" for number in range(100))
    client.run_sql(f"INSERT INTO {table.target.sql} VALUES {values}")
    result = client.open_query(f"SELECT id FROM {table.target.sql}")
    assert (result.rows, result.splits) == (100, 3)
    found = [
        row for split in range(3) for part in client.read_query(result, split) for row in part.column(0).to_pylist()
    ]
    assert sorted(found) == list(range(100))


def test_the_drivers_modules_load_without_spark_and_sdk() -> None:
    code = (
        "import sys, upsert_platform.maxcompute.destination, upsert_platform.maxcompute.table;"
        "print([m for m in ('pyspark', 'odps', 'pyarrow', 'numpy', 'dagster') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_rows_of_another_table_are_not_seen(maxcompute: ServerHandle, make_table: Make) -> None:
    one, other = make_table(), make_table()
    for number, table in enumerate((one, other)):
        job, storage, _ = open_job(table)
        send(job, [batch(table, [("U", (number, "x"))])])
        storage.commit(job.session, [("0", 1)])
    assert stored(maxcompute, one) == [(0, "x")]


def test_a_page_in_place_of_the_tunnels_address_is_refused(maxcompute: ServerHandle, make_table: Make) -> None:
    with fault_proxy(maxcompute) as proxy:
        proxy.faults.append(Fault("GET tunnel", status=200, body=b"<html>sign in</html>"))
        settings = make_table().settings.model_copy(update={"endpoint": proxy.endpoint})
        with closing(Client(Connection.of(settings))) as client:
            with pytest.raises(EndpointError, match=r"'<html>sign in</html>' is not a host"):
                client.tunnel_endpoint()
            assert client.tunnel_endpoint() == proxy.endpoint


def test_a_page_of_404_is_not_a_missing_table(maxcompute: ServerHandle, make_table: Make) -> None:
    with fault_proxy(maxcompute) as proxy:
        table = make_table()
        proxy.faults.append(Fault(f"GET {table.target.table}", times=9, status=404, body=b"<html>not here</html>"))
        settings = table.settings.model_copy(update={"endpoint": proxy.endpoint})
        with closing(Client(Connection.of(settings))) as client:
            with pytest.raises(DestinationError, match="reading table"):
                client.table(table.target)
            proxy.faults.clear()
            assert client.table(table.target) is None


def test_the_sdk_is_loaded_without_reading_the_source_of_its_callers() -> None:
    """In a process of its own, which has not loaded it; two thousand modules are gone through for each frame else."""
    script = """
import inspect, sys
stack, found = inspect.stack, []
read = inspect.findsource
inspect.findsource = lambda item: found.append(item) or read(item)
from upsert_platform.maxcompute.sdk import load_sdk
assert "odps" not in sys.modules
load_sdk()
assert "odps.models" in sys.modules and inspect.stack is stack
print(len([item for item in found if inspect.isframe(item)]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
