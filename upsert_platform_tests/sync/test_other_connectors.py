"""Connectors of Flink that the platform does not have are refused by name, with what takes their place."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from upsert_platform.cli.main import main
from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.model import Options, Table
from upsert_platform.sync.connectors import CONNECTORS, unknown_connector
from upsert_platform.sync.other_connectors import ELSEWHERE

PAGE = Path(__file__).parents[2] / "docs" / "refused.md"
SOURCE = """
CREATE TABLE a (id INT, r STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'a',
  'properties.bootstrap.servers' = 'b:1', 'key.format' = 'json', 'value.format' = 'json');
"""


@pytest.mark.parametrize("name", ELSEWHERE)
def test_each_has_an_alternative_and_a_row_in_the_page(name: str) -> None:
    assert not any(known.startswith(name) for known in CONNECTORS)
    table = Table("t", (), (), Options({"connector": name}), SourceLocation("f.sql", 3))
    problem = unknown_connector(table)
    assert (
        problem.message
        == f"table 't': Flink's connector '{name}' is not supported: {ELSEWHERE[name]}; see docs/refused.md"
    )
    section = PAGE.read_text(encoding="utf-8").partition("## Other connectors of Flink")[2].partition("\n## ")[0]
    assert f"`{name}`" in section


def test_versions_of_a_connector_are_known_by_its_name() -> None:
    table = Table("t", (), (), Options({"connector": "elasticsearch-7"}), SourceLocation("f.sql", 3))
    assert "Kafka Connect's Elasticsearch sink" in unknown_connector(table).message


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO x (id, r SELECT id, r FROM a;",
        "INSERT x SELECT id, r FROM a;",
        "INSERT INTO x SELECT id, 'a FROM a;",
        "CREATE VIEW v AS SELECT id, r FROM a; INSERT INTO x SELECT id, r, r FROM v;",
    ],
)
def test_a_faulty_insert_uses_what_it_names(statement: str, tmp_path: Path) -> None:
    target = SOURCE.replace("TABLE a", "TABLE x").replace("'topic' = 'a'", "'topic' = 'x'")
    (tmp_path / "tables.sql").write_text(SOURCE + target + statement, encoding="utf-8")
    found = CliRunner().invoke(main, ["validate", str(tmp_path)])
    assert found.exit_code == 1
    assert "error" in found.output
    assert "neither read nor written" not in found.output
