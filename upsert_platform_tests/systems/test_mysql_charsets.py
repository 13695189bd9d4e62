"""Every code of every character set that is read, as a server converts it, and statements of clients that use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pymysql
import pytest

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog.charsets import CODECS, charset_of, decoded
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform_tests.systems.followed import Followed

pytestmark = pytest.mark.systems
DOUBLE = ("gbk", "gb2312", "gb18030", "big5", "sjis", "cp932", "ujis", "eucjpms", "euckr")
WIDE = ("ucs2", "utf16", "utf16le", "utf32")
BLOCK = 4_000


def codes_of(charset: str) -> list[bytes]:
    """What may be a character: of bytes that the server does not take for one, nothing is asked."""
    found = [bytes([first]) for first in range(1, 256)]
    if charset in DOUBLE:
        found += [bytes([first, second]) for first in range(0x80, 256) for second in range(0x30, 256)]
    if charset in ("ujis", "eucjpms"):
        found += [bytes([0x8F, first, second]) for first in range(0xA1, 255) for second in range(0xA1, 255)]
    if charset == "gb18030":
        found += [
            bytes([first, 0x30 + second, third, 0x30 + fourth])
            for first in range(0x81, 0x85)
            for second in range(10)
            for third in range(0x81, 255)
            for fourth in range(10)
        ]
    return found


def charsets(connection: Connection) -> list[str]:
    known = connection.query("SELECT character_set_name FROM information_schema.character_sets")
    return sorted({str(name) for (name,) in known} & CODECS.keys() - set(WIDE))


def test_every_code_is_what_the_server_makes_of_it(connection: Connection, schema: str) -> None:
    """A code that is no character of a set becomes a question mark, which is right where it is told to be."""
    wrong = []
    for charset in charsets(connection):
        codes = codes_of(charset)
        connection.query(f"DROP TABLE IF EXISTS {schema}.codes")
        connection.query(f"CREATE TABLE {schema}.codes (n INT PRIMARY KEY, code VARBINARY(4))")
        for start in range(0, len(codes), BLOCK):
            rows = ", ".join(f"({start + at}, x'{code.hex()}')" for at, code in enumerate(codes[start : start + BLOCK]))
            connection.query(f"INSERT INTO {schema}.codes VALUES {rows}")
        own = f"CONVERT(code USING {charset})"
        select = (
            f"SELECT code, CONVERT({own} USING utf8mb4) FROM {schema}.codes WHERE CONVERT({own} USING binary) = code"
        )
        same = 0
        for code, text in connection.query(select):
            if not text or len(text) > 1 or (text == "?" and read(code, charset) != "?"):
                continue
            same += 1
            if read(code, charset) != text:
                wrong.append((charset, code.hex(), text, read(code, charset)))
        assert same > (1_000 if charset in DOUBLE else 190), charset
    assert wrong == []


def read(code: bytes, charset: str) -> str | None:
    try:
        return decoded(code, charset)
    except UnicodeDecodeError:
        return None


def test_collations_are_those_of_the_server(connection: Connection) -> None:
    known = connection.query("SELECT id, character_set_name FROM information_schema.collations WHERE id IS NOT NULL")
    utf8 = ("utf8mb3", "utf8mb4", "utf8", "ascii", "binary", *WIDE)
    own = {number: "utf8mb4" if charset in utf8 else charset for number, charset in known if charset is not None}
    assert len(own) > 250
    assert {number: charset_of(int(number)) for number in own} == own


CLIENTS = [("gbk", "订单乣"), ("latin1", "commandé"), ("sjis", "注文表")]


@pytest.mark.parametrize(("charset", "name"), CLIENTS)
def test_a_client_of_another_character_set_truncates_a_table(
    charset: str, name: str, connection: Connection, server: Server, schema: str, follow: Callable[..., Followed]
) -> None:
    connection.query(f"CREATE TABLE {schema}.`{name}` (id INT PRIMARY KEY)")
    connection.query(f"INSERT INTO {schema}.`{name}` VALUES (1), (2)")
    followed = follow(name, on_truncate="delete")
    followed.lake = followed.lake / charset
    followed.sync()
    given: dict[str, Any] = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    with pymysql.connect(**given, charset=charset, autocommit=True) as client, client.cursor() as cursor:
        cursor.execute(f"TRUNCATE TABLE {schema}.`{name}`")
        cursor.execute(f"INSERT INTO {schema}.`{name}` VALUES (3)")
    followed.sync()
    assert followed.rows() == [(3,)]
    with pymysql.connect(**given, charset="latin1", autocommit=True) as client, client.cursor() as cursor:
        cursor.execute("SET NAMES dec8")
        cursor.execute(b"CREATE TABLE " + schema.encode() + b".`\xe9` (id INT PRIMARY KEY)")
    with pytest.raises(ReplicationError, match="has bytes that the character set of its client, dec8, does not have"):
        followed.sync()
