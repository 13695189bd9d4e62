"""Which columns are masked, as declared and as inserts and queries carry them on. No servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from upsert_platform.core.destination import RefusedRow
from upsert_platform.core.errors import DeclarationError
from upsert_platform.core.masking import MASKED, Mask
from upsert_platform.declarations.project import load_project
from upsert_platform.sync.binding import Binding, bind
from upsert_platform.sync.connectors import CONNECTORS

KAFKA = "'connector' = 'upsert-kafka', 'properties.bootstrap.servers' = 'h:1', 'key.format' = 'json',"
SOURCES = f"""
CREATE TABLE users (id BIGINT, mail STRING, city STRING, spent INT, domain AS SUBSTRING(mail, 1, 3),
  PRIMARY KEY (id) NOT ENFORCED) WITH ({KAFKA} 'value.format' = 'json', 'topic' = 'users', 'mask.columns' = 'mail');
CREATE TABLE cities (city STRING, mayor STRING, PRIMARY KEY (city) NOT ENFORCED) WITH ({KAFKA}
  'value.format' = 'json', 'topic' = 'cities'{{more}});
"""


def bound(folder: Path, text: str) -> Binding:
    (folder / "tables.sql").write_text(text)
    return bind(*load_project(folder, {}, connectors=CONNECTORS))


def written(columns: str, key: str, query: str, *, options: str = "") -> str:
    return (
        f"CREATE TABLE t ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ({KAFKA} 'value.format' = 'json',"
        f" 'topic' = 't'{options}); INSERT INTO t {query};"
    )


CARRIED = {
    "as it is": (written("id BIGINT, m STRING, c STRING", "id", "SELECT id, mail, city FROM users"), {"m"}),
    "in an expression": (
        written("id BIGINT, m STRING, c STRING", "id", "SELECT id, UPPER(city), CONCAT(city, mail) FROM users"),
        {"c"},
    ),
    "of a computed column": (written("id BIGINT, d STRING", "id", "SELECT id, domain FROM users"), {"d"}),
    "what is declared too": (
        written("id BIGINT, m STRING", "id", "SELECT id, city FROM users", options=", 'mask.columns' = 'id'"),
        {"id"},
    ),
    "as the key of a group": (
        written("m STRING, n BIGINT", "m", "SELECT mail, COUNT(*) FROM users GROUP BY mail"), {"m"},
    ),
    "as an extreme of a group": (
        written("c STRING, m STRING, s INT", "c", "SELECT city, MAX(mail), SUM(spent) FROM users GROUP BY city"), {"m"},
    ),
    "through a join": (
        written(
            "id BIGINT, m STRING, w STRING",
            "id",
            "SELECT u.id, u.mail, c.mayor FROM users u JOIN cities c ON u.city = c.city",
        ),
        {"m"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CARRIED)
def test_what_is_made_of_a_masked_column_is_masked(case: str, tmp_path: Path) -> None:
    text, masked = CARRIED[case]
    target = bound(tmp_path, SOURCES.format(more="") + text).targets["t"]
    assert Mask.of(target.table).columns == masked
    assert Mask.of(target.checked.table).columns == masked, "what tasks have"


def test_the_result_of_a_query_is_masked_as_its_table_is(tmp_path: Path) -> None:
    text, masked = CARRIED["as an extreme of a group"]
    (query,) = bound(tmp_path, SOURCES.format(more="") + text).queries.values()
    assert len(Mask.of(query.table).columns) == len(masked)
    text, _ = CARRIED["through a join"]
    both = bound(tmp_path, SOURCES.format(more=", 'mask.columns' = 'mayor'") + text)
    assert Mask.of(both.targets["t"].table).columns == {"m", "w"}


def test_a_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    text, _ = CARRIED["as it is"]
    with pytest.raises(DeclarationError, match=r"'mask.columns' names 'mayr'.*did you mean 'mayor'"):
        bound(tmp_path, SOURCES.format(more=", 'mask.columns' = 'mayr'") + text)
    with pytest.raises(DeclarationError, match=r"unknown option 'mask.column'; did you mean 'mask.columns'"):
        bound(tmp_path, SOURCES.format(more=", 'mask.column' = 'mayor'") + text)


def test_a_column_whose_values_name_partitions_is_refused(tmp_path: Path) -> None:
    text = (
        SOURCES.format(more="")
        + """
        CREATE TABLE t (id BIGINT, city STRING, PRIMARY KEY (id) NOT ENFORCED) PARTITIONED BY (city) WITH (
          'connector' = 'maxcompute', 'odps.end.point' = 'http://h', 'odps.project.name' = 'p', 'odps.access.id' = 'a',
          'odps.access.key' = 'k', 'table.name' = 't', 'sink.operation' = 'upsert', 'mask.columns' = 'city');
        INSERT INTO t SELECT id, city FROM users;
    """
    )
    with pytest.raises(DeclarationError, match="whose values are names of partitions"):
        bound(tmp_path, text)


def test_without_masks_everything_is_told(tmp_path: Path) -> None:
    text = SOURCES.format(more="").replace(", 'mask.columns' = 'mail'", "") + CARRIED["as it is"][0]
    mask = Mask.of(bound(tmp_path, text).targets["t"].table)
    row = RefusedRow('{"id": 1}', '{"id": 1, "m": "x"}', "column 'm' holds x")
    assert not mask
    assert (mask.told(row), mask.object(row.row)) == ("{\"id\": 1}: column 'm' holds x", row.row)


REASONS = {
    "value: column 'mail': 'a@b' is not a number": "value: column mail: ***",
    "key: Expecting value at line 1: 'a@b'": "key: ***",
    "the row has 3,000 bytes beginning a@b": "***",
}


@pytest.mark.parametrize("reason", REASONS)
def test_reasons_name_columns_and_sides_alone(reason: str, tmp_path: Path) -> None:
    mask = Mask(frozenset({"mail"}), ("id", "mail"))
    assert mask.reason(reason) == REASONS[reason]
    assert mask.object('{"id": 1, "mail": "a@b", "raw": "a@b", "offset": 3}') == (
        f'{{"id":1,"mail":"{MASKED}","raw":"{MASKED}","offset":3}}'
    )
    assert mask.object("a@b") == MASKED
