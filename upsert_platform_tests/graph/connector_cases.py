"""The catalogue of the Tablestore sink connector, as records and the rows that they leave."""

from __future__ import annotations

import base64
from typing import Any

from upsert_platform_tests.graph.connectors import Case, Cells, Connector, Sent
from upsert_platform_tests.tablestore.connect.records import envelope

STRING = "org.apache.kafka.connect.storage.StringConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
ALL = {"errors.tolerance": "all", "runtime.error.tolerance": "all"}
STRINGS = {"key.converter": STRING, "value.converter": STRING}
MIXED = {"key.converter": STRING, "value.converter": JSON, "value.converter.schemas.enable": "false"}
FIXTURE: Cells = {"A": "test", "B": 1, "C": b"test"}
SCHEMA: dict[str, str | tuple[str, str]] = {"A": "string", "B": "int32", "C": "bytes"}
ALL_NULL = envelope(SCHEMA, {"A": None, "B": None, "C": None})
SOME_NULL = envelope(SCHEMA, {"A": "update", "B": None, "C": None})
NESTED = envelope({"pk0": "struct"}, {"pk0": {"a": 1}})
INSERTS = ("put", "update")
DELETES = ("none", "row", "column", "row_and_column")


def _keyed(name: str, insert: str, delete: str, **more: Any) -> Connector:
    options = {**ALL, "primarykey.mode": "record_key", "insert.mode": insert, "delete.mode": delete}
    return Connector(name, {**options, **more.pop("options", {})}, **{"keys": "pk0:string", **more})


TIMES = {"time": "ts", "measurement": "m", "dataSource": "ds", "tags": "tag1,tag2"}


def _series(name: str, unit: str, **more: str) -> Connector:
    options = {**ALL, "tablestore.mode": "timeseries", "tablestore.timeseries.{table}.time.unit": unit}
    options |= {f"tablestore.timeseries.{{table}}.{option}": value for option, value in {**TIMES, **more}.items()}
    return Connector(name, options)


_CLASS = "org.apache.kafka.connect.transforms."
TRANSFORMS = {
    "topics.assign.tables": "{topic}_routed:{table}",
    "transforms": "drop,route,key,less,cast,more",
    "transforms.drop.type": f"{_CLASS}Filter",
    "transforms.drop.predicate": "tombstone",
    "predicates": "tombstone",
    "predicates.tombstone.type": f"{_CLASS}predicates.RecordIsTombstone",
    "transforms.route.type": f"{_CLASS}RegexRouter",
    "transforms.route.regex": "(.*)",
    "transforms.route.replacement": "$1_routed",
    "transforms.key.type": f"{_CLASS}ValueToKey",
    "transforms.key.fields": "pk0",
    "transforms.less.type": f"{_CLASS}ReplaceField$Value",
    "transforms.less.exclude": "pk0,secret",
    "transforms.cast.type": f"{_CLASS}Cast$Value",
    "transforms.cast.spec": "n:int64",
    "transforms.more.type": f"{_CLASS}InsertField$Value",
    "transforms.more.static.field": "source",
    "transforms.more.static.value": "orders",
}
CONNECTORS = [
    *(_keyed(f"{insert}_{delete}", insert, delete) for insert in INSERTS for delete in DELETES),
    _keyed("white_put", "put", "none", whitelist="A:string,B:integer,D:double,E:boolean"),
    _keyed("white_update", "update", "none", whitelist="A:string,B:integer"),
    _keyed("types", "put", "none", keys="s:string,i:integer,b:binary"),
    _keyed("integers", "put", "none", keys="a:integer,b:integer,c:integer,d:integer"),
    _keyed("number", "put", "none", keys="pk0:integer", options={"key.converter": STRING}),
    _keyed(
        "generated", "put", "none", keys="pk0:string,n:auto_increment", options={"auto.increment.repeated-rows": "true"}
    ),
    Connector("texts", {**ALL, **STRINGS}),
    Connector("mixed", {**ALL, **MIXED}),
    Connector("identified", {**ALL, **MIXED, "json.field.conversion": "auto"}),
    Connector("value_text", {**ALL, **STRINGS, "primarykey.mode": "record_value"}, keys="pk0:string"),
    Connector("value_json", {**ALL, **MIXED, "primarykey.mode": "record_value"}, keys="pk0:string"),
    Connector("search", {**ALL, **STRINGS, "primarykey.mode": "search"}),
    _keyed("changed", "put", "row", options=TRANSFORMS),
    _series("series", "SECONDS"),
    _series("millis", "MILLISECONDS", measurement="<topic>"),
]  # fmt: skip


