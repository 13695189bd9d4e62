"""Whole projects as Dagster loads them: a code location, not a job at a time."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from upsert_platform.graph.build import build_definitions
from upsert_platform.sync.binding import load
from upsert_platform_tests.graph import vendor_statements as vendor
from upsert_platform_tests.graph.test_vendor_statements import VALUES

DEMO = Path(__file__).parents[2] / "upsert_platform" / "demo" / "project"


def test_the_demo_is_a_code_location(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of every system, a query and a topic that is written: all jobs and assets stand side by side."""
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "TABLESTORE_ENDPOINT", "MAXCOMPUTE_ENDPOINT"):
        monkeypatch.setenv(f"UPSERT_{name}", "http://127.0.0.1:1")
    for name in ("TABLESTORE_INSTANCE", "TABLESTORE_ACCESS_KEY_ID", "TABLESTORE_ACCESS_KEY_SECRET"):
        monkeypatch.setenv(f"UPSERT_{name}", "x")
    for name in ("MAXCOMPUTE_PROJECT", "MAXCOMPUTE_ACCESS_ID", "MAXCOMPUTE_ACCESS_KEY"):
        monkeypatch.setenv(f"UPSERT_{name}", "x")
    jobs = _loaded(DEMO)
    assert {"sync", "verify", "reconcile", "compact", "rebuild", "stream"} <= jobs


@pytest.mark.parametrize("name", vendor.FILES)
def test_the_documents_statements_are_a_code_location(name: str, tmp_path: Path) -> None:
    (tmp_path / "vendor.sql").write_text(vendor.FILES[name].format(**VALUES))
    assert "sync" in _loaded(tmp_path)


def _loaded(folder: Path) -> set[str]:
    project, problems = load(folder)
    assert not [problem for problem in problems if problem.severity == "error"], problems
    definitions = build_definitions(project)
    dg.Definitions.validate_loadable(definitions)
    return {job.name for job in definitions.get_repository_def().get_all_jobs()}


def test_columns_of_a_table_name_what_they_are_made_of(tmp_path: Path) -> None:
    (tmp_path / "t.sql").write_text(
        """
        CREATE TABLE users (id BIGINT, name STRING, region STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
          'connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = '127.0.0.1:1',
          'key.format' = 'json', 'value.format' = 'json');
        CREATE TABLE copied (id BIGINT, label STRING COMMENT 'shown', size INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
          'connector' = 'upsert-kafka', 'topic' = 'u', 'properties.bootstrap.servers' = '127.0.0.1:1',
          'key.format' = 'json', 'value.format' = 'json');
        INSERT INTO copied SELECT id, UPPER(`region`) || ': ' || name, CHAR_LENGTH(name) FROM users WHERE region <> 'x';
        """
    )
    project, problems = load(tmp_path)
    assert not problems, problems
    graph = build_definitions(project).resolve_asset_graph()
    metadata = graph.get(dg.AssetKey(["tables", "copied"])).metadata
    told = metadata["dagster/column_lineage"]
    assert {name: [dep.column_name for dep in deps] for name, deps in told.deps_by_column.items()} == {
        "id": ["id"], "label": ["name", "region"], "size": ["name"],
    }  # fmt: skip
    assert {column.name: column.description for column in metadata["dagster/column_schema"].columns} == {
        "id": "from users.id", "label": "shown; from users.name, users.region", "size": "from users.name",
    }  # fmt: skip
