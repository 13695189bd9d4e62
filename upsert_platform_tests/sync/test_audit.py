"""What the referee is told of declared tables, and what it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from upsert_platform.changelog.accounting import RangeAccount, ends_of_batches
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.referee.selection import Condition
from upsert_platform.sync.audit import form_of
from upsert_platform.sync.audit_selection import NotJudgedError, selection_of
from upsert_platform.sync.binding import Target, bind, load

DECLARED = """
CREATE TABLE orders (
  id BIGINT, name VARCHAR(20), amount DECIMAL(10, 2), n INT, ok BOOLEAN, day DATE,{metadata}
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = '{connector}', 'topic' = 'orders', 'properties.bootstrap.servers' = 'localhost:1',
  'key.format' = 'json', 'value.format' = 'json', 'value.fields-include' = 'EXCEPT_KEY'{more}
);
CREATE TABLE serving (id BIGINT, name STRING, n BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'tablestore.endpoint' = 'http://localhost:1', 'tablestore.instance.name' = 'i',
  'tablestore.access.key.id' = 'a', 'tablestore.access.key.secret' = 'b'
);
{insert};
"""


def bound(folder: Path, insert: str, *, connector: str = "upsert-kafka", more: str = "", metadata: str = "") -> Target:
    text = DECLARED.format(insert=insert, connector=connector, more=more, metadata=metadata)
    (folder / "orders.sql").write_text(text, "utf-8")
    return bind(*load(folder)).targets["serving"]


PLAIN = {"id": "id", "name": "name", "n": "n"}
SELECTIONS: dict[str, tuple[dict[str, Any], list[Condition]]] = {
    "SELECT id, name, n FROM orders": (PLAIN, []),
    "SELECT o.id, o.name, o.n AS number FROM orders AS o": (PLAIN, []),
    "SELECT id, name, NULL FROM orders WHERE n >= -5 AND 'x' <> name": (
        {**PLAIN, "n": None}, [Condition("n", ">=", -5), Condition("name", "<>", "x")]),
    "SELECT id, name, n FROM orders WHERE (name IN ('a', 'b') AND n IS NOT NULL) AND ok = TRUE": (
        PLAIN, [Condition("name", "in", ("a", "b")), Condition("n", "is not null"), Condition("ok", "=", True)]),
    "SELECT id, name, n FROM orders WHERE 5 < n": (PLAIN, [Condition("n", ">", 5)]),
    r"SELECT id, name, n FROM orders WHERE name <> 'C:\temp''s' AND name IN ('\n', '%')": (
        PLAIN, [Condition("name", "<>", r"C:\temp's"), Condition("name", "in", (r"\n", "%"))]),
    "SELECT id, name, n FROM orders WHERE ok IS NULL AND NOT (name IS NULL)": (
        PLAIN, [Condition("ok", "is null"), Condition("name", "is not null")]),
}  # fmt: skip


@pytest.mark.parametrize("query", SELECTIONS)
def test_columns_and_comparisons_are_told(query: str, tmp_path: Path) -> None:
    selection = selection_of(bound(tmp_path, f"INSERT INTO serving {query}"), {})
    assert (selection.columns, list(selection.where)) == SELECTIONS[query]  # type: ignore[arg-type]


def test_columns_in_another_order_find_their_places(tmp_path: Path) -> None:
    selection = selection_of(bound(tmp_path, "INSERT INTO serving (name, id) SELECT name, id FROM orders"), {})
    assert selection.columns == {"id": "id", "name": "name", "n": None}


REFUSED = {
    "SELECT id, UPPER(name), n FROM orders": "is an expression, which the referee does not evaluate",
    "SELECT id, name, n + 1 FROM orders": "is an expression",
    "SELECT id, CAST(day AS STRING), n FROM orders": "is an expression",
    "SELECT id, name, n FROM orders WHERE n > 1 OR n < 0": "does not evaluate WHERE",
    "SELECT id, name, n FROM orders WHERE name LIKE 'a%'": "does not evaluate WHERE",
    "SELECT id, name, n FROM orders WHERE day > '2024-01-01'": "does not compare 'day'",
    "SELECT id, name, n FROM orders WHERE ok IS NOT TRUE": "does not evaluate WHERE",
    "SELECT id, name, n FROM orders WHERE NOT (ok IS FALSE)": "does not evaluate WHERE",
    "SELECT id, name, n FROM orders WHERE ok IS TRUE": "does not evaluate WHERE",
    "SELECT id, name, n FROM orders WHERE name IS NOT JSON": "does not evaluate WHERE",
}


@pytest.mark.parametrize("query", REFUSED)
def test_what_is_computed_is_refused_by_name(query: str, tmp_path: Path) -> None:
    target = bound(tmp_path, f"INSERT INTO serving {query}")
    with pytest.raises(NotJudgedError, match=REFUSED[query]):
        selection_of(target, {})


def test_metadata_is_no_part_of_records(tmp_path: Path) -> None:
    declared = DECLARED.replace("name VARCHAR(20), amount DECIMAL(10, 2), n INT, ok BOOLEAN, day DATE,", "name STRING,")
    text = declared.format(
        insert="INSERT INTO serving SELECT * FROM orders", connector="upsert-kafka", more="",
        metadata=" n BIGINT METADATA FROM 'offset' VIRTUAL,",
    )  # fmt: skip
    (tmp_path / "orders.sql").write_text(text, "utf-8")
    with pytest.raises(NotJudgedError, match="'n' is an expression"):
        selection_of(bind(*load(tmp_path)).targets["serving"], {})


def test_records_are_told_as_they_are_declared(tmp_path: Path) -> None:
    target = bound(tmp_path, "INSERT INTO serving SELECT id, name, n FROM orders", more=", 'key-conflict' = 'key'")
    assert isinstance(target.source, TopicSource)
    form = form_of(target.source.kafka)
    assert (form.primary_key, form.key_counts) == (("id",), True)
    assert dict(form.key.columns) == {"id": "BIGINT NOT NULL"}
    assert form.value.names == ("name", "amount", "n", "ok", "day")
    assert form.value.columns["amount"] == "DECIMAL(10, 2)"


def test_tables_without_one_value_per_key_are_refused(tmp_path: Path) -> None:
    insert = "INSERT INTO serving SELECT id, name, n FROM orders"
    more = ", 'key.fields' = 'id', 'scan.startup.mode' = 'earliest-offset'"
    target = bound(tmp_path, insert, connector="kafka", more=more)
    assert isinstance(target.source, TopicSource)
    with pytest.raises(NotJudgedError, match="judges upsert-kafka tables"):
        form_of(target.source.kafka)


def test_a_batch_ends_where_the_last_of_its_ranges_does() -> None:
    """A partition that is read in several ranges is accounted for in any order."""
    accounts = {
        2: [
            RangeAccount("t", 0, 9, 12),
            RangeAccount("t", 0, 5, 9),
            RangeAccount("(quarantine)", -1, 0, 7),
            RangeAccount("(query)", 0, 0, 7),
        ],
        1: [RangeAccount("t", 0, 0, 5), RangeAccount("t", 1, 0, 3)],
    }
    assert ends_of_batches(accounts) == {1: {("t", 0): 5, ("t", 1): 3}, 2: {("t", 0): 12, ("t", 1): 3}}
