"""`doctor` finds what is planted, fault by fault, and finds nothing where nothing is wrong."""

from __future__ import annotations

import json
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from upsert_platform.changelog.tables import TableLocation
from upsert_platform.cli.main import main
from upsert_platform.sync.checkups import lake, machine
from upsert_platform_tests.campaign import first_of
from upsert_platform_tests.local.maxcompute.server import ServerHandle as MaxCompute
from upsert_platform_tests.local.maxcompute.server import maxcompute_server
from upsert_platform_tests.local.tablestore.server import ServerHandle as Tablestore
from upsert_platform_tests.local.tablestore.server import tablestore_server
from upsert_platform_tests.secure_kafka import PASSWORDS, SecureBroker

PROJECT = """
CREATE TABLE users (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
  'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}', 'properties.security.protocol' = 'SASL_PLAINTEXT',
  'properties.sasl.mechanism' = 'PLAIN', 'properties.sasl.jaas.config' =
  'org.apache.kafka.common.security.plain.PlainLoginModule required username="bob" password="{password}";',
  'key.format' = 'json', 'value.format' = 'avro-confluent', 'value.avro-confluent.url' = '{registry}');
CREATE TABLE copies (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
  'topic' = '{copies}', 'properties.bootstrap.servers' = '{plain}', 'key.format' = 'json', 'value.format' = 'json',
  'auto.create' = 'false');
CREATE TABLE serving (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore',
  'tablestore.endpoint' = '{tablestore}', 'tablestore.instance.name' = '{instance}', 'auto.create' = '{create}',
  'tablestore.access.key.id' = 'test-id', 'tablestore.access.key.secret' = '{secret}');
CREATE TABLE history (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'maxcompute',
  'odps.end.point' = '{maxcompute}', 'odps.project.name' = '{project}', 'odps.access.id' = 'test_id',
  'odps.access.key' = '{key}', 'table.name' = 'history', 'sink.operation' = 'upsert', 'auto.create' = 'true');
INSERT INTO copies SELECT id, v FROM users;
INSERT INTO serving SELECT id, v FROM users;
INSERT INTO history SELECT id, v FROM users;
"""


@pytest.fixture(scope="module")
def tablestore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tablestore]:
    with tablestore_server(tmp_path_factory.mktemp("doctor")) as found:
        yield found


@pytest.fixture(scope="module")
def maxcompute(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MaxCompute]:
    with maxcompute_server(tmp_path_factory.mktemp("doctor")) as found:
        yield found


class _Registry(BaseHTTPRequestHandler):
    """Says that it has no such schema, as a registry does, at a time of its own."""

    disable_nagle_algorithm = True  # or every answer waits 40 ms for an acknowledgement
    ahead = 0.0

    def do_GET(self) -> None:
        body = b'{"error_code": 40403, "message": "Schema not found"}'
        self.send_response_only(404)
        self.send_header("Date", formatdate(time.time() + self.ahead, usegmt=True))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    monkeypatch.setattr(_Registry, "ahead", 0.0)
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def right(secure_broker: SecureBroker, tablestore: Tablestore, maxcompute: MaxCompute, registry: str) -> dict[str, str]:
    """A project in which nothing is wrong."""
    from confluent_kafka.admin import AclOperation, NewTopic, ResourceType

    mark = uuid.uuid4().hex[:8]
    names = [f"users-{mark}", f"copies-{mark}"]
    admin = secure_broker.admin()
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(30)
    secure_broker.grant("bob", AclOperation.READ, ResourceType.TOPIC, names[0])  # and so DESCRIBE
    return {
        "topic": names[0], "copies": names[1], "servers": secure_broker.address("SASL"),
        "plain": secure_broker.address("PLAINTEXT"), "password": PASSWORDS["bob"], "registry": registry,
        "tablestore": tablestore.endpoint, "instance": tablestore.instance, "secret": tablestore.access_key_secret,
        "create": "true", "maxcompute": maxcompute.endpoint, "project": maxcompute.project,
        "key": maxcompute.access_key,
    }  # fmt: skip


def findings(folder: Path, declared: dict[str, str], *, timeout: str = "30") -> tuple[int, list[dict[str, str]]]:
    (folder / "project").mkdir(exist_ok=True)
    (folder / "project" / "all.sql").write_text(PROJECT.format(**declared))
    arguments = ["doctor", "--json", "--project", str(folder / "project"), "--timeout", timeout]
    done = CliRunner().invoke(main, arguments)
    assert done.stdout.startswith("["), done.output
    for secret in ("password", "secret", "key"):
        assert declared[secret] not in done.stdout
    return done.exit_code, json.loads(done.stdout)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "home"))
    return tmp_path


def _changed(option: str, value: str) -> Callable[..., None]:
    def plant(declared: dict[str, str], **_: Any) -> None:
        declared[option] = value

    return plant


def _no_java(declared: dict[str, str], *, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(folder))


def _clock_off(declared: dict[str, str], *, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Registry, "ahead", 3600.0)


def _file_for_lake(declared: dict[str, str], *, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "home").write_text("a file where a folder should be")


