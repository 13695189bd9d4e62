"""Rows in a PostgreSQL table: every type, rows that the server refuses, names, partitions, added columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from upsert_platform.core.destination import RefusedRow
from upsert_platform.core.errors import DestinationError, RecordError
from upsert_platform.postgres.destination import PostgresDestination
from upsert_platform.postgres.stage import Merge, StageStats
from upsert_platform.postgres.table import PostgresTable
from upsert_platform_tests.postgres.conftest import Tables
from upsert_platform_tests.postgres.declared import changes, found_rows, write

pytestmark = pytest.mark.systems
Ask = Callable[..., list[tuple[Any, ...]]]
EARLIEST = datetime.min  # noqa: DTZ901 (TIMESTAMP has no zone)
LATEST = datetime.max  # noqa: DTZ901
ALL_TYPES = {
    "id": "BIGINT", "text": "STRING", "flag": "BOOLEAN", "raw": "BYTES", "exact": "DECIMAL(38, 4)", "tiny": "TINYINT",
    "small": "SMALLINT", "whole": "INT", "single": "FLOAT", "wide": "DOUBLE", "day": "DATE", "clock": "TIME(3)",
    "moment": "TIMESTAMP(6)", "instant": "TIMESTAMP_LTZ(6)", "texts": "ARRAY<STRING>", "blobs": "ARRAY<BYTES>",
    "instants": "ARRAY<TIMESTAMP_LTZ(3)>", "counts": "MAP<STRING, INT>", "inner": "ROW<x INT, y ARRAY<DECIMAL(10, 2)>>",
}  # fmt: skip
FULL = (
    1, 'a\n"q",é\\', True, b"\x00\xff", Decimal("1.5"), -1, -300, 5, 1.5, math.inf, date(1, 1, 1), 3_600_000_000,
    LATEST, datetime(1969, 1, 1, tzinfo=UTC), ["x", None, 'q"{},\\'],
    [b"\x01", b"", None], [datetime(2020, 1, 1, tzinfo=UTC)], [("a", 1), ("b", None)],
    {"x": 1, "y": [Decimal("1.20")]}, "U",
)  # fmt: skip
EMPTY = (
    2, "", False, b"", Decimal("-0.0001"), 1, 3, 5, -math.inf, -1.25, date(9999, 12, 31), 0, EARLIEST,
    datetime(2020, 1, 1, tzinfo=UTC), [], [], [], [], {"x": None, "y": None}, "U",
)  # fmt: skip


def test_every_type_comes_back_as_it_was_written(postgres_tables: Tables, ask: Ask) -> None:
    table = postgres_tables(ALL_TYPES)
    nulls = (3, *[None] * 18, "U")
    rows = changes(ALL_TYPES, FULL, EMPTY, nulls)
    assert write(table, rows).upserts == 3
    assert found_rows(table, rows.select(["id"])).to_pylist() == rows.select(list(ALL_TYPES)).to_pylist()
    name = table.place.sql
    seen = ask(f'SELECT text, exact, whole, moment, instant, texts, counts, "inner" FROM {name} WHERE id = 1')
    assert seen == [
        (FULL[1], Decimal("1.5"), 5, FULL[12], FULL[13], FULL[14], {"a": 1, "b": None}, {"x": 1, "y": [1.2]})
    ]
    assert ask(f"SELECT count(*) FROM {name} WHERE id = 3 AND text IS NULL AND texts IS NULL AND counts IS NULL") == [
        (1,)
    ]


def test_columns_of_the_servers_own_types(postgres_tables: Tables, ask: Ask) -> None:
    """Texts into jsonb, uuid, enum, inet and char; what the server gives back is told to checks by `holder`."""
    columns = dict.fromkeys(("id", "doc", "mood", "address", "code"), "STRING")
    table = postgres_tables(columns, **{"auto.create": "false"})
    ask(f"CREATE TYPE public.\"mood of {table.name}\" AS ENUM ('sad', 'glad')")
    ask(
        f'CREATE TABLE {table.place.sql} (id uuid PRIMARY KEY, doc jsonb, mood "mood of {table.name}", address inet,'
        " code char(5), more int DEFAULT 7)"
    )
    key = "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"
    rows = changes(
        columns,
        (key, '{"b": 1,  "a": 2}', "glad", "10.0.0.1/32", "ab", "U"),
        (key.replace("A0", "B0"), "{", "glad", "::1", "ab", "U"),
        (key.replace("A0", "C0"), "1", "angry", "::1", "ab", "U"),
        (key.replace("A0", "D0"), "1", "sad", "::1", "too long", "U"),
    )
    refused: list[RefusedRow] = []
    report = write(table, rows, keep=refused.extend)
    assert (report.upserts, report.refused_count) == (1, 3)
    assert sorted(row.reason[:16] for row in refused) == ["SQLSTATE 22001: ", "SQLSTATE 22P02: ", "SQLSTATE 22P02: "]
    assert ask(f"SELECT id::text, doc, mood::text, code, more FROM {table.place.sql}") == [
        (key.lower(), {"a": 2, "b": 1}, "glad", "ab   ", 7)
    ]
    destination = PostgresDestination(table)
    held = destination.holder()
    assert held is not None
    expected = held(rows.slice(0, 1)).select(list(columns))
    assert expected.to_pylist() == found_rows(table, rows.slice(0, 1).select(["id"])).to_pylist()
    assert expected.column("id").to_pylist() == [key.lower()]
    assert held(rows.slice(1, 1)).equals(rows.slice(1, 1))  # the server refuses it
    destination.close()


def test_rows_that_break_a_rule_of_the_table_are_set_aside_and_the_others_written(
    postgres_tables: Tables, ask: Ask
) -> None:
    columns = {"id": "BIGINT", "name": "STRING"}
    table = postgres_tables(columns, **{"auto.create": "false"})
    ask(
        f"CREATE TABLE {table.place.sql} (id bigint PRIMARY KEY, name text UNIQUE CHECK (name <> 'bad'),"
        " CHECK (id < 100000))"
    )
    wrong = {7: "bad", 1500: "a\0b", 2999: "bad"}
    rows = changes(columns, *[(n, wrong.get(n, f"n{n}"), "U") for n in range(3000)], (200_000, "x", "U"))
    refused: list[RefusedRow] = []
    report = write(table, rows, keep=refused.extend)
    assert (report.upserts, report.refused_count) == (2997, 4)
    assert {row.key for row in refused} == {'{"id": 7}', '{"id": 1500}', '{"id": 2999}', '{"id": 200000}'}
    codes = {row.key: row.reason.split(":")[0] for row in refused}
    assert codes == {
        '{"id": 7}': "SQLSTATE 23514",
        '{"id": 1500}': "SQLSTATE 22021",
        '{"id": 2999}': "SQLSTATE 23514",
        '{"id": 200000}': "SQLSTATE 23514",
    }
    assert ask(f"SELECT count(*), count(*) FILTER (WHERE id IN (7, 1500, 2999)) FROM {table.place.sql}") == [(2997, 0)]
    # A value of a unique column passes from a deleted key to a new one within one batch.
    moved = changes(columns, (3000, "n5", "U"), (5, None, "D"))
    assert write(table, moved, 2).deletes == 1
    assert ask(f"SELECT id FROM {table.place.sql} WHERE name = 'n5'") == [(3000,)]
    stopping = postgres_tables(columns, name=table.name, **{"on-error": "fail", "auto.create": "false"})
    with pytest.raises(RecordError, match="SQLSTATE 23514"):
        write(stopping, changes(columns, (4000, "fine", "U"), (8, "bad", "U")), 3)
    assert ask(f"SELECT count(*) FROM {table.place.sql} WHERE id = 4000") == [(0,)]
    few = postgres_tables(columns, name=table.name, **{"max.refused.rows": "1", "auto.create": "false"})
    with pytest.raises(DestinationError, match=r"2 rows were refused, more than 'max.refused.rows' = 1"):
        write(few, changes(columns, (8, "bad", "U"), (9, "bad", "U")), 3)
    assert ask("SELECT count(*) FROM pg_class WHERE relname LIKE '\\_upsert\\_%'") == [(0,)]


def test_rows_without_a_key_are_set_aside_where_the_server_would_take_them(postgres_tables: Tables, ask: Ask) -> None:
    columns = {"id": "BIGINT", "name": "STRING"}
    table = postgres_tables(columns, **{"auto.create": "false"})
    ask(f"CREATE TABLE {table.place.sql} (id bigint UNIQUE, name text)")
    refused: list[RefusedRow] = []
    rows = changes(columns, (None, "a", "U"), (1, "b", "U"), (None, "c", "U"), (None, None, "D"))
    report = write(table, rows, keep=refused.extend)
    assert (report.upserts, report.deletes, report.refused_count) == (1, 0, 3)
    assert {row.reason for row in refused} == {"a column of its primary key is null"}
    assert ask(f"SELECT id, name FROM {table.place.sql}") == [(1, "b")]


def test_keys_of_fixed_length_are_found_with_their_blanks(postgres_tables: Tables, ask: Ask) -> None:
    columns = {"id": "STRING", "n": "INT"}
    table = postgres_tables(columns, **{"auto.create": "false"})
    ask(f"CREATE TABLE {table.place.sql} (id char(4) PRIMARY KEY, n int)")
    write(table, changes(columns, ("ab ", 1, "U"), ("cd", 1, "U"), ("wxyz", 1, "U")))
    assert ask(f"SELECT id, n FROM {table.place.sql} ORDER BY id") == [("ab  ", 1), ("cd  ", 1), ("wxyz", 1)]
    keys = changes(columns, ("ab ", None, "D"), ("cd  ", None, "D"))
    assert found_rows(table, keys.select(["id"])).num_rows == 2
    assert write(table, keys, 2).deletes == 2
    assert ask(f"SELECT id FROM {table.place.sql}") == [("wxyz",)]


def test_keys_that_the_server_cannot_have_are_in_no_row(postgres_tables: Tables, ask: Ask) -> None:
    columns = {"id": "STRING", "n": "INT"}
    table = postgres_tables(columns, **{"auto.create": "false"})
    ask(f"CREATE TABLE {table.place.sql} (id uuid PRIMARY KEY, n int)")
    key = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    rows = changes(columns, (key, 1, "U"), ("no uuid", 2, "U"), ("a\0b", 3, "U"))
    refused: list[RefusedRow] = []
    report = write(table, rows, keep=refused.extend)
    assert (report.upserts, report.refused_count) == (1, 2)
    assert found_rows(table, rows.select(["id"])).to_pylist() == [{"id": key, "n": 1}]


def test_staged_rows_that_a_server_lost_are_not_taken_for_written(
    postgres_tables: Tables, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unlogged tables are empty after a crash of the server."""
    columns = {"id": "BIGINT", "name": "STRING"}
    table = postgres_tables(columns)
    write(table, changes(columns, (1, "a", "U")))
    take = Merge.take

    def crashed(self: Merge, parts: Sequence[StageStats]) -> None:
        for part in parts:
            ask(f"TRUNCATE {table.place.beside(part.stage).sql}")
        take(self, parts)

    monkeypatch.setattr(Merge, "take", crashed)
    rows = changes(columns, (1, None, "D"), (2, "b", "U"))
    with pytest.raises(DestinationError, match=r"2 rows were staged in .*, which has 0 now: PostgreSQL .* restarted"):
        write(table, rows, 2)
    monkeypatch.undo()
    assert ask(f"SELECT id FROM {table.place.sql}") == [(1,)]
    assert write(table, rows, 2).upserts == 1
    assert ask(f"SELECT id FROM {table.place.sql}") == [(2,)]


