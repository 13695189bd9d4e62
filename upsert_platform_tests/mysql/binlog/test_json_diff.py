"""JSON that is logged in part: events made byte by byte, and what the documents are behind them."""

from __future__ import annotations

import copy
import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog.changes import TableRows
from upsert_platform.mysql.binlog.json_binary import JsonText
from upsert_platform.mysql.binlog.json_diff import JsonPatch
from upsert_platform.mysql.columns import MySqlColumn
from upsert_platform_tests.mysql.binlog.documents import DOCUMENTS, encode, in_order
from upsert_platform_tests.mysql.binlog.reading import log_reader, read_all, table_of
from upsert_platform_tests.mysql.event_bytes import image, query, rows, table_map, xid

REPLACE, INSERT, REMOVE = 0, 1, 2
PATCH = JsonPatch(JsonText("c", compact=True))
Step = tuple[int, str] | tuple[int, str, Any]


def length(number: int) -> bytes:
    """A length as the server packs it."""
    return bytes([number]) if number < 251 else b"\xfc" + struct.pack("<H", number)


def steps(*told: Step) -> bytes:
    """Operation, path, value."""
    data = b""
    for operation, path, *value in told:
        data += bytes([operation]) + length(len(path.encode())) + path.encode()
        for document in value:
            encoded = encode(document)
            data += length(len(encoded)) + encoded
    return data


DOCUMENT = {"a": 1, "list": [1, [2, 3], {"x": None}], "b c": {"": "e", 'q"\\': True}, "é": 2.5}
APPLIED: list[tuple[str, Any, list[Step], Any]] = [
    ("a member", {"a": 1, "b": 2}, [(REPLACE, "$.a", "x" * 300)], {"a": "x" * 300, "b": 2}),
    ("a member by null", {"a": 1}, [(REPLACE, "$.a", None)], {"a": None}),
    ("an element", [1, 2, 3], [(REPLACE, "$[1]", {"k": []})], [1, {"k": []}, 3]),
    ("the last element", [1, 2, 3], [(REPLACE, "$[last]", 9)], [1, 2, 9]),
    ("the last but one", [1, 2, 3], [(REPLACE, "$[last-1]", 9)], [1, 9, 3]),
    ("deep inside", DOCUMENT, [(REPLACE, "$.list[2].x", [0])], {**DOCUMENT, "list": [1, [2, 3], {"x": [0]}]}),
    ("a quoted name", DOCUMENT, [(REPLACE, '$."b c".""', 1)], {**DOCUMENT, "b c": {"": 1, 'q"\\': True}}),
    ("an escaped name", DOCUMENT, [(REMOVE, r'$."b c"."q\"\\"')], {**DOCUMENT, "b c": {"": "e"}}),
    ("a name beyond ASCII", DOCUMENT, [(REPLACE, "$.é", 0)], {**DOCUMENT, "é": 0}),
    ("a new member, in the server's order", {"b": 1, "aa": 2}, [(INSERT, "$.c", 3)], {"b": 1, "c": 3, "aa": 2}),
    ("names of a length by their bytes", {"z": 1, "é": 2}, [(INSERT, "$.aa", 3)], {"z": 1, "aa": 3, "é": 2}),
    ("a new element", [1, 2], [(INSERT, "$[1]", 9)], [1, 9, 2]),
    ("a new element beyond the end", [1, 2], [(INSERT, "$[7]", 9)], [1, 2, 9]),
    ("a new element before the last", [1, 2], [(INSERT, "$[last]", 9)], [1, 9, 2]),
    ("a new element of an empty array", [], [(INSERT, "$[last-3]", 9)], [9]),
    ("a member goes", {"a": 1, "b": 2}, [(REMOVE, "$.a")], {"b": 2}),
    ("an element goes", [1, 2, 3], [(REMOVE, "$[0]")], [2, 3]),
    ("one after the other", {"a": [1]}, [(INSERT, "$.a[1]", {}), (INSERT, "$.a[1].k", 1), (REMOVE, "$.a[0]")],
     {"a": [{"k": 1}]}),
    ("nothing", DOCUMENT, [], DOCUMENT),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "told", "behind"), [item[1:] for item in APPLIED], ids=[item[0] for item in APPLIED]
)
@pytest.mark.parametrize("large", [False, True])
def test_what_changed_is_applied_to_the_document_before(
    before: Any, told: list[Step], behind: Any, large: bool
) -> None:
    text = PATCH.write(encode(before, large=large), steps(*told))
    assert text == json.dumps(in_order(behind), ensure_ascii=False, separators=(",", ":"))


