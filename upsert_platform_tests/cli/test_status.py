"""`upsert-platform status`: what it asks of real servers, and what it says of those that do not answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from upsert_platform.cli.main import main
from upsert_platform.local.kafka import Broker
from upsert_platform_tests.local.tablestore.server import ServerHandle, tablestore_server

TABLES = 50
SQL = """
CREATE TABLE {source} (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
  'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE {target} (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore',
  'tablestore.endpoint' = '{endpoint}', 'tablestore.instance.name' = '{instance}',
  'tablestore.access.key.id' = '{access}', 'tablestore.access.key.secret' = '{secret}', 'auto.create' = 'true');
INSERT INTO {target} SELECT id, v FROM {source};
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with tablestore_server(tmp_path_factory.mktemp("status")) as found:
        yield found


@pytest.fixture
def topic(make_topic) -> str:
    return str(make_topic(partitions=2))


def declare(folder: Path, server: ServerHandle, *, count: int, topic: str, servers: str, endpoint: str = "") -> None:
    values = {
        "topic": topic, "servers": servers, "endpoint": endpoint or server.endpoint, "instance": server.instance,
        "access": server.access_key_id, "secret": server.access_key_secret,
    }  # fmt: skip
    text = "".join(SQL.format(source=f"s{n}", target=f"t{n}", **values) for n in range(count))
    (folder / "tables.sql").write_text(text)


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Result:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(folder / "home"))
    return CliRunner().invoke(main, ["status", "--project", str(folder), *options])


def test_fifty_tables_are_asked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka_broker: Broker, topic: str, server: ServerHandle
) -> None:
    declare(tmp_path, server, count=TABLES, topic=topic, servers=kafka_broker.bootstrap_servers)
    began = time.monotonic()
    done = run(tmp_path, monkeypatch, "--json")
    seconds = time.monotonic() - began
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [item["table"] for item in told["tables"]] == [f"t{n}" for n in range(TABLES)]
    assert all(item["behind"] == 0 and item["error"] == "" for item in told["tables"])
    assert {tuple(item["streams"]) for item in told["changelogs"]} == {(topic,)}
    assert seconds < 20  # about 2 on a quiet machine


def test_what_does_not_answer_is_told_beside_what_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka_broker: Broker, topic: str, server: ServerHandle
) -> None:
    servers = kafka_broker.bootstrap_servers
    declare(tmp_path, server, count=1, topic=topic, servers=servers, endpoint="http://127.0.0.1:9")
    done = run(tmp_path, monkeypatch, "--timeout", "3")
    assert done.exit_code == 1
    assert topic in done.output
    assert "t0: no answer within 3 s" in done.output
