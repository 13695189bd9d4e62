"""INTERVAL literals: which texts are values of a qualifier, how long they are, and where they are refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from upsert_platform.sql.intervals import IntervalFault, Length, Qualifier, read_length
from upsert_platform_tests.sql.reading import NONE, errors, read

FIXED = [
    ("1", "DAY", "DAY", timedelta(days=1)),
    ("-1", "DAY", "DAY", -timedelta(days=1)),
    ("+1", "DAY", "DAY", timedelta(days=1)),
    (" 007 ", "DAY", "DAY", timedelta(days=7)),
    ("2", "WEEK", "WEEK", timedelta(weeks=2)),
    ("1 2", "DAY", "HOUR", timedelta(days=1, hours=2)),
    ("1 02:03", "DAY", "MINUTE", timedelta(days=1, hours=2, minutes=3)),
    ("-1 02:03", "DAY", "MINUTE", -timedelta(days=1, hours=2, minutes=3)),
    ("0 23:59:59", "DAY", "SECOND", timedelta(hours=23, minutes=59, seconds=59)),
    ("1 02:03:04.5", "DAY", "SECOND", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=500)),
    ("90", "HOUR", "HOUR", timedelta(hours=90)),
    ("90:59", "HOUR", "MINUTE", timedelta(hours=90, minutes=59)),
    ("1:2:3.004", "HOUR", "SECOND", timedelta(hours=1, minutes=2, seconds=3, milliseconds=4)),
    ("10:05.5", "MINUTE", "SECOND", timedelta(minutes=10, seconds=5, milliseconds=500)),
    ("3600", "SECOND", "SECOND", timedelta(hours=1)),
    ("1.5", "SECOND", "SECOND", timedelta(milliseconds=1500)),
    ("0.123456", "SECOND", "SECOND", timedelta(milliseconds=123)),
    ("-0.0019", "SECOND", "SECOND", -timedelta(milliseconds=1)),
    ("500", "MILLISECOND", "MILLISECOND", timedelta(milliseconds=500)),
]
MONTHS = [
    ("1", "YEAR", "YEAR", 12), ("-2", "YEAR", "YEAR", -24), ("1-6", "YEAR", "MONTH", 18),
    ("-1-6", "YEAR", "MONTH", -18), ("0-11", "YEAR", "MONTH", 11), ("14", "MONTH", "MONTH", 14),
    ("2", "QUARTER", "QUARTER", 6),
]  # fmt: skip
REFUSED = [
    ("'1 day'", "", "an interval is written INTERVAL '1' DAY"),
    ("'abc'", "DAY", "the text of an INTERVAL DAY is written '1', or '-1'"),
    ("'1.5'", "DAY", "the text of an INTERVAL DAY is written '1', or '-1'"),
    ("'1 02'", "DAY", "the text of an INTERVAL DAY is written '1', or '-1'"),
    ("''", "MONTH", "the text of an INTERVAL MONTH is written '1', or '-1'"),
    ("'1'", "DAY TO HOUR", "the text of an INTERVAL DAY TO HOUR is written '1 02', or '-1 02'"),
    ("'02:03'", "DAY TO MINUTE", "the text of an INTERVAL DAY TO MINUTE is written '1 02:03', or '-1 02:03'"),
    ("'1 02:-3'", "DAY TO MINUTE", "the text of an INTERVAL DAY TO MINUTE is written"),
    ("'1:2:3'", "MINUTE TO SECOND", "the text of an INTERVAL MINUTE TO SECOND is written '1:04.5', or '-1:04.5'"),
    ("'1 6'", "YEAR TO MONTH", "the text of an INTERVAL YEAR TO MONTH is written '1-6', or '-1-6'"),
    ("'1 24'", "DAY TO HOUR", "the HOUR of an INTERVAL DAY TO HOUR is below 24"),
    ("'1:60'", "HOUR TO MINUTE", "the MINUTE of an INTERVAL HOUR TO MINUTE is below 60"),
    ("'1:60.5'", "MINUTE TO SECOND", "the SECOND of an INTERVAL MINUTE TO SECOND is below 60"),
    ("'1-12'", "YEAR TO MONTH", "the MONTH of an INTERVAL YEAR TO MONTH is below 12"),
    ("'1000'", "DAY(3)", "the DAY of an INTERVAL DAY(3) has more digits: write DAY(4)"),
    ("'1.1234'", "SECOND(2, 3)", "the SECOND of this INTERVAL has 3 digits behind the point at most"),
    ("'1:01.1234567'", "MINUTE TO SECOND", "the SECOND of this INTERVAL has 6 digits behind the point at most"),
    ("'1'", "DAY(11)", "an INTERVAL has 1 to 10 digits, DAY(10) at most"),
    ("'1:1'", "HOUR TO MINUTE(2)", "of an INTERVAL, SECOND alone has digits behind the point, 9 at most"),
    ("'1'", "FORTNIGHT", "after INTERVAL and its text stands YEAR, YEAR TO MONTH"),
    ("'1-1'", "MONTH TO YEAR", "after INTERVAL and its text stands YEAR, YEAR TO MONTH"),
    ("'1 1'", "HOUR TO DAY", "after INTERVAL and its text stands YEAR, YEAR TO MONTH"),
    ("'1-1'", "DAY TO MONTH", "after INTERVAL and its text stands YEAR, YEAR TO MONTH"),
    ("'9999999999'", "DAY", "an INTERVAL is at most 10,000 years long"),
]


@pytest.mark.parametrize(("text", "first", "last", "length"), FIXED)
def test_an_interval_of_days_and_times_has_the_length_of_its_fields(
    text: str, first: str, last: str, length: timedelta
) -> None:
    assert read_length(text, Qualifier(first, last)) == Length(millis=length // timedelta(milliseconds=1))


@pytest.mark.parametrize(("text", "first", "last", "months"), MONTHS)
def test_an_interval_of_years_and_months_has_as_many_months(text: str, first: str, last: str, months: int) -> None:
    assert read_length(text, Qualifier(first, last)) == Length(months=months)


@pytest.mark.parametrize(("digits", "fits"), [(1, False), (2, False), (3, True), (10, True)])
def test_a_declared_precision_bounds_the_first_field(digits: int, fits: bool) -> None:
    qualifier = Qualifier("DAY", "DAY", digits)
    if fits:
        assert read_length("365", qualifier) == read_length("365", Qualifier("DAY", "DAY"))
    else:
        with pytest.raises(IntervalFault, match="more digits"):
            read_length("365", qualifier)


TABLES = """
CREATE TABLE seen (id INT, ts TIMESTAMP(3), PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka');
CREATE TABLE t (id INT, ts TIMESTAMP(3), PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore');
"""


@pytest.mark.parametrize(("text", "qualifier", "message"), REFUSED)
def test_what_is_no_interval_is_refused_on_its_line(text: str, qualifier: str, message: str) -> None:
    """Before anything runs, in statements with state and without."""
    line = TABLES.count("\n") + 3
    for rows in ("seen", "(SELECT id, MAX(ts) AS ts FROM seen GROUP BY id) AS s"):
        _, problems = read(f"{NONE}{TABLES}INSERT INTO t SELECT id,\n ts +\nINTERVAL {text} {qualifier} FROM {rows};")
        (found,) = errors(problems)
        assert found.startswith(f"{line}: INSERT INTO t: {message}"), found


def test_a_column_may_be_named_as_the_word() -> None:
    tables = TABLES.replace("id INT, ts TIMESTAMP(3)", "id INT, `interval` INT, ts TIMESTAMP(3)", 1)
    _, problems = read(f"{tables}INSERT INTO t SELECT id, ts + INTERVAL `interval` DAY FROM seen WHERE `interval` > 1;")
    assert errors(problems) == []