def _row(
    rule: str,
    sink: str,
    value: Any,
    row: Cells | None,
    *,
    key: Any = None,
    at: tuple[Any, ...] | None = None,
    before: Cells | None = None,
    dirty: int = 0,
) -> Case:
    """A case of one record; its key is ``{"pk0": <rule>}`` unless given."""
    return Case(rule, sink, (Sent({"pk0": rule} if key is None else key, value),), at or (rule,), row, before, dirty)


def _matrix() -> list[Case]:
    """8.1 to 8.3: value null, all fields null, some fields null, on a row that is there."""
    cases = []
    some = {"A": "update"}
    kept = {**FIXTURE, "A": "update"}
    expected: dict[tuple[str, str], tuple[Any, Any, Any]] = {
        ("put", "none"): ({}, {}, some),
        ("put", "row"): (None, {}, some),
        ("put", "column"): ({}, {}, some),
        ("put", "row_and_column"): (None, {}, some),
        ("update", "none"): ("dirty", "dirty", kept),
        ("update", "row"): (None, "dirty", kept),
        ("update", "column"): ("dirty", {}, some),
        ("update", "row_and_column"): (None, {}, some),
    }
    numbers = {
        ("put", "none"): ("01", "09", "17"),
        ("put", "column"): ("02", "11", "19"),
        ("put", "row"): ("03", "10", "18"),
        ("put", "row_and_column"): ("04", "12", "20"),
        ("update", "none"): ("05", "13", "21"),
        ("update", "column"): ("06", "15", "23"),
        ("update", "row"): ("07", "14", "22"),
        ("update", "row_and_column"): ("08", "16", "24"),
    }
    for modes, rows in expected.items():
        for rule, value, row in zip(numbers[modes], (None, ALL_NULL, SOME_NULL), rows, strict=True):
            is_dirty = row == "dirty"
            cases.append(
                _row(rule, "_".join(modes), value, FIXTURE if is_dirty else row, before=FIXTURE, dirty=int(is_dirty))
            )
    return cases


def _sequences() -> list[Case]:
    """Several records of a row: order, merging, no state from record to record."""

    def of(rule: str, sink: str, values: list[Any], row: Cells | None, **more: Any) -> Case:
        return Case(rule, sink, tuple(Sent({"pk0": rule}, value) for value in values), (rule,), row, **more)

    return [
        of("47 last", "put_none", [{"A": str(n)} for n in range(200)], {"A": "199"}),
        of("67", "put_row", [None, {"A": "v"}, None], None),
        of(
            "transforms",
            "changed",
            [{"pk0": "transforms", "n": "12", "secret": "x"}, None],
            {"n": "12", "source": "orders"},
        ),
        of("transform fails", "changed", [{"pk0": "transform fails", "n": "x"}], None, dirty=1),
        of("67 put last", "put_row", [{"A": "v"}, None, {"B": 2}], {"B": "2"}),
        of("85", "update_row_and_column", [{"A": 1, "B": 2}, {"B": None, "C": 3}, None, {"D": 4}], {"D": "4"}),
        of("85 merged", "update_column", [{"A": 1, "B": 2}, {"A": None}, {"C": 3}], {"B": "2", "C": "3"}),
        of("5.2 emptied", "update_column", [{"A": 1}, {"A": None}], {}),
        of("85 dirty between", "update_none", [{"A": 1}, [1], {"B": 2}], {"A": "1", "B": "2"}, dirty=1),
    ]


