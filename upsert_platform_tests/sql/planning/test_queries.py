"""What a query that needs several rows at a time becomes: columns, types, key; and what is refused."""

from __future__ import annotations

import pytest

from upsert_platform.core.plan import Closing, Field, Join, Node, Query, Window
from upsert_platform_tests.sql.reading import NONE, errors, one_insert, read

TABLES = """
CREATE TABLE users (id INT, region STRING, age SMALLINT, spent DECIMAL(10, 2), score FLOAT, seen TIMESTAMP(3),
  tags ARRAY<STRING>, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka');
CREATE TABLE views (uid INT, page STRING, ts TIMESTAMP(3)) WITH ('connector' = 'kafka', 'format' = 'json');
CREATE TABLE dim (a INT, k STRING, b BIGINT, PRIMARY KEY (a, k) NOT ENFORCED) WITH ('connector' = 'tablestore');
CREATE TABLE clicks (uid SMALLINT, page STRING, shown AS UPPER(page), hour AS CAST(page AS INT), proc AS PROCTIME())
  WITH ('connector' = 'kafka', 'format' = 'json');
CREATE TABLE changes (uid INT, page STRING) WITH ('connector' = 'kafka', 'format' = 'debezium-json');
"""
ARRIVING = "(SELECT *, PROCTIME() AS p FROM users) AS u"
AFTER = TABLES.count("\n") + 1


def planned(columns: str, query: str) -> Query:
    """The query of an insert into a table of these columns, the first of which is its key."""
    key = columns.split()[0]
    target = f"CREATE TABLE t ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('connector' = 'tablestore');"
    found = one_insert(f"{TABLES}{target}INSERT INTO t {query};").query
    assert found is not None
    return found


def refusal(query: str, columns: str = "a INT, b BIGINT, PRIMARY KEY (a) NOT ENFORCED") -> str:
    """The only error of an insert of a query."""
    target = f"CREATE TABLE t ({columns}) WITH ('connector' = 'tablestore');"
    _, problems = read(f"{NONE}{TABLES}{target}INSERT INTO t {query};")
    (found,) = errors(problems)
    return found.removeprefix(f"{AFTER}: INSERT INTO t: ")


@pytest.mark.parametrize(
    ("call", "type_"),
    [
        ("COUNT(*)", "BIGINT NOT NULL"),
        ("COUNT(DISTINCT age)", "BIGINT NOT NULL"),
        ("APPROX_COUNT_DISTINCT(age)", "BIGINT NOT NULL"),
        ("SUM(age)", "SMALLINT"),
        ("SUM(spent)", "DECIMAL(38, 2)"),
        ("AVG(spent)", "DECIMAL(38, 6)"),
        ("AVG(age)", "SMALLINT"),
        ("SUM(score)", "FLOAT"),
        ("STDDEV(score)", "FLOAT"),
        ("VAR_POP(CAST(age AS DOUBLE))", "DOUBLE"),
        ("LISTAGG(region, ';')", "STRING"),
        ("MAX(region)", "STRING"),
        ("MIN(id)", "INT"),
    ],
)
def test_aggregates_have_the_types_of_flink(call: str, type_: str) -> None:
    kind = type_.removesuffix(" NOT NULL")
    query = planned(f"k STRING, v {kind}", f"SELECT region, {call} FROM users GROUP BY region")
    assert [str(field.type) for field in query.plan.fields] == ["STRING", type_]
    assert [field.name for field in query.plan.fields] == ["k", "v"]
    assert query.key == ("k",)
    assert query.tables == ("users",)