def test_hostile_names_and_a_partitioned_table(postgres_tables: Tables, ask: Ask) -> None:
    columns = {'i"d': "BIGINT", "select": "STRING", "%s": "STRING"}
    table = postgres_tables(columns, 'i"d', "select", name='Tab.le "x" %s', **{"table-name": '"Tab.le ""x"" %s"'})
    rows = changes(columns, (1, "a", "b", "U"), (2, "a", None, "U"))
    assert write(table, rows).upserts == 2
    gone = write(table, changes(columns, (1, "a", None, "D"), (2, "a", "c", "U")), 2)
    assert (gone.upserts, gone.deletes) == (1, 1)
    assert found_rows(table, rows).to_pylist() == [{'i"d': 2, "select": "a", "%s": "c"}]
    parted = postgres_tables({"id": "BIGINT", "day": "DATE", "n": "INT"}, "id", "day", **{"auto.create": "false"})
    ask(
        f"CREATE TABLE {parted.place.sql} (id bigint, day date, n int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);"
        f"CREATE TABLE {parted.place.beside(parted.name + '_old').sql} PARTITION OF {parted.place.sql}"
        " FOR VALUES FROM ('2000-01-01') TO ('2020-01-01')"
    )
    kinds = {"id": "BIGINT", "day": "DATE", "n": "INT"}
    refused: list[RefusedRow] = []
    some = changes(kinds, (1, date(2001, 1, 1), 1, "U"), (1, date(2002, 1, 1), 2, "U"), (1, date(2030, 1, 1), 3, "U"))
    assert write(parted, some, keep=refused.extend).upserts == 2
    assert [row.reason.split(":")[0] for row in refused] == ["SQLSTATE 23514"]  # no partition takes it
    assert ask(f"SELECT sum(n) FROM {parted.place.sql}") == [(3,)]