def _typed() -> list[Case]:
    """8.5: keys and columns of structs and of plain JSON."""
    wide: dict[str, str | tuple[str, str]] = {
        "s": "string", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
        "f": "float", "d": "double", "o": "boolean", "b": "bytes",
    }  # fmt: skip
    values = {"s": "x", "i8": 1, "i16": 2, "i32": 3, "i64": 4, "f": 1.5, "d": 2.5, "o": True, "b": b"\x00y"}
    logical: dict[str, str | tuple[str, str]] = {
        "at": ("int64", "org.apache.kafka.connect.data.Timestamp"),
        "on": ("int32", "org.apache.kafka.connect.data.Date"),
        "price": ("bytes", "org.apache.kafka.connect.data.Decimal"),
    }
    decimal = base64.b64encode((258).to_bytes(2, "big")).decode()
    mixed_key = envelope({"s": "string", "i": "int32", "b": "bytes"}, {"s": "test", "i": 1, "b": b"test"})
    four = envelope({"a": "int8", "b": "int16", "c": "int32", "d": "int64"}, {"a": 1, "b": 2, "c": 3, "d": 4})
    return [
        _row("33 35 36", "types", {"A": 1}, {"A": "1"}, key=mixed_key, at=("test", 1, b"test")),
        _row("34", "integers", {"A": 1}, {"A": "1"}, key=four, at=(1, 2, 3, 4)),
        _row("37", "put_none", envelope(wide, values), values),
        _row("39", "put_none", {"A": 1}, {"A": "1"}, key={"schema": {"type": "string"}, "payload": "39"}),
        _row("40", "put_none", {"A": 1}, None, key=NESTED, dirty=1),
        _row("41", "put_none", {"A": 1}, None, dirty=1, key={
            "schema": {"type": "map", "keys": {"type": "string"}, "values": {"type": "struct", "fields": []}},
            "payload": {"pk0": {}},
        }),
        _row("42", "put_none", {"A": 1}, {"A": "1"}, key={"pk0": 42}, at=("42",)),
        _row("43", "put_none", {"A": 1, "B": 1.0, "C": True, "D": {"a": 1}}, {"A": "1", "B": "1.0", "C": "true",
             "D": '{"a":1}'}),
        _row("71", "put_none", envelope(logical, {"at": 1_700_000_000_000, "on": 19675, "price": decimal}),
             {"at": 1_700_000_000_000, "on": 19675, "price": b"2.58"}),
    ]  # fmt: skip


def _written() -> list[Case]:
    """8.4 insert modes and whitelists, and 8.7 by record key."""
    ab = envelope({"A": "string", "B": "int32"}, {"A": "test", "B": 1})
    long: dict[str, str | tuple[str, str]] = {"A": "string", "B": "int64", "C": "bytes"}
    listed = {"A": "a", "B": 1}
    return [
        _row("25", "put_none", ab, {"A": "test", "B": 1}, before={"C": b"test"}),
        _row("26", "update_none", ab, FIXTURE, before={"C": b"test"}),
        _row("27", "white_put", envelope(long, {"A": "a", "B": 1, "C": b"c"}), listed),
        _row("28", "white_put", {"A": "a", "B": 1, "C": "c"}, listed),
        _row("29", "white_put", envelope(long, {"A": None, "B": None, "C": None}), {}, before=FIXTURE),
        _row("30", "white_update", envelope(long, {"A": "update", "B": None}), {**FIXTURE, "A": "update"},
             before=FIXTURE),
        _row("31", "white_put", envelope({"A": "string", "C": "bytes"}, {"A": None, "C": b"x"}), {}, before=FIXTURE),
        _row("32", "white_update", envelope({"A": "string"}, {"A": "update"}), {**FIXTURE, "A": "update"},
             before=FIXTURE),
        _row("68 text", "white_put", {"D": "1.5"}, {"D": 1.5}),
        _row("68 boolean", "white_put", {"D": True}, None, dirty=1),
        _row("68 word", "white_put", {"D": "abc"}, None, dirty=1),
        _row("69 cut", "white_put", {"B": 1.9}, {"B": 1}),
        _row("69 text", "white_put", {"B": "1.5"}, {"B": 1}),
        _row("69 empty", "white_put", {"B": ""}, None, dirty=1),
        _row("70 zero", "white_put", {"E": 0}, {"E": False}),
        _row("70 number", "white_put", {"E": "1.5"}, {"E": True}),
        _row("70 true", "white_put", {"E": "true"}, {"E": True}),
        _row("70 TRUE", "white_put", {"E": "TRUE"}, None, dirty=1),
        _row("56", "put_none", {"A": "v", "x": 2}, {"A": "v", "x": "1"}, key={"pk0": "56", "x": 1}),
        _row("57", "put_none", {"pk0": "other", "A": "v"}, {"A": "v"}),
        _row("58", "number", {"A": 1}, {"A": "1"}, key="12", at=(12,)),
        _row("59", "number", {"A": 1}, None, key="ab", at=(0,), dirty=1),
        _row("61 null", "put_none", {"A": 1}, None, key=b"null", dirty=1),
        _row("61 lacks", "put_none", {"A": 1}, None, key={"x": 1}, dirty=1),
        _row("61 null field", "put_none", {"A": 1}, None, key={"pk0": None}, dirty=1),
        Case("61 no key", "put_none", (Sent(None, {"A": 1}),), ("61 no key",), None, dirty=1),
        _row("66", "put_none", [1], None, dirty=1),
        _row("1.4 broken", "put_none", '{"A":', None, dirty=1),
        _row("92 column name", "put_none", {"1a": 1}, None, dirty=1),
        _row("92 long key", "put_none", {"A": 1}, None, key={"pk0": "k" * 1025}, dirty=1),
    ]  # fmt: skip


