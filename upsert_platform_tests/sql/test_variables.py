from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upsert_platform.core.errors import SourceLocation
from upsert_platform.sql.lexer import TokenKind, to_sql, tokenize
from upsert_platform.sql.variables import Variables, environment_name, expand, load_variables
from upsert_platform_tests.sql.reading import errors, read

TABLE = "CREATE TABLE t (id INT) WITH (\n 'connector' = 'kafka',\n 'topic' = '{}');"


@pytest.mark.parametrize("name", ["NAME", "secret_values.kafka-ak", "instancd-id", "upsert.kafka.aliyun.ak"])
def test_names_of_flink_platforms_are_found_in_nested_yaml(tmp_path: Path, name: str) -> None:
    *groups, last = name.split(".")
    lines = [f"{'  ' * depth}{group}:" for depth, group in enumerate(groups)]
    lines.append(f"{'  ' * len(groups)}{last}: 'the value'")
    (tmp_path / "variables.yaml").write_text("\n".join(lines))
    variables, problems = load_variables(tmp_path)
    assert problems == []
    assert variables.get(name) == "the value"


def test_flat_dotted_names_are_found_too(tmp_path: Path) -> None:
    (tmp_path / "variables.yml").write_text("secret_values.kafka-ak: abc\nport: 0123\nflag: yes\n")
    variables, _ = load_variables(tmp_path)
    assert [variables.get(name) for name in ("secret_values.kafka-ak", "port", "flag")] == ["abc", "0123", "yes"]


def test_the_environment_wins_over_the_file_and_the_file_over_the_caller() -> None:
    assert Variables({"A": "1"}, {"A": "2"}, {"A": "3"}).get("A") == "1"
    assert Variables({}, {"A": "2"}, {"A": "3"}).get("A") == "2"
    assert Variables({}, {}, {"A": "3"}).get("A") == "3"


def test_dotted_names_can_be_exported_by_a_shell() -> None:
    assert environment_name("secret_values.kafka-ak") == "SECRET_VALUES_KAFKA_AK"
    assert Variables({"SECRET_VALUES_KAFKA_AK": "x"}, {}, {}).get("secret_values.kafka-ak") == "x"


def test_each_missing_variable_is_one_problem_with_its_line_and_remedy() -> None:
    _, problems = read(TABLE.format("${TOPIC}-${TOPIC}-${other.name}"))
    assert errors(problems) == [
        "3: variable ${TOPIC} is not set: set the environment variable TOPIC, or 'TOPIC' in variables.yaml",
        "3: variable ${other.name} is not set: set the environment variable OTHER_NAME, or 'other.name' in"
        " variables.yaml",
    ]


def test_variables_in_comments_are_not_asked_for() -> None:
    _, problems = read("-- ${A}\n/* ${B} */" + TABLE.format("t"))
    assert problems == []


@given(st.text())
def test_a_value_inside_quotes_stays_one_text_whatever_it_contains(value: str) -> None:
    tokens, _ = tokenize("'a${X}b' , `c${X}`", "f")
    expanded, problems = expand(tokens, Variables({}, {"X": value}, {}), "f")
    assert problems == []
    assert [token.value for token in expanded] == [f"a{value}b", ",", f"c{value}"]
    again, faults = tokenize(to_sql(expanded), "f")
    assert faults == []
    assert [token.value for token in again] == [f"a{value}b", ",", f"c{value}"]


def test_values_with_newlines_do_not_move_the_lines_of_what_follows() -> None:
    sql = TABLE.format("${PEM}") + "\nCREATE TABLE ;"
    _, problems = read(sql, {"PEM": "1\n2\n3\n"})
    assert [problem.location for problem in problems] == [SourceLocation("f.sql", 4)]


def test_outside_of_quotes_a_value_is_read_as_sql() -> None:
    scripts, problems = read(
        "CREATE TABLE ${PREFIX}_t (id ${TYPE}) WITH ('connector' = 'kafka');",
        {"PREFIX": "dev", "TYPE": "DECIMAL(12, 2)"},
    )
    assert errors(problems) == []
    assert str(scripts.tables["dev_t"].columns[0].type) == "DECIMAL(12, 2)"


def test_values_never_appear_in_messages() -> None:
    secret = "hunter2-very-secret"
    sql = """CREATE TABLE t (id ${S}, `a` INT, `a` INT) WITH ('connector' = 'kafka', 'a' = '${S}' 'b', ${S});
        CREATE TABLE u (id INT) WITH ('connector' = '${S}');
        INSERT INTO u SELECT id FROM u WHERE id = ${S} '${S}';
        INSERT INTO u SELECT CAST(id AS ${S}) FROM u;
        INSERT INTO u SELECT '${S}' FROM u;"""
    scripts, problems = read(sql, {"S": secret})
    assert len(problems) >= 6
    assert secret not in "\n".join(map(str, problems))
    assert secret not in repr(scripts.inserts)


def test_a_variables_file_that_is_no_mapping_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "variables.yaml").write_text("- a\n")
    _, problems = load_variables(tmp_path)
    assert [problem.message for problem in problems] == ["variables are a mapping of names to values"]
    (tmp_path / "variables.yaml").write_text("a: [1]\nb: {c: [2]}\n")
    _, problems = load_variables(tmp_path)
    assert [problem.message.split(" ")[1] for problem in problems] == ["'a'", "'b.c'"]
    (tmp_path / "variables.yaml").write_text("a: b\nsecret: {hunter2\n")
    _, problems = load_variables(tmp_path)
    assert problems[0].location is not None
    assert problems[0].location.line == 3
    assert "hunter2" not in str(problems[0])


def test_repr_of_variables_shows_no_value() -> None:
    assert "abc" not in repr(Variables({"A": "abc"}, {"B": "abc"}, {}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 'abc", "the text opened with ' is never closed"),
        ("SELECT `abc", "the name opened with ` is never closed"),
        ("/* abc", "the comment opened with /* is never closed"),
        ("SELECT ${", "a variable is written ${NAME}, of letters, digits, '_', '.' and '-'"),
        ("SELECT \uff08", "unexpected character '\uff08'"),
    ],
)
def test_broken_text_is_a_problem(text: str, message: str) -> None:
    _, problems = tokenize("\n" + text, "f")
    assert [problem.message for problem in problems] == [message]
    assert problems[0].location == SourceLocation("f", 2)


def test_comments_and_hints() -> None:
    tokens, _ = tokenize("a -- b\n// c\n/* d\n */ e /*+ OPTIONS('x'='y') */ '--' '//'", "f")
    assert [(token.value, token.line) for token in tokens] == [
        ("a", 1), ("e", 4), ("/*+ OPTIONS('x'='y') */", 4), ("--", 4), ("//", 4),
    ]  # fmt: skip
    assert tokens[2].kind is TokenKind.HINT
