"""Rules of the configuration: sections 1.2, 2.6 and 8.6, with their messages."""

from __future__ import annotations

import pytest

from upsert_platform.core.model import Options
from upsert_platform.tablestore.connect.options import KeyMode, read_connect_tables
from upsert_platform.tablestore.options import DeleteMode, InsertMode
from upsert_platform_tests.tablestore.connect.records import PLACE, problems_of

KEYED = {"primarykey.mode": "record_key", "tablestore.t.primarykey.name": "a", "tablestore.t.primarykey.type": "string"}


def _keys(names: str, types: str, **more: str) -> dict[str, str]:
    return {
        "primarykey.mode": "record_key",
        "tablestore.t.primarykey.name": names,
        "tablestore.t.primarykey.type": types,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


RULES = [
    ("55", {"delete.mode": "row"}, "'delete.mode' = 'row' needs 'primarykey.mode' = 'record_key'"),
    ("60", _keys("a,b", "string,string", key_converter="string"), "a key read as a string is one column, not 2"),
    (
        "73 whitelist",
        {"tablestore.t.columns.whitelist.name": "a,a", "tablestore.t.columns.whitelist.type": "string,string"},
        "names a column twice",
    ),
    ("73 key type", _keys("a", "double"), "takes string, integer, binary, auto_increment, not 'double'"),
    ("1.2 mode", {"primarykey.mode": "record"}, "option 'primarykey.mode'"),
    ("1.2 no key", {"primarykey.mode": "record_key"}, "needs 'tablestore.t.primarykey.name' and '.type'"),
    ("1.2 counts", _keys("a,b", "string"), "has 2 items and 'tablestore.t.primarykey.type' 1"),
    ("1.2 empty item", _keys("a,,b", "string,string,string"), "'' is not a column name"),
    ("1.2 malformed assignment", {"topics.assign.tables": "t"}, "takes <topic>:<table>"),
    ("1.2 no topics", {"topics": ""}, "option 'topics'"),
    ("2.6-9 five keys", _keys("a,b,c,d,e", "string,string,string,string,string"), "has 5 columns; Tablestore takes 4"),
    ("2.6-8 auto increment", _keys("a,n", "string,auto_increment"), "'auto.increment.repeated-rows' = 'true'"),
    ("5.3 auto increment first", _keys("n", "auto_increment"), "one column may be auto_increment, and not the first"),
    (
        "2.6 whitelist is key",
        KEYED | {"tablestore.t.columns.whitelist.name": "a", "tablestore.t.columns.whitelist.type": "string"},
        "'a' is both primary key and whitelist column",
    ),
    (
        "2.6 key named value",
        _keys("value", "string", value_converter="string"),
        "primary key column 'value' has the name",
    ),
    (
        "2.6 key named key",
        _keys("key", "string", key_converter="string") | {"primarykey.mode": "record_value"},
        "primary key column 'key' has the name",
    ),
    ("3.2 binary string key", _keys("a", "binary", key_converter="string"), "string or integer, not binary"),
    ("3.3 table name", {"topics": "my-topic"}, "Tablestore takes no table name 'my-topic'; use 'topics.assign.tables'"),
    (
        "other table",
        {"tablestore.u.primarykey.name": "a"},
        "unknown option 'tablestore.u.primarykey.name'; did you mean",
    ),
    ("unknown", {"insert.modus": "put"}, "unknown option 'insert.modus'; did you mean 'insert.mode'?"),
    (
        "2.5 timestamp type",
        {"primarykey.mode": "search", "tablestore.t.search.timestamp.type": "x"},
        "takes kafka or local",
    ),
]


@pytest.mark.parametrize(("rule", "options", "message"), RULES, ids=[rule[0] for rule in RULES])
def test_rules(rule: str, options: dict[str, str], message: str) -> None:
    found = [str(problem) for problem in problems_of(options)]
    assert any(message in problem for problem in found), (rule, found)


def test_45_46_names_of_tables() -> None:
    options = {"topics": "test,other", "table.name.format": "<topic>_kafka", "topics.assign.tables": "test:destTable"}
    tables, problems = read_connect_tables(Options(options), subject="c", location=PLACE)
    assert problems == []
    assert {topic: table.name for topic, table in tables.items()} == {"test": "destTable", "other": "other_kafka"}


def test_values_in_any_case_and_with_blanks() -> None:
    options = {
        "topics": " t ",
        "primarykey.mode": "Record_Key",
        "insert.mode": "UPDATE",
        "delete.mode": "row_and_column ",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "tablestore.t.primarykey.name": " a ",
        "tablestore.t.primarykey.type": " String ",
    }
    tables, problems = read_connect_tables(Options(options), subject="c", location=PLACE)
    assert problems == []
    table = tables["t"]
    assert (table.key_mode, table.insert_mode, table.delete_mode) == (
        KeyMode.RECORD_KEY,
        InsertMode.UPDATE,
        DeleteMode.ROW_AND_COLUMN,
    )
    assert (table.key_side.format, table.primary_key) == ("string", (("a", "string"),))
