from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import upsert_platform
from upsert_platform.core.errors import DeclarationError
from upsert_platform.core.model import Project
from upsert_platform.declarations.project import load_project
from upsert_platform.sync.binding import bind
from upsert_platform.sync.connectors import CONNECTORS

DEMO = Path(upsert_platform.__file__).parent / "demo" / "project"
S = "CREATE TABLE s (id INT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka');\n"
T = "CREATE TABLE t (id INT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore');\n"


def demo_variables() -> dict[str, str]:
    text = (DEMO / "users.sql").read_text()
    return {name: f"value of {name}" for name in re.findall(r"\$\{(\w+)\}", text)}


def test_the_demo_project_has_no_problems() -> None:
    project, problems = load_project(DEMO, demo_variables(), connectors=CONNECTORS)
    assert problems == []
    assert {insert.target: insert.tables for insert in project.inserts} == {
        "pageviews_per_region": ("pageviews",),
        "regions_serving": ("regions",),
        "last_views": ("users", "pageviews"),
        "users_serving": ("users",),
        "users_warehouse": ("users",),
    }
    assert project.inserts[-1].predicate == "`region` <> 'test'"
    assert [query.key for query in project.queries()] == [("user_region",), ("user_id",)]
    assert {table.name for table in project.sources()} == {"users", "pageviews", "regions"}
    secret = project.tables["users_serving"].options["tablestore.access.key.secret"]
    assert secret == "value of UPSERT_TABLESTORE_ACCESS_KEY_SECRET"
    assert secret not in repr(project)


def test_the_demo_project_asks_for_its_variables_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in demo_variables():
        monkeypatch.delenv(name, raising=False)
    _, problems = load_project(DEMO, connectors=CONNECTORS)
    named = [re.findall(r"\$\{(\w+)\}", file.read_text()) for file in DEMO.glob("*.sql")]
    assert len(problems) == sum(map(len, named))
    assert all("is not set" in problem.message and problem.location for problem in problems)


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.sql").write_text(text, encoding="utf-8")
    return folder


def test_files_are_read_in_the_order_of_their_names_and_know_each_other(tmp_path: Path) -> None:
    write(tmp_path, a_insert="INSERT INTO t SELECT * FROM s;", b_target=T, c_source=S)
    project, problems = load_project(tmp_path, connectors=CONNECTORS)
    assert problems == []
    assert list(project.tables) == ["t", "s"]


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_bytes(b"\xef\xbb\xbf" + (S + T + "INSERT INTO t SELECT * FROM s;").encode())
    assert load_project(tmp_path, connectors=CONNECTORS)[1] == []