REFUSED: list[tuple[Any, bytes, str | None]] = [
    ({"a": 1}, steps((REPLACE, "$.b", 1)), "leads to nothing"),
    ({"a": 1}, steps((REMOVE, "$.b")), "leads to nothing"),
    ([1], steps((REPLACE, "$[1]", 1)), "leads to nothing"),
    ([1], steps((REMOVE, "$[last-1]")), "leads to nothing"),
    ([1], steps((REPLACE, "$.a", 1)), "leads to nothing"),
    ({"a": 1}, steps((REPLACE, "$.a[0]", 1)), "leads to nothing"),
    ({"a": 1}, steps((INSERT, "$.a", 1)), "adds what is there"),
    ({"a": 1}, steps((INSERT, "$[0]", 1)), "adds what is there, or adds it to what holds no such value"),
    ({"a": 1}, steps((INSERT, "$.b.c", 1)), "leads to nothing"),
    ({"a": 1}, steps((REPLACE, "$", 1)), "does not lead into"),
    ({"a": 1}, steps((REPLACE, "", 1)), "does not lead into"),
    ({"a": 1}, steps((REPLACE, "$.*", 1)), "not one that is known"),
    ({"a": 1}, steps((REPLACE, "$**.a", 1)), "not one that is known"),
    ([1], steps((REPLACE, "$[]", 1)), "not one that is known"),
    ([1], steps((REPLACE, "$[0 to 1]", 1)), "not one that is known"),
    ({"a": 1}, steps((REPLACE, "a.a", 1)), "does not lead into"),
    ({"a": 1}, b"\2\3$.\xff", "path is not text"),
    ({"a": 1}, steps((3, "$.a", 1)), "operation 3 is not known"),
    ({"a": 1}, steps((REPLACE, "$.a", 1))[:-1], "ends .* bytes too early"),
    ({"a": 1}, b"\0\3$.a\0", None),  # an empty document is null
]  # fmt: skip


@pytest.mark.parametrize(("before", "told", "reason"), REFUSED)
def test_what_does_not_fit_the_document_stops(before: Any, told: bytes, reason: str | None) -> None:
    if reason is None:
        assert PATCH.write(encode(before), told) == '{"a":null}'
        return
    with pytest.raises(ReplicationError, match=rf"^c: JSON that is logged in part.*{reason}"):
        PATCH.write(encode(before), told)


def test_an_update_of_nothing_stops() -> None:
    with pytest.raises(ReplicationError, match="there is no document before it; set 'binlog_row_value_options' = ''"):
        PATCH.write(None, steps((REMOVE, "$.a")))


def quoted(name: str) -> str:
    return f".{json.dumps(name, ensure_ascii=False)}"


@settings(max_examples=150, deadline=None)
@given(DOCUMENTS, st.data())
def test_any_steps_give_what_a_model_gives(document: Any, data: st.DataObject) -> None:
    """The model changes Python's own lists and dictionaries while it chooses the steps."""
    model: Any = copy.deepcopy(document)
    told: list[Step] = []
    for _ in range(data.draw(st.integers(0, 4))):
        holder, path = model, "$"
        if not isinstance(holder, list | dict):
            break
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            inner = [key for key in keys if isinstance(holder[key], list | dict)]
            if not inner or data.draw(st.booleans()):
                break
            key = data.draw(st.sampled_from(inner))
            holder, path = holder[key], path + (quoted(key) if isinstance(key, str) else f"[{key}]")
        kind = data.draw(st.sampled_from([REPLACE, INSERT, REMOVE]))
        value = data.draw(DOCUMENTS)
        if kind == INSERT and isinstance(holder, dict):
            key = data.draw(st.text(st.characters(exclude_categories=["Cs"])).filter(lambda name: name not in holder))  # noqa: B023
            holder[key] = copy.deepcopy(value)
            told.append((kind, path + quoted(key), value))
        elif kind == INSERT:
            at = data.draw(st.integers(0, len(holder)))
            holder.insert(at, copy.deepcopy(value))
            told.append((kind, f"{path}[{at}]", value))
        elif keys:
            key = data.draw(st.sampled_from(keys))
            leg = quoted(key) if isinstance(key, str) else f"[{key}]"
            if kind == REPLACE:
                holder[key] = copy.deepcopy(value)
                told.append((kind, path + leg, value))
            else:
                del holder[key]
                told.append((kind, path + leg))
    if all(len(encode(item, large=True)) < 60_000 for item in (document, *(step[2] for step in told if len(step) > 2))):
        text = PATCH.write(encode(document), steps(*told))
        assert repr(json.loads(text)) == repr(in_order(model))


