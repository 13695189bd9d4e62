"""Tables whose rows are made: what each column holds, and what is refused by name."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.changelog.store import Positions
from upsert_platform.core.errors import RecordError, TopicError
from upsert_platform.core.source import Source
from upsert_platform.datagen.connector import DatagenConnector, FakerConnector
from upsert_platform.datagen.providers import PROVIDERS, read_expression
from upsert_platform.datagen.source import GeneratedRows, WrittenRows
from upsert_platform.sync.connectors import CONNECTORS
from upsert_platform_tests.sql.reading import errors, one_table, read


def source_of(columns: str, options: str, connector: str = "faker") -> GeneratedRows:
    """The source of a table of these columns and options."""
    table = one_table(f"CREATE TABLE t ({columns}) WITH ('connector' = '{connector}'{options});")
    found, problems = (FakerConnector() if connector == "faker" else DatagenConnector()).read(table)
    assert isinstance(found, GeneratedRows), problems
    return found


def rows_of(source: Source, spark: SparkSession, start: int, end: int) -> list[dict[str, Any]]:
    """Its rows of these numbers."""
    assert isinstance(source, GeneratedRows | WrittenRows)
    return pa.concat_tables(source.rows(spark, start, end)).to_pylist()


SEEN = ", 'fields.n.expression' = '#{number.numberBetween ''0'',''1000''}'"


def test_numbers_are_below_the_upper_bound_and_follow_from_the_row(spark: SparkSession) -> None:
    source = source_of("n INT", SEEN)
    found = rows_of(source, spark, 0, 3000)
    numbers = [row["n"] for row in found]
    assert [row["__upsert_number"] for row in found] == list(range(3000))
    assert min(numbers) >= 0
    assert 990 < max(numbers) < 1000
    assert rows_of(source, spark, 700, 1900) == found[700:1900]


def test_every_provider_makes_a_value() -> None:
    import random

    arguments = {
        "number.numberbetween": "'3','4'", "number.randomdouble": "'2','1','5'", "number.digits": "'7'",
        "options.option": "'a','it''s'", "lorem.characters": "'3','5'", "date.past": "'5','SECONDS'",
        "date.future": "'5','1','DAYS'",
    }  # fmt: skip
    shapes = {
        "number.numberbetween": "3", "number.randomdouble": r"[1-5]\.\d\d", "number.digits": r"\d{7}",
        "options.option": "a|it's", "lorem.characters": "[a-z]{3,5}", "bool.bool": "true|false",
        "internet.ipv4address": r"(\d+\.){3}\d+", "internet.uuid": "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        "date.past": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}",
    }  # fmt: skip
    for name in PROVIDERS:
        make = read_expression(f"<#{{{name} {arguments.get(name, '')}}}>")
        made = make(random.Random(1))
        assert re.fullmatch(f"<(?:{shapes.get(name, '.+')})>", made), (name, made)


@pytest.mark.parametrize(
    ("type_", "expression", "check"),
    [
        ("DECIMAL(10, 1)", "#{number.randomDouble '3','1','9'}", lambda v: isinstance(v, Decimal) and v == round(v, 1)),
        ("DOUBLE", "#{commerce.price}", lambda v: 1 <= v <= 1000),
        ("BOOLEAN", "#{Bool.bool}", lambda v: v in (True, False)),
        ("TIMESTAMP(3)", "#{date.past ''1'',''DAYS''}",
         lambda v: timedelta(0) <= datetime.now(UTC).replace(tzinfo=None) - v < timedelta(days=1, minutes=1)),
        ("STRING", "#{Name.first_name} of #{address.city}", lambda v: " of " in v),
    ],
)  # fmt: skip
def test_texts_become_values_of_the_column(type_: str, expression: str, check: Any, spark: SparkSession) -> None:
    text = expression.replace("''", "'").replace("'", "''")
    source = source_of(f"v {type_}", f", 'fields.v.expression' = '{text}', 'fields.v.null-rate' = '0.3'")
    values = [row["v"] for row in rows_of(source, spark, 0, 300)]
    assert 50 < values.count(None) < 130
    assert all(check(value) for value in values if value is not None)


def test_bounded_table_ends_and_another_makes_the_rows_of_a_second_per_run() -> None:
    bounded = source_of("n INT", f"{SEEN}, 'number-of-rows' = '250'")
    assert bounded.backlog(bounded.discover(), Positions()) == (OffsetRange("rows of t", 0, 0, 250),)
    done = Positions({"rows of t": {0: 250}})
    assert bounded.backlog(bounded.discover(), done) == ()
    endless = source_of("n INT", f"{SEEN}, 'rows-per-second' = '100'")
    assert endless.backlog(endless.discover(), done) == (OffsetRange("rows of t", 0, 250, 350),)


def test_computed_columns_are_evaluated_once_and_stored(spark: SparkSession) -> None:
    source = source_of("n INT, twice AS n * 2, at AS CURRENT_TIMESTAMP", SEEN)
    assert [(column.name, str(column.kind)) for column in source.table.columns] == [
        ("n", "physical"), ("twice", "physical"), ("at", "physical"),
    ]  # fmt: skip
    for row in rows_of(source, spark, 5, 8):
        assert row["twice"] == 2 * row["n"]
        assert datetime.now(UTC) - row["at"] < timedelta(minutes=1)


def test_datagen_makes_sequences_and_random_values(spark: SparkSession) -> None:
    columns = "id BIGINT, n TINYINT, d DECIMAL(6, 2), s STRING, b BOOLEAN, at TIMESTAMP_LTZ(3), x DOUBLE"
    options = ", 'fields.id.kind' = 'sequence', 'fields.id.start' = '5', 'fields.id.end' = '104'"
    options += ", 'fields.n.min' = '-3', 'fields.n.max' = '3', 'fields.s.length' = '8', 'fields.d.min' = '0.5'"
    source = source_of(columns, options, "datagen")
    (left,) = source.backlog(source.discover(), Positions())
    assert left.end == 100
    found = rows_of(source, spark, 0, 100)
    assert [row["id"] for row in found] == list(range(5, 105))
    assert {row["n"] for row in found} == set(range(-3, 4))
    assert all(Decimal("0.5") <= row["d"] < 10_000 and len(row["s"]) == 8 and 0 <= row["x"] <= 1 for row in found)
    assert {row["b"] for row in found} == {True, False}


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("n INT", "", "required option 'fields.n.expression' is missing"),
        ("n INT", ", 'fields.n.expression' = '#{pokemon.name}'", "names 'pokemon.name', which is not made here"),
        ("n INT", ", 'fields.n.expression' = '#{superhero.nam}'", "did you mean 'superhero.name'?"),
        ("n INT", ", 'fields.n.expression' = '#{number.digits}'", "gives 'number.digits' 0 arguments, it takes 1"),
        ("n INT", ", 'fields.n.expression' = '#{number.numberBetween ''5'',''5''}'", "and there is none"),
        ("n INT", ", 'fields.n.expression' = '#{number.digits ''4'''", "a part of it cannot be read"),
        ("n INT", ", 'fields.n.expression' = '#{color.name}'", "column 'n' is INT, and its expression made '"),
        ("n INT", f"{SEEN}, 'fields.m.expression' = 'x'", "option 'fields.m.expression' is of no column that is made"),
        ("n INT", f"{SEEN}, 'fields.n.length' = '3'", "unknown option 'fields.n.length'"),
        ("n INT", f"{SEEN}, 'number-of-row' = '3'", "did you mean 'number-of-rows'?"),
        ("n ARRAY<INT>", SEEN, "is ARRAY<INT>, which an expression does not make"),
        ("n INT PRIMARY KEY NOT ENFORCED", SEEN, "rows that are made have no PRIMARY KEY"),
        ("n INT, m INT METADATA", SEEN, "column 'm': rows that are made have no metadata"),
    ],
)  # fmt: skip
def test_what_is_not_made_is_refused_by_name(columns: str, options: str, message: str) -> None:
    table = one_table(f"CREATE TABLE t ({columns}) WITH ('connector' = 'faker'{options});")
    found, problems = FakerConnector().read(table)
    assert found is None
    assert any(message in problem.message for problem in problems), problems


def test_value_that_does_not_fit_in_a_later_row_is_told_with_its_row(spark: SparkSession) -> None:
    source = source_of(
        "n TINYINT", ", 'fields.n.expression' = '#{options.option ''1'',''1'',''1'',''1'',''1'',''one''}'"
    )
    with pytest.raises(RecordError, match=r"table 't', row \d+: column 'n' is TINYINT"):
        rows_of(source, spark, 0, 1000)


TARGET = "CREATE TABLE t (id BIGINT, at TIMESTAMP(3), w VARCHAR(4), n DECIMAL(6, 2), PRIMARY KEY (id) NOT ENFORCED)"
TARGET += " WITH ('connector' = 'tablestore');"


def written(sql: str) -> WrittenRows:
    """The rows of INSERT INTO t VALUES."""
    scripts, problems = read(f"{TARGET}{sql}")
    assert errors(problems) == []
    source, found = CONNECTORS["values"].read(scripts.tables["t$values"])  # type: ignore[attr-defined]
    assert isinstance(source, WrittenRows), found
    return source


def test_values_are_rows_in_the_order_of_the_statements(spark: SparkSession) -> None:
    source = written(
        "INSERT INTO t VALUES (1, TIMESTAMP '2024-05-01 10:00:00', 'it''s', 1.5), (2, NULL, 'b', 3);"
        "insert into t (w, id) values (UPPER('c'), 1 + 2);"
    )
    found = rows_of(source, spark, 0, 3)
    at = datetime(2024, 5, 1, 10)  # noqa: DTZ001 - TIMESTAMP has no zone
    assert [tuple(row.values()) for row in found] == [
        (1, at, "it's", Decimal("1.50"), 0), (2, None, "b", Decimal("3.00"), 1), (3, None, "C", None, 2),
    ]  # fmt: skip
    assert rows_of(source, spark, 2, 3) == found[2:]


def test_a_row_is_inserted_once_and_may_not_change_afterwards() -> None:
    first = written("INSERT INTO t VALUES (1, NULL, 'a', 1);")
    (stream,) = first.discover()
    done = Positions({stream.name: {0: 1}}, {stream.name: stream.topic_id})
    assert first.backlog([stream], done) == ()
    more = written("INSERT INTO t VALUES (1, NULL, 'a', 1); INSERT INTO t VALUES (1, NULL, 'b', 1);")
    assert more.backlog(more.discover(), done) == (OffsetRange(stream.name, 0, 1, 2),)
    other = written("INSERT INTO t VALUES (1, NULL, 'x', 1); INSERT INTO t VALUES (1, NULL, 'b', 1);")
    with pytest.raises(TopicError, match="INSERT INTO t VALUES: the first 1 rows were inserted already, and were"):
        other.backlog(other.discover(), done)


def test_a_row_is_known_again_by_what_is_declared_however_it_is_rendered() -> None:
    sql = "INSERT INTO t (id, w, n) VALUES (1, UPPER('a'), CAST('1' AS DECIMAL(6, 2))), ROW(2, 'b,(', 3);"
    first = written(sql)
    (stream,) = first.discover()
    done = Positions({stream.name: {0: 2}}, {stream.name: stream.topic_id})
    rendered = tuple((tuple(f"({sql})" for sql in row), failure) for row, failure in first.values)
    later = replace(first, values=rendered)
    assert later.backlog(later.discover(), done) == ()
    spaced = written(sql.replace("UPPER(", "/* big */ upper ( ").replace(", ROW", ",\n row "))
    assert spaced.backlog(spaced.discover(), done) == ()
    for other in (
        sql.replace("'b,('", "'B,('"),
        sql.replace("CAST('1'", "CAST('2'"),
        "INSERT INTO t (id, n, w) VALUES (1, CAST('1' AS DECIMAL(6, 2)), UPPER('a')), ROW(2, 3, 'b,(');",
    ):
        changed = written(other)
        with pytest.raises(TopicError, match="the first 2 rows were inserted already"):
            changed.backlog(changed.discover(), done)


def test_rows_that_an_earlier_release_inserted_are_known_by_their_spark_sql() -> None:
    first = written("INSERT INTO t VALUES (1, NULL, 'a', 1);")
    (stream,) = first.discover()
    text = json.dumps([[list(row), failure] for row, failure in first.values])
    known = hashlib.sha256(text.encode()).hexdigest()[:32]
    assert known != stream.topic_id
    done = Positions({stream.name: {0: 1}}, {stream.name: known})
    assert first.backlog([stream], done) == ()
    other = written("INSERT INTO t VALUES (1, NULL, 'b', 1);")
    with pytest.raises(TopicError, match="the first 1 rows were inserted already"):
        other.backlog(other.discover(), done)


def test_value_that_does_not_fit_stops_the_run_before_anything_is_inserted(spark: SparkSession) -> None:
    source = written("INSERT INTO t VALUES (1, NULL, 'a', 1), (2, NULL, 'a', 123456.5);")
    with pytest.raises(RecordError, match=r"INSERT INTO t VALUES, row 2: .*DECIMAL"):
        rows_of(source, spark, 0, 2)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("VALUES (1, 'a')", "a row of VALUES has 2 values for 4 columns of the target (id, at, w, n)"),
        ("(id, x) VALUES (1, 'a')", "the target has no column 'x' to write"),
        ("(w) VALUES ('a')", "primary key column 'id' is not written"),
        ("VALUES (NULL, NULL, 'a', 1)", "column 'id' takes no NULL"),
        ("VALUES ('1', NULL, 'a', 1)", "column 'id' is BIGINT, the value is"),
        ("VALUES (y, NULL, 'a', 1)", "unknown column 'y'"),
        ("VALUES (1, NULL, 5, 1)", "column 'w' is VARCHAR(4), the value is INT; write CAST(... AS VARCHAR(4))"),
    ],
)
def test_values_that_do_not_fit_are_refused(sql: str, message: str) -> None:
    _, problems = read(f"{TARGET}INSERT INTO t {sql};")
    assert any(message in text for text in errors(problems)), errors(problems)