@pytest.mark.parametrize(
    ("one", "other", "both", "fraction"),
    [
        ("DECIMAL(10, 2)", "DECIMAL(12, 6)", "DECIMAL(14, 6)", 6),
        ("BIGINT", "DECIMAL(2, 2)", "DECIMAL(21, 2)", 2),
        ("DECIMAL(38, 2)", "DECIMAL(38, 18)", "DECIMAL(38, 2)", 18),
        ("DECIMAL(30, 0)", "DECIMAL(20, 18)", "DECIMAL(38, 8)", 18),
        ("DECIMAL(38, 0)", "DECIMAL(38, 38)", "DECIMAL(38, 0)", 38),
        ("BIGINT", "DECIMAL(38, 30)", "DECIMAL(38, 19)", 30),
    ],
)
def test_decimals_have_the_common_type_of_flink(one: str, other: str, both: str, fraction: int) -> None:
    """In one column no value loses digits before the point: of more than 38 the fraction gives way."""
    for first, second in ((one, other), (other, one)):
        sides = (f"SELECT uid, CAST(NULL AS {kind}) FROM views" for kind in (first, second))
        _, shared = planned(f"k INT, v {both}", " UNION ALL ".join(sides)).plan.fields
        assert str(shared.type) == both
        joined = f"JOIN users u ON CAST(v.uid AS {first}) = CAST(u.id AS {second})"
        on = _joins(planned("k INT, v INT", f"SELECT u.id, v.uid FROM views v {joined}").plan)
        # What is compared keeps its fraction: 1.0049 is not 1.00.
        assert {side.type.scale for side in on} == {fraction}


def _joins(node: Node) -> list[Field]:
    """The columns that joins compare."""
    own: list[Field] = []
    if isinstance(node, Join):
        sides = ((node.left, node.left_on), (node.right, node.right_on))
        own = [item for side, on in sides for item in side.fields if item.name in on]
    return [*own, *(found for item in node.inputs for found in _joins(item))]


def test_computed_columns_are_read_from_what_they_are_made_of() -> None:
    from upsert_platform.core.plan import scans

    query = planned("k STRING, v BIGINT", "SELECT shown, COUNT(*) FROM clicks GROUP BY shown")
    (scan,) = scans(query.plan)
    assert [field.name for field in scan.columns] == ["page"]
    failing = refusal("SELECT hour, COUNT(*) FROM clicks GROUP BY hour")
    assert failing.startswith("a computed column that can fail for a row is not kept up to date")


def test_a_lookup_join_reads_no_changelog_of_its_table() -> None:
    lookup = "JOIN dim FOR SYSTEM_TIME AS OF c.proc AS d ON c.uid = d.a AND d.k = 'x'"
    query = planned("k STRING, v BIGINT", f"SELECT c.page, SUM(d.b) FROM clicks AS c {lookup} GROUP BY c.page")
    assert query.tables == ("clicks",)
    assert query.lookups == ("dim",)
    assert query.key == ("k",)
    added = planned("k INT, v STRING", f"SELECT CAST(c.uid AS INT), c.shown FROM clicks AS c LEFT {lookup}")
    assert added.key == ("k",), "of rows that are only added the last one of each key is shown"


def test_windows_close_in_the_statements_behind_the_setting() -> None:
    """And in no other: the plan's own text, by which state is known again, is the same."""
    tables = TABLES.replace("ts TIMESTAMP(3))", "ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)")
    target = "CREATE TABLE {} (s TIMESTAMP(3), e TIMESTAMP(3), n BIGINT, PRIMARY KEY (s, e) NOT ENFORCED) WITH"
    text = tables + "".join(f"{target.format(name)} ('connector' = 'tablestore');" for name in "abc")
    window = "TABLE(TUMBLE(TABLE seen, DESCRIPTOR(moment), INTERVAL '1' MINUTE))"
    select = f"SELECT window_start, window_end, COUNT(*) FROM {window} GROUP BY window_start, window_end"
    text += "CREATE VIEW seen (moment, who) AS SELECT ts, uid FROM views WHERE uid > 0;"
    text += f"INSERT INTO a {select}; SET 'table.exec.emit.allow-lateness' = '1 min'; INSERT INTO b {select};"
    scripts, problems = read(text + "INSERT INTO c SELECT ts, ts, COUNT(*) FROM views GROUP BY ts;")
    assert errors(problems) == []
    plans = [insert.query.plan for insert in scripts.inserts if insert.query is not None]
    found = [[item.closing for item in _windows(plan)] for plan in plans]
    assert found == [[None], [Closing("views", "ts", 65_000_000)], []]
    assert repr(plans[0]) == repr(plans[1])


