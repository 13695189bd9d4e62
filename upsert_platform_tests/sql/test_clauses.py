"""No part of a statement is passed over: what nothing reads is refused."""

from __future__ import annotations

import pytest
from sqlglot import exp

from upsert_platform.sql.clauses import READ, unread_part
from upsert_platform.sql.expressions import _Renderer
from upsert_platform.sql.flink import CLAUSES_KEY, DEFAULT_KEYS, TYPE_KEY, parse_query
from upsert_platform.sql.lexer import tokenize
from upsert_platform.sql.reader import Fault
from upsert_platform_tests.sql.reading import errors, read

TABLES = "CREATE TABLE a (x INT, y STRING) WITH ('connector' = 'kafka', 'format' = 'json');"
TARGET = "CREATE TABLE t (x INT) WITH ('connector' = 'maxcompute');"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT x FROM a QUALIFY x > 1", "QUALIFY is not supported"),
        ("SELECT x FROM a TABLESAMPLE BERNOULLI (3)", "TABLESAMPLE is not supported"),
        ("SELECT x FROM (SELECT x FROM a) AS b TABLESAMPLE BERNOULLI (3)", "TABLESAMPLE is not supported"),
        ("SELECT x FROM a PIVOT (SUM(x) FOR y IN ('b'))", "PIVOT is not supported"),
        ("SELECT x FROM a SORT BY x", "SORT BY is not supported"),
        ("SELECT x FROM a FOR UPDATE", "FOR UPDATE is not supported"),
        ("SELECT DISTINCT ON (y) x FROM a", "ON in DISTINCT is not supported"),
        ("SELECT x FROM a CROSS APPLY (SELECT 1 FROM a)", "CROSS APPLY is not supported"),
        ("SELECT x FROM a UNION BY NAME SELECT x FROM a", "BY NAME is not supported"),
        ("WITH b AS MATERIALIZED (SELECT x FROM a) SELECT x FROM b", "MATERIALIZED is not supported"),
        ("SELECT FLOOR(x, 2) FROM a", "DECIMALS in FLOOR is not supported"),
        ("SELECT x FROM a WHERE y IS JSON OBJECT WITH UNIQUE KEYS", "WITH in JSON is not supported"),
        ("SELECT x FROM a WHERE POSITION('b', y, 2) > 1", "POSITION in STRPOSITION is not supported"),
        ("SELECT * ILIKE 'x' FROM a", "ILIKE in STAR is not supported"),
        ("SELECT * EXCEPT (y) FROM a", "* EXCEPT is not supported"),
        ("SELECT COUNT(* EXCEPT (y)) AS n FROM a", "* EXCEPT is not supported"),
        ("SELECT LISTAGG(y ORDER BY x) AS n FROM a", "ORDER BY is not supported"),
        ("SELECT x FROM a NATURAL JOIN UNNEST(ARRAY[1]) AS t (z)", "views and subqueries: write ON"),
        (
            "SELECT a.x FROM a, LATERAL (SELECT /*+ STATE_TTL('b' = '1 d') */ y FROM a AS b WHERE b.x = a.x) AS t",
            "with a hint is not supported: join a subquery that groups by the columns compared",
        ),
        ("SELECT COUNT(*) AS n FROM a GROUP BY x WITH TOTALS", "WITH TOTALS is not supported"),
    ],
)
def test_what_flink_does_not_have_is_refused_by_name(query: str, message: str) -> None:
    _, problems = read(f"{TABLES}{TARGET}INSERT INTO t {query};")
    (found,) = errors(problems)
    assert found.endswith(message)


def _tokens(text: str) -> tuple:
    tokens, problems = tokenize(text, "f")
    assert problems == []
    return tuple(tokens)


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.__name__)
def test_every_part_that_is_not_read_is_refused(kind: type[exp.Expr]) -> None:
    """Also those that no text of ours has: a later version of the parser may find some."""
    assert READ[kind] <= set(kind.arg_types) | {"joins", TYPE_KEY, CLAUSES_KEY, *DEFAULT_KEYS.values()}
    for name in set(kind.arg_types) - READ[kind]:
        for value in (exp.Literal.number(1), [exp.Null()], True, "x"):
            found = unread_part(kind(**{name: value}))
            assert found is not None
            assert name.strip("_").upper() in found[1] or " " in found[1] or found[1].isupper()
    assert unread_part(kind(**dict.fromkeys(kind.arg_types))) is None


def test_every_node_that_becomes_an_expression_has_its_parts_listed() -> None:
    kinds = {name.lower(): item for name, item in vars(exp).items() if isinstance(item, type)}
    rendered = {name[1:] for name in vars(_Renderer) if name.startswith("_") and name[1:] in kinds}
    assert len(rendered) > 30
    assert {name for name in rendered if kinds[name] not in READ} == set()


def test_a_part_that_is_not_read_is_refused_in_an_expression_too() -> None:
    with pytest.raises(Fault, match="DECIMALS in CEIL is not supported"):
        parse_query(_tokens("1 + CEIL(2, 3)"), "expression")
