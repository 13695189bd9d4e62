"""Values of every type, their bytes written from the protocol's description and the server's sources."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.columns import MySqlColumn, TypeRules, ZeroDates
from upsert_platform_tests.mysql.binlog.reading import read_values


def column(kind: str, **rest: Any) -> MySqlColumn:
    return MySqlColumn("c", kind, **rest)


def clock(days: int, hour: int, minute: int, second: int) -> int:
    return days << 17 | hour << 12 | minute << 6 | second


LONG = b"\x80" + b"\x00" * 6 + b"\x01"
LATE = ((2024 * 13 + 2) << 5) | 29
FEBRUARY_31 = ((2024 * 13 + 2) << 5) | 31
# Name, type in the log, its metadata, the column, the bytes, the value.
VALUES = [
    ("tinyint", 1, b"", column("tinyint", length=4), b"\x80", -128),
    ("tinyint unsigned", 1, b"", column("tinyint", unsigned=True), b"\xff", 255),
    ("tinyint(1) is a number", 1, b"", column("tinyint", length=1), b"\x02", 2),
    ("smallint", 2, b"", column("smallint"), b"\x00\x80", -32768),
    ("smallint unsigned", 2, b"", column("smallint", unsigned=True), b"\xff\xff", 65535),
    ("mediumint", 9, b"", column("mediumint"), b"\x00\x00\x80", -8388608),
    ("mediumint unsigned", 9, b"", column("mediumint", unsigned=True), b"\xff\xff\xff", 16777215),
    ("int", 3, b"", column("int"), b"\xff\xff\xff\xff", -1),
    ("int unsigned", 3, b"", column("int", unsigned=True), b"\xff\xff\xff\xff", 4294967295),
    ("bigint", 8, b"", column("bigint"), b"\x00" * 7 + b"\x80", -(2**63)),
    ("bigint unsigned", 8, b"", column("bigint", unsigned=True), b"\xff" * 8, Decimal(2**64 - 1)),
    ("float", 4, b"\x04", column("float"), struct.pack("<f", -1.5), -1.5),
    ("double", 5, b"\x08", column("double"), struct.pack("<d", 1e300), 1e300),
    ("year", 13, b"", column("year"), b"\x7c", 2024),
    ("year 0", 13, b"", column("year"), b"\x00", 0),
    ("bit(10)", 16, b"\x02\x01", column("bit", length=10), b"\x02\x01", b"\x02\x01"),
    ("bit(1) is a boolean", 16, b"\x01\x00", column("bit", length=1), b"\x01", True),
    ("bit(64)", 16, b"\x00\x08", column("bit", length=64), LONG, LONG),
    # 1234567890.1234 as the server's own comment on the form has it.
    ("decimal(14,4)", 246, b"\x0e\x04", column("decimal", precision=14, fraction=4),
     bytes.fromhex("810dfb38d204d2"), Decimal("1234567890.1234")),
    ("decimal(14,4) below 0", 246, b"\x0e\x04", column("decimal", precision=14, fraction=4),
     bytes.fromhex("7ef204c72dfb2d"), Decimal("-1234567890.1234")),
    ("decimal(4,4)", 246, b"\x04\x04", column("decimal", precision=4, fraction=4), b"\x80\x01", Decimal("0.0001")),
    ("decimal(38,0)", 246, b"\x26\x00", column("decimal", precision=38),
     bytes([0x80 | 0x63]) + b"\x3b\x9a\xc9\xff" * 4, Decimal("9" * 38)),
    ("decimal(39,1) is text", 246, b"\x27\x01", column("decimal", precision=39, fraction=1),
     bytes([0x7F ^ 0x63]) + b"\xc4\x65\x36\x00" * 4 + b"\xfa", "-" + "9" * 38 + ".5"),
    ("date", 10, b"", column("date"), (2024 << 9 | 2 << 5 | 29).to_bytes(3, "little"), date(2024, 2, 29)),
    ("datetime(6)", 18, b"\x06", column("datetime", fraction=6),
     (clock(LATE, 23, 59, 58) + (1 << 39)).to_bytes(5, "big") + (123456).to_bytes(3, "big"),
     datetime(2024, 2, 29, 23, 59, 58, 123456)),  # noqa: DTZ001
    ("datetime(1)", 18, b"\x01", column("datetime", fraction=1),
     (clock(LATE, 0, 0, 0) + (1 << 39)).to_bytes(5, "big") + bytes([70]), datetime(2024, 2, 29, 0, 0, 0, 700000)),  # noqa: DTZ001
    ("datetime before 5.6.4", 12, b"", column("datetime"), (20240229235958).to_bytes(8, "little"),
     datetime(2024, 2, 29, 23, 59, 58)),  # noqa: DTZ001
    ("timestamp(3)", 17, b"\x03", column("timestamp", fraction=3), (1).to_bytes(4, "big") + (1230).to_bytes(2, "big"),
     datetime(1970, 1, 1, 0, 0, 1, 123000, tzinfo=UTC)),
    ("timestamp before 5.6.4", 7, b"", column("timestamp"), b"\xff\xff\xff\x7f",
     datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC)),
    ("time(2) below 0 with a fraction", 19, b"\x02", column("time", fraction=2),
     ((1 << 31) - (1 << 8 | 50)).to_bytes(4, "big"), -1_500_000),
    ("time(6), the least", 19, b"\x06", column("time", fraction=6),
     ((1 << 47) - (clock(0, 838, 59, 59) << 24)).to_bytes(6, "big"), -(838 * 3600 + 59 * 60 + 59) * 1_000_000),
    ("time", 19, b"\x00", column("time"), ((1 << 23) + clock(0, 1, 2, 3)).to_bytes(3, "big"), 3_723_000_000),
    ("time before 5.6.4", 11, b"", column("time"), (-10203).to_bytes(3, "little", signed=True), -3_723_000_000),
    ("enum", 254, b"\xf7\x01", column("enum", elements=("a", "b")), b"\x02", "b"),
    ("enum that was none", 254, b"\xf7\x01", column("enum", elements=("a", "b")), b"\x00", ""),
    ("set", 254, b"\xf8\x01", column("set", elements=("a", "b", "c")), b"\x05", "a,c"),
    ("set of 64", 254, b"\xf8\x08", column("set", elements=tuple(f"e{n}" for n in range(64))),
     b"\x01" + b"\x00" * 6 + b"\x80", "e0,e63"),
    ("varchar(10)", 15, b"\x28\x00", column("varchar", length=10, charset="utf8mb4"), b"\x05\xc3\xa9\xe2\x82\xac",
     "é€"),
    ("varchar(300)", 15, b"\xb0\x04", column("varchar", length=300, charset="utf8mb4"),
     b"\x2c\x01" + b"x" * 300, "x" * 300),
    ("latin1 is Windows' 1252", 15, b"\x0a\x00", column("varchar", length=10, charset="latin1"), b"\x03\xe9\x80\x81",
     "é€\x81"),
    ("gbk", 15, b"\x0a\x00", column("varchar", length=5, charset="gbk"), b"\x04\xc4\xe3\xba\xc3", "你好"),
    ("utf16", 15, b"\x0a\x00", column("varchar", length=5, charset="utf16"), b"\x02\x00a", "a"),
    # 255 characters of four bytes: the two high bits of 1020 stand inverted in the type's byte.
    ("char(255)", 254, bytes([0xFE ^ 0x30, 0xFC]), column("char", length=255, charset="utf8mb4"), b"\x01\x00a", "a"),
    ("binary(4) keeps its zero bytes", 254, b"\xfe\x04", column("binary", length=4), b"\x01\x07", b"\x07\x00\x00\x00"),
    ("varbinary(4)", 15, b"\x04\x00", column("varbinary", length=4), b"\x02\x07\x00", b"\x07\x00"),
    ("mediumblob", 252, b"\x03", column("mediumblob"), b"\x02\x00\x00\x00\xff", b"\x00\xff"),
    ("longtext", 252, b"\x04", column("longtext", charset="utf8mb4"), b"\x01\x00\x00\x00a", "a"),
    ("geometry", 255, b"\x04", column("point"),
     b"\x19\x00\x00\x00" + struct.pack("<IBIdd", 4326, 1, 1, 1.0, -2.5),
     '{"coordinates":[1,-2.5],"type":"Point","srid":4326}'),
    ("json", 245, b"\x04", column("json"), b"\x03\x00\x00\x00\x05\xff\xff", "-1"),
]  # fmt: skip


@pytest.mark.parametrize(("_name", "wire", "metadata", "declared", "data", "value"), VALUES, ids=[v[0] for v in VALUES])
def test_a_value_of_every_type(
    _name: str, wire: int, metadata: bytes, declared: MySqlColumn, data: bytes, value: object
) -> None:
    """Between two others, so that its width counts too; and NULL beside."""
    columns = [MySqlColumn("a", "int"), declared, MySqlColumn("b", "int")]
    one = b"\1\0\0\0"
    found = read_values([3, wire, 3], metadata, [one, data, one], columns, TypeRules())
    assert found == [1, value, 1]
    assert type(found[1]) is type(value)
    assert read_values([3, wire, 3], metadata, [one, None, one], columns, TypeRules()) == [1, None, 1]


DATES = [
    ("date", 10, b"", column("date"), b"\0\0\0"),
    ("date without a day", 10, b"", column("date"), (2024 << 9 | 2 << 5).to_bytes(3, "little")),
    ("date after the month's end", 10, b"", column("date"), (2023 << 9 | 2 << 5 | 29).to_bytes(3, "little")),
    ("datetime", 18, b"\0", column("datetime"), (1 << 39).to_bytes(5, "big")),
    ("datetime after the month's end", 18, b"\0", column("datetime"),
     (clock(FEBRUARY_31, 0, 0, 0) + (1 << 39)).to_bytes(5, "big")),
    ("datetime before 5.6.4", 12, b"", column("datetime"), bytes(8)),
    ("timestamp", 17, b"\6", column("timestamp", fraction=6), bytes(7)),
    ("timestamp before 5.6.4", 7, b"", column("timestamp"), bytes(4)),
]  # fmt: skip


@pytest.mark.parametrize(("_name", "wire", "metadata", "declared", "data"), DATES, ids=[v[0] for v in DATES])
def test_dates_that_do_not_exist_follow_the_policy(
    _name: str, wire: int, metadata: bytes, declared: MySqlColumn, data: bytes
) -> None:
    assert read_values([wire], metadata, [data], [declared], TypeRules()) == [None]
    with pytest.raises(ReplicationError, match=r"column 'c': 1 of 1 values are dates that do not exist.*zero-dates"):
        read_values([wire], metadata, [data], [declared], TypeRules(zero_dates=ZeroDates.FAIL))


REFUSED = [
    (3, b"", column("bigint"), b"\0" * 4, "is bigint in the catalogue and LONG in the log; the table was changed"),
    (18, b"\3", column("datetime", fraction=6), b"\0" * 7, r"and DATETIME2 \(3,\) in the log"),
    (246, b"\x0e\x04", column("decimal", precision=14, fraction=2), b"\0" * 7, "and NEWDECIMAL"),
    (254, b"\xf7\x01", column("enum", elements=("a",)), b"\2", "element 2 of its ENUM and the catalogue tells 1"),
    (254, b"\xf8\x01", column("set", elements=("a",)), b"\2", "element 2 of its SET and the catalogue tells 1"),
    (15, b"\x0a\0", column("varchar", charset="utf8mb4"), b"\1\xff", "a value is not UTF-8"),
    (15, b"\x0a\0", column("varchar", charset="gbk"), b"\1\xff", "has the byte 0xff, which the character set gbk"),
    (15, b"\x0a\0", column("varchar", charset="swe7"), b"\1a", "has the character set swe7, which is not read"),
    (254, b"\xfe\x10", column("uuid"), b"\0", "has the type uuid, which is not read"),
    (140, b"\1", column("text", charset="utf8mb4"), b"\0", "and MARIADB_BLOB_COMPRESSED"),
    (18, b"", column("datetime", fraction=3), b"", "ends 1 bytes too early"),
    (12, b"", column("datetime", fraction=3), b"\0" * 8, "MariaDB's own form"),
    (77, b"", column("int"), b"\0", "column 1 has the unknown type 77"),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "metadata", "declared", "data", "told"), REFUSED, ids=[v[4][:30] for v in REFUSED])
def test_what_cannot_be_read_is_told(wire: int, metadata: bytes, declared: MySqlColumn, data: bytes, told: str) -> None:
    with pytest.raises(ReplicationError, match=told):
        read_values([wire], metadata, [data], [declared], TypeRules())
