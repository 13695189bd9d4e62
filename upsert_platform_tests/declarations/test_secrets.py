"""No message about a declaration shows the text that stands where a value does."""

from __future__ import annotations

from pathlib import Path

import pytest

from upsert_platform.declarations.project import load_project
from upsert_platform.kafka.jaas import JaasError, client_settings
from upsert_platform.sync.connectors import CONNECTORS

SECRET = "Hunter2"
BEFORE = "CREATE TABLE t (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore',\n  "
AFTER = ",\n  'tablestore.endpoint' = 'Hunter2-too');\nINSERT INTO t SELECT 'Hunter2-three' FROM t;\n"
NAME = "'tablestore.access.key.secret'"


def told(folder: Path, name: str, text: str) -> list[str]:
    (folder / name).write_text(text)
    _, problems = load_project(folder, connectors=CONNECTORS)
    return [str(problem).replace(str(folder), "") for problem in problems]


@pytest.mark.parametrize(
    "option",
    [
        f'{NAME} = "{SECRET}"',
        f"{NAME} = {SECRET}",
        f"{NAME} = 12{SECRET}",
        f"{NAME} = `{SECRET}`",
        f"{NAME} '{SECRET}'",
        f"{NAME}, '{SECRET}'",
        f"'tablestore.access.key.secret={SECRET}'",
        f"{NAME} = 'a' '{SECRET}'",
        f"{NAME} = 'a' + {SECRET}",
        f"{NAME} = ('{SECRET}')",
        f"{NAME} = 'it's{SECRET}'",
        f"{NAME} = '{SECRET}'{SECRET}'",
        f"{NAME} = 'O' {SECRET}'",
        f"{NAME} = 'a';{SECRET}'",
        f"{NAME} = 'a', {SECRET}'",
        f"{NAME} = {SECRET}'",
        f"{NAME} = '{SECRET}",
        f"{NAME} = (a {SECRET}",
    ],
)
def test_of_a_with_clause(tmp_path: Path, option: str) -> None:
    problems = told(tmp_path, "t.sql", BEFORE + option + AFTER)
    assert any("t.sql:2: error" in problem or "t.sql:3: error" in problem for problem in problems)
    assert SECRET not in "\n".join(problems)


@pytest.mark.parametrize(
    "value", [f"*{SECRET}", f"!{SECRET} x", f"'it's {SECRET}'", f"a: {SECRET}", f"[{SECRET}]", f'"\\q{SECRET}"',
              f"%{SECRET}", f"&a {SECRET}\n      other: &a {SECRET}", f"{{x, {SECRET}}}"],
)  # fmt: skip
def test_of_yaml(tmp_path: Path, value: str) -> None:
    text = f"""tables:
  - name: t
    columns: [{{name: id, type: INT}}]
    options:
      connector: tablestore
      tablestore.access.key.secret: {value}
"""
    problems = told(tmp_path, "t.yaml", text)
    assert problems
    assert SECRET not in "\n".join(problems)


def test_of_a_flow_mapping_in_yaml(tmp_path: Path) -> None:
    text = "tables:\n  - {name: t, columns: [{name: id, type: INT}], options: {connector: maxcompute, key: a, Hunter2}}"
    problems = told(tmp_path, "t.yaml", text)
    assert "an entry has a name and no value" in problems[0]
    assert SECRET not in "\n".join(problems)


CONNECT = '{"connector.class": "TableStoreSinkConnector", "name": "c",\n "tablestore.access.key.secret": %s\n}'


@pytest.mark.parametrize(
    "value",
    [
        f"{SECRET}",
        f'"it"{SECRET}"',
        f'"{SECRET}',
        f'"\\q{SECRET}"',
        f'["{SECRET}"]',
        f'{{"{SECRET}": 1}}',
        f"'{SECRET}'",
    ],
)
def test_of_a_connect_configuration_in_json(tmp_path: Path, value: str) -> None:
    problems = told(tmp_path, "c.json", CONNECT % value)
    assert problems
    assert SECRET not in "\n".join(problems)


def test_broken_json_is_told_with_its_line(tmp_path: Path) -> None:
    (problem,) = told(tmp_path, "c.json", CONNECT % '"a",,')[:1]
    assert problem.endswith("/c.json:2: error: this is not JSON: expecting property name enclosed in double quotes")


def test_of_a_connect_configuration_in_properties(tmp_path: Path) -> None:
    text = f"connector.class=TableStoreSinkConnector\nname=c\ntopics=t\ntablestore.access.key.secret=a\n{SECRET}\n"
    problems = told(tmp_path, "c.properties", text)
    assert any("c.properties:5: error: a line is written name=value" in problem for problem in problems)
    assert SECRET not in "\n".join(problems)


@pytest.mark.parametrize(
    "text",
    [
        f'{SECRET} required username="a";',
        f'org.apache.kafka.common.security.plain.PlainLoginModule {SECRET} username="a";',
        f"org.apache.kafka.common.security.plain.PlainLoginModule required username=a password='it's {SECRET}';",
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b"{SECRET}";',
        f"{SECRET}",
    ],
)
def test_of_a_jaas_configuration(text: str) -> None:
    with pytest.raises(JaasError) as caught:
        client_settings(text, {})
    assert SECRET not in str(caught.value)
