"""Job `stream` takes up the declarations of a table that is not as it was declared any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from upsert_platform import testing
from upsert_platform.core.errors import StaleDeclarationError
from upsert_platform.sync.streaming.steps import ChangelogStep

pytestmark = pytest.mark.whole_runs

SQL = """
CREATE TABLE users (id BIGINT, name STRING${MORE}, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'users', 'properties.bootstrap.servers' = '${BROKERS}',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE copies (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'tablestore.endpoint' = '${STORE}', 'tablestore.instance.name' = 'shop',
  'tablestore.access.key.id' = '${ID}', 'tablestore.access.key.secret' = '${SECRET}');
INSERT INTO copies SELECT id, name FROM users;
"""


@pytest.mark.parametrize("later", [[", age INT"], [", age NUMBER", ", age INT"]], ids=["sound", "mended"])
def test_changed_declarations_are_taken_up(later: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a table of a database that got a column: its step fails until it is declared as it is."""
    file, texts, work = tmp_path / "shop.sql", list(later), ChangelogStep.run
    file.write_text(SQL.replace("${MORE}", ""), "utf-8")

    def run(step: ChangelogStep, *, drains: bool) -> bool:
        if not drains and "age" not in {column.name for column in step.hop.source.table.columns}:
            if texts:
                file.write_text(SQL.replace("${MORE}", texts.pop(0)), "utf-8")
            raise StaleDeclarationError("table shop.users has new columns")
        return work(step, drains=drains)

    monkeypatch.setattr(ChangelogStep, "run", run)
    config = {"last_seconds": 8.0, "report_every_seconds": 4.0, "max_delay_seconds": 0.2}
    with testing.project(tmp_path) as shop:
        shop.send("users", [{"id": 1, "name": "a"}])
        assert shop.run("stream", config={"ops": {"loop": {"config": config}}}).success
        assert [row["id"] for row in shop.rows("copies")] == [1]
