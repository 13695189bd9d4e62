"""The bulk way and the way one by one give the same, whatever the messages."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.formats.json.decoder import JsonDecoder
from upsert_platform.formats.options import JsonSettings
from upsert_platform_tests.formats.support import columns_of, plain_rows

TYPES = {
    "BOOLEAN": ["true", "false", '"true"', '"no"', "1", "[true]"],
    "TINYINT": ["1", "-128", "128", '"5"', "1.0"],
    "INT": ["0", "-0", "2147483647", "2147483648", '"12"', '" 7 "', "1.9", "01"],
    "BIGINT": ["1", "9223372036854775807", "9223372036854775808", '"12"', '"x"', "1e3"],
    "FLOAT": ["1.5", "-0", "1e39", "0.1", "3.4028235677973366e38", '"1.25"', '"NaN"', "NaN", "7.0064923216240854e-46"],
    "DOUBLE": ["1.5", "-0.0", "1e400", '"2.5"', '"Infinity"', "Infinity", "1", "123456789012345678901234567890"],
    "DECIMAL(6, 2)": ["1.25", "1.005", "12345.6", "1234567", '"3.5"', '" 3.5 "', '"-1e2"', "0.000", "1e-3"],
    "STRING": ['"a"', '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud83d"', "1.50", "true", '{"x":[1.0]}', '"a\tb"', '"NaN"'],
    "DATE": ['"2024-02-28"', '"2024-02-29"', '"2023-02-29"', '"0000-01-01"', '"9999-12-31"', '"-001-01-01"', "1"],
    "TIME(3)": ['"01:02:03"', '"24:00:00"', '"01:02:03.4"', '"01:02"', "5"],
    "TIMESTAMP(3)": ['"2024-01-02 03:04:05"', '"2024-02-30 24:00:00"', '"2024-01-02 03:04:05.1234567"', '"2024-01-02"'],
    "TIMESTAMP_LTZ(3)": ['"2024-01-02 03:04:05Z"', '"2024-01-02 03:04:05.5Z"', '"2024-01-02 03:04:05"'],
    "BYTES": ['"YQ=="', '"YWI="', '"YWJj"', '"YQ"', '"YQ==YQ=="', '"YR=="', "1"],
    "ARRAY<INT>": ["[]", "[1,null]", '["1"]', "{}", "[[1]]"],
    "ROW<x INT, y STRING>": ['{"x":1,"y":"b"}', "{}", '{"x":"q"}', '{"y":1}', "[]", '{"x":1,"x":2,"y":"c"}'],
    "ARRAY<ROW<x TIMESTAMP(3)>>": ['[{"x":"2024-01-02 03:04:05"},null]', '[{"x":"2024-01-02T03:04:05"}]', "[{}]"],
    "MAP<STRING, INT>": ["{}", '{"k":1}', '{"k":1,"k":2}', '{"k":"x"}', "[]", '{"k" :1}', '{"k\\n":1}'],
    "MAP<STRING, DOUBLE>": ['{"k":1.5,"j":2}', '{"k":-0}', '{"k":null}', '{"k":1e400}', '{"k":123456789012345678}'],
    "MULTISET<STRING>": ['{"k":1}', '{"":null}', '{"k":2147483648}'],
    "MAP<STRING, ROW<x DATE, y ARRAY<BOOLEAN>>>": ['{"k":{"x":"2024-01-02","y":[true]}}', '{"k":{"x":"2024-02-30"}}'],
}  # fmt: skip
OPTIONS: list[dict[str, str]] = [
    {},
    {"json.ignore-parse-errors": "true"},
    {"json.fail-on-missing-field": "true"},
    {"json.decode.json-parser.enabled": "false"},
]


@st.composite
def blocks(draw: st.DrawFn) -> tuple[str, dict[str, str], list[bytes]]:
    kinds = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=4))
    tame = draw(st.booleans())  # mostly blocks that the bulk way takes

    def message() -> bytes:
        members = []
        for place, kind in enumerate(kinds):
            choices = TYPES[kind][:1] if tame and draw(st.integers(0, 9)) else [*TYPES[kind], "null"]
            if draw(st.integers(0, 9)):
                members.append(f'"c{place}":{draw(st.sampled_from(choices))}')
        if not draw(st.integers(0, 4)):
            members.append(f'"unknown":{json.dumps(draw(st.recursive(st.none(), lambda inner: st.lists(inner))))}')
        if not tame and draw(st.booleans()):
            members = draw(st.permutations(members))
        body = ("{" + draw(st.sampled_from([",", ", ", ",\n"])).join(members) + "}").encode()
        if not tame and not draw(st.integers(0, 5)):
            cut = draw(st.integers(0, len(body)))
            body = body[:cut] + draw(st.sampled_from([b"", b"}", b"{", b"\n", b"null", b"\xff", b'"'])) + body[cut:]
        return body

    count = draw(st.integers(1, 6))
    columns = ", ".join(f"c{place} {kind}" for place, kind in enumerate(kinds))
    return columns, draw(st.sampled_from(OPTIONS)), [message() for _ in range(count)]


def result(decoder: JsonDecoder, columns: str, messages: list[bytes]) -> tuple[Any, ...]:
    decoded = decoder.decode(messages)
    return plain_rows(decoded.rows, columns_of(columns)), decoded.message.to_pylist(), decoded.errors


@given(blocks())
@settings(max_examples=400, deadline=None)
def test_both_ways_agree(block: tuple[str, dict[str, str], list[bytes]]) -> None:
    columns, options, messages = block
    model = JsonSettings.model_validate(options)
    fast = JsonDecoder(columns_of(columns), model)
    slow = JsonDecoder(columns_of(columns), model)
    slow._bulk = None
    assert result(fast, columns, messages) == result(slow, columns, messages)


def test_the_bulk_way_is_taken() -> None:
    for kind, texts in TYPES.items():
        bulk = JsonDecoder(columns_of(f"c0 {kind}"), JsonSettings())._bulk
        assert bulk is not None
        messages = [f'{{"c0":{texts[0]}}}'.encode()] * 3
        found = bulk.for_block(messages).read(messages)
        assert found is not None, kind
        assert found[1] is None, kind
