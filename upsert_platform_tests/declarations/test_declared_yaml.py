from __future__ import annotations

from pathlib import Path

import pytest

from upsert_platform.declarations.project import load_project
from upsert_platform.sync.connectors import CONNECTORS

YAML = """tables:
  - name: users
    comment: people
    columns:
      - {name: user_id, type: BIGINT}
      - {name: name, type: STRING, comment: full name}
      - {name: tags, type: "MAP<STRING, INT>"}
      - {name: at, type: TIMESTAMP_LTZ(3), metadata: timestamp, virtual: true}
      - {name: day, expression: "DATE_FORMAT(at, 'yyyyMMdd')"}
    primary_key: [user_id]
    options: {connector: upsert-kafka, topic: "${TOPIC}", key.format: json}
  - name: serving
    columns:
      - {name: id, type: BIGINT}
      - {name: day, type: STRING}
    primary_key: [id]
    partitioned_by: [day]
    options:
      connector: maxcompute
      auto.create: true
inserts:
  - {into: serving, select: "user_id, day", from: users, where: "name <> 'test'"}
"""
SQL = """CREATE TABLE users (
  user_id BIGINT, name STRING COMMENT 'full name', tags MAP<STRING, INT>,
  at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, day AS DATE_FORMAT(at, 'yyyyMMdd'),
  PRIMARY KEY (user_id) NOT ENFORCED
) COMMENT 'people' WITH ('connector' = 'upsert-kafka', 'topic' = '${TOPIC}', 'key.format' = 'json');
CREATE TABLE serving (id BIGINT, `day` STRING, PRIMARY KEY (id) NOT ENFORCED) PARTITIONED BY (`day`)
  WITH ('connector' = 'maxcompute', 'auto.create' = 'true');
INSERT INTO serving SELECT user_id, `day` FROM users WHERE name <> 'test';
"""


@pytest.mark.parametrize("overwrite", [False, True])
def test_yaml_and_sql_give_the_same_model(tmp_path: Path, overwrite: bool) -> None:
    projects = []
    texts = {"a.yaml": YAML, "a.sql": SQL}
    if overwrite:
        texts["a.yaml"] = YAML.replace("{into:", "{overwrite: true, into:")
        texts["a.sql"] = SQL.replace("INSERT INTO", "INSERT OVERWRITE")
    for name, text in texts.items():
        folder = tmp_path / name.replace(".", "_")
        folder.mkdir()
        (folder / name).write_text(text)
        project, problems = load_project(folder, {"TOPIC": "people"}, connectors=CONNECTORS)
        assert problems == []
        projects.append(project)
    left, right = projects
    assert list(left.tables) == list(right.tables)
    for name, table in left.tables.items():
        other = right.tables[name]
        assert [
            (c.name, c.type, c.kind, c.metadata_key, c.virtual, c.expression, c.comment) for c in table.columns
        ] == [(c.name, c.type, c.kind, c.metadata_key, c.virtual, c.expression, c.comment) for c in other.columns]
        assert dict(table.options) == dict(other.options)
        assert (table.primary_key, table.partitioned_by, table.comment) == (
            other.primary_key,
            other.partitioned_by,
            other.comment,
        )
    (one,), (two,) = left.inserts, right.inserts
    assert one.overwrite is overwrite
    assert (one.source, one.target, one.projections, one.predicate, one.overwrite) == (
        two.source,
        two.target,
        two.projections,
        two.predicate,
        two.overwrite,
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("type: BIGINT}", "type: BIGNT}", 5, "column 'user_id': 'BIGNT' is not a SQL type"),
        ("primary_key: [user_id]", "primary_key: [userid]", 10, "PRIMARY KEY names 'userid'"),
        ("comment: people", "coment: people", 3, "table: unknown entry 'coment'; did you mean 'comment'?"),
        ("from: users, ", "", 22, "insert: 'from' is missing"),
        ("user_id, day", "user_id, dy", 22, "unknown column 'dy'"),
        ("name <> 'test'", "name <>", 22, "the query is not SQL"),
        ("{into:", "{overwrite: 1, into:", 22, "insert: 'overwrite' takes true or false"),
        ("${TOPIC}", "${OTHER}", 11, "variable ${OTHER} is not set"),
        ("auto.create: true", "auto.create: [1]", 20, "option 'auto.create' takes one value"),
        ("expression: ", "type: STRING, expression: ", 9, "an expression stands alone"),
        ("type: \"MAP<STRING, INT>\"", "comment: x", 7, "column 'tags': 'type' is missing"),
    ],
)  # fmt: skip
def test_faults_have_the_line_of_the_yaml(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    assert old in YAML
    (tmp_path / "a.yaml").write_text(YAML.replace(old, new, 1))
    _, problems = load_project(tmp_path, {"TOPIC": "people"}, connectors=CONNECTORS)
    errors = [problem for problem in problems if problem.severity == "error"]
    assert [(problem.location.line, message in problem.message) for problem in errors if problem.location] == [
        (line, True)
    ], errors


def test_broken_yaml_is_one_problem(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("tables:\n  - {name: [\n")
    _, problems = load_project(tmp_path, connectors=CONNECTORS)
    assert "this is not YAML" in problems[0].message


def test_other_yaml_is_passed_over_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("services: {}\n")
    (tmp_path / "a.sql").write_text(SQL)
    _, problems = load_project(tmp_path, {"TOPIC": "x"}, connectors=CONNECTORS)
    assert [(problem.severity, "this file is not read" in problem.message) for problem in problems] == [
        ("warning", True)
    ]
