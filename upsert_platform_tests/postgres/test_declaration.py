"""Declarations of PostgreSQL tables: what is read of their options, and what is refused with which remedy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Column, Options, Table
from upsert_platform.core.types import parse_type
from upsert_platform.postgres.connector import HologresConnector
from upsert_platform.postgres.copy import copy_rows
from upsert_platform.postgres.sql import Found, Name, cast_of, misfit, parse_name
from upsert_platform.postgres.table import PostgresTable
from upsert_platform_tests.postgres.declared import PLACE, declare

ID = {"id": "BIGINT", "name": "STRING"}


def test_options_by_the_names_of_flinks_jdbc_connector() -> None:
    url = "jdbc:postgresql://one:6432,[::1]/my%20shop?sslmode=verify-full&currentSchema=serving"
    table, problems = declare(ID, url=url, driver="org.postgresql.Driver")
    assert table is not None
    settings = table.settings
    assert settings.libpq == {
        "conninfo": "postgresql://one:6432,[::1]", "dbname": "my shop", "user": "writer", "sslmode": "verify-full",
        "target_session_attrs": "read-write",
    }  # fmt: skip
    assert table.place == Name("serving", "users")
    assert [(item.severity, item.message) for item in problems] == [
        ("warning", "table 'users': 'driver' has no effect: no JDBC driver is used")
    ]
    assert "of-the-writer" not in repr(settings)


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("url", "jdbc:mysql://h/db", "takes an address such as jdbc:postgresql://host:5432/database"),
        ("url", "jdbc:postgresql://h", "takes an address such as jdbc:postgresql://host:5432/database"),
        ("url", "jdbc:postgresql://me:secret@h/db", "takes no user or password; use 'username' and 'password'"),
        ("url", "jdbc:postgresql://h:five/db", "has the port 'five', which is no number"),
        ("url", "jdbc:postgresql://h/db?ssl=true", "has the parameter 'ssl'; known are sslmode, sslrootcert"),
        ("table-name", "a.b.c", "takes table, schema.table, or parts in double quotes"),
        ("table-name", "t" * 64, "PostgreSQL takes 63 bytes at most"),
        ("connection.max-retry-timeout", "0 s", "takes a duration above zero"),
        ("control.table", "users", "is the table itself, which would lose its rows to positions and leases"),
        ("control.table", "other.control", "takes a plain name"),
        ("tabel-name", "x", "unknown option 'tabel-name'; did you mean 'table-name'?"),
    ],
)
def test_options_that_are_refused(option: str, value: str, told: str) -> None:
    table, problems = declare(ID, **{option: value})
    assert table is None
    assert len(problems) == 1
    assert told in problems[0].message
    assert "secret" not in problems[0].message


def test_a_long_name_is_given_by_an_option() -> None:
    table, (problem,) = declare(ID, name="é" * 32)
    assert table is None
    assert problem.message.endswith("PostgreSQL takes names of 63 bytes; set 'table-name'")
    table, problems = declare(ID, name="é" * 32, **{"table-name": "é" * 31})
    assert (problems, table is not None and table.place.table) == ([], "é" * 31)


def test_keys_that_are_refused() -> None:
    for columns, key, told in (
        (ID, (), "a PRIMARY KEY ... NOT ENFORCED is required"),
        (ID, ("nam",), "primary key column 'nam' is not a physical column; did you mean 'name'?"),
        ({"id": "ARRAY<INT>"}, ("id",), "primary key column 'id' is of type ARRAY<INT>; use a scalar type"),
        ({"id": "ROW<a INT>"}, ("id",), "use a scalar type"),
        ({"id": "INT", "é" * 32: "INT"}, ("id",), "PostgreSQL takes names of 63 bytes; rename the column"),
    ):
        table, problems = declare(columns, key)
        assert table is None
        assert told in problems[0].message


@given(st.text(min_size=1, max_size=15), st.text(min_size=1, max_size=15))
def test_quoted_names_are_read_back(schema: str, table: str) -> None:
    assert parse_name(Name(schema, table).sql) == (schema, table)


def test_names_without_quotes() -> None:
    assert parse_name("Shop.Orders 1") == ("Shop", "Orders 1")
    assert parse_name('"a.b".c') == ("a.b", "c")


def test_columns_that_would_change_a_value_are_refused() -> None:
    """The server rounds numbers and seconds without a word, and cuts texts off where a cast names a length."""
    assert misfit(parse_type("DECIMAL(12, 4)"), Found("numeric", "numeric(10,2)", scale=2)) is not None
    assert misfit(parse_type("DECIMAL(12, 4)"), Found("numeric", "numeric")) is None
    stamp = "timestamp without time zone"
    assert misfit(parse_type("TIMESTAMP(6)"), Found(stamp, "timestamp(3) without time zone", scale=3)) is not None
    assert misfit(parse_type("TIMESTAMP(3)"), Found(stamp, "timestamp(3) without time zone", scale=3)) is None
    assert misfit(parse_type("TIMESTAMP(6)"), Found("timestamp with time zone", "timestamp with time zone")) is not None
    assert misfit(parse_type("BIGINT"), Found("integer", "integer")) is not None
    assert cast_of("s.c0", parse_type("STRING"), Found("character varying", "character varying(2)")) == "s.c0"


def test_rows_are_cells_of_a_length_and_a_value() -> None:
    """Against the layout of PostgreSQL's documentation of COPY, byte by byte."""
    columns = [pa.array([258, None], pa.int64()), pa.array(["é", ""]), pa.array([[1, None], []], pa.list_(pa.int32()))]
    types = [parse_type("BIGINT"), parse_type("STRING"), parse_type("ARRAY<INT>")]
    head = b"\0\0\0\x01\0\0\0\x01\0\0\0\x17\0\0\0\x02\0\0\0\x01"
    array = head + b"\0\0\0\x04\0\0\0\x01\xff\xff\xff\xff"
    first = b"\0\x03" + b"\0\0\0\x08\0\0\0\0\0\0\x01\x02" + b"\0\0\0\x02\xc3\xa9" + b"\0\0\0\x20" + array
    second = b"\0\x03" + b"\xff\xff\xff\xff" + b"\0\0\0\0" + b"\0\0\0\x0c\0\0\0\0\0\0\0\0\0\0\0\x17"
    assert bytes(copy_rows(columns, types)) == first + second
    assert bytes(copy_rows([column.slice(1) for column in columns], types)) == second
    assert copy_rows([column.slice(2) for column in columns], types).size == 0