def _full_disk(declared: dict[str, str], *, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.disk_usage(folder)
    monkeypatch.setattr(machine, "LEAST_FREE", real.free * 2)


def _other_version(declared: dict[str, str], *, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = machine.metadata.version
    monkeypatch.setattr(machine.metadata, "version", lambda name: "0.0.1" if name == "deltalake" else real(name))


FAULTS: dict[str, tuple[Callable[..., None], str, str, str]] = {
    "no Java": (_no_java, "java", "holds no bin/java", ""),
    "broker away": (_changed("plain", "127.0.0.1:9"), "kafka", "not reachable within", "bootstrap.servers"),
    "wrong login": (_changed("password", "wr0ng"), "kafka", "refuse the login", "login"),
    "no topic": (_changed("copies", "nowhere"), "kafka", "does not exist", "create the topic"),
    "registry away": (_changed("registry", "http://127.0.0.1:9"), "registry", "127.0.0.1:9", "'url'"),
    "wrong secret": (_changed("secret", "wr0ng"), "tablestore", "OTSAuthFailed", "tablestore.access.key.secret"),
    "no instance": (_changed("instance", "other"), "tablestore", "instance", "tablestore.instance.name"),
    "no table": (_changed("create", "false"), "tablestore", "does not exist", "auto.create"),
    "wrong key": (_changed("key", "wr0ng"), "maxcompute", "odps.access", "odps.access.key"),
    "no project": (_changed("project", "other"), "maxcompute", "other", "odps.project.name"),
    "clock": (_clock_off, "clock", "differs by 3", "NTP"),
    "lake": (_file_for_lake, "lake", "cannot be written", "UPSERT_PLATFORM_HOME"),
    "disk": (_full_disk, "disk", "free for the lake", "make room"),
    "package": (_other_version, "versions", "deltalake is 0.0.1, wanted", "requirements.lock"),
    "declaration": (_changed("project", "p', 'nonsense' = 'x"), "project", "unknown option 'nonsense'", ""),
}


@pytest.mark.parametrize("fault", first_of(FAULTS, every=2))
def test_each_fault_is_found_with_its_remedy(
    fault: str, folder: Path, right: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, area, told, remedy = FAULTS[fault]
    plant(right, folder=folder, monkeypatch=monkeypatch)
    code, found = findings(folder, right)
    faults = [item for item in found if item["state"] == "fault"]
    assert code == 1
    assert {item["area"] for item in faults} == {area}, faults
    assert any(told in item["told"] and remedy in item["remedy"] for item in faults), faults


def test_missing_rights_are_named_and_nothing_else_is_wrong(
    folder: Path, right: dict[str, str], secure_broker: SecureBroker
) -> None:
    from confluent_kafka.admin import AclOperation, NewTopic, ResourceType

    code, found = findings(folder, right)
    wrong = [item for item in found if item["state"] == "fault"]
    assert (code, wrong) == (0, [])
    clocks = [item["told"] for item in found if item["area"] == "clock"]
    assert clocks == ["differs by 0 s"] * 3
    assert list((folder / "home").glob(".doctor*")) == []
    denied = f"denied-{uuid.uuid4().hex[:8]}"
    admin = secure_broker.admin()
    admin.create_topics([NewTopic(denied, 1, 1)])[denied].result(30)
    secure_broker.grant("bob", AclOperation.DESCRIBE, ResourceType.TOPIC, denied)
    code, found = findings(folder, {**right, "topic": denied})
    (item,) = [item for item in found if item["state"] == "fault"]
    assert (item["told"], item["remedy"]) == ("the user may not READ", f"grant READ on topic {denied} to the user")


LOOKED_UP = """
CREATE TABLE asked (id BIGINT, at AS PROCTIME(), PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
  'topic' = '{copies}', 'properties.bootstrap.servers' = '{plain}', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE names (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore',
  'tablestore.endpoint' = '{tablestore}', 'tablestore.instance.name' = '{instance}', 'auto.create' = 'true',
  'tablestore.access.key.id' = 'test-id', 'tablestore.access.key.secret' = '{secret}');
CREATE TABLE shown (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore',
  'tablestore.endpoint' = '{tablestore}', 'tablestore.instance.name' = '{instance}', 'auto.create' = 'true',
  'tablestore.access.key.id' = 'test-id', 'tablestore.access.key.secret' = '{secret}');
INSERT INTO shown SELECT a.id, n.name FROM asked AS a JOIN names FOR SYSTEM_TIME AS OF a.at AS n ON a.id = n.id;
"""


def test_a_table_that_is_only_looked_up_is_not_one_that_a_run_creates(folder: Path, right: dict[str, str]) -> None:
    (folder / "project").mkdir()
    (folder / "project" / "lookups.sql").write_text(LOOKED_UP.format(**right))
    code, found = findings(folder, right)
    faults = [(item["area"], item["subject"]) for item in found if item["state"] == "fault"]
    assert (code, faults) == (1, [("lookup", "table names")])
    assert ("tablestore", "table shown") in {(item["area"], item["subject"]) for item in found}


def test_an_address_that_does_not_answer_ends_in_time(folder: Path, right: dict[str, str]) -> None:
    began = time.monotonic()
    code, found = findings(folder, {**right, "plain": "10.255.255.1:9092"}, timeout="2")
    assert time.monotonic() - began < 20
    assert code == 1
    assert any("no answer within 2 s" in item["told"] for item in found if item["area"] == "kafka")


def test_a_store_that_lets_several_creations_succeed_is_noticed(tmp_path: Path) -> None:
    """A store that looks, and then writes: what object stores without conditional puts do."""

    def careless(number: int) -> bool:
        name = tmp_path / str(number)
        if name.exists():
            return False
        time.sleep(0.05)
        name.write_text("")
        return True

    assert max(lake.races(careless, rounds=2)) > 1
    assert lake.races(lake.committer(TableLocation(str(tmp_path / "table"))), rounds=3) == [1, 1, 1]


def test_findings_are_printed_with_their_remedies(folder: Path, right: dict[str, str]) -> None:
    findings(folder, right)
    done = CliRunner().invoke(main, ["doctor", "--project", str(folder / "project")])
    assert "\x1b" not in done.output
    assert done.output.splitlines()[-1].startswith("0 faults, ")
