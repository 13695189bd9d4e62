"""Declarations of a Tablestore table: what is accepted, and the message of every rule."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest

from upsert_platform.tablestore.options import DeleteMode, InsertMode
from upsert_platform.tablestore.table import read_tablestore_table
from upsert_platform.tablestore.types import StoredType
from upsert_platform_tests.tablestore.declared import PLACE, declare

COLUMNS = {"name": "STRING", "id": "BIGINT NOT NULL", "day": "DATE NOT NULL", "raw": "BYTES"}


def _problems(
    columns: Mapping[str, str] = COLUMNS,
    key: tuple[str, ...] = ("id",),
    options: Mapping[str, str] | None = None,
    *,
    name: str = "users",
) -> list[str]:
    table, problems = read_tablestore_table(declare(columns, key, options, name=name))
    errors = [problem for problem in problems if problem.severity == "error"]
    assert (table is None) == bool(errors)
    assert all(problem.location == PLACE for problem in problems)
    return [str(problem) for problem in problems]


def test_defaults() -> None:
    table, problems = read_tablestore_table(declare(COLUMNS, ("day", "id")))
    assert problems == []
    assert table is not None
    assert [(column.name, column.stored) for column in table.primary_key] == [
        ("day", StoredType.STRING),
        ("id", StoredType.INTEGER),
    ]
    assert [column.name for column in table.attributes] == ["name", "raw"]
    settings = table.settings
    assert (table.table_name, settings.insert_mode, settings.delete_mode) == ("users", InsertMode.PUT, DeleteMode.ROW)
    assert (settings.auto_create, settings.max_concurrency, settings.on_error) == (False, 10, "quarantine")
    assert (settings.flush_rows, settings.flush_bytes) == (200, 4 * 1024 * 1024)
    assert settings.retry_deadline == timedelta(minutes=5)
    assert (settings.time_to_live, settings.max_versions, settings.reserved_write) == (-1, 1, 0)


def test_values_are_accepted_in_any_case_and_trimmed() -> None:
    table, _ = read_tablestore_table(
        declare(
            COLUMNS,
            ("id",),
            {"insert.mode": "UPDATE", "delete.mode": "row_and_column ", "auto.create": "True", "table.name": "Users_1"},
        )
    )
    assert table is not None
    assert table.settings.delete_mode is DeleteMode.ROW_AND_COLUMN
    assert (table.table_name, table.settings.insert_mode) == ("Users_1", InsertMode.UPDATE)


def test_no_secret_is_shown() -> None:
    table, _ = read_tablestore_table(declare(COLUMNS, ("id",)))
    assert table is not None
    assert "test-secret" not in repr(table)
    assert "test-id" not in repr(table)


STS = {"tablestore.auth.mode": "sts"}
ROLE = {"account.id": "123", "role.name": "writer"}
RULES = [
    ("1.2 missing", {"tablestore.endpoint": ""}, "option 'tablestore.endpoint' takes an address"),
    ("1.2 scheme", {"tablestore.endpoint": "ftp://x"}, "option 'tablestore.endpoint' takes an address"),
    ("1.2 credentials in the address", {"tablestore.endpoint": "https://u:p@x"}, "takes no user name or password"),
    *(
        ("1.2 of Kafka Connect", {name: "1"}, f"option '{name}' belongs to a configuration file of Kafka Connect")
        for name in (
            "flush.Interval",
            "buffer.size",
            "primarykey.mode",
            "tablestore.mode",
            "key.converter.schemas.enable",
            "runtime.error.mode",
            "tablestore.users.primarykey.name",
            "tablestore.timeseries.users.time",
            "transforms",
        )
    ),
    ("1.2 unknown option", {"insert.modes": "put"}, "unknown option 'insert.modes'; did you mean 'insert.mode'?"),
    ("1.2 insert mode", {"insert.mode": "upsert"}, "option 'insert.mode'"),
    ("1.2 delete mode", {"delete.mode": "all"}, "option 'delete.mode'"),
    ("1.2 concurrency", {"max.concurrency": "0"}, "option 'max.concurrency'"),
    ("1.2 auth mode", {"tablestore.auth.mode": "ram"}, "option 'tablestore.auth.mode'"),
    ("1.2 sts with a key", {"tablestore.auth.mode": "STS"}, "with a key needs 'tablestore.sts.token', or 'account.id'"),
    ("1.2 a token needs sts", {"tablestore.sts.token": "x"}, "needs 'tablestore.auth.mode' = 'sts'"),
    ("1.2 a role needs sts", ROLE, "'role.name' needs 'tablestore.auth.mode' = 'sts'"),
    ("1.2 role alone", {**STS, "role.name": "r"}, "'account.id' and 'role.name' go together"),
    ("1.2 account", {**STS, **ROLE, "account.id": "a1"}, "option 'account.id'"),
    ("1.2 age of a role", {**STS, **ROLE, "client.time.out.ms": "0"}, "option 'client.time.out.ms'"),
    ("1.2 no secret", {"tablestore.access.key.secret": ""}, "go together; one is missing"),
    (
        "1.2 no key",
        {"tablestore.access.key.id": "", "tablestore.access.key.secret": ""},
        "'tablestore.auth.mode' = 'aksk' needs 'tablestore.access.key.id' and 'tablestore.access.key.secret'",
    ),
    ("3.3 table name", {"table.name": "1a"}, "option 'table.name' takes a letter or '_'"),
    ("3.3 control table name", {"control.table": "é"}, "option 'control.table' takes a letter or '_'"),
    ("5.1 rows per request", {"sink.buffer-flush.max-rows": "201"}, "option 'sink.buffer-flush.max-rows'"),
    ("5.1 bytes per request", {"sink.buffer-flush.max-bytes": "5 mb"}, "option 'sink.buffer-flush.max-bytes'"),
    ("5.1 time to live", {"table.time-to-live": "3600"}, "takes -1 or at least 86400 seconds"),
    ("5.1 capacity", {"table.reserved-throughput.write": "100001"}, "table.reserved-throughput.write"),
    ("D13 on-error", {"on-error": "ignore"}, "option 'on-error'"),
    ("version column declared", {"version.column": "name"}, "'name' is a declared column"),
    ("duration", {"retry.deadline": "0 s"}, "takes a duration above zero"),
]


@pytest.mark.parametrize(("rule", "options", "message"), RULES, ids=[rule[0] for rule in RULES])
def test_option_rules(rule: str, options: Mapping[str, str], message: str) -> None:
    assert any(message in problem for problem in _problems(options=options)), rule


SHAPES = [
    ("no key", COLUMNS, (), "has 1 to 4 primary key columns, not 0"),
    (
        "3.3 five keys",
        dict.fromkeys("abcde", "INT"),
        tuple("abcde"),
        "has 1 to 4 primary key columns, not 5",
    ),
    ("3.3 double key", {"id": "DOUBLE", "a": "INT"}, ("id",), "primary key column 'id' is of type DOUBLE"),
    ("3.3 boolean key", {"id": "BOOLEAN NOT NULL"}, ("id",), "is of type BOOLEAN NOT NULL"),
    ("3.3 nested key", {"id": "ARRAY<INT>"}, ("id",), "is of type ARRAY<INT>"),
    ("3.3 column name", {"id": "INT", "größe": "INT"}, ("id",), "column 'größe': Tablestore takes a letter"),
    ("3.3 long name", {"id": "INT", "x" * 256: "INT"}, ("id",), "255 characters at most"),
    ("unknown key", {"id": "INT"}, ("ids",), "primary key column 'ids' is not a physical column; did you mean 'id'?"),
    ("double key column", {"id": "INT"}, ("id", "id"), "a column stands twice"),
    ("5.1 columns", {"id": "INT"} | {f"c{n}": "INT" for n in range(1025)}, ("id",), "1025 columns beside"),
]


@pytest.mark.parametrize(("rule", "columns", "key", "message"), SHAPES, ids=[shape[0] for shape in SHAPES])
def test_shape_rules(rule: str, columns: Mapping[str, str], key: tuple[str, ...], message: str) -> None:
    assert any(message in problem for problem in _problems(columns, key)), rule


def test_3_3_the_declared_name_must_be_a_table_name_unless_one_is_given() -> None:
    assert "set 'table.name'" in _problems(name="my-users")[0]
    assert _problems(name="my-users", options={"table.name": "my_users"}) == []


def test_update_needs_a_column_beside_the_key() -> None:
    problems = _problems({"id": "INT"}, ("id",), {"insert.mode": "update", "delete.mode": "row_and_column"})
    assert "needs a column beside the primary key" in problems[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delete.mode": "none"}, "a deleted key leaves a row with its primary key alone"),
        ({"delete.mode": "row", "insert.mode": "update"}, "a column that becomes null keeps its old value"),
        ({"delete.mode": "column", "insert.mode": "update"}, "leaves a row with its primary key and undeclared"),
    ],
)
def test_modes_that_let_the_table_differ_are_warned_of(options: Mapping[str, str], message: str) -> None:
    problems = _problems(options=options)
    assert len(problems) == 1
    assert ": warning: " in problems[0]
    assert message in problems[0]