def unprepared(table: PostgresTable) -> str:
    with closing(PostgresDestination(table)) as destination:
        return destination.unprepared()


def test_declared_columns_are_added_and_every_other_difference_is_named(postgres_tables: Tables, ask: Ask) -> None:
    small = {"id": "BIGINT", "name": "STRING"}
    table = postgres_tables(small)
    write(table, changes(small, (1, "a", "U")))
    wide = {**small, "n": "DECIMAL(10, 2)", "tags": "ARRAY<STRING>"}
    wider = postgres_tables(wide, name=table.name)
    for _ in range(2):  # looking adds none
        assert "column 'n' is missing" in unprepared(wider)
    write(wider, changes(wide, (2, "b", Decimal("1.50"), ["x"], "U")), 2)
    assert ask(f"SELECT * FROM {table.place.sql} ORDER BY id") == [
        (1, "a", None, None),
        (2, "b", Decimal("1.50"), ["x"]),
    ]
    assert unprepared(wider) == ""
    other = {"id": "BIGINT", "name": "INT", "n": "DECIMAL(10, 4)", "tags": "STRING", "new": "INT"}
    differs = postgres_tables(other, "id", "name", name=table.name, **{"auto.create": "false"})
    destination = PostgresDestination(differs)
    with pytest.raises(DestinationError) as raised:
        destination.prepare()
    told = str(raised.value)
    assert "column 'name' is text, declared INT: integer is needed" in told
    assert "column 'n' is numeric(10,2), declared DECIMAL(10, 4): 4 digits after the point are needed" in told
    assert "column 'tags' is text[], declared STRING: text is needed" in told
    assert "ALTER TABLE" in told
    assert 'ADD COLUMN "new" integer' in told
    assert "CREATE UNIQUE INDEX ON" in told
    told = told.removeprefix(f"table '{differs.name}': ").replace(" differs:", ":")
    assert told == destination.schema_difference() == destination.unprepared()
    destination.close()


