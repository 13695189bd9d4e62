"""Values and keys of every type through an upsert session (catalogue 6.1, 15, 16, 23 to 26)."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd

from upsert_platform_tests.local.maxcompute.upsert_sessions import Rows, code_of, create, upsert


def test_15_null_in_not_null_column(odps: Any, tunnel: Any, name: str) -> None:
    create(odps, name, "k string not null, v string not null")
    session = tunnel.create_upsert_session(name)
    assert code_of(lambda: upsert(session, [("a", None)])) == "DataStoreError"


def test_16_null_key(odps: Any, tunnel: Any, name: str) -> None:
    create(odps, name)
    session = tunnel.create_upsert_session(name)
    assert code_of(lambda: upsert(session, [(None, "v")])) == "InternalError"


TYPES = {
    "tinyint": -128,
    "smallint": 32767,
    "int": -(2**31),
    "bigint": 2**63 - 1,
    "float": 1.5,
    "double": -2.25,
    "boolean": False,
    "string": "中文 \x00 'quoted'",
    "char(5)": "ab   ",
    "varchar(10)": "ab",
    "binary": b"\x00\xff",
    "decimal(10,2)": Decimal("-12345678.90"),
    "decimal(38,18)": Decimal("1.000000000000000001"),
    "date": date(1931, 5, 6),
    "datetime": datetime(2020, 2, 29, 12, 30, 1, 250000),  # noqa: DTZ001 - the client gives naive times
    "timestamp": pd.Timestamp("2020-02-29 12:30:01.123456789"),
    "timestamp_ntz": pd.Timestamp("1969-12-31 23:59:59.999999999"),
    "json": {"a": [1, None]},
    "array<string>": ["a", None, ""],
    "map<string,bigint>": {"a": 1, "b": None},
    "struct<x:bigint,y:array<date>>": (1, [date(2020, 1, 1)]),
}


def test_23_every_value_type(odps: Any, tunnel: Any, name: str) -> None:
    columns = ", ".join(f"c{index} {text}" for index, text in enumerate(TYPES))
    create(odps, name, f"k bigint not null, {columns}")
    session = tunnel.create_upsert_session(name)
    upsert(session, [(1, *TYPES.values()), (2, *([None] * len(TYPES)))], compress=True)
    session.commit()
    with odps.execute_sql(f"select * from {name} order by k").open_reader(tunnel=True) as reader:
        full, empty = list(reader)
    for index, (text, value) in enumerate(TYPES.items()):
        found = full[f"c{index}"]
        if text == "json":
            found = json.loads(found)
        assert found == value, text
        assert empty[f"c{index}"] is None, text


def test_24_every_key_type(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    names = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "char(20)", "string")
    columns = ", ".join(f"k{index} {text} not null" for index, text in enumerate(names))
    create(odps, name, f"{columns}, v string", key=[f"k{index}" for index in range(len(names))])
    key = (1, 2, 3, 4, 1.5, 2.5, True, "abc", "text")
    for value in ("old", "new"):
        session = tunnel.create_upsert_session(name)
        upsert(session, [(*key, value)])
        session.commit()
    assert rows(f"select * from {name}") == [(*key[:7], "abc".ljust(20), "text", "new")]


def test_25_datetime_key(odps: Any, tunnel: Any, name: str) -> None:
    create(odps, name, "k datetime not null, v string")
    assert tunnel.create_upsert_session(name).hash_keys == ["k"]


def test_26_key_columns_need_not_come_first(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    create(odps, name, "v string, key1 string not null, key2 string not null", key=["key1", "key2"])
    session = tunnel.create_upsert_session(name)
    records = [("v1", "k1", "k2"), ("v2", "k1", "k2"), ("v3", "k3", "k4"), ("v4", "k5", "k6")]
    upsert(session, records, delete=[("v4", "k5", "k6")], compress=True)
    session.commit()
    assert rows(f"select * from {name}") == [("v2", "k1", "k2"), ("v3", "k3", "k4")]


def test_times_are_kept_as_utc(odps: Any, tunnel: Any, name: str) -> None:
    create(odps, name, "k bigint not null, t timestamp")
    session = tunnel.create_upsert_session(name)
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    upsert(session, [(1, pd.Timestamp(moment))])
    session.commit()
    with odps.execute_sql(f"select cast(t as string) as t from {name}").open_reader(tunnel=True) as reader:
        assert next(iter(reader))["t"] == "2020-01-01 00:00:00"
