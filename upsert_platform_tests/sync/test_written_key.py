"""The key that a row has in the table that is written: as the delete of it has it there, or not told without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from upsert_platform import testing
from upsert_platform.sync.erased_key import key_rows
from upsert_platform.sync.written_key import written_key

SQL = """
CREATE TABLE visits (a {first}, b {second}, note STRING, PRIMARY KEY (a, b) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'visits', 'properties.bootstrap.servers' = '${{BROKERS}}',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE copies (x {second}, y {first}, note STRING, PRIMARY KEY (y, x) NOT ENFORCED) WITH (
  'connector' = 'postgres', 'url' = 'jdbc:postgresql://db.example.com:5432/shop', 'table-name' = 'public.copies',
  'username' = 'u', 'password' = '${{SECRET}}');
INSERT INTO copies SELECT b, a, note FROM visits;
"""
CASES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "other names in another order": ("INT", "STRING", {"a": 7, "b": "q"}, {"y": 7, "x": "q"}),
    "large numbers and dates": ("BIGINT", "DATE", {"a": 1 << 60, "b": "2024-05-01"}, {"y": 1 << 60, "x": "2024-05-01"}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_key_is_that_of_the_written_row(case: str, tmp_path: Path) -> None:
    first, second, key, wanted = CASES[case]
    (tmp_path / "visits.sql").write_text(SQL.format(first=first, second=second), "utf-8")
    with testing.project(tmp_path) as project:
        binding = project.platform.binding()
        found = written_key(binding.targets["copies"], key_rows(binding.sources["visits"].kafka, key))  # type: ignore[attr-defined]
    assert found is not None
    assert [json.loads(json.dumps(row, default=str)) for row in found.to_pylist()] == [wanted]


@pytest.mark.parametrize("text", ["REPEAT(`b`, 1)", "CAST(UNIX_TIMESTAMP() AS INT)"])
def test_a_key_that_spark_alone_computes_or_that_varies_is_not_told(text: str, tmp_path: Path) -> None:
    (tmp_path / "visits.sql").write_text(SQL.format(first="INT", second="STRING"), "utf-8")
    with testing.project(tmp_path) as project:
        binding = project.platform.binding()
        target = binding.targets["copies"]
        target = replace(target, insert=replace(target.insert, projections=(text, "`a`", "`note`")))
        key = key_rows(binding.sources["visits"].kafka, {"a": 1, "b": "q"})  # type: ignore[attr-defined]
        assert written_key(target, key) is None
