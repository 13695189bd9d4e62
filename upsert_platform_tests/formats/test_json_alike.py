"""JSON messages that are written alike are read by the places of their values, and give what reading one by one gives.

The judge reads each message by itself, as a tree, by Flink's rules; plain messages hold what `json` wrote.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from upsert_platform.formats import build_decoder
from upsert_platform.formats.json import bulk
from upsert_platform.formats.json.alike import AlikeReader
from upsert_platform.formats.json.layout import layout_of
from upsert_platform_tests.formats.support import columns_of

COLUMNS = (
    "i INT, b BIGINT, t TINYINT, s STRING, d DECIMAL(10, 2), f DOUBLE, ok BOOLEAN, ts TIMESTAMP(3), day DATE,"
    " r ROW<x INT, y STRING, z ROW<v BIGINT, w STRING>>"
)
_TEXTS = ["", "a", "plain text", "ä€😀", "{}", ":,", "null", "1", "x" * 300, "tab?", " "]
_ODD: list[Callable[[bytes], bytes]] = [
    lambda text: text.replace(b'"i":', b'"i":0', 1),
    lambda text: text.replace(b'"i":', b'"I":', 1),
    lambda text: text.replace(b'"i":', b'"b":', 1),
    lambda text: text.replace(b'"s":"', b'"s":"\\n\\"', 1),
    lambda text: text.replace(b'"s":"', b'"s":"\n', 1),
    lambda text: text.replace(b'"s":"', b'"s":"\xff', 1),
    lambda text: text.replace(b'"s":"', b'"s":["', 1),
    lambda text: text.replace(b'"b":', b'"b":12345678901234567', 1),
    lambda text: text.replace(b'"b":', b'"b":-', 1),
    lambda text: text.replace(b'"b":', b'"b":1.', 1),
    lambda text: text.replace(b'"f":', b'"f":00', 1),
    lambda text: text.replace(b'"f":', b'"f":1e400,"q":', 1),
    lambda text: text.replace(b"true", b"True").replace(b"false", b"fals"),
    lambda text: text.replace(b'"x":', b'"x":9999999999', 1),
    lambda text: text[:-1],
    lambda text: text + b"}",
    lambda text: text[1:],
    lambda text: text[: len(text) // 2],
    lambda text: b" " + text + b"\n",
    lambda text: text.replace(b"{", b"{ ", 1),
    lambda text: text.replace(b'"', b"'"),
    lambda _: b"{}",
    lambda _: b"null",
    lambda _: b"",
    lambda text: b"[" + text + b"]",
    lambda text: text.replace(b',"', b',"i":1,"', 1),
    lambda text: text.replace(b":", b": "),
    lambda text: text.replace(b'":', b'" :', 1),
    lambda text: text.replace(b'"d":', b'"d":1', 1),
    lambda text: text.replace(b'"ts":"2', b'"ts":"x', 1),
]


def _value(name: str, rng: random.Random) -> Any:
    if rng.random() < 0.02:
        return None
    match name:
        case "i" | "x":
            return rng.choice([0, 1, -1, 7, 12345678, 123456789, 2**31 - 1, -(2**31)])
        case "b" | "v":
            return rng.choice([0, -5, 10**8, 10**16 - 1, 10**17, 10**18 - 1, -(10**18) + 1, 2**63 - 1, 123456789012])
        case "t":
            return rng.choice([0, 127, -128, 5])
        case "s" | "y" | "w" | "other":
            return rng.choice(_TEXTS)
        case "d":
            return rng.choice([0, 1.25, -99999999.99, 12345678, 0.5])
        case "f":
            return rng.choice([0, 1.5, -2.25, 1e-3, 123456789.125, 5])
        case "ok":
            return rng.random() < 0.5
        case "ts":
            return f"2026-01-{rng.randint(1, 28):02} 10:00:{rng.randint(0, 59):02}.{rng.randint(0, 999):03}"
    return f"2026-{rng.randint(1, 12):02}-01"


def _shape(rng: random.Random) -> Any:
    """Fields in some order, those of rows as lists."""
    names: list[Any] = rng.sample(["i", "b", "t", "s", "d", "f", "ok", "ts", "day", "other"], rng.randint(2, 10))
    if rng.random() < 0.6:
        inner: list[Any] = rng.sample(["x", "y"], rng.randint(1, 2))
        if rng.random() < 0.6:
            inner.insert(rng.randint(0, 2), ("z", rng.sample(["v", "w"], 2)))
        names.insert(rng.randint(0, len(names)), ("r", inner))
    return names


def _tree(shape: Any, rng: random.Random) -> dict[str, Any]:
    return {
        item if isinstance(item, str) else item[0]: _value(item, rng) if isinstance(item, str) else _tree(item[1], rng)
        for item in shape
    }


def _messages(rng: random.Random, count: int, odd: float) -> list[bytes]:
    shapes = [_shape(rng) for _ in range(rng.choice([1, 1, 2, 3]))]
    style: dict[str, Any] = rng.choice([{"separators": (",", ":")}, {}, {"indent": 1}])
    found = []
    for _ in range(count):
        text = json.dumps(_tree(rng.choice(shapes), rng), ensure_ascii=False, **style).encode()
        found.append(rng.choice(_ODD)(text) if rng.random() < odd else text)
    return found


def _same(messages: Sequence[bytes], options: dict[str, str]) -> None:
    columns = columns_of(COLUMNS)
    decoder, judge = build_decoder("json", columns, options), build_decoder("json", columns, options)
    judge._bulk = None  # type: ignore[attr-defined]
    for start in (0, 1):  # with layouts that are learned, and from a slice with those that are known
        given = pa.array(messages, pa.binary()).slice(start)
        found, wanted = decoder.decode(bulk.Messages(given)), judge.decode(list(messages[start:]))
        assert found.errors == wanted.errors
        assert found.message.to_pylist() == wanted.message.to_pylist()
        assert found.rows.to_pylist() == wanted.rows.to_pylist()


@pytest.mark.parametrize("seed", range(60))
def test_what_is_read_is_what_each_message_says(seed: int) -> None:
    rng = random.Random(seed)
    odd = rng.choice([0, 0, 0.01, 0.05, 0.3])
    options = rng.choice([{}, {"json.ignore-parse-errors": "true"}, {"json.decode.json-parser.enabled": "false"}])
    _same(_messages(rng, 400, odd), options)


@pytest.mark.parametrize("place", [0, 70, 199])
@pytest.mark.parametrize("number", range(len(_ODD)))
def test_one_odd_message(number: int, place: int) -> None:
    shape = ["i", "b", "s", "d", "f", "ok", "ts", ("r", ["x", "y"])]
    rng = random.Random(number)
    messages = [json.dumps(_tree(shape, rng), separators=(",", ":"), ensure_ascii=False).encode() for _ in range(200)]
    messages[place] = _ODD[number](messages[place])
    _same(messages, {})


def test_a_short_message_at_the_end_and_a_layout_that_is_longer_than_it() -> None:
    long = [b'{"s":"' + b"x" * 10 + b'","' + b"n" * 4_000 + b'":1,"i":%d}' % number for number in range(100)]
    for end in (b'{"s":""}', b'{"s":"","":1,"i":1}', b'{"s":"","' + b"n" * 3_999 + b'":1,"i":1', b'""""""""'):
        _same([*long, end], {})


def test_layouts_of_messages() -> None:
    assert layout_of(b'{"a":"\\u0041"}') is None
    assert layout_of(b'{"a":[1]}') is None
    assert layout_of(b'{"a":1,"a":2}') is None
    assert layout_of(b'{"a":1}{') is None
    assert layout_of(b"[]") is None
    found = layout_of(b'{"a": {"b":"x"} ,"c":null}')
    assert found is not None
    assert [(value.path, value.quoted, value.null) for value in found.values] == [
        (("a", "b"), True, False),
        (("c",), False, True),
    ]
    assert found.objects == {("a",)}


@pytest.mark.parametrize("kinds", [1, 3])
def test_messages_that_are_written_alike_are_not_parsed(kinds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk.arrow_json, "read_json", None)
    decoder = build_decoder("json", columns_of(COLUMNS), {})
    decoder._read = None  # type: ignore[attr-defined]
    trees: list[dict[str, Any]] = [
        {"i": number, "s": f"text {number}", "ts": "2026-01-01 00:00:00.5", "r": {"x": -number, "y": "ä"}}
        for number in range(1_000)
    ]
    for number, tree in enumerate(trees):
        for name in ("i", "s")[: number % kinds]:
            del tree[name]
    found = decoder.decode([json.dumps(tree, ensure_ascii=False).encode() for tree in trees]).rows.to_pylist()
    when = datetime(2026, 1, 1, 0, 0, 0, 500_000)  # noqa: DTZ001 - TIMESTAMP has no zone
    none = dict.fromkeys(["i", "b", "t", "s", "d", "f", "ok", "day"])
    assert found == [none | tree | {"ts": when, "r": tree["r"] | {"z": None}} for tree in trees]


def test_blocks_of_which_nothing_is_alike_are_soon_tried_no_more() -> None:
    reader = AlikeReader(pa.schema([("a", pa.int64())]))
    messages = bulk.Messages(pa.array([b'{"%d":1}' % number for number in range(1_000)], pa.binary()))
    looked = 0

    def counted(*_: Any) -> None:
        nonlocal looked
        looked += 1

    reader._found = counted  # type: ignore[method-assign,assignment]
    for _ in range(200):
        assert reader.read(messages) is None
    assert looked < 10


@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("DECIMAL(10, 2)", "3402823669209384634633746074317682114575"),
        ("DECIMAL(10, 2)", "34028236692093846346337460743176821145.75"),
        ("DECIMAL(10, 2)", "1.255"),
        ("DECIMAL(38, 0)", "340282366920938463463374607431768211457"),
        ("DECIMAL(38, 0)", "1" + 45 * "0"),
        ("DECIMAL(38, 38)", "11"),
        ("DECIMAL(38, 38)", "0." + 38 * "9"),
        ("DECIMAL(38, 10)", "1234567890123456789012345678901"),
        ("DECIMAL(38, 10)", "1E30"),
        ("DECIMAL(38, 10)", "1234567890123456789012345678.0123456789"),
        ("DECIMAL(20, 20)", "0.5"),
        ("DOUBLE", "-0"),
        ("DOUBLE", "-0.0"),
        ("FLOAT", "340282356779733661637539395458142568447"),
    ],
)
def test_numbers_at_the_ends_of_types(kind: str, number: str, *, quoted: bool) -> None:
    value = f'"{number}"' if quoted else number
    for columns, message in (
        (f"v {kind}", f'{{"v":{value}}}'),
        (f"r ROW<v {kind}>, d DECIMAL(5, 1)", f'{{"r":{{"v":{value}}}}}'),
    ):
        for options in ({}, {"json.decode.json-parser.enabled": "false"}):
            for messages in ([message] * 64, ['{"v":0.5,"r":{"v":0.25}}', *[message] * 3, *['{"v":1}'] * 70]):
                given = [text.encode() for text in messages]
                decoder, judge = (build_decoder("json", columns_of(columns), options) for _ in range(2))
                judge._bulk = None  # type: ignore[attr-defined]
                found, wanted = decoder.decode(given), judge.decode(given)
                assert found.errors == wanted.errors
                assert list(map(repr, found.rows.to_pylist())) == list(map(repr, wanted.rows.to_pylist()))


def test_the_largest_float_below_the_middle_to_the_next_one() -> None:
    decoder = build_decoder("json", columns_of("v FLOAT"), {})
    found = decoder.decode([b'{"v":340282356779733661637539395458142568447}']).rows.to_pylist()
    assert found == [{"v": 3.4028234663852886e38}]  # 2^128 - 2^104


def test_blocks_of_empty_messages() -> None:
    _same([b""] * 64, {})
    _same([*[b'{"i":1}'] * 49_152, *[b""] * 100], {})


def test_long_messages_have_no_layout() -> None:
    assert layout_of(b'{"a":"' + b"x" * 70_000 + b'"}') is None
    assert layout_of(b"{" + b",".join(b'"%d":1' % number for number in range(300)) + b"}") is None
