"""SQL through instances, by an unmodified PyODPS client (spec 2.2, 2.3, 3.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from odps.errors import NoSuchTable, ObjectAlreadyExists, ODPSError, ParseError

Rows = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def run(odps: Any, name: str) -> Callable[[str], Any]:
    """Runs statements in which {t} stands for a table of this test."""

    def execute(statement: str, **hints: str) -> Any:
        return odps.execute_sql(statement.format(t=name), hints=hints or None)

    return execute


def test_create_table_tells_its_definition_again(odps: Any, run: Any, name: str) -> None:
    run(
        "create table if not exists {t} (id BIGINT NOT NULL COMMENT 'the key', n INT, "
        "d DECIMAL(10,2), `Mixed` STRING, PRIMARY KEY (id)) COMMENT 'it''s a table' "
        "PARTITIONED BY (ds STRING COMMENT 'day', hh STRING) "
        "TBLPROPERTIES ('transactional'='true', 'write.bucket.num'='8', 'acid.data.retain.hours'='12') LIFECYCLE 7"
    )
    run("create table if not exists {t} (other string)")
    table = odps.get_table(name)
    assert [(c.name, str(c.type).lower(), c.nullable) for c in table.table_schema.simple_columns] == [
        ("id", "bigint", False),
        ("n", "int", True),
        ("d", "decimal(10,2)", True),
        ("mixed", "string", True),
    ]
    assert [c.name for c in table.table_schema.partitions] == ["ds", "hh"]
    assert (table.comment, table.lifecycle) == ("it's a table", 7)
    assert (table.is_transactional, table.primary_key, table.acid_data_retain_hours) == (True, ["id"], 12)
    assert (table.cdc_latest_version, table.schema_version) == (1, "0")
    assert table.reserved["write.bucket.num"] == "8"


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        pytest.param("create table {t} (k bigint, primary key (k)) tblproperties ('transactional'='true')", "NOT NULL",
                     id="nullable-key"),
        pytest.param("create table {t} (k bigint not null, primary key (k))", "transactional", id="not-transactional"),
        pytest.param("create table {t} (k bigint not null, primary key (x)) tblproperties ('transactional'='true')",
                     "'x' cannot be resolved", id="unknown-key"),
        pytest.param("create table {t} (k bigint) tblproperties ('write.bucket.num'='4097')", "1 to 4096",
                     id="too-many-buckets"),
        pytest.param("create table {t} (k bigint) tblproperties ('acid.data.retain.hours'='169')", "0 to 168",
                     id="kept-too-long"),
        pytest.param("create table {t} (k bigint, K string)", "declares a column twice", id="column-twice"),
        pytest.param("create table {t} (k nonsense)", "invalid or unsupported data type", id="unknown-type"),
        pytest.param("create table {t} (k decimal(39,1))", "invalid or unsupported data type", id="wide-decimal"),
        pytest.param("create table {t}", "declares no columns", id="no-columns"),
        pytest.param("create table {t} (k bigint) nonsense", "unexpected text", id="trailing-text"),
    ],
)  # fmt: skip
def test_definitions_that_are_refused(odps: Any, run: Any, name: str, statement: str, reason: str) -> None:
    with pytest.raises(ODPSError, match=reason):
        run(statement)
    assert not odps.exist_table(name)


def test_create_again_and_drop(odps: Any, run: Any, name: str) -> None:
    run("create table {t} (k bigint)")
    with pytest.raises(ODPSError, match="already exists"):
        run("create table {t} (k bigint)")
    run("drop table {t}")
    assert not odps.exist_table(name)
    run("drop table if exists {t}")
    with pytest.raises(NoSuchTable):
        run("drop table {t}")


def test_partitions(odps: Any, run: Any, name: str, rows: Rows) -> None:
    run("create table {t} (k bigint) partitioned by (ds string, hh string)")
    table = odps.get_table(name)
    run("alter table {t} add partition (ds='1', hh='a') partition (ds='1', hh='b')")
    run("alter table {t} add if not exists partition (ds='1', hh='a')")
    with pytest.raises(ODPSError, match="already exists"):
        run("alter table {t} add partition (ds='1', hh='a')")
    run("insert into {t} partition (ds='1', hh='b') values (1)")
    assert [str(p) for p in table.iterate_partitions("ds='1'")] == ["ds='1',hh='a'", "ds='1',hh='b'"]
    assert table.get_max_partition("ds='1'").partition_spec["hh"] == "b"
    assert table.exist_partition("ds='1',hh='a'")
    run("alter table {t} drop if exists partition (ds='1', hh='a')")
    assert not table.exist_partition("ds='1',hh='a'")
    with pytest.raises(ODPSError, match="does not exist"):
        run("alter table {t} drop partition (ds='1', hh='a')")
    with pytest.raises(ODPSError, match="does not fit"):
        run("alter table {t} add partition (ds='1')")
    run("alter table {t} partition (ds='1', hh='b') rename to partition (ds='2', hh='c')")
    assert rows(f"select * from {name}") == [(1, "2", "c")]
    with odps.execute_sql(f"show partitions {name}").open_reader() as reader:
        assert reader.raw.strip() == "ds=2/hh=c"


def test_81_insert_and_overwrite(run: Any, name: str, rows: Rows) -> None:
    run("create table {t} (v string)")
    for statement, expected in (
        ("insert into {t} values ('abc')", ["abc"]),
        ("insert overwrite table {t} values ('abcd')", ["abcd"]),
        (
            "insert into {t} select * from (select 'aaaa' union all select cast(null as string)) x",
            [None, "aaaa", "abcd"],
        ),
    ):
        run(statement)
        assert sorted(rows(f"select v from {name}"), key=repr) == sorted([(v,) for v in expected], key=repr)


def test_82_insert_into_leaves(run: Any, name: str, rows: Rows) -> None:
    run("create table {t} (n bigint) partitioned by (city string)")
    run("insert overwrite table {t} partition (city='hangzhou') values (1)")
    run("insert overwrite table {t} partition (city='hangzhou') values (160)")
    run("insert into {t} partition (city='hangzhou') values (400), (600)")
    run("insert into {t} partition (city) values (200,'shanghai'), (300,'shanghai'), (500,'shanghai')")
    assert rows(f"select city, count(*), sum(n) from {name} group by city") == [
        ("hangzhou", 3, 1160),
        ("shanghai", 3, 1000),
    ]
    run("insert overwrite table {t} partition (city) select 7, 'shanghai'")
    assert rows(f"select sum(n) from {name}") == [(1167,)]


def test_changes_of_a_delta_table(run: Any, name: str, rows: Rows) -> None:
    run("create table {t} (k bigint not null, v string, n bigint, primary key (k)) "
        "tblproperties ('transactional'='true')")  # fmt: skip
    run("insert into {t} values (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    run("insert into {t} values (1, 'again', 10)")
    run("update {t} set v = concat(v, '!'), n = n + 1 where k = 2 and v = 'b'")
    run("update {t} set v = 'lost' where k = 2 and v = 'b'")
    run("delete from {t} where k = 3")
    run("merge into {t} x using (select 1 as k, 'm' as v union all select 9, 'new') s on x.k = s.k "
        "when matched then update set v = s.v when not matched then insert values (s.k, s.v, 0)")  # fmt: skip
    assert rows(f"select * from {name}") == [(1, "m", 10), (2, "b!", 3), (9, "new", 0)]
    with pytest.raises(ODPSError, match="key column"):
        run("update {t} set k = 5 where k = 1")


def test_changes_of_a_transactional_table_without_key(run: Any, name: str, rows: Rows) -> None:
    run("create table {t} (k bigint, v string) partitioned by (p string) tblproperties ('transactional'='true')")
    run("insert into {t} partition (p) values (1, 'a', 'x'), (2, 'b', 'x'), (3, 'c', 'y')")
    run("update {t} set v = 'z' where k = 1")
    run("delete from {t} where k = 3")
    assert rows(f"select * from {name}") == [(1, "z", "x"), (2, "b", "x")]


def test_only_transactional_tables_change(run: Any) -> None:
    run("create table {t} (k bigint)")
    with pytest.raises(ODPSError, match="not transactional"):
        run("delete from {t} where k = 1")


def test_schema_evolution(odps: Any, run: Any, name: str, rows: Rows) -> None:
    run("create table {t} (k int not null, a string, b int, primary key (k)) tblproperties ('transactional'='true')")
    run("insert into {t} values (1, 'a', 7)")
    run("alter table {t} add columns (c string, d bigint)")
    run("alter table {t} change column b b2 bigint")
    run("alter table {t} drop columns (a)")
    run("alter table {t} add columns (a bigint)")
    run("insert into {t} values (2, 8, 'c', 9, 10)")
    assert rows(f"select * from {name}") == [(1, 7, None, None, None), (2, 8, "c", 9, 10)]
    table = odps.get_table(name)
    assert [c.name for c in table.table_schema.simple_columns] == ["k", "b2", "c", "d", "a"]
    assert table.schema_version == "4"
    with pytest.raises(ODPSError, match="primary key"):
        run("alter table {t} drop columns (k)")


def test_comments_nulls_and_clustering_are_changed(odps: Any, run: Any, name: str, rows: Rows) -> None:
    from odps.models.cluster_info import ClusterInfo, ClusterSortCol, ClusterSortOrder, ClusterType

    run(
        "create table {t} (k bigint not null comment 'key', v string not null, primary key (k)) clustered by (k)"
        " sorted by (k asc) into 4 buckets tblproperties ('transactional'='true')"
    )
    with pytest.raises(ODPSError, match="NULL"):
        run("insert into {t} values (1, null)")
    run("alter table {t} change column v null")
    run("alter table {t} change column v comment 'may be null'")
    run("insert into {t} values (1, null)")
    assert rows(f"select * from {name}") == [(1, None)]
    with pytest.raises(ODPSError, match="primary key"):
        run("alter table {t} change column k null")
    table = odps.get_table(name)
    order = ClusterSortCol(name="v", order=ClusterSortOrder.ASC)
    clustered = ClusterInfo(cluster_type=ClusterType.HASH, cluster_cols=["v"], sort_cols=[order], bucket_num=8)
    table.set_cluster_info(clustered)
    table.set_cluster_info(None)
    table.rename_column("v", "w", comment="renamed")
    found = odps.get_table(name).table_schema.simple_columns
    assert [(column.name, column.comment) for column in found] == [("k", "key"), ("w", "renamed")]
    assert rows(f"select * from {name}") == [(1, None)]


def test_truncate(run: Any, name: str, rows: Rows) -> None:
    run("create table {t} (k bigint) partitioned by (p string)")
    run("insert into {t} partition (p) values (1, 'x'), (2, 'y')")
    run("truncate table {t} partition (p='x')")
    assert rows(f"select k from {name}") == [(2,)]
    run("truncate table {t}")
    assert rows(f"select k from {name}") == []


def test_queries(run: Any, name: str, rows: Rows) -> None:
    run("create table {t} (k bigint, v string, d datetime) partitioned by (p string)")
    run("insert into {t} partition (p) select id, concat('v', id % 3), cast('2020-01-01 00:00:00' as datetime), "
        "if(id < 5, 'x', 'y') from (select explode(sequence(0, 9)) as id) s")  # fmt: skip
    query = f"select v, count(*) as n, sum(k) from {name} where p = 'y' group by v order by n desc, v"
    assert rows(query, ordered=True) == [("v0", 2, 15), ("v2", 2, 13), ("v1", 1, 7)]
    assert rows(f"select a.k from {name} a join {name} b on a.k = b.k + 8") == [(8,), (9,)]
    assert rows(f"with c as (select max(k) as m from {name}) select m, m is null from c") == [(9, False)]
    assert rows(f"select k from {name} order by k desc limit 2", ordered=True) == [(9,), (8,)]


@pytest.mark.parametrize("options", [{"tunnel": True}, {"tunnel": False}, {}], ids=["tunnel", "csv", "default"])
def test_readers(odps: Any, options: dict[str, Any]) -> None:
    query = "select 1 as a, 'x,\"y\"\\n' as b, cast(null as string) as c"
    with odps.execute_sql(query).open_reader(**options) as reader:
        record = next(iter(reader))
    assert (int(record["a"]), record["b"], record["c"]) == (1, 'x,"y"\n', None)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        pytest.param("select * from no_such_table", NoSuchTable, id="missing-table"),
        pytest.param("select * from other_project.t", ODPSError, id="other-project"),
        pytest.param("select * frm x where", ODPSError, id="not-sql"),
        pytest.param("alter table x nonsense", (ParseError, NoSuchTable), id="unknown-alteration"),
        pytest.param("grant all to everybody", ODPSError, id="unknown-statement"),
        pytest.param("select no_such_function(1)", ODPSError, id="unknown-function"),
    ],
)
def test_failures_name_their_reason(odps: Any, query: str, error: Any) -> None:
    with pytest.raises(error) as caught:
        odps.execute_sql(query)
    assert "ODPS-" in str(caught.value)


def test_instances_tell_what_they_are(odps: Any) -> None:
    instance = odps.run_sql("select 1")
    instance.wait_for_success()
    assert (instance.is_terminated(), instance.is_successful()) == (True, True)
    assert instance.get_sql_query().strip() == "select 1;"
    assert instance.start_time <= instance.end_time
    assert instance.id in [found.id for found in odps.list_instances()]
    assert instance.get_logview_address()
    assert instance.to_pandas().values.tolist() == [[1]]


def test_settings_before_a_statement(odps: Any, rows: Rows) -> None:
    assert rows("set odps.sql.type.system.odps2 = true; select 'a;b' as x -- a comment ; with a semicolon") == [
        ("a;b",)
    ]


def test_create_as_and_like(odps: Any, run: Any, name: str, rows: Rows) -> None:
    run("create table {t} as select 1 as a, 'x' as b")
    run("create table {t}_like like {t}")
    assert rows(f"select * from {name}") == [(1, "x")]
    assert rows(f"select * from {name}_like") == []
    assert [table.name for table in odps.list_tables(prefix=name)] == [name, f"{name}_like"]


def test_conditional_updates_by_many_clients(server: Any, run: Any, name: str, rows: Rows) -> None:
    from concurrent.futures import ThreadPoolExecutor

    run("create table {t} (k bigint not null, n bigint, primary key (k)) tblproperties ('transactional'='true')")
    run("insert into {t} values (1, 0)")

    def add(_: int) -> None:
        server.odps().execute_sql(f"update {name} set n = n + 1 where k = 1")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert rows(f"select n from {name}") == [(40,)]


def test_errors_of_the_catalogue_have_their_class(odps: Any, name: str) -> None:
    odps.create_schema(f"s_{name}")
    with pytest.raises(ObjectAlreadyExists):
        odps.create_schema(f"s_{name}")


def test_owner_properties_and_the_statement_that_creates_a_table(odps: Any, run: Any, name: str) -> None:
    run(
        "create table {t} (k bigint not null, d decimal(5,2) comment 'it''s', primary key (k)) comment 'c' partitioned"
        " by (ds string) tblproperties ('transactional'='true', 'write.bucket.num'='2', 'mine'='1') lifecycle 3"
    )
    odps.get_table(name).set_owner("ALIYUN$somebody")
    run("alter table {t} unset tblproperties ('mine')")
    with pytest.raises(ODPSError, match="cannot be unset"):
        run("alter table {t} unset tblproperties ('transactional')")
    text = run("show create table {t}").get_task_results().popitem()[1]
    other = f"{name}_again"
    odps.execute_sql(text.replace(name, other))
    first, second = odps.get_table(name), odps.get_table(other)
    assert (first.owner, second.owner) == ("ALIYUN$somebody", "ALIYUN$test_id")
    for told in ("table_properties", "primary_key", "comment", "lifecycle"):
        assert getattr(first, told) == getattr(second, told)
    assert "mine" not in first.table_properties
    assert [(c.name, str(c.type), c.nullable, c.comment) for c in first.table_schema.columns] == [
        (c.name, str(c.type), c.nullable, c.comment) for c in second.table_schema.columns
    ]
    listed = odps.execute_sql(f"show tables like '{name[:-1]}*again'").get_task_results().popitem()[1]
    assert listed.split(":")[-1] == other
