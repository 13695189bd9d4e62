"""Statements over nodes: what they may name, what is refused, and how values are shown."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.sync.ad_hoc import AdHoc, QueryError

USERS = pa.table({"id": [1, 2], "name": ["ann", None]})
CHANGES = pa.table({"_batch": [1, 1, 2], "id": [1, 2, 2]})


@pytest.fixture
def read() -> list[str]:
    return []


@pytest.fixture
def asked(read: list[str]) -> Iterator[AdHoc]:
    def load(name: str, found: pa.Table) -> object:
        def once(most: int) -> pa.Table:
            read.append(name)
            if found.num_rows > most:
                raise UpsertPlatformError(f"'{name}' has more than {most} rows")
            return found

        return once

    loads = {
        ("topics", "users"): load("topics.users", USERS),
        ("changelogs", "users"): load("changelogs.users", CHANGES),
        ("tables", "users"): load("tables.users", USERS.slice(0, 1)),
        ("tables", "odd name"): load("tables.odd", USERS),
    }
    found = AdHoc(loads, most=3)  # type: ignore[arg-type]
    yield found
    found.close()


def rows(asked: AdHoc, statement: str) -> list[tuple[str | None, ...]]:
    return list(asked.answer(statement, limit=10).rows)


def test_a_bare_name_is_the_topic_before_the_table_and_each_node_is_read_once(asked: AdHoc, read: list[str]) -> None:
    assert rows(asked, "SELECT count(*) FROM users") == [("2",)]
    assert rows(asked, "SELECT count(*) FROM tables.users") == [("1",)]
    joined = "SELECT u.name, count(*) FROM users u JOIN changelogs.users c USING (id) GROUP BY 1 ORDER BY 2"
    assert rows(asked, joined) == [("ann", "1"), (None, "2")]
    assert rows(asked, 'WITH x AS (SELECT * FROM "odd name") SELECT id FROM x ORDER BY id') == [("1",), ("2",)]
    assert read == ["topics.users", "tables.users", "changelogs.users", "tables.odd"]


def test_only_what_is_named_is_read(asked: AdHoc, read: list[str]) -> None:
    assert rows(asked, "SELECT 1 + 1") == [("2",)]
    assert read == []


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("DELETE FROM users", "one SELECT at a time"),
        ("SELECT 1; SELECT 2", "one SELECT at a time"),
        ("COPY users TO '/tmp/upsert-query'", "one SELECT at a time"),
        ("SET memory_limit = '9GB'", "one SELECT at a time"),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled"),
        ("SELECT * FROM '/etc/passwd'", ""),
        ("SELECT * FROM user", "did you mean 'users'; there are: users, odd name, topics.users"),
        ("SELECT nothing FROM users", "nothing"),
        ("SELEC", "syntax error"),
    ],
)
def test_what_is_no_query_over_the_nodes_is_refused(asked: AdHoc, statement: str, told: str) -> None:
    with pytest.raises(QueryError) as caught:
        asked.answer(statement, limit=10)
    assert told in str(caught.value)


def test_variables_of_this_process_are_no_tables(asked: AdHoc) -> None:
    with pytest.raises(QueryError):
        asked.answer("SELECT * FROM USERS_OF_PYTHON", limit=1)


def test_results_and_inputs_are_bounded(asked: AdHoc) -> None:
    found = asked.answer("SELECT * FROM range(5)", limit=3)
    assert (len(found.rows), found.more) == (3, True)
    found = asked.answer("SELECT * FROM range(3)", limit=3)
    assert (len(found.rows), found.more) == (3, False)


def test_values_are_json_as_they_are(asked: AdHoc) -> None:
    statement = "SELECT 1.50::DECIMAL(9,2) AS m, DATE '0001-01-01' AS d, [1, NULL] AS l, {'a': 'x'} AS s, NULL AS n"
    (text,) = asked.answer(statement, limit=1, as_json=True).objects()
    assert json.loads(text, parse_float=str) == {
        "m": "1.50", "d": "0001-01-01", "l": [1, None], "s": {"a": "x"}, "n": None,
    }  # fmt: skip


USERS_OF_PYTHON = USERS