CASES = [
    ("no connector", "CREATE TABLE t (id INT) WITH ('topic' = 'x');", "required option 'connector' is missing"),
    ("V1 no key", "CREATE TABLE t (id INT) WITH ('connector' = 'upsert-kafka');", "a PRIMARY KEY ... NOT ENFORCED is"),
    ("declared in two files", S, "table 's' is declared twice (first at"),
    ("OVERWRITE and another", T + "INSERT OVERWRITE t SELECT * FROM s; INSERT INTO t SELECT * FROM s;",
     "INSERT OVERWRITE t: replaces what another INSERT writes"),
    ("read and written", T + "INSERT INTO t SELECT * FROM s; CREATE TABLE u LIKE t; INSERT INTO u SELECT * FROM t;",
     "declare the same topic once more under another name"),
    ("written from itself", "INSERT INTO s SELECT * FROM s;", "table 's' is written from itself"),
    ("system column", T.replace("v STRING", "`_Batch` STRING") + "INSERT INTO t SELECT * FROM s;",
     "column '_Batch' has the name of a column of the platform itself"),
    ("change frame column", T.replace("v STRING", "_op STRING"), "column '_op' has the name of a column"),
    ("too fine", "CREATE TABLE f (id INT PRIMARY KEY NOT ENFORCED, at ROW<x ARRAY<TIMESTAMP(9)>>) WITH"
     " ('connector' = 'upsert-kafka'); CREATE TABLE g LIKE f; INSERT INTO g SELECT * FROM f;",
     "column 'at' has 9 fraction digits"),
    ("blank in a name", "CREATE TABLE f (id INT PRIMARY KEY NOT ENFORCED, v ROW<`a b` INT>) WITH ('connector' ="
     " 'upsert-kafka'); CREATE TABLE g LIKE f; INSERT INTO g SELECT * FROM f;", "rename 'a b'"),
    ("truncate is not a boolean", T.replace("'tablestore'", "'tablestore', 'truncate-timestamps' = 'maybe'"),
     "option 'truncate-timestamps' takes true or false"),
    ("two names that look the same", T.replace("TABLE t", "TABLE `Å`") + T.replace("TABLE t", "TABLE `A\u030a`"),
     "its name looks as that of another table, 'Å'"),
    ("two names of one asset", T.replace("TABLE t", "TABLE `a/b`") + T.replace("TABLE t", "TABLE `a_b`")
     + "INSERT INTO `a/b` SELECT * FROM s; INSERT INTO a_b SELECT * FROM s;",
     "table 'a_b': its asset and that of table 'a/b' have one key, 'a_b'"),
    ("unknown table", "INSERT INTO t SELECT * FROM nothing;", "unknown table 'nothing'"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "message"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_problems_of_a_project(tmp_path: Path, sql: str, message: str) -> None:
    write(tmp_path, a=S, b=sql)
    _, problems = load_project(tmp_path, connectors=CONNECTORS)
    found = [problem for problem in problems if message in problem.message]
    assert len(found) == 1
    assert found[0].severity == "error"
    assert found[0].location is not None
    assert found[0].location.file == str(tmp_path / "b.sql")
    with pytest.raises(DeclarationError, match=re.escape(message)):
        bind(Project(""), found)


def test_fine_timestamps_are_accepted_on_demand_and_connectors_do_not_see_the_option(tmp_path: Path) -> None:
    sql = """CREATE TABLE f (id INT PRIMARY KEY NOT ENFORCED, at TIMESTAMP(9)) WITH
    ('connector' = 'upsert-kafka', 'truncate-timestamps' = 'true');
    CREATE TABLE g (id INT PRIMARY KEY NOT ENFORCED, at TIMESTAMP(9)) WITH ('connector' = 'maxcompute');
    INSERT INTO g SELECT * FROM f;"""
    project, problems = load_project(write(tmp_path, a=sql), connectors=CONNECTORS)
    assert problems == []
    assert dict(project.tables["f"].options) == {"connector": "upsert-kafka"}


def test_names_that_differ_in_case_alone_are_a_warning(tmp_path: Path) -> None:
    write(
        tmp_path,
        a=S + T + T.replace("TABLE t", "TABLE T") + "INSERT INTO t SELECT * FROM s; INSERT INTO T SELECT * FROM s;",
    )
    _, problems = load_project(tmp_path, connectors=CONNECTORS)
    assert [problem.severity for problem in problems] == ["warning"]
    assert "table 'T': its name and that of table 't' differ in case alone" in problems[0].message


def test_a_table_that_nobody_uses_is_a_warning(tmp_path: Path) -> None:
    folder = write(tmp_path, a=S + T + "INSERT INTO t SELECT * FROM s;", b=T.replace(" t ", " u "))
    project, problems = load_project(folder, connectors=CONNECTORS)
    assert len(project.inserts) == 1
    assert [problem.severity for problem in problems] == ["warning"]
    assert "table 'u' is neither read nor written" in problems[0].message


def test_a_fault_in_an_insert_does_not_make_its_tables_unused(tmp_path: Path) -> None:
    _, problems = load_project(write(tmp_path, a=S + T + "INSERT INTO t SELECT idd, v FROM s;"), connectors=CONNECTORS)
    assert [problem.severity for problem in problems] == ["error"]


def test_an_empty_or_missing_folder_is_a_problem(tmp_path: Path) -> None:
    assert "nothing is declared here" in load_project(tmp_path, connectors=CONNECTORS)[1][0].message
    assert "this is not a folder" in load_project(tmp_path / "nowhere", connectors=CONNECTORS)[1][0].message


def test_a_file_that_is_not_utf8_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_bytes("-- \u4e2d".encode("gbk"))
    assert "not UTF-8" in load_project(tmp_path, connectors=CONNECTORS)[1][0].message


def test_reading_a_project_imports_no_heavy_library() -> None:
    heavy = ("pyspark", "confluent_kafka", "tablestore", "odps", "pyarrow", "dagster")
    code = (
        "import sys, pathlib; from upsert_platform.sync.binding import load; "
        f"load(pathlib.Path({str(DEMO)!r})); print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