COLUMNS = [MySqlColumn("id", "int"), MySqlColumn("a", "json"), MySqlColumn("n", "varchar", length=9, charset="utf8mb4"),
           MySqlColumn("b", "json")]  # fmt: skip
MAP = table_map([3, 245, 15, 245], b"\x04\x24\0\x04")


def long(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def whole(number: int, a: Any, name: str, b: Any) -> bytes:
    """An image with all of its documents; one that is `...` is NULL."""
    documents = [None if value is ... else long(encode(value)) for value in (a, b)]
    return image(struct.pack("<i", number), documents[0], bytes([len(name)]) + name.encode(), documents[1])


def behind(number: int, a: bytes | None, name: str, b: bytes | None, *, bits: int | None) -> bytes:
    """An image behind an update: value options, which documents are told in part, then the row."""
    head = b"\0" if bits is None else bytes([1, bits])
    values = (None if a is None else long(a), bytes([len(name)]) + name.encode(), None if b is None else long(b))
    return head + image(struct.pack("<i", number), *values)


def read(*images: bytes, kind: int = 39) -> list[tuple[Any, ...]]:
    reader = log_reader(table_of(*COLUMNS))
    assert read_all(reader, [query("BEGIN"), MAP, rows(kind, 4, b"".join(images)), xid(end=90)]) == []
    told = next(iter(reader.drain()))
    assert isinstance(told, TableRows)
    return [(kind, *row.values()) for kind, row in zip(told.kinds, told.rows.to_pylist(), strict=True)]


def test_rows_of_which_documents_are_told_in_part() -> None:
    """One document in part, the other, both, none of them, one that becomes NULL."""
    found = read(
        whole(1, {"k": 1}, "x", [1]), behind(1, steps((REPLACE, "$.k", 2)), "y", encode([7]), bits=0b01),
        whole(2, {"k": 1}, "x", [1]), behind(2, encode({}), "x", steps((INSERT, "$[1]", 2)), bits=0b10),
        whole(3, {"k": 1}, "x", [1]), behind(3, steps((REMOVE, "$.k")), "", steps((REMOVE, "$[0]")), bits=0b11),
        whole(4, {"k": 1}, "x", ...), behind(4, encode("s"), "x", encode(5), bits=None),
        whole(5, ..., "x", [1, 2]), behind(5, None, "x", steps((REPLACE, "$[1]", "s")), bits=0b10),
        whole(6, {"k": 1}, "x", [1]), behind(60, steps(), "x", None, bits=0b11),
    )  # fmt: skip
    assert [row for row in found if row[0] == "+U"] == [
        ("+U", 1, '{"k":2}', "y", "[7]"),
        ("+U", 2, "{}", "x", "[1,2]"),
        ("+U", 3, "{}", "", "[]"),
        ("+U", 4, '"s"', "x", "5"),
        ("+U", 5, None, "x", '[1,"s"]'),
        ("+U", 60, '{"k":1}', "x", None),
    ]
    assert [row[1:] for row in found if row[0] == "-U"][4:] == [(5, None, "x", "[1,2]"), (6, '{"k":1}', "x", "[1]")]


def test_padding_bits_behind_the_documents_do_not_count() -> None:
    """Of the bitmaps of columns that are present, NULL, and told in part."""

    def padded(image_of_row: bytes, at: int) -> bytes:
        return image_of_row[:at] + bytes([image_of_row[at] | 0xF0]) + image_of_row[at + 1 :]

    after = behind(1, steps((REPLACE, "$.k", 2)), "y", encode([7]), bits=0xFC | 0b01)
    data = padded(whole(1, {"k": 1}, "x", [1]), 0) + padded(after, 2)
    reader = log_reader(table_of(*COLUMNS))
    read_all(reader, [query("BEGIN"), MAP, rows(39, 4, data, present=b"\xff"), xid(end=90)])
    told = next(iter(reader.drain()))
    assert isinstance(told, TableRows)
    assert [tuple(row.values()) for row in told.rows.to_pylist()] == [
        (1, '{"k":1}', "x", "[1]"),
        (1, '{"k":2}', "y", "[7]"),
    ]


def test_bits_of_more_than_eight_documents() -> None:
    columns = [MySqlColumn("id", "int"), *(MySqlColumn(f"c{number}", "json") for number in range(9))]
    reader = log_reader(table_of(*columns))
    before = image(struct.pack("<i", 1), *(long(encode([number])) for number in range(9)))
    after = [long(encode([number])) for number in range(9)]
    after[0] = after[8] = long(steps((REPLACE, "$[0]", "new")))
    data = before + b"\1\x01\x01" + image(struct.pack("<i", 1), *after)
    read_all(reader, [query("BEGIN"), table_map([3] + [245] * 9, b"\x04" * 9), rows(39, 10, data), xid(end=9)])
    told = next(iter(reader.drain()))
    assert isinstance(told, TableRows)
    row = told.rows.to_pylist()[1]
    assert [row[f"c{number}"] for number in range(9)] == ['["new"]', *(f"[{n}]" for n in range(1, 8)), '["new"]']


def test_events_in_part_and_whole_of_one_table() -> None:
    reader = log_reader(table_of(*COLUMNS))
    first = rows(31, 4, whole(1, [1], "x", [1]) + whole(1, [2], "x", [1]))
    second = rows(39, 4, whole(1, [2], "x", [1]) + behind(1, steps((INSERT, "$[1]", 3)), "x", encode([1]), bits=0b01))
    third = rows(30, 4, whole(2, [9], "z", [8]))
    read_all(reader, [query("BEGIN"), MAP, first, second, third, xid(end=90)])
    told = next(iter(reader.drain()))
    assert isinstance(told, TableRows)
    assert told.kinds == ("-U", "+U", "-U", "+U", "+I")
    assert told.rows.column("a").to_pylist() == ["[1]", "[2]", "[2]", "[2,3]", "[9]"]


def test_events_that_cannot_be_followed_stop_by_their_place() -> None:
    before, after = whole(1, [1], "x", [1]), behind(1, steps((REMOVE, "$[0]")), "x", encode([1]), bits=0b01)
    for data, told in (
        (before + after[:-1], "do not end where their event ends"),
        (before, "do not end where their event ends"),
        (before + after + b"\0", "do not end where their event ends"),
        (before + b"\2" + after[1:], "is logged with the value options 2"),
        (whole(1, ..., "x", [1]) + after, "column 'a': JSON that is logged in part.* no document before it"),
    ):
        with pytest.raises(ReplicationError, match=told):
            read(data)


def test_a_row_before_without_its_document_stops() -> None:
    """As 'binlog_row_image' = 'MINIMAL' logs it: there is nothing that the steps could be applied to."""
    data = image(struct.pack("<i", 1)) + b"\1\1" + image(long(steps((REMOVE, "$[0]"))))
    body = rows(39, 4, data)
    at = 19 + 6 + 2 + 2 + 1
    minimal = body[:at] + bytes([0b0001, 0b0010]) + body[at + 2 :]
    with pytest.raises(ReplicationError, match="logged without all of its columns; set 'binlog_row_image' = 'FULL'"):
        read_all(log_reader(table_of(*COLUMNS)), [query("BEGIN"), MAP, minimal])