def _windows(node: Node) -> list[Window]:
    own = [node] if isinstance(node, Window) else []
    return [*own, *(window for item in node.inputs for window in _windows(item))]


def test_only_used_columns_are_read() -> None:
    query = planned("k STRING, v BIGINT", "SELECT region, COUNT(*) FROM (SELECT * FROM users) AS u GROUP BY region")
    from upsert_platform.core.plan import scans

    (scan,) = scans(query.plan)
    assert [field.name for field in scan.columns] == ["id", "region"]


def test_query_that_only_adds_rows_needs_no_key_of_its_own() -> None:
    joined = "SELECT a.uid, b.page FROM views a JOIN views b ON a.uid = b.uid"
    target = "CREATE TABLE t (k INT, v STRING) WITH ('connector' = 'maxcompute');"
    query = one_insert(f"{TABLES}{target}INSERT INTO t {joined};").query
    assert query is not None
    assert query.key == ()
    assert planned("k INT, v STRING", joined).key == ("k",)
    assert planned("k INT", "SELECT DISTINCT uid FROM views").key == ()
    changing = "SELECT uid, page FROM views UNION ALL SELECT uid, page FROM changes"
    assert "nothing tells the rows of the query apart" in refusal(
        changing, "a INT, b STRING, PRIMARY KEY (a) NOT ENFORCED"
    )


