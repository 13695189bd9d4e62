"""Signatures, discovery, life cycle of the process (spec 3.1 to 3.3)."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import requests
from odps.errors import NoSuchProject, NoSuchTable, ODPSError, RequestTimeTooSkewed, SignatureNotMatch, Unauthorized
from odps.rest import RestClient

from upsert_platform_tests.local.maxcompute.server import ServerHandle, maxcompute_server


def test_healthz(server: ServerHandle) -> None:
    with urllib.request.urlopen(f"{server.endpoint}/healthz", timeout=10) as response:
        assert (response.status, response.read()) == (200, b"ok")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        pytest.param({"secret_access_key": "wrong"}, SignatureNotMatch, id="wrong-key"),
        pytest.param({"access_id": "somebody"}, Unauthorized, id="wrong-id"),
        pytest.param({"secret_access_key": "wrong", "region_name": "cn-x"}, SignatureNotMatch, id="wrong-key-v4"),
        pytest.param({"project": "another"}, NoSuchProject, id="another-project"),
    ],
)
def test_credentials(server: ServerHandle, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        server.odps(**options).get_table("t").reload()
    assert "test_key" not in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"region_name": "cn-x"}], ids=["v2", "v4"])
def test_signatures_over_odd_characters(server: ServerHandle, options: dict[str, Any], name: str) -> None:
    odps = server.odps(**options)
    table = odps.create_table(name, ("k bigint", "p string"))
    spec = "p='中 文/+%&#x'"
    table.create_partition(spec)
    assert table.exist_partition(spec)
    assert [partition.partition_spec["p"] for partition in table.partitions] == ["中 文/+%&#x"]


def test_requests_without_signature_are_refused(server: ServerHandle) -> None:
    response = requests.get(f"{server.endpoint}/projects/{server.project}", timeout=10)
    assert response.status_code == 401
    assert b"ODPS-0410031" in response.content


def test_a_clock_that_is_off(server: ServerHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odps.utils.formatdate", lambda **_: "Wed, 01 Jan 2020 00:00:00 GMT")
    with pytest.raises(RequestTimeTooSkewed):
        server.odps().get_table("t").reload()


def test_the_endpoint_may_end_in_api(server: ServerHandle) -> None:
    client = RestClient(server.odps().account, f"{server.endpoint}/api", server.project)
    assert client.get(f"{server.endpoint}/api/projects/{server.project}").status_code == 200


def test_discovery_names_this_server(server: ServerHandle) -> None:
    odps = server.odps()
    response = odps.rest.get(f"{server.endpoint}/projects/{server.project}/tunnel", action="service")
    assert response.text == f"127.0.0.1:{server.port}"


def test_metrics_count_requests_and_name_no_secret(server: ServerHandle) -> None:
    with pytest.raises(NoSuchTable):
        server.odps().get_table("no_such_table").reload()
    with urllib.request.urlopen(f"{server.endpoint}/metrics", timeout=10) as response:
        text = response.read().decode()
    assert 'maxcompute_requests_total{operation="table.get",status="404"}' in text
    assert "maxcompute_tables " in text
    assert "test_key" not in text + str(server.journal())


def test_it_stops_on_sigterm_and_keeps_its_tables(tmp_path: Path) -> None:
    with maxcompute_server(tmp_path) as handle:
        handle.odps().execute_sql("create table t as select 1 as a")
        assert handle.stop() == 0
        handle.start()
        with handle.odps().execute_sql("select * from t").open_reader(tunnel=True) as reader:
            assert [record.values for record in reader] == [[1]]


@pytest.mark.parametrize(
    ("environment", "arguments", "reason"),
    [
        pytest.param({}, [], "UPSERT_MAXCOMPUTE_ACCESS_KEY must be set", id="no-secret"),
        pytest.param(
            {"UPSERT_MAXCOMPUTE_ACCESS_KEY": "s"}, ["--fault", "{}"], "needs an operation", id="malformed-fault"
        ),
    ],
)
def test_it_does_not_start(tmp_path: Path, environment: dict[str, str], arguments: list[str], reason: str) -> None:
    command = [sys.executable, "-m", "upsert_platform.local.maxcompute", "--data", str(tmp_path)]
    done = subprocess.run(
        [*command, "--project", "p", "--access-id", "a", *arguments],
        env={"PYTHONPATH": ":".join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert reason in done.stderr


def test_answers_hold_what_the_java_sdk_reads(server: ServerHandle, name: str) -> None:
    odps = server.odps()
    odps.create_table(name, "k bigint")
    table = ElementTree.fromstring(odps.rest.get(f"{server.endpoint}/projects/{server.project}/tables/{name}").content)
    assert (table.findtext("Project"), table.findtext("SchemaName")) == (server.project, "default")
    instance = odps.run_sql("select 1")
    resource = f"{server.endpoint}/projects/{server.project}/instances/{instance.id}"
    assert "x-odps-end-time" in odps.rest.get(resource).headers


def test_the_secret_is_not_in_the_process_arguments(server: ServerHandle) -> None:
    assert server.process is not None
    command = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
    assert b"test_key" not in command


def test_control_pages_do_not_exist_elsewhere(server: ServerHandle) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        server.control("/control/nonsense")
    assert caught.value.code == 404


def test_what_a_project_takes_up(server: ServerHandle, odps: Any, name: str) -> None:
    before = int(odps.get_project().extended_properties["usedQuotaPhysicalSize"])
    odps.execute_sql(f"create table {name} as select range as k from range(10000)")
    project = server.odps().get_project()
    assert int(project.extended_properties["usedQuotaPhysicalSize"]) >= before + 80_000
    assert project.get_property("usedQuotaSize") == project.extended_properties["usedQuotaPhysicalSize"]


def test_the_progress_of_an_instance(odps: Any, name: str) -> None:
    odps.execute_sql(f"create table {name} (k bigint)")
    instance = odps.execute_sql(f"insert into {name} values (1), (2)")
    (stage,) = instance.get_task_progress().stages
    assert (stage.total_workers, stage.terminated_workers, stage.running_workers) == (1, 1, 0)
    assert (stage.output_records, stage.finished_percentage) == (2, 100)
    assert "[100%]" in instance.get_task_progress().get_stage_progress_formatted_string()


def test_a_table_and_a_partition_are_touched(odps: Any, name: str) -> None:
    table = odps.create_table(name, ("k bigint", "ds string"))
    partition = table.create_partition("ds='1'")
    modified = table.last_data_modified_time, partition.last_data_modified_time
    time.sleep(1.1)
    table.touch("ds='1'")
    table.reload()
    partition.reload()
    assert table.last_data_modified_time > modified[0]
    assert partition.last_data_modified_time > modified[1]
    assert table.schema_version in (None, "0", 0)
    with pytest.raises(ODPSError):
        table.touch("ds='9'")


def test_what_this_server_has_none_of_is_an_empty_list(odps: Any) -> None:
    assert [list(odps.list_resources()), list(odps.list_functions()), list(odps.list_volumes())] == [[], [], []]
    assert not odps.exist_resource("a.py")
    assert not odps.exist_function("f")
    assert not odps.exist_volume("v")


def test_schemas_are_told_apart(odps: Any, name: str) -> None:
    odps.create_schema(name)
    assert (odps.exist_schema(name), odps.exist_schema(f"{name}_other")) == (True, False)
    assert odps.get_schema(name).owner == "ALIYUN$test_id"
    odps.delete_schema(name)
    assert not odps.exist_schema(name)


def test_nothing_waits_for_a_quota(odps: Any) -> None:
    instance = odps.execute_sql("select 1")
    assert (instance.get_task_quota(), list(odps.list_instance_queueing_infos())) == ({}, [])
