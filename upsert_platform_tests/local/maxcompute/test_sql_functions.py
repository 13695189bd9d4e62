"""Functions of MaxCompute's SQL, and types of results, by an unmodified PyODPS client."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from odps.errors import ODPSError

Rows = Callable[..., list[tuple[Any, ...]]]
MOMENT = "datetime'2008-07-18 03:04:05'"


def at(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC).astimezone().replace(tzinfo=None)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"to_char({MOMENT}, 'yyyymmdd')", "20080718"),
        (f"to_char({MOMENT}, 'YYYY-MM-DD hh:mi:ss')", "2008-07-18 03:04:05"),
        ("to_char(timestamp'2008-07-18 03:04:05.678', 'hhmiss.ff3')", "030405.678"),
        (f"to_char({MOMENT}, 'week of dd/mm, 100%')", "week of 18/07, 100%"),
        ("to_char('2008-07-18 00:30:00', 'mimm')", "3007"),
        ("to_char(123)", "123"),
        ("to_date('20080718 05', 'yyyymmdd hh')", at(2008, 7, 18, 5)),
        (f"dateadd({MOMENT}, 1, 'dd')", at(2008, 7, 19, 3, 4, 5)),
        ("dateadd(datetime'2005-01-31 00:00:00', 1, 'mm')", at(2005, 2, 28)),
        ("dateadd(date'2004-02-29', 1, 'yyyy')", dt.date(2005, 2, 28)),
        ("dateadd('2005-12-31 23:59:59', 1, 'ss')", at(2006, 1, 1)),
        (f"dateadd({MOMENT}, -3, 'hh')", at(2008, 7, 18, 0, 4, 5)),
        ("datediff(datetime'2005-12-31 23:59:59', datetime'2006-01-01 00:00:00', 'yyyy')", -1),
        ("datediff(datetime'2006-01-01 00:00:00', datetime'2005-12-31 23:59:59', 'mi')", 1),
        ("datediff(date'2013-05-31', date'2013-05-21')", 10),
        ("unix_timestamp(datetime'1970-01-02 00:00:01')", 86401),
        ("from_unixtime(86401)", at(1970, 1, 2, 0, 0, 1)),
        (f"datetrunc({MOMENT}, 'month')", at(2008, 7, 1)),
        (f"datepart({MOMENT}, 'mi')", 4),
        (f"lastday({MOMENT})", at(2008, 7, 31)),
        ("weekday(date'2024-01-01')", 0),
        (f"cast('{10**38 - 1}' as decimal(38,0))", Decimal(10**38 - 1)),
        ("cast('7' as decimal(38,0))", Decimal(7)),
        ("nvl(null, 3)", 3),
    ],
)  # fmt: skip
def test_what_an_expression_gives(rows: Rows, expression: str, expected: Any) -> None:
    assert rows(f"select {expression} as v") == [(expected,)]


def test_a_sum_of_integers_is_a_bigint_and_a_sum_of_decimals_is_not(odps: Any, rows: Rows) -> None:
    query = "select sum(a) as i, sum(d) as d, count(*) as n from values (1, cast(2 as decimal(38,0))) as t(a, d)"
    with odps.execute_sql(query).open_reader(tunnel=True) as reader:
        kinds = [str(column.type).lower() for column in reader.schema.columns]
    assert kinds == ["bigint", "decimal(38,0)", "bigint"]
    assert rows(query) == [(1, Decimal(2), 1)]


def test_values_are_joined_to_a_text(odps: Any, rows: Rows, name: str) -> None:
    odps.execute_sql(f"create table {name} (g bigint, v string)")
    odps.execute_sql(f"insert into {name} values (1, 'b'), (1, 'a'), (1, 'a'), (2, null), (2, 'c')")
    query = "select g, wm_concat(',', v) within group (order by v) from {t} group by g"
    assert rows(query.format(t=name)) == [(1, "a,a,b"), (2, "c")]
    found = rows(f"select wm_concat(distinct ';', v) from {name} where g = 1")
    assert sorted(found[0][0].split(";")) == ["a", "b"]
    assert rows(f"select wm_concat('', g) from {name} where g = 2") == [("22",)]


def test_the_greatest_partition_with_rows(odps: Any, rows: Rows, name: str) -> None:
    odps.execute_sql(f"create table {name} (v bigint) partitioned by (ds string, hh string)")
    for day, hour in (("20240101", "01"), ("20240102", "00")):
        odps.execute_sql(f"insert into {name} partition (ds='{day}', hh='{hour}') values (1)")
    odps.execute_sql(f"alter table {name} add partition (ds='20249999', hh='1')")
    assert rows(f"select ds from {name} where ds = max_pt('{name}')") == [("20240102",)]
    assert rows(f"select max_pt('{odps.project}.{name}')") == [("20240102",)]
    odps.execute_sql(f"truncate table {name}")
    with pytest.raises(ODPSError, match="no partition"):
        rows(f"select max_pt('{name}')")


@pytest.mark.parametrize("query", ["select dateadd(getdate(), 1, 'x')", "select to_char(getdate(), cast(1 as string))"])
def test_what_is_not_known_is_refused(odps: Any, query: str) -> None:
    with pytest.raises(ODPSError, match=r"date part|constant text"):
        odps.execute_sql(query)


def test_merge_sets_columns_by_their_qualified_names(odps: Any, rows: Rows, name: str) -> None:
    odps.execute_sql(
        f"create table {name} (k bigint not null, v string, n bigint, primary key (k))"
        " tblproperties ('transactional'='true')"
    )
    odps.execute_sql(f"insert into {name} values (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    odps.execute_sql(
        f"merge into {name} t using (select 1 as k, 'x' as v union all select 9, 'new' union all select 3, null) s"
        " on t.k = s.k when matched and s.v is null then delete"
        " when matched then update set t.v = s.v, t.n = t.n + 10"
        " when not matched then insert (t.k, t.v) values (s.k, s.v)"
    )
    assert rows(f"select * from {name}") == [(1, "x", 11), (2, "b", 2), (9, "new", None)]