def _placed() -> list[Case]:
    """8.7 where the place of a record, or its value, is the key."""

    def at_place(rule: str, sink: str, key: Any, value: Any, row: Cells | None, *, dirty: int = 0) -> Case:
        return Case(rule, sink, (Sent(key, value),), None, row, dirty=dirty)

    fields = {"A": "x", "B": "1", "id": "k1", "key": "k1"}
    return [
        at_place("50", "texts", "k1", "hello", {"key": "k1", "value": "hello"}),
        at_place("51", "texts", "k1", None, {"key": "k1"}),
        at_place("52", "texts", None, None, None, dirty=1),
        at_place("2.2 empty text", "texts", None, "", {"value": ""}),
        at_place("53", "mixed", "k1", {"A": "x", "B": 1, "id": "k1"}, fields),
        at_place("54", "mixed", "k", {"offset": 9, "key": "v"}, {"key": "k"}),
        at_place("66", "mixed", "k", [1], None, dirty=1),
        at_place("2.2 null field", "mixed", None, {"A": 1, "B": None}, {"A": "1"}),
        at_place("3.1 no envelope", "mixed", None, {"schema": "s", "payload": 1}, {"schema": "s", "payload": "1"}),
        at_place("43 identified", "identified", None, {"A": 1, "B": 1.5, "C": True, "D": "x", "E": [1]},
                 {"A": 1.0, "B": 1.5, "C": True, "D": "x", "E": "[1]"}),
        _row("62", "value_text", "hello", {"key": "k1"}, key="k1", at=("hello",)),
        Case("63", "value_text", (Sent(None, "alone"),), ("alone",), None, dirty=1),
        _row("64", "value_json", {}, None, key="k1", dirty=1),
        _row("65", "value_json", {"pk0": "only"}, {"key": "k1"}, key="k1", at=("only",)),
        _row("2.3", "value_json", {"pk0": "full", "A": 1}, {"key": "k1", "A": "1"}, key="k1", at=("full",)),
    ]  # fmt: skip


CASES = [*_matrix(), *_sequences(), *_typed(), *_written(), *_placed()]

POINT = {
    "m": "cpu", "ds": "h1", "tag1": "a", "tag2": 2, "ts": 1_700_000_000, "Temp": 21, "f": 1.5, "ok": True, "s": "x",
    "o": {"a": 1}, "arr": [1], "nul": None,
}  # fmt: skip
FIELDS: Cells = {"temp": 21.0, "f": 1.5, "ok": True, "s": "x", "o": '{"a":1}', "arr": "[1]"}
TAGS = (("tag1", "a"), ("tag2", "2"))
BRIEF = {"m": "cpu", "ds": "h1", "ts": 1_700_000_001, "f": 1.5}
POINTS: list[tuple[str, Any, tuple[Any, ...] | None, Cells]] = [
    ("74 81", POINT, ("cpu", "h1", TAGS, 1_700_000_000_000_000), FIELDS),
    ("76 text", {**BRIEF, "ts": "1700000000"}, None, {}),
    ("76 double", {**BRIEF, "ts": 1.7e9}, None, {}),
    ("77 measurement", {**BRIEF, "m": None}, None, {}),
    ("77 source", {name: BRIEF[name] for name in ("m", "ts", "f")}, None, {}),
    ("78", {**BRIEF, "ds": None, "tag1": None, "tag2": "t"}, ("cpu", "", (("tag2", "t"),), 1_700_000_001_000_000),
     {"f": 1.5}),
    ("79 null fields", {**BRIEF, "f": None}, None, {}),
    ("79 tombstone", None, None, {}),
    ("79 array", [1], None, {}),
    ("82", {**BRIEF, "tag1": "a=b"}, None, {}),
    ("again", {**BRIEF, "ts": 1_700_000_009, "f": 1}, None, {}),
    ("again last", {**BRIEF, "ts": 1_700_000_009, "f": 2}, ("cpu", "h1", (), 1_700_000_009_000_000), {"f": 2.0}),
]  # fmt: skip
"""Records of connector ``series``, with their row, None for those that give none of their own."""