@pytest.mark.parametrize(
    ("key", "query"),
    [
        ("a", "SELECT u.id, COUNT(*) FROM users u JOIN views v ON v.uid = u.id GROUP BY u.id"),
        ("a", "SELECT x.id, y.age FROM users x LEFT JOIN users y ON x.age = y.id"),
        ("a, b", "SELECT x.id, y.id FROM users x JOIN users y ON x.region = y.region"),
        ("a", "SELECT age, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY age ORDER BY seen) AS rn FROM users)"
              " AS t WHERE rn = 1"),
        ("a", "SELECT id, COUNT(*) FROM users GROUP BY ROLLUP (id)"),
        ("a", "SELECT id, COUNT(*) FROM users u GROUP BY id, u.id"),
        ("a", "SELECT id, age FROM users WHERE id NOT IN (SELECT id FROM users WHERE age IS NULL)"),
        ("a", "SELECT 7, COUNT(*) FILTER (WHERE age > 1) FROM users"),
    ],
)  # fmt: skip
def test_keys_are_found_through_operators(key: str, query: str) -> None:
    columns = f"a SMALLINT, b INT, PRIMARY KEY ({key}) NOT ENFORCED" if "ROW_NUMBER" in query else ""
    target = f"CREATE TABLE t ({columns or f'a INT, b BIGINT, PRIMARY KEY ({key}) NOT ENFORCED'})"
    _, problems = read(f"{TABLES}{target} WITH ('connector' = 'tablestore'); INSERT INTO t {query};")
    assert errors(problems) == []


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT id, COUNT(*) FROM users GROUP BY region", "unknown column 'id'"),
        ("SELECT age, COUNT(*) FROM users GROUP BY age, region",
         "nothing tells the rows of the query apart, and the primary key of the target is (a); rows would overwrite"
         " each other, and none could be taken back:"
         " group by what fills it, or select the keys of the tables that are joined"),
        ("SELECT x.id, y.id FROM users x JOIN users y ON x.region = y.region",
         "the rows of the query are told apart by (id, id), but the primary key of the target is (a); rows would"
         " overwrite each other, and none could be taken back: group by the key's columns, or add what is"
         " missing to the key"),
        ("SELECT id, rn FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY age) AS rn FROM users) AS t",
         "a ROW_NUMBER needs a limit: write SELECT ... FROM (SELECT ..., ROW_NUMBER() OVER (...) AS rn ...)"
         " WHERE rn <= n"),
        ("SELECT id, LISTAGG(age) FROM users GROUP BY id", "LISTAGG does not take a value of type SMALLINT"),
        ("SELECT id, LISTAGG(region, page) FROM users GROUP BY id",
         "LISTAGG takes a column and, if wanted, a constant text between values"),
        ("SELECT id, GROUPING(age) FROM users GROUP BY ROLLUP (id, region)",
         "GROUPING takes expressions of GROUP BY"),
        ("SELECT GROUPING(id), COUNT(*) FROM users",
         "the aggregate GROUPING is not supported: it belongs to GROUP BY"),
        ("SELECT age, COUNT(*) FROM users GROUP BY ROLLUP (age)",
         "nothing tells the rows of the query apart, and the primary key"),
        ("SELECT id, COLLECT(tags) FROM users GROUP BY id", "COLLECT does not take a value of type ARRAY<STRING>"),
        ("SELECT id, FIRST_VALUE(age) FROM users GROUP BY id",
         "FIRST_VALUE and LAST_VALUE follow rows that are only added, by GROUP BY of columns; of rows that change"),
        ("SELECT LAST_VALUE(uid), 1 FROM views", "FIRST_VALUE and LAST_VALUE follow rows that are only added, by"),
        ("SELECT id, STDDEV_POP(age) FROM users GROUP BY id",
         "STDDEV_POP takes DOUBLE or FLOAT, not SMALLINT: write CAST(... AS DOUBLE)"),
        ("SELECT id, VARIANCE(region) FROM users GROUP BY id", "VARIANCE does not take a value of type STRING"),
        ("SELECT id, MAX(tags) FROM users GROUP BY id", "MAX does not take a value of type ARRAY<STRING>"),
        ("SELECT id, SUM(region) FROM users GROUP BY id", "SUM does not take a value of type STRING"),
        ("SELECT x.id, y.id FROM users x JOIN users y ON x.region = y.age",
         "a join compares STRING with SMALLINT; CAST one to the type of the other"),
        ("SELECT id, id FROM users LIMIT 3",
         "LIMIT needs an ORDER BY: a table has no order, and which rows are first must not change by itself"),
        ("SELECT id, id FROM users ORDER BY id",
         "ORDER BY needs a LIMIT: a table has no order, and which rows are first must not change by itself"),
        ("SELECT id, (SELECT 1) FROM users", "SELECT without FROM: rows come from a declared table"),
        ("SELECT id, (SELECT age FROM users) FROM users",
         "a subquery that stands for a value may give several rows: aggregate it without GROUP BY, or join it"),
        ("SELECT id, (SELECT MAX(v.uid) FROM views v WHERE v.uid < u.id) FROM users u",
         "a subquery that stands for a value and reads the query around it is one aggregate with equalities in WHERE"),
        ("SELECT id, id FROM users WHERE age > 1 OR COALESCE(age IN (SELECT age FROM users), FALSE)",
         "IN with values that may be null stands in WHERE and HAVING below AND, OR and NOT alone"),
        ("SELECT id, age IN (SELECT age FROM users) FROM users",
         "IN with values that may be null stands in WHERE and HAVING below AND, OR and NOT alone"),
        ("SELECT id, EXISTS (SELECT 1 FROM users v WHERE v.age > u.id) FROM users u",
         "IN and EXISTS below OR compare by = alone with the query around"),
        ("SELECT id, id FROM users WHERE (id, age) NOT IN (SELECT id, age FROM users)",
         "(a, b) NOT IN compares values that are NOT NULL: write NOT EXISTS"),
        ("SELECT id, id FROM users WHERE (id, age) IN (SELECT id FROM users)",
         "IN compares 2 columns, the subquery gives 1"),
        ("SELECT id, id FROM users WHERE (id, age) IN ((1, 2), (3, 4, 5))", "2 values are compared with 3"),
        ("SELECT id, id FROM users WHERE (id, age) < (1, 2)", "(a, b) is compared by = and <> alone"),
        ("SELECT id, id FROM users u WHERE age > ALL (SELECT v.uid FROM views v WHERE v.uid < u.id)",
         "ANY and ALL compare by = alone with the query around: write NOT EXISTS (SELECT 1 FROM t WHERE ...)"),
        ("SELECT id, id FROM users WHERE age > ALL (SELECT page FROM views)", "ANY and ALL compare SMALLINT with"),
        ("SELECT id, id FROM users WHERE tags > ANY (SELECT tags FROM users)",
         "values of type ARRAY<STRING> have no order: compare"),
        ("SELECT id, id FROM users WHERE age > ALL (SELECT id, age FROM users)",
         "ANY and ALL compare one column, the subquery gives 2"),
        ("SELECT id, id FROM users WHERE (id, age) > ALL (SELECT id, age FROM users)",
         "ANY and ALL compare one value: (a, b) IN (SELECT ...), or NOT EXISTS"),
        ("SELECT id, id FROM users WHERE (id, age) = ALL ((1, 2), (3, 4))", "ANY and ALL compare one value with sev"),
        ("SELECT id, id FROM users WHERE age > ALL (1, (SELECT MAX(age) FROM users))",
         "ANY and ALL compare with a subquery or with values: x = ANY (SELECT ...)"),
        ("SELECT a.id, b.age FROM users a LEFT JOIN users b ON a.id = b.id AND EXISTS (SELECT 1 FROM views v WHERE"
         " v.uid = a.id AND v.page = b.region)",
         "a subquery in the ON of an outer join reads columns of one side alone: select what it gives in a subquery"),
        ("SELECT a.id, b.age FROM users a LEFT JOIN users b ON a.id = b.id AND a.id IN (SELECT v.uid FROM views v WHERE"
         " v.page < a.region)", "IN and EXISTS in the ON of an outer join compare by = alone with the query around"),
        ("SELECT a.id, b.age FROM users a FULL JOIN users b ON a.id = b.id AND a.id > (SELECT MAX(v.id) FROM views v)",
         "unknown column 'v.id'"),
        ("SELECT id, id FROM users a NATURAL JOIN (SELECT id AS x FROM users) b", "NATURAL JOIN: no column is in both"),
        ("SELECT id, id FROM users u WHERE age NOT IN (SELECT x.age FROM users x WHERE x.id < u.id)",
         "NOT IN with values that may be null compares by = alone with the query around; write NOT EXISTS"),
        ("SELECT id, id FROM users u WHERE EXISTS (SELECT 1 FROM views AS u WHERE u.region = 'eu')",
         "unknown column 'u.region'"),
        ("SELECT x.id, x.id FROM users x JOIN users y ON x.id = y.id WHERE EXISTS (SELECT 1 FROM views v WHERE v.uid <"
         " x.age + id_2)", "unknown column 'id_2'"),
        ("SELECT id FROM users EXCEPT SELECT page FROM views", "EXCEPT: column 'id' is INT NOT NULL and STRING"),
        ("SELECT u.id, v.uid FROM users u JOIN views FOR SYSTEM_TIME AS OF u.seen AS v ON u.id = v.uid",
         "FOR SYSTEM_TIME AS OF takes a column of processing time (proc AS PROCTIME() in CREATE TABLE) and finds rows"
         " of a table of files or of a database, or the column of the left table's WATERMARK and finds versions of an"
         " upsert topic; a plain JOIN with a topic follows the changes of both sides"),
        ("SELECT u.id, d.b FROM users AS u JOIN dim FOR SYSTEM_TIME AS OF u.seen AS d ON u.id = d.a AND d.k = 'x'",
         "FOR SYSTEM_TIME AS OF takes a column of processing time"),
        ("SELECT id, id FROM users FOR SYSTEM_TIME AS OF seen", "FOR SYSTEM_TIME AS OF is not supported: it belongs to"
         " the table at the right of a JOIN"),
        (f"SELECT u.id, d.b FROM {ARRIVING} RIGHT JOIN dim FOR SYSTEM_TIME AS OF u.p AS d ON u.id = d.a",
         "FOR SYSTEM_TIME AS OF stands in JOIN ... ON ... or LEFT JOIN ... ON ..."),
        (f"SELECT u.id, d.b FROM {ARRIVING} JOIN dim FOR SYSTEM_TIME AS OF u.p AS d ON u.id = d.b",
         "rows of 'dim' are found by its primary key (a, k): ON needs an equality for a, k"),
        (f"SELECT u.id, d.b FROM {ARRIVING} JOIN dim FOR SYSTEM_TIME AS OF u.p AS d ON u.region = d.a AND d.k = 'x'",
         "key column 'a' of 'dim' is INT, what it is compared with STRING: write TRY_CAST(... AS INT)"),
        (f"SELECT u.id, d.secs FROM {ARRIVING} JOIN views FOR SYSTEM_TIME AS OF u.p AS d ON u.id < d.uid",
         "rows of 'views' are found by columns that are equal to others: ON needs an equality for one of its columns"),
        (f"SELECT u.id, d.secs FROM {ARRIVING} LEFT JOIN views FOR SYSTEM_TIME AS OF u.p AS d ON u.id = d.uid AND"
         " d.secs > 1",
         "LEFT JOIN with 'views', of which a row may find several for it has no PRIMARY KEY, takes equalities for its"
         " columns alone: write JOIN, or declare the PRIMARY KEY that tells its rows apart"),
        ("SELECT uid, COUNT(*) FROM TABLE(SESSIONS(TABLE views, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY uid",
         "the table function SESSIONS is not supported; windows are TUMBLE, HOP, CUMULATE, SESSION"),
        ("SELECT uid, COUNT(*) FROM TABLE(HOP(TABLE views, DESCRIPTOR(ts), INTERVAL '2' MINUTE, INTERVAL '3' MINUTE))"
         " GROUP BY uid", "HOP: the size is a whole multiple of the slide, both above zero"),
    ],
)  # fmt: skip
def test_what_is_not_kept_up_to_date_is_refused_by_name(query: str, message: str) -> None:
    assert refusal(query) == message or refusal(query).startswith(message)


