"""Single Message Transforms: what Kafka Connect's documentation and classes make of a record."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.model import Options
from upsert_platform.tablestore.connect.data import NOTHING, Data, Schema
from upsert_platform.tablestore.connect.record import JSON_SIDE, read_data
from upsert_platform.tablestore.connect.transforms.chain import Chain
from upsert_platform.tablestore.connect.transforms.date_format import DateFormat
from upsert_platform.tablestore.connect.transforms.options import read_transforms
from upsert_platform.tablestore.connect.transforms.record import SinkRecord
from upsert_platform.tablestore.connect.values import UndecodableError

PLACE = SourceLocation("connector.properties", 3)
APACHE = "org.apache.kafka.connect.transforms."


def chain(*steps: dict[str, str], **more: str) -> tuple[Chain, list[str]]:
    """A chain of steps, each with `type`, and what is wrong with it; further options with ``_`` for dots."""
    options = {"transforms": ",".join(f"t{number}" for number in range(len(steps)))}
    for number, step in enumerate(steps):
        options |= {f"transforms.t{number}.{name}": value for name, value in step.items()}
    options |= {name.replace("_", "."): value for name, value in more.items()}
    made, problems = read_transforms(Options(options), subject="connector 'c'", location=PLACE)
    return made, [problem.message for problem in problems]


def data(content: Any) -> Data:
    """Of JSON, with or without an envelope."""
    return NOTHING if content is None else read_data(json.dumps(content).encode(), JSON_SIDE, "value")


def struct(payload: Any, **fields: Any) -> dict[str, Any]:
    """An envelope of optional fields: type by name, or the whole schema of the field."""
    described = [
        {"field": name, "optional": True, **({"type": kind} if isinstance(kind, str) else kind)}
        for name, kind in fields.items()
    ]
    return {"schema": {"type": "struct", "optional": True, "fields": described}, "payload": payload}


def applied(value: Any, *steps: dict[str, str], key: Any = None, headers: tuple[str, ...] = (), **more: str) -> Any:
    """The record after a chain; ``fails`` where a transform fails."""
    made, problems = chain(*steps, **more)
    assert problems == []
    record = SinkRecord("topic", 3, 42, 1_700_000_000_123, data(key), data(value), headers)
    try:
        return pickle.loads(pickle.dumps(made)).apply(record)
    except UndecodableError as error:
        assert str(error).startswith("transform ")
        return "fails"


def value_after(value: Any, *steps: dict[str, str], **more: Any) -> Any:
    found = applied(value, *steps, **more)
    return found if found == "fails" else found.value.value


def schema_after(value: Any, *steps: dict[str, str]) -> dict[str, tuple[str, str | None]]:
    found = applied(value, *steps).value.schema
    return {name: (field.type, field.name) for name, field in found.fields.items()}


def step(kind: str, **options: str) -> dict[str, str]:
    """Options of a transform; ``_`` stands for a dot."""
    return {"type": APACHE + kind, **{name.replace("_", "."): value for name, value in options.items()}}


CASTS = [
    ("int8", 1.9, 1), ("int8", 300, 44), ("int8", "127", 127), ("int8", "128", "fails"), ("int8", True, 1),
    ("int16", 70_000, 4464), ("int32", 2**31, -(2**31)), ("int32", 1e20, 2**31 - 1), ("int32", "12.5", "fails"),
    ("int64", 1e30, 2**63 - 1), ("int64", -1e30, -(2**63)), ("int64", "9223372036854775807", 2**63 - 1),
    ("int8", 1e20, -1), ("int16", -1e20, 0), ("int64", "+5", 5),
    ("int64", " 1", "fails"), ("float64", "1.5", 1.5), ("float64", 3, 3.0), ("float64", "x", "fails"),
    ("float32", 0.1, 0.10000000149011612), ("float64", "1e3f", 1000.0), ("boolean", 0.5, False), ("boolean", 2, True),
    ("boolean", "TRUE", True), ("boolean", "yes", False), ("string", 1, "1"), ("string", 1e10, "1.0E10"),
    ("string", True, "true"), ("string", None, None), ("int8", None, None), ("string", {"a": 1}, "fails"),
    ("int32", [1], "fails"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "given", "expected"), CASTS)
def test_cast(kind: str, given: Any, expected: Any) -> None:
    cast = step("Cast$Value", spec=f"f:{kind}")
    found = value_after({"f": given, "g": 1}, cast)
    assert found == ("fails" if expected == "fails" else {"f": expected, "g": 1})
    if expected != "fails":
        assert type(found["f"]) is type(expected)


def test_cast_of_a_struct_changes_its_schema_and_reads_moments_and_bytes() -> None:
    name = "org.apache.kafka.connect.data."
    value = struct(
        {"i": 5, "d": 19675, "t": 86_399_001, "m": 1_700_000_000_123, "b": "aGk="},
        i={"type": "int32", "default": 7}, d={"type": "int32", "name": f"{name}Date"},
        t={"type": "int32", "name": f"{name}Time"}, m={"type": "int64", "name": f"{name}Timestamp"}, b="bytes",
    )  # fmt: skip
    cast = step("Cast$Value", spec="i:string,d:string,t:string,m:string,b:string")
    assert value_after(value, cast) == {
        "i": "5", "d": "2023-11-14", "t": "23:59:59.001Z", "m": "2023-11-14T22:13:20.123Z", "b": "aGk=",
    }  # fmt: skip
    assert set(schema_after(value, cast).values()) == {("string", None)}
    assert applied(value, cast).value.schema.fields["i"].default == "7"
    assert value_after(struct({}, i={"type": "int32", "default": 7}), cast) == {"i": "7"}


def test_cast_of_a_whole_key() -> None:
    found = applied({"a": 1}, step("Cast$Key", spec="int64"), key="12")
    assert (found.key, found.value.value) == (Data(None, 12), {"a": 1})
    found = applied(None, step("Cast$Key", spec="string"), key={"schema": {"type": "int32"}, "payload": 5})
    assert (found.key.value, found.key.schema.type) == ("5", "string")


NESTED = {"a": {"b": {"c": 1}, "d": [1, {"x": 1}], "n": None, "e": {}}, "f": "x"}
NESTED_STRUCT = {"type": "struct", "fields": [
    {"field": "c", "type": "int32"}, {"field": "d", "type": "string", "optional": True, "default": "dd"}]}  # fmt: skip


def test_flatten() -> None:
    flat = {"a.b.c": 1, "a.d": [1, {"x": 1}], "a.n": None, "f": "x"}
    assert value_after(NESTED, step("Flatten$Value")) == flat
    assert value_after(NESTED, step("Flatten$Value", delimiter="_")) == {
        name.replace(".", "_"): value for name, value in flat.items()
    }
    value = struct({"s": {"c": 1}, "x": 2}, s=NESTED_STRUCT, x="int8")
    assert value_after(value, step("Flatten$Value")) == {"s.c": 1, "s.d": "dd", "x": 2}
    found = applied(struct({"s": None, "x": 2}, s=NESTED_STRUCT, x="int8"), step("Flatten$Value")).value
    assert found.value == {"s.c": None, "s.d": "dd", "x": 2}
    assert found.schema.fields["s.c"].optional
    mapped = {"type": "map", "keys": {"type": "string"}, "values": {"type": "int8"}}
    assert value_after(struct({"m": {"k": 1}}, m=mapped), step("Flatten$Value")) == "fails"
    assert value_after(None, step("Flatten$Value")) is None
    assert value_after([1], step("Flatten$Value")) == "fails"


def test_extract_and_hoist() -> None:
    extract, hoist = step("ExtractField$Key", field="id"), step("HoistField$Value", field="v")
    assert applied(None, extract, key={"id": 5, "x": 1}).key == Data(None, 5)
    assert applied(None, extract, key={"x": 1}).key == Data(None, None)
    assert applied(None, extract, key=None).key == NOTHING
    assert applied(None, extract, key=[1]) == "fails"
    found = applied(None, extract, key=struct({"id": 5}, id="int32")).key
    assert (found.value, found.schema.type) == (5, "int32")
    assert applied(None, extract, key=struct({"x": 5}, x="int32")) == "fails"
    assert value_after("text", hoist) == {"v": "text"}
    assert value_after(None, hoist) == {"v": None}
    assert schema_after({"schema": {"type": "int32"}, "payload": 5}, hoist) == {"v": ("int32", None)}


def test_insert_field() -> None:
    insert = step(
        "InsertField$Value", topic_field="t", partition_field="p!", offset_field="o?", timestamp_field="at",
        static_field="s", static_value="x",
    )  # fmt: skip
    inserted = {"t": "topic", "p": 3, "o": 42, "at": 1_700_000_000_123, "s": "x"}
    assert value_after({"a": 1}, insert) == {"a": 1, **inserted}
    assert value_after(struct({"a": 1}, a="int8"), insert) == {"a": 1, **inserted}
    assert schema_after(struct({"a": 1}, a="int8"), insert)["at"] == (
        "int64",
        "org.apache.kafka.connect.data.Timestamp",
    )
    found = applied(struct({"a": 1}, a="int8"), insert).value.schema.fields
    assert [found[name].optional for name in "tpos"] == [True, False, True, True]
    assert value_after({"t": "old"}, insert)["t"] == "topic"
    assert value_after(struct({"t": "old"}, t="string"), insert) == "fails"
    assert value_after([1], insert) == "fails"
    keyed = step("InsertField$Key", static_field="s", static_value="x")
    assert applied(None, keyed, key={"a": 1}).key.value == {"a": 1, "s": "x"}
    assert applied({"a": 1}, keyed, key=None).key == NOTHING
    assert value_after(None, insert) is None


MASKED = {"i": 5, "d": 1.5, "b": True, "s": "x", "l": [1], "m": {"a": 1}, "n": None, "kept": 9}


def test_mask_field() -> None:
    mask = step("MaskField$Value", fields="i,d,b,s,l,m,n,absent")
    empty = {"i": 0, "d": 0.0, "b": False, "s": "", "l": [], "m": {}, "n": None, "absent": None, "kept": 9}
    assert value_after(MASKED, mask) == empty
    assert value_after(struct({"i": 5, "s": "x"}, i="int8", s="string"), mask) == {"i": 0, "s": ""}
    assert value_after(struct({"b": "aGk="}, b="bytes"), mask) == "fails"
    replaced = step("MaskField$Value", fields="i,s", replacement="7")
    assert value_after({"i": 5, "s": "x"}, replaced) == {"i": 7, "s": "7"}
    assert value_after({"i": 5}, step("MaskField$Value", fields="i", replacement="x")) == "fails"
    assert value_after(struct({"i": 5}, i="int8"), step("MaskField$Value", fields="i", replacement="128")) == "fails"
    assert value_after({"i": True}, replaced) == "fails"
    assert value_after({"i": 5}, step("MaskField$Value", fields="i", replacement="1.5")) == {"i": 1}
    assert value_after(None, mask) is None


def test_replace_field() -> None:
    value = {"a": 1, "b": 2, "c": 3}
    assert value_after(value, step("ReplaceField$Value", exclude="a")) == {"b": 2, "c": 3}
    assert value_after(value, step("ReplaceField$Value", include="a, b")) == {"a": 1, "b": 2}
    assert value_after(value, step("ReplaceField$Value", whitelist="a")) == {"a": 1}
    assert value_after(value, step("ReplaceField$Value", include="a,b", exclude="a", renames="b:x,c:y")) == {"x": 2}
    found = schema_after(struct(value, a="int8", b="int16", c="int32"), step("ReplaceField$Value", renames="a:c,c:a"))
    assert found == {"c": ("int8", None), "b": ("int16", None), "a": ("int32", None)}
    assert value_after(None, step("ReplaceField$Value", exclude="a")) is None


def test_value_to_key() -> None:
    copy = step("ValueToKey", fields="a,b")
    assert applied({"a": 1, "c": 2}, copy, key="old").key == Data(None, {"a": 1, "b": None})
    found = applied(struct({"a": 1, "b": "x"}, a="int8", b="string", c="int8"), copy).key
    assert found.value == {"a": 1, "b": "x"}
    assert found.schema == Schema("struct", fields={"a": Schema("int8", True), "b": Schema("string", True)})
    assert applied(struct({"a": 1}, a="int8"), copy) == "fails"
    assert applied(None, copy) == "fails"


def test_regex_router() -> None:
    def topic(regex: str, replacement: str) -> str:
        return str(applied({}, step("RegexRouter", regex=regex, replacement=replacement)).topic)

    assert topic("(.)(.*)", "$2_$1") == "opic_t"
    assert topic("top", "x") == "topic"
    assert topic("(?P<first>t).*", "${first}!") == "t!"
    assert topic(".*", r"\$1\\x") == r"$1\x"
    assert topic("(.*)(z)?", "$1$2") == "topic"


MOMENT = 1_700_000_000_123
CONVERSIONS: list[tuple[str, dict[str, str], Any, Any]] = [
    ("unix to text", {"target_type": "string", "format": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}, MOMENT,
     "2023-11-14T22:13:20.123Z"),
    ("text to unix", {"target_type": "unix", "format": "yyyy-MM-dd HH:mm:ss"}, "2023-11-14 22:13:20",
     1_700_000_000_000),
    ("text to seconds", {"target_type": "unix", "format": "yyyyMMddHHmmss", "unix_precision": "seconds"},
     "20231114221320", 1_700_000_000),
    ("seconds to text", {"target_type": "string", "format": "yy/M/d", "unix_precision": "seconds"}, 1_700_000_000,
     "23/11/14"),
    ("nanoseconds to unix", {"target_type": "unix", "unix_precision": "nanoseconds"}, 1_700_000_000_123_456_789,
     1_700_000_000_123_000_000),
    ("unix to date", {"target_type": "Date"}, MOMENT, datetime(2023, 11, 14, tzinfo=UTC)),
    ("unix to time", {"target_type": "Time"}, MOMENT, datetime(1970, 1, 1, 22, 13, 20, 123_000, tzinfo=UTC)),
    ("unix to timestamp", {"target_type": "Timestamp"}, MOMENT,
     datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)),
    ("broken text", {"target_type": "unix", "format": "yyyy-MM-dd"}, "14.11.2023", "fails"),
    ("double", {"target_type": "unix"}, 1.5, "fails"),
    ("text without format", {"target_type": "unix"}, "2023", "fails"),
    ("null", {"target_type": "unix"}, None, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "given", "expected"), [case[1:] for case in CONVERSIONS], ids=[case[0] for case in CONVERSIONS]
)
def test_timestamp_converter(options: dict[str, str], given: Any, expected: Any) -> None:
    found = value_after({"f": given, "g": 1}, step("TimestampConverter$Value", field="f", **options))
    assert found == ("fails" if expected == "fails" else {"f": expected, "g": 1})


def test_timestamp_converter_of_a_struct() -> None:
    logical = "org.apache.kafka.connect.data."
    value = struct({"m": MOMENT, "d": 19675, "u": MOMENT, "s": "x"}, m={"type": "int64", "name": f"{logical}Timestamp"},
                   d={"type": "int32", "name": f"{logical}Date"}, u="int64", s="string")  # fmt: skip
    for field, target, expected, kind in (
        ("m", "Date", 19675, ("int32", f"{logical}Date")),
        ("m", "Time", 80_000_123, ("int32", f"{logical}Time")),
        ("d", "unix", 19675 * 86_400_000, ("int64", None)),
        ("u", "Timestamp", MOMENT, ("int64", f"{logical}Timestamp")),
    ):
        convert = step("TimestampConverter$Value", field=field, target_type=target)
        assert value_after(value, convert)[field] == expected
        assert schema_after(value, convert)[field] == kind
    assert value_after(
        struct({"i": 5}, i="int32"), step("TimestampConverter$Value", field="i", target_type="unix")
    ) == ("fails")
    assert value_after(value, step("TimestampConverter$Value", field="absent", target_type="unix")) == data(value).value
    found = applied(None, step("TimestampConverter$Key", target_type="Date"), key=MOMENT)
    assert found.key.value == datetime(2023, 11, 14, tzinfo=UTC)


TEXTS = [
    ("yyyy-MM-dd", "2023-13-32", "2024-02-01"), ("yyyy-MM-dd", "2023-1-2 and more", "2023-01-02"),
    ("EEE, d MMM yyyy HH:mm:ss Z", "Tue, 14 Nov 2023 23:13:20 +0100", "Tue, 14 Nov 2023 22:13:20 +0000"),
    ("hh:mm a", "12:05 am", "12:05 AM"), ("h 'o''clock' a", "3 o'clock PM", "3 o'clock PM"), ("SSS", "5", "005"),
    ("yyyyDDD", "2023318", "2023318"), ("MMMM", "november", "November"), ("kk", "24", "24"),
    ("HHmmss", "221320", "221320"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "text", "again"), TEXTS)
def test_date_formats(pattern: str, text: str, again: str) -> None:
    made = DateFormat(pattern)
    assert made.format(made.parse(text)) == again


def test_predicates() -> None:
    drop = step("Filter", predicate="p")
    kept = {"predicates": "p"}

    def dropped(value: Any, headers: tuple[str, ...] = (), negate: str = "false", **predicate: str) -> bool:
        named = {f"predicates.p.{name}": text for name, text in predicate.items()}
        options = {"transforms": "t", "transforms.t.negate": negate, **kept, **named}
        options |= {f"transforms.t.{name}": text for name, text in drop.items()}
        made, problems = read_transforms(Options(options), subject="connector 'c'", location=PLACE)
        assert problems == []
        return made.apply(SinkRecord("topic", 3, 42, None, NOTHING, data(value), headers)) is None

    tombstone = APACHE + "predicates.RecordIsTombstone"
    assert [dropped(value, type=tombstone) for value in (None, {"a": 1})] == [True, False]
    assert [dropped(value, type=tombstone, negate="true") for value in (None, {"a": 1})] == [False, True]
    assert dropped({}, type="TopicNameMatches", pattern="top.*")
    assert not dropped({}, type="TopicNameMatches", pattern="top")
    assert dropped({}, ("a", "b"), type="HasHeaderKey", name="b")
    assert not dropped({}, ("a",), type="HasHeaderKey", name="b")


def test_transforms_follow_each_other_and_predicates_see_what_they_left() -> None:
    found = applied(
        {"id": 5, "name": "x"},
        step("ValueToKey", fields="id"),
        step("ExtractField$Key", field="id"),
        step("ReplaceField$Value", exclude="id"),
        step("RegexRouter", regex="topic", replacement="other"),
        {**step("InsertField$Value", static_field="late", static_value="yes"), "predicate": "p"},
        predicates="p", predicates_p_type="TopicNameMatches", predicates_p_pattern="other",
    )  # fmt: skip
    assert (found.topic, found.key.value, found.value.value) == ("other", 5, {"name": "x", "late": "yes"})


FAULTS = [
    ({"type": "Cast$Value", "spec": "a:int"}, "option 'spec' takes types int8"),
    ({"type": "Cast$Value", "spec": "int8,a:int8"}, "takes one type for the whole"),
    ({"type": "Cast", "spec": "a:int8"}, "as in ...$Key or ...$Value"),
    ({"type": "ExtractField$Value"}, "option 'field' is missing"),
    ({"type": "ExtractField$Value", "field": "a", "fields": "b"}, "has no such option; did you mean 'field'?"),
    ({"type": "InsertField$Value"}, "one of topic.field, partition.field"),
    ({"type": "InsertField$Value", "static.field": "a"}, "needs 'static.value'"),
    ({"type": "RegexRouter", "regex": "(", "replacement": "x"}, "option 'regex' is not a regular expression"),
    ({"type": "RegexRouter", "regex": "a", "replacement": "$1"}, "names group '1', which 'regex' does not have"),
    ({"type": "TimestampConverter$Value", "target.type": "date"}, "takes string, unix, Date, Time, Timestamp"),
    ({"type": "TimestampConverter$Value", "target.type": "string"}, "needs 'format'"),
    ({"type": "TimestampConverter$Value", "target.type": "unix", "format": "yyyy-QQ"}, "pattern letter 'Q'"),
    ({"type": "ReplaceField$Value", "renames": "a"}, "takes <field>:<value>,..."),
    ({"type": "Filter"}, "Filter drops every record"),
    ({"type": "Filter", "predicate": "p"}, "'predicates' does not name 'p'"),
    ({"type": "TimestampRouter"}, "it takes one of Cast, ExtractField"),
    ({"type": "Flatten$Value", "negate": "maybe"}, "takes true or false"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), FAULTS, ids=[text for _, text in FAULTS])
def test_faults_of_configurations(options: dict[str, str], message: str) -> None:
    _, problems = chain(options)
    assert any(message in problem for problem in problems), problems


def test_a_router_cannot_depend_on_what_is_in_a_record() -> None:
    router = {**step("RegexRouter", regex="a", replacement="b"), "predicate": "p"}
    _, problems = chain(router, predicates="p", predicates_p_type="RecordIsTombstone")
    assert ["RegexRouter takes predicate TopicNameMatches alone" in problem for problem in problems] == [True]