def test_moments_beyond_64_bits_are_refused() -> None:
    column = pa.array(np.array([np.iinfo(np.int64).min + 1]), pa.int64()).cast(pa.timestamp("us"))
    with pytest.raises(ArithmeticError):
        copy_rows([column], [parse_type("TIMESTAMP(6)")])


HOLOGRES = {
    "endpoint": "h.example.com:80",
    "dbname": "shop@writers",
    "username": "BASIC$me",
    "password": "of-the-writer",
}


def _hologres(**options: str) -> tuple[PostgresTable | None, list[Problem]]:
    declared = Table(
        name="users",
        columns=tuple(Column(name, parse_type(kind)) for name, kind in ID.items()),
        primary_key=("id",),
        options=Options({"connector": "hologres", **HOLOGRES, **options}),
        location=PLACE,
    )
    return HologresConnector().check(declared)


def test_options_by_the_names_of_hologres_connector_for_flink() -> None:
    more = {"connection.ssl.mode": "verify-full", "connection.ssl.root-cert.location": "/ca.pem", "retry-count": "2"}
    table, problems = _hologres(tablename="serving.users", **more, jdbcwritebatchsize="256")
    assert table is not None
    settings = table.settings
    assert (settings.libpq["conninfo"], settings.libpq["dbname"]) == ("postgresql://h.example.com:80", "shop@writers")
    assert (table.place, settings.username, settings.max_retries) == (Name("serving", "users"), "BASIC$me", 2)
    assert (settings.parameters["sslmode"], settings.parameters["sslrootcert"]) == ("verify-full", "/ca.pem")
    assert settings.is_hologres
    assert [(item.severity, "has no effect" in item.message) for item in problems] == [("warning", True)]


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("mutatetype", "insertorignore", "option 'mutatetype' must be 'insertorupdate' or 'insert_or_update'"),
        ("ignoredelete", "true", "option 'ignoredelete' must be 'false'"),
        ("endpoint", "h:eighty", "has the port 'eighty', which is no number"),
        ("tablename", "a.b.c", "takes table, schema.table"),
        ("url", "jdbc:postgresql://h/d", "unknown option 'url'"),
    ],
)
def test_options_of_hologres_that_are_refused(option: str, value: str, told: str) -> None:
    table, problems = _hologres(**{option: value})
    assert table is None
    assert told in "; ".join(problem.message for problem in problems)
