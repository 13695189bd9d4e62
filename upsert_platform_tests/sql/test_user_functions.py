"""CREATE FUNCTION ... LANGUAGE PYTHON: which functions are found, and what their calls give in inserts and queries."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle

import upsert_platform
from upsert_platform.changelog.rows import stored_columns
from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.plan import expressions
from upsert_platform.core.types import parse_type, quote_name, spark_type
from upsert_platform.engine.runners import LocalRunner, SparkRunner
from upsert_platform.engine.steps import evaluate
from upsert_platform.sql.declarations import FunctionDeclaration
from upsert_platform.sql.evaluation import prepared
from upsert_platform.sql.native import native_form
from upsert_platform.sql.scripts import Scripts
from upsert_platform.sql.user_batches import Batches
from upsert_platform.sql.user_functions import declared_functions, find_functions
from upsert_platform.sql.variables import Variables
from upsert_platform.sync.transform import change_frame, computed, failed_rows
from upsert_platform_tests.engine.world import DDL, Kept, World, plan_query, same_rows
from upsert_platform_tests.sql.reading import errors, read_scripts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULE = """
import pyarrow as pa
import pyarrow.compute as pc
from upsert_platform import udf, udtf
from {helper} import most

calls = []

@udf(result_type="STRING", arguments=["STRING", "BIGINT"])
def labelled(texts, numbers):
    if pc.any(pc.greater(numbers, most)).as_py():
        raise ValueError(f"more than {{most}}")
    return pc.binary_join_element_wise(pc.utf8_upper(texts), numbers.cast(pa.string()), "-")

@udf(result_type="BIGINT", arguments=["BIGINT"])
def doubled(numbers):
    return pc.multiply(numbers, 2)

@udf(result_type="DOUBLE", arguments=["DOUBLE"], deterministic=False)
def shaken(numbers):
    return numbers

def plain(numbers):
    return numbers

@udtf(result_type="ROW<digit INT, place BIGINT NOT NULL>", arguments=["BIGINT"])
def digits(numbers):
    rows = [
        None if number is None or number == 7
        else [{{"digit": int(item) or None, "place": at}} for at, item in enumerate(str(abs(number))) if item != "3"]
        for number in numbers.to_pylist()
    ]
    return pa.array(rows, pa.list_(pa.struct([("digit", pa.int64()), ("place", pa.int64())])))

@udtf(result_type="STRING", arguments=["STRING"])
def letters(texts):
    return pa.array([None if text is None else list(text) for text in texts.to_pylist()], pa.list_(pa.string()))

@udf(result_type="BIGINT", arguments=["BIGINT", "BIGINT"])
def one_only(numbers):
    return numbers
"""
FUNCTIONS = """
CREATE TEMPORARY FUNCTION labelled AS '{module}.labelled' LANGUAGE PYTHON;
CREATE FUNCTION IF NOT EXISTS twice AS '{module}.doubled' LANGUAGE PYTHON;
CREATE FUNCTION shaken AS '{module}.shaken' LANGUAGE PYTHON;
CREATE FUNCTION digits AS '{module}.digits' LANGUAGE PYTHON;
CREATE FUNCTION letters AS '{module}.letters' LANGUAGE PYTHON;
"""
TARGET = "CREATE TABLE t ({}, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore');"


@pytest.fixture
def module(tmp_path: Path) -> Iterator[str]:
    """A module of a project's folder, beside one that it imports; of a name of its own, as modules stay loaded."""
    name = f"functions_{abs(hash(tmp_path)):x}"
    (tmp_path / f"{name}_helper.py").write_text("most = 900\n")
    (tmp_path / f"{name}.py").write_text(MODULE.format(helper=f"{name}_helper"))
    yield name


def read_in(folder: Path, sql: str) -> tuple[Scripts, list[str]]:
    scripts, problems = read_scripts({str(folder / "f.sql"): sql}, Variables({}, {}, {}))
    return scripts, errors(problems)