def test_a_table_that_was_made_anew_is_written_again(postgres_tables: Tables, ask: Ask) -> None:
    columns = {"id": "BIGINT"}
    table = postgres_tables(columns)
    write(table, changes(columns, (1, "U")), 4)
    destination = PostgresDestination(table)
    assert destination.state().applied_batch == 4
    ask(f"DROP TABLE {table.place.sql}")
    gone = destination.state()
    assert (gone.applied_batch, gone.lost.split(", ")[2]) == (0, "is gone; every batch is written again")
    for _ in range(2):  # looking creates none
        assert destination.unprepared().endswith("it does not exist")
    destination.prepare()
    assert destination.unprepared() == ""
    assert "made anew" in destination.state().lost
    destination.close()


def test_many_blocks_and_sliced_batches(postgres_tables: Tables, ask: Ask) -> None:
    columns = {"id": "BIGINT", "name": "STRING", "tags": "ARRAY<INT>"}
    table = postgres_tables(columns, **{"sink.buffer-flush.max-rows": "70"})
    rows = changes(columns, *[(n, None if n % 3 else "x" * n, [n] * (n % 4), "U") for n in range(1000)])
    cut = pa.concat_tables([rows.slice(0, 333), rows.slice(333, 1), rows.slice(334)])
    assert write(table, cut).upserts == 1000
    assert ask(f"SELECT sum(length(name)), sum(cardinality(tags)) FROM {table.place.sql}") == [
        (sum(range(0, 1000, 3)), sum(n % 4 for n in range(1000)))
    ]
