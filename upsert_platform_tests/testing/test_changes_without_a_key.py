"""Topics of changes that are declared without a key: which rows of one key of the target are left, by its setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from upsert_platform import testing

pytestmark = pytest.mark.whole_runs

SQL = """
CREATE TABLE orders (oid BIGINT, uid BIGINT, kind STRING) WITH (
  'connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = '${{BROKERS}}',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'debezium-json');
CREATE TABLE latest (uid BIGINT, oid BIGINT, PRIMARY KEY (uid) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'tablestore.endpoint' = '${{STORE}}', 'tablestore.instance.name' = 'shop',
  'tablestore.access.key.id' = '${{ID}}', 'tablestore.access.key.secret' = '${{SECRET}}');
SET 'table.exec.sink.upsert-materialize' = '{setting}';
INSERT INTO latest SELECT uid, oid FROM orders WHERE kind = 'a';
"""
FIRST, LEFT_OUT, SECOND = (
    {"oid": 1, "uid": 7, "kind": "a"},
    {"oid": 2, "uid": 7, "kind": "b"},
    {"oid": 3, "uid": 7, "kind": "a"},
)


def change(before: dict[str, Any] | None, after: dict[str, Any] | None) -> bytes:
    operation = "c" if before is None else "d" if after is None else "u"
    return json.dumps({"before": before, "after": after, "op": operation}).encode()


@pytest.mark.parametrize(
    ("setting", "left"),
    [("AUTO", []), pytest.param("NONE", [], marks=pytest.mark.soak), ("FORCE", [{"uid": 7, "oid": 1}])],
)
def test_rows_that_share_a_key_of_the_target(setting: str, left: list[dict[str, int]], tmp_path: Path) -> None:
    """With FORCE as Flink's own: the row before the deleted one is shown again."""
    (tmp_path / "shop.sql").write_text(SQL.format(setting=setting), "utf-8")
    with testing.project(tmp_path) as shop:

        def synced(*changes: bytes) -> list[dict[str, Any]]:
            for value in changes:
                shop.send_record("orders", key=None, value=value)
            assert shop.sync().success
            return shop.rows("latest")

        assert synced(change(None, FIRST)) == [{"uid": 7, "oid": 1}]
        # A row that WHERE keeps out is none of the target's, and its delete takes nothing from it.
        assert synced(change(None, LEFT_OUT)) == [{"uid": 7, "oid": 1}]
        assert synced(change(LEFT_OUT, None)) == [{"uid": 7, "oid": 1}]
        assert synced(change(None, SECOND)) == [{"uid": 7, "oid": 3}]
        assert synced(change(SECOND, None)) == left
        assert synced(change(FIRST, {**FIRST, "kind": "b"})) == []