def test_an_insert_sets_rows_aside_for_which_a_function_fails(spark: SparkSession, tmp_path: Path, module: str) -> None:
    """Each with the function's own reason; the rows around it are written."""
    sql = FUNCTIONS.format(module=module) + DDL + TARGET.format("id BIGINT, l STRING, n BIGINT")
    insert_sql = "INSERT INTO t SELECT oid, LABELLED(kind, amount), twice(uid) FROM orders WHERE twice(oid) < 40;"
    scripts, faults = read_in(tmp_path, sql + insert_sql)
    assert faults == []
    (insert,) = scripts.inserts
    source, target = scripts.tables["orders"], scripts.tables["t"]
    columns = [f"{quote_name(item.name)} {spark_type(item.type)}" for item in stored_columns(source) if item.type]
    rows = [("+U", at, at, at % 3, 1000 if at in (3, 4, 17, 25) else at, "k", None) for at in range(30)]
    rows += [("-D", 30, 7, None, None, None, None), ("+U", 31, 8, None, None, None, None)]
    frame = spark.createDataFrame(rows, ", ".join(["_kind STRING", "_seq BIGINT", *columns]))
    frame.createOrReplaceTempView("changes_of_functions")
    changes = change_frame(spark, insert, source, target, "changes_of_functions")
    kept: list[Any] = []
    written = failed_rows(changes, ["id"], what="table 't'", keep=kept.extend)
    assert written is not None
    written.keep_refused()
    assert {row.reason for row in kept} == {f"{module}.labelled: ValueError: more than 900"}
    assert {row.key for row in kept} == {'{"id": 3}', '{"id": 4}', '{"id": 17}'}
    found = {(row["id"], row["l"], row["n"]) for row in computed(changes).collect() if row["_op"] == "U"}
    expected = {(at, f"K-{at}", at % 3 * 2) for at in range(20) if at not in (3, 4, 17)} | {(8, None, None)}
    assert found == expected


@pytest.mark.parametrize("local", [True, False])
def test_a_query_calls_functions_by_both_runners(local: bool, spark: SparkSession, tmp_path: Path, module: str) -> None:
    statement = (
        "SELECT twice(uid) AS k, COUNT(*) AS n, MAX(twice(amount)) AS m FROM orders WHERE twice(oid) > 4 GROUP BY"
        " twice(uid)"
    )
    sql = FUNCTIONS.format(module=module) + DDL + TARGET.format("id BIGINT, n BIGINT, m BIGINT")
    scripts, faults = read_in(tmp_path, f"{sql}INSERT INTO t {statement};")
    assert faults == []
    query = scripts.inserts[0].query
    assert query is not None
    texts = [item.sql for item in expressions(query.plan)]
    assert any("user_query_udf_" in text for text in texts)
    world = World(tmp_path / "world", random.Random(7))
    session = prepared(spark, texts)
    runner = LocalRunner(lambda: session) if local else SparkRunner(lambda: session)
    kept = Kept(world, query, runner=runner)
    for _ in range(3):
        world.change("orders", 20)
        kept.advance()
        judged = "SELECT uid * 2, COUNT(*), MAX(amount * 2) FROM orders WHERE oid * 2 > 4 GROUP BY uid"
        assert same_rows(kept.result(), world.judge(judged))


def _digits(number: int | None) -> list[tuple[int | None, int]]:
    """The model of `digits`: a loop over the text."""
    if number is None or number == 7:
        return []
    return [(int(item) or None, at) for at, item in enumerate(str(abs(number))) if item != "3"]


TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], list[tuple[Any, ...]]]]] = {
    "its columns by the names of the row": (
        "SELECT oid, place, digit FROM orders CROSS JOIN LATERAL TABLE(digits(amount))",
        lambda row: [(row["oid"], place, digit) for digit, place in _digits(row["amount"])],
    ),
    "by names of the statement, behind a comma": (
        "SELECT o.oid, t.b, t.a FROM orders AS o, LATERAL TABLE(digits(o.amount * 2)) AS t (a, b) WHERE t.b < 2",
        lambda row: [
            (row["oid"], place, digit)
            for digit, place in _digits(None if row["amount"] is None else row["amount"] * 2)
            if place < 2
        ],
    ),
    "rows that give none stay with nulls": (
        "SELECT oid, CAST(place AS BIGINT), digit FROM orders LEFT JOIN LATERAL TABLE(digits(amount)) AS t ON TRUE",
        lambda row: [(row["oid"], place, digit) for digit, place in _digits(row["amount"]) or [(None, None)]],
    ),
    "one column": (
        "SELECT oid, CHAR_LENGTH(l), CAST(NULL AS INT) FROM orders CROSS JOIN LATERAL TABLE(letters(kind)) AS t (l)",
        lambda row: [(row["oid"], 1, None) for _ in row["kind"] or ""],
    ),
}


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("name", TABLES)
def test_a_table_function_gives_rows_by_both_runners(
    name: str, local: bool, spark: SparkSession, tmp_path: Path, module: str
) -> None:
    """Updates and deletes take back the rows that were given."""
    statement, model = TABLES[name]
    location = SourceLocation(str(tmp_path / "f.sql"), 1)
    declared = [FunctionDeclaration(item, location, f"{module}.{item}") for item in ("digits", "letters")]
    functions, problems = find_functions(declared)
    assert problems == []
    with declared_functions(functions):
        query = plan_query(statement)
    session = prepared(spark, [item.sql for item in expressions(query.plan)])
    world = World(tmp_path / "world", random.Random(name))
    runner = LocalRunner(lambda: session) if local else SparkRunner(lambda: session)
    kept = Kept(world, query, runner=runner)
    for _ in range(3):
        world.change("orders", 20)
        kept.advance()
        assert same_rows(kept.result(), [found for row in world.rows["orders"] for found in model(row)])


