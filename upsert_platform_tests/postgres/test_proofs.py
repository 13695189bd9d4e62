"""A PostgreSQL table is proven against its topic, a row that another program changed is found, and a key is erased."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from upsert_platform.cli.main import main

pytestmark = [pytest.mark.systems, pytest.mark.timeout(300)]
PROJECT = """
CREATE TABLE users (id BIGINT, name STRING, details MAP<STRING, INT>, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE copies (id BIGINT, name STRING, details MAP<STRING, INT>, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'postgres', 'url' = 'jdbc:postgresql://{place}', 'username' = '{user}',
  'password' = '${{SHOWN_PASSWORD}}', 'table-name' = 'proven_copies', 'auto.create' = 'true');
INSERT INTO copies SELECT id, name, details FROM users;
"""


def test_prove_and_erase(
    postgres_server: str,
    kafka_bootstrap: str,
    make_topic: Callable[..., str],
    ask: Callable[..., list[tuple[Any, ...]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts, topic = urlsplit(postgres_server), make_topic(partitions=2)
    monkeypatch.setenv("SHOWN_PASSWORD", str(parts.password))
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "home"))
    shop, place = tmp_path / "shop", f"{parts.hostname}:{parts.port}{parts.path}"
    shop.mkdir()
    declared = PROJECT.format(topic=topic, servers=kafka_bootstrap, place=place, user=parts.username)
    (shop / "shop.sql").write_text(declared)
    ask("DROP TABLE IF EXISTS proven_copies")
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    for number in range(50):
        row = {"id": number, "name": f"n{number}", "details": {"b": 1, "a": number}}
        producer.produce(topic, key=json.dumps({"id": number}), value=json.dumps(row))
    producer.flush()

    def run(*words: str) -> int:
        return CliRunner().invoke(main, [*words, "--project", str(shop)]).exit_code

    assert run("sync") == 0
    assert ask("SELECT count(*), sum((details ->> 'a')::int) FROM proven_copies") == [(50, sum(range(50)))]
    assert run("prove", "copies") == 0
    ask("UPDATE proven_copies SET name = 'other' WHERE id = 7")
    assert run("prove", "copies", "--settle", "1s") == 3
    assert run("reconcile", "copies") == 0
    assert ask("SELECT name FROM proven_copies WHERE id = 7") == [("n7",)]
    assert run("prove", "copies") == 0
    assert run("erase", "users", "7", "--tombstone") == 0
    assert ask("SELECT count(*), count(*) FILTER (WHERE id = 7) FROM proven_copies") == [(49, 0)]
    assert run("sync") == 0
    assert ask("SELECT count(*) FROM proven_copies") == [(49,)]
