"""Which inserts are warned of: those that fill a key from a column that may be null."""

from __future__ import annotations

from pathlib import Path

import pytest

from upsert_platform.sync.binding import bind, load

TABLES = """
CREATE TABLE views (user_id BIGINT NOT NULL, region STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH (
  'connector' = 'kafka', 'topic' = 'views', 'properties.bootstrap.servers' = 'b:9092', 'format' = 'json');
CREATE TABLE users (id BIGINT, region STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'users', 'properties.bootstrap.servers' = 'b:9092',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE target ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'target', 'properties.bootstrap.servers' = 'b:9092',
  'key.format' = 'json', 'value.format' = 'json');
"""
ONE = ("region STRING, n BIGINT", "region")


@pytest.mark.parametrize(
    ("target", "insert", "warned"),
    [
        (ONE, "SELECT region, user_id FROM views", ["region"]),
        (ONE, "SELECT UPPER(region), user_id FROM views", ["region"]),
        (ONE, "SELECT region, COUNT(*) FROM views GROUP BY region", ["region"]),
        (ONE, "SELECT r, COUNT(*) FROM (SELECT region AS r FROM users) AS u GROUP BY r", ["region"]),
        (ONE, "SELECT region, user_id FROM views WHERE region IS NOT NULL", []),
        (ONE, "SELECT COALESCE(region, '?'), COUNT(*) FROM views GROUP BY COALESCE(region, '?')", []),
        (("id BIGINT, n STRING", "id"), "SELECT user_id, region FROM views", []),
        (("id BIGINT, n STRING", "id"), "SELECT id, region FROM users", []),
        (
            ("s TIMESTAMP(3), e TIMESTAMP(3), n BIGINT", "s, e"),
            "SELECT window_start, window_end, COUNT(*) FROM TABLE(TUMBLE(TABLE views, DESCRIPTOR(ts), INTERVAL '1'"
            " MINUTE)) GROUP BY window_start, window_end",
            [],
        ),
    ],
)
def test_warnings(target: tuple[str, str], insert: str, warned: list[str], tmp_path: Path) -> None:
    columns, key = target
    (tmp_path / "tables.sql").write_text(f"{TABLES.format(columns=columns, key=key)}\nINSERT INTO target {insert};")
    project, problems = load(tmp_path)
    assert not [problem for problem in problems if problem.severity == "error"], problems
    told = [problem for problem in bind(project, problems).warnings if "may be null" in problem.message]
    assert [problem.message.split("COALESCE(")[1].split(",")[0] for problem in told] == warned
    for problem in told:
        assert "primary key column" in problem.message
        assert problem.location is not None