def test_a_query_stops_at_a_row_for_which_a_function_fails(spark: SparkSession, tmp_path: Path, module: str) -> None:
    """With the function's reason, and without a change of the result."""
    sql = FUNCTIONS.format(module=module) + DDL + TARGET.format("id STRING, n BIGINT")
    statement = "INSERT INTO t SELECT labelled(kind, amount * 1000), COUNT(*) FROM orders GROUP BY 1;"
    statement = statement.replace("GROUP BY 1", "GROUP BY labelled(kind, amount * 1000)")
    scripts, faults = read_in(tmp_path, sql + statement)
    assert faults == []
    query = scripts.inserts[0].query
    assert query is not None
    session = prepared(spark, [item.sql for item in expressions(query.plan)])
    world = World(tmp_path / "world", random.Random(7))
    kept = Kept(world, query, runner=LocalRunner(lambda: session))
    world.change("orders", 20)
    with pytest.raises(Exception, match=r"labelled: ValueError: more than 900\. Have it return null"):
        kept.advance()
    assert kept.store.head() is None or not kept.changes()


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("CREATE FUNCTION f AS 'a.b.C';", "functions are written in Python"),
        ("CREATE FUNCTION f AS 'a.b.C' LANGUAGE JAVA;", "functions are written in Python"),
        ("CREATE FUNCTION f AS 'alone' LANGUAGE PYTHON;", "'alone' is no module and function"),
        ("CREATE FUNCTION f AS 'not_there_at_all.f' LANGUAGE PYTHON;", "cannot be imported (ModuleNotFoundError"),
        ("CREATE FUNCTION f AS '{module}.nothing' LANGUAGE PYTHON;", "has no function 'nothing'"),
        ("CREATE FUNCTION f AS '{module}.plain' LANGUAGE PYTHON;", "does not declare its types: put @upsert_platform"),
        ("CREATE FUNCTION f AS '{module}.one_only' LANGUAGE PYTHON;", "does not take 2 arguments"),
        (FUNCTIONS + "CREATE FUNCTION Twice AS '{module}.doubled' LANGUAGE PYTHON;", "is declared twice"),
        (FUNCTIONS + "INSERT INTO t SELECT oid, twice(kind) FROM orders;", "takes BIGINT as argument 1, not STRING"),
        (FUNCTIONS + "INSERT INTO t SELECT oid, twice() FROM orders;", "does not take 0 arguments but 1"),
        (FUNCTIONS + "INSERT INTO t SELECT oid, twise(uid) FROM orders;", "did you mean 'TWICE'"),
        (FUNCTIONS + "INSERT INTO t SELECT oid, digits(uid) FROM orders;", "digits gives rows: write CROSS JOIN LAT"),
        (
            FUNCTIONS + "INSERT INTO t SELECT oid, a FROM orders, LATERAL TABLE(twice(uid)) AS t (a);",
            "twice gives one value, not rows",
        ),
        (
            FUNCTIONS + "INSERT INTO t SELECT oid, a FROM orders, LATERAL TABLE(digits(uid)) AS t (a);",
            "name the columns of LATERAL TABLE: AS t (digit, place)",
        ),
        (
            FUNCTIONS + "INSERT INTO t SELECT oid, place FROM orders RIGHT JOIN LATERAL TABLE(digits(uid)) ON TRUE;",
            "LATERAL TABLE stands in CROSS JOIN LATERAL TABLE(...)",
        ),
        (FUNCTIONS + "INSERT INTO t SELECT 1, place FROM TABLE(digits(7));", "DIGITS stands in LATERAL TABLE("),
        (
            FUNCTIONS + "INSERT INTO t SELECT oid, place FROM orders, LATERAL TABLE(digis(uid));",
            "the table function DIGIS is not supported",
        ),
    ],
)
def test_what_is_not_right_is_refused_by_name(statement: str, reason: str, tmp_path: Path, module: str) -> None:
    _, faults = read_in(tmp_path, DDL + TARGET.format("id BIGINT, n BIGINT") + statement.format(module=module))
    assert any(reason in fault for fault in faults), faults


