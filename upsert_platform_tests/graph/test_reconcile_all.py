"""Job `reconcile` without configuration is about every table that can be repaired by row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from upsert_platform import testing
from upsert_platform.graph.checks import read_again

SQL = """
CREATE TABLE users (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'users', 'properties.bootstrap.servers' = '${BROKERS}',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE orders (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = '${BROKERS}',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE copies (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'tablestore.endpoint' = '${STORE}', 'tablestore.instance.name' = 'shop',
  'tablestore.access.key.id' = '${ID}', 'tablestore.access.key.secret' = '${SECRET}');
CREATE TABLE joined (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'tablestore.endpoint' = '${STORE}', 'tablestore.instance.name' = 'shop',
  'tablestore.access.key.id' = '${ID}', 'tablestore.access.key.secret' = '${SECRET}');
CREATE TABLE appended (id BIGINT, name STRING) WITH (
  'connector' = 'maxcompute', 'odps.end.point' = '${STORE}', 'odps.project.name' = 'shop',
  'odps.access.id' = '${ID}', 'odps.access.key' = '${SECRET}', 'table.name' = 'appended', 'sink.operation' = 'insert');
INSERT INTO copies SELECT * FROM users;
INSERT INTO appended SELECT * FROM users;
INSERT INTO joined SELECT o.id, u.name FROM orders AS o JOIN users AS u ON o.id = u.id;
"""


@pytest.mark.usefixtures("spark")
def test_tables_that_cannot_be_repaired_are_passed_over_unless_they_are_named(tmp_path: Path) -> None:
    (tmp_path / "shop.sql").write_text(SQL, "utf-8")
    with testing.project(tmp_path) as shop:
        for table in ("users", "orders"):
            shop.send(table, [{"id": 1, "name": "a"}])
        assert shop.sync().success
        assert shop.run("reconcile").success
        named = shop.run(
            "reconcile", config={"ops": {"repair": {"config": {"tables": ["appended"]}}}}, raise_on_error=False
        )
        assert not named.success
        assert "'appended' appends rows without a key" in str(named.errors)
        # Checks name commands that read topics again: of tables that are read, of which a query has several.
        binding = shop.platform.binding()
        for name, read in (("copies", {"users"}), ("joined", {"orders", "users"})):
            named_tables = re.findall(r"'upsert-platform replay ([^']+)'", read_again(binding.targets[name]))
            assert set(named_tables) == read <= set(binding.sources)
