"""Views, by an unmodified PyODPS client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from odps.errors import NoSuchTable, ODPSError

Rows = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def table(odps: Any, name: str) -> str:
    odps.execute_sql(f"create table {name} (k bigint, v string) partitioned by (ds string)")
    odps.execute_sql(f"insert into {name} partition (ds='1') values (1, 'a'), (2, 'b')")
    return name


def test_a_view_gives_what_its_query_gives_now(odps: Any, table: str, rows: Rows) -> None:
    odps.execute_sql(f"create view {table}_v comment 'twice' as select k * 2 as d, v, ds from {table} where k > 1")
    assert rows(f"select * from {table}_v") == [(4, "b", "1")]
    odps.execute_sql(f"insert into {table} partition (ds='2') values (5, 'c')")
    assert rows(f"select x.d from {table}_v x join {table} t on x.v = t.v where x.ds = '2'") == [(10,)]
    assert rows(f"with a as (select max(d) as m from {table}_v) select m from a") == [(10,)]


def test_a_view_names_its_columns_and_may_stand_on_another(odps: Any, table: str, rows: Rows) -> None:
    odps.execute_sql(f"create view {table}_v (`first` comment 'one', n) as select v, count(*) from {table} group by v")
    odps.execute_sql(f"create view {table}_w as select n, `first` from {odps.project}.{table}_v")
    assert rows(f"select * from {table}_w") == [(1, "a"), (1, "b")]
    columns = odps.get_table(f"{table}_v").table_schema.columns
    assert [(c.name, str(c.type).lower(), c.comment) for c in columns] == [
        ("first", "string", "one"),
        ("n", "bigint", ""),
    ]


def test_a_view_is_told_from_a_table(odps: Any, table: str) -> None:
    odps.execute_sql(f"create view if not exists {table}_v as select k from {table}")
    view = odps.get_table(f"{table}_v")
    assert (view.type, view.is_virtual_view) == (view.Type.VIRTUAL_VIEW, True)
    assert view.view_text == f"select k from {table}"
    found = {t.name for t in odps.list_tables(prefix=table)}
    assert found == {table, f"{table}_v"}
    assert [t.name for t in odps.list_tables(prefix=table, type="VIRTUAL_VIEW")] == [f"{table}_v"]
    assert f"{table}_v" in odps.execute_sql("show views").get_task_results().popitem()[1]
    odps.delete_view(f"{table}_v")
    assert not odps.exist_table(f"{table}_v")
    odps.execute_sql(f"drop view if exists {table}_v")
    with pytest.raises(NoSuchTable):
        odps.execute_sql(f"drop view {table}_v")


def test_a_view_is_replaced_only_when_that_is_asked_for(odps: Any, table: str, rows: Rows) -> None:
    odps.execute_sql(f"create view {table}_v as select 1 as a")
    odps.execute_sql(f"create view if not exists {table}_v as select 2 as a")
    assert rows(f"select * from {table}_v") == [(1,)]
    with pytest.raises(ODPSError, match="already exists"):
        odps.execute_sql(f"create view {table}_v as select 2 as a")
    odps.execute_sql(f"create or replace view {table}_v as select 3 as b")
    assert rows(f"select b from {table}_v") == [(3,)]
    with pytest.raises(ODPSError, match="already exists"):
        odps.execute_sql(f"create or replace view {table} as select 3 as b")


def test_a_view_takes_no_rows_and_has_no_history(odps: Any, tunnel: Any, table: str) -> None:
    odps.execute_sql(f"create view {table}_v as select k from {table}")
    for statement in (
        f"insert into {table}_v values (1)",
        f"truncate table {table}_v",
        f"alter table {table}_v add columns (x bigint)",
        f"drop table {table}_v",
        f"drop view {table}",
        f"select * from {table}_v version as of 1",
    ):
        with pytest.raises(ODPSError):
            odps.execute_sql(statement)
    with pytest.raises(ODPSError, match="is a view"):
        tunnel.create_upload_session(f"{table}_v")
    with pytest.raises(ODPSError, match="is a view"):
        tunnel.create_download_session(f"{table}_v")


def test_a_view_of_itself_or_of_nothing_is_refused(odps: Any, table: str) -> None:
    odps.execute_sql(f"create view {table}_v as select k from {table}")
    odps.execute_sql(f"create view {table}_w as select k from {table}_v")
    odps.execute_sql(f"create or replace view {table}_v as select k from {table}_w")
    with pytest.raises(ODPSError, match="made of itself"):
        odps.execute_sql(f"select * from {table}_v")
    with pytest.raises(NoSuchTable):
        odps.execute_sql(f"create view {table}_x as select * from there_is_no_such_table")
    with pytest.raises(ODPSError, match="names 2 columns"):
        odps.execute_sql(f"create view {table}_x (a, b) as select k from {table}")