def test_a_function_that_varies_is_computed_once(tmp_path: Path, module: str) -> None:
    """As those of time and chance are: `validate` warns."""
    sql = FUNCTIONS.format(module=module) + DDL + TARGET.format("id BIGINT, n DOUBLE")
    texts = {str(tmp_path / "f.sql"): f"{sql}INSERT INTO t SELECT oid, shaken(amount) FROM orders;"}
    _, problems = read_scripts(texts, Variables({}, {}, {}))
    assert any("shaken" in item.message and item.severity == "warning" for item in problems), problems


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (lambda numbers: [1], "TypeError: it returned list"),
        (lambda numbers: pc.drop_null(pa.nulls(1)), "0 values for 1 rows"),
        (lambda numbers: pa.array(["x"] * len(numbers)), "ArrowInvalid"),
    ],
)
def test_results_of_another_kind_are_failures(found: Any, reason: str) -> None:
    batches = Batches(found, "m.f", (pa.int64(),), pa.int64(), stops=False)
    rows = batches(pa.array([1, 2])).to_pylist()
    assert [row["value"] for row in rows] == [None, None]
    assert all(reason in row["reason"] for row in rows)


def test_types_are_checked_where_they_are_declared() -> None:
    with pytest.raises(ValueError, match="udf: "):
        upsert_platform.udf(result_type="NUMBER", arguments=["INT"])
    with pytest.raises(ValueError, match="one argument at least"):
        upsert_platform.udf(result_type="INT", arguments=[])
    with pytest.raises(ValueError, match="udtf: "):
        upsert_platform.udtf(result_type="ROW<a NUMBER>", arguments=["INT"])


CALLED = """
import threading
import pyarrow as pa
from upsert_platform import udf

state = {}

@udf(result_type="STRING", arguments=["STRING"])
def counted(texts):
    state["lock"] = threading.Lock()
    state["calls"] = state.get("calls", 0) + 1
    if state["calls"] % 2:
        raise ValueError("only every second time")
    return texts

@udf(result_type="BIGINT", arguments=["STRING"])
def calls(texts):
    return pa.array([state.get("calls", 0)] * len(texts))
"""


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = f"called_{abs(hash(tmp_path)):x}"
    (tmp_path / f"{name}.py").write_text(CALLED)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name


def test_value_and_reason_are_those_of_one_call_in_a_task_too(called: str) -> None:
    shown = called.replace("_", "_5f_")
    call = f"user_udf_{shown}_2e_counted(`x`)"
    forms = [native_form(f"{call}.{part}", {"x": parse_type("STRING")}) for part in ("value", "reason")]
    table = pa.table({"x": ["a"]})
    failed = [None, f"{called}.counted: ValueError: only every second time"]
    for pair, expected in ((forms, failed), (pickle.loads(cloudpickle.dumps(forms)), ["a", None])):
        known: dict[Any, Any] = {}
        found = [evaluate(form, table, known).to_pylist() for form in pair if form is not None]
        assert found == [[item] for item in expected]


def test_what_a_function_keeps_in_this_process_does_not_go_to_workers(called: str) -> None:
    """A lock could not; and whoever calls first must not matter."""
    shown = called.replace("_", "_5f_")
    types = {"x": parse_type("STRING")}
    table = pa.table({"x": ["a"]})
    form, other = (native_form(f"user_udf_{shown}_2e_{name}(`x`).value", types) for name in ("calls", "counted"))
    assert form is not None
    assert other is not None
    evaluate(other, table)
    assert evaluate(form, table).to_pylist() == [1]
    code = (
        "import pickle, sys, pyarrow as pa; from upsert_platform.engine.steps import evaluate;"
        " form = pickle.loads(sys.stdin.buffer.read()); print(evaluate(form, pa.table({'x': ['a']})).to_pylist())"
    )
    done = subprocess.run([sys.executable, "-c", code], input=cloudpickle.dumps(form), capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[0]"
