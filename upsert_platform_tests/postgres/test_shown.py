"""Rows of a table are shown by `peek` and asked for by `query`, whoever wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from click.testing import CliRunner

from upsert_platform.cli.main import main

pytestmark = pytest.mark.systems
PROJECT = """
CREATE TABLE users (id BIGINT, name STRING, spent DECIMAL(9, 2), PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'users', 'properties.bootstrap.servers' = '127.0.0.1:9',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE copies (id BIGINT, name STRING, spent DECIMAL(9, 2), PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'postgres', 'url' = 'jdbc:postgresql://{place}', 'username' = '{user}',
  'password' = '${{SHOWN_PASSWORD}}', 'table-name' = 'shown_copies');
INSERT INTO copies SELECT id, name, spent FROM users;
"""


def test_query_and_peek_read_a_table(postgres_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = urlsplit(postgres_server)
    monkeypatch.setenv("SHOWN_PASSWORD", str(parts.password))
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "home"))
    shop = tmp_path / "shop"
    shop.mkdir()
    place = f"{parts.hostname}:{parts.port}{parts.path}"
    (shop / "shop.sql").write_text(PROJECT.format(place=place, user=parts.username))

    def shown(*words: str) -> list[dict[str, object]]:
        done = CliRunner().invoke(main, [*words, "--json", "--project", str(shop)])
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS shown_copies")
        connection.execute("CREATE TABLE shown_copies (id bigint PRIMARY KEY, name text, spent numeric(9, 2))")
        connection.execute("INSERT INTO shown_copies VALUES (2, NULL, 1.50), (1, 'ann', 12.25), (3, 'bob', NULL)")
        assert shown("peek", "tables/copies") == [
            {"id": 1, "name": "ann", "spent": 12.25}, {"id": 2, "name": None, "spent": 1.5},
            {"id": 3, "name": "bob", "spent": None},
        ]  # fmt: skip
        found = shown("query", "SELECT name, spent FROM copies WHERE spent > 2 OR name = 'bob' ORDER BY id")
        assert found == [{"name": "ann", "spent": 12.25}, {"name": "bob", "spent": None}]
        connection.execute("DROP TABLE shown_copies")
