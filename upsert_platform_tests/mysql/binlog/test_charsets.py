"""Statements of clients with other character sets than UTF-8."""

from __future__ import annotations

import pytest

from upsert_platform.mysql.binlog.changes import SchemaChange
from upsert_platform.mysql.binlog.charsets import charset_of
from upsert_platform.mysql.columns import MySqlColumn
from upsert_platform_tests.mysql.binlog.reading import log_reader, read_all, table_of
from upsert_platform_tests.mysql.event_bytes import query

TABLE = table_of(MySqlColumn("id", "int"))
SQL = "ALTER TABLE `{}` ADD x INT"
CLIENTS = [
    (45, "utf-8", "订单é"),
    (255, "utf-8", "订单é"),
    (33, "utf-8", "订单"),
    (8, "cp1252", "commandé€"),
    (1032, "cp1252", "commandé€"),
    (28, "gbk", "订单丂乣"),
    (248, "gb18030", "订单乣"),
    (1, "big5", "訂單功"),
    (13, "shift_jis", "注文表ソ"),
    (95, "cp932", "注文①"),
    (12, "euc_jp", "注文"),
    (19, "cp949", "주문"),
    (51, "cp1251", "заказ"),
]


def told(sql: bytes, collation: int, modes: int = 0) -> SchemaChange:
    (found,) = read_all(log_reader(TABLE), [query(sql, end=100, collation=collation, modes=modes)])
    assert isinstance(found, SchemaChange)
    return found


@pytest.mark.parametrize(("collation", "codec", "name"), CLIENTS)
def test_a_statement_is_read_by_the_character_set_of_its_client(collation: int, codec: str, name: str) -> None:
    """Second bytes of some are those of a backslash or of a quote."""
    sql = SQL.format(name)
    found = told(sql.encode(codec), collation)
    assert (found.sql, found.illegible, found.strict) == (sql, None, False)


def test_the_modes_of_a_session_are_read_before_its_client() -> None:
    assert told(b"ALTER TABLE t ADD x INT", 28, modes=1 << 22).strict


@pytest.mark.parametrize(("collation", "charset"), [(28, "gbk"), (45, "utf8mb4"), (3, "dec8"), (0, "utf8mb4")])
def test_bytes_that_a_client_cannot_have_sent_are_told(collation: int, charset: str) -> None:
    found = told(b"ALTER TABLE `\xff\xff` ADD x INT", collation)
    assert found.illegible == charset
    assert found.sql.startswith("ALTER TABLE `\\xff")
    assert told(b"ALTER TABLE t ADD x INT", collation).illegible is None


def test_collations_that_are_not_known_are_of_utf8() -> None:
    assert [charset_of(number) for number in (97, 1121, 2304, 309, 63)] == ["eucjpms", "eucjpms", *["utf8mb4"] * 3]