def test_table_without_key_takes_no_query_whose_rows_change() -> None:
    found = refusal("SELECT id, COUNT(*) FROM users GROUP BY id", "a INT, b BIGINT")
    assert found.startswith("the rows of the query change, and a table without a PRIMARY KEY cannot take a row back")


def test_views_that_need_state_are_read_by_other_queries() -> None:
    view = "CREATE VIEW per_region (r, n) AS SELECT region, COUNT(*) FROM users GROUP BY region;"
    target = "CREATE TABLE t (a BIGINT, b BIGINT, PRIMARY KEY (a) NOT ENFORCED) WITH ('connector' = 'tablestore');"
    insert = one_insert(f"{TABLES}{view}{target}INSERT INTO t SELECT n, COUNT(*) FROM per_region GROUP BY n;")
    assert insert.query is not None
    assert insert.query.key == ("a",)
    _, problems = read(f"{TABLES}CREATE VIEW bad AS SELECT region, COUNT(x) FROM users GROUP BY region;")
    assert errors(problems) == [f"{AFTER}: view 'bad': unknown column 'x'"]


@pytest.mark.parametrize("written", ["INTERVAL '-4' MINUTES", "-INTERVAL '4' MINUTES", "INTERVAL '-14' MINUTES"])
@pytest.mark.parametrize("function", ["TUMBLE", "HOP", "CUMULATE"])
def test_an_offset_below_zero_is_one_above(function: str, written: str) -> None:
    sizes = "INTERVAL '10' MINUTES" if function == "TUMBLE" else "INTERVAL '5' MINUTES, INTERVAL '10' MINUTES"
    query = "SELECT window_start, COUNT(*) FROM TABLE({}(TABLE views, DESCRIPTOR(ts), {}, {})) GROUP BY window_start"
    columns = "s TIMESTAMP(3), n BIGINT"
    plans = [planned(columns, query.format(function, sizes, at)).plan for at in (written, "INTERVAL '6' MINUTES")]
    assert plans[0] == plans[1]
