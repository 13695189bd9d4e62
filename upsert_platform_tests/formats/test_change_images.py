"""Messages with images before and after: the bytes of Flink CDC's pipelines, read back by the platform's formats."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from upsert_platform.core.types import arrow_type, parse_type
from upsert_platform.formats import build_decoder, build_images_encoder

COLUMNS = [
    ("id", parse_type("INT")),
    ("name", parse_type("STRING")),
    ("at", parse_type("TIMESTAMP(3)")),
    ("sum", parse_type("DECIMAL(6, 2)")),
]
Row = tuple[Any, ...] | None
OLD: Row = (
    1,
    'a"b',
    datetime(2024, 1, 2, 3, 4, 5),  # noqa: DTZ001
    Decimal("10.50"),
)
NEW: Row = (1, None, None, Decimal("1.00"))
CHANGES = [(None, OLD), (OLD, NEW), (NEW, None)]
DEBEZIUM = [
    '{"before":null,"after":{"id":1,"name":"a\\"b","at":"2024-01-02 03:04:05","sum":10.5},"op":"c",'
    '"source":{"db":"shop","table":"users"}}',
    '{"before":{"id":1,"name":"a\\"b","at":"2024-01-02 03:04:05","sum":10.5},'
    '"after":{"id":1,"name":null,"at":null,"sum":1},"op":"u","source":{"db":"shop","table":"users"}}',
    '{"before":{"id":1,"name":null,"at":null,"sum":1},"after":null,"op":"d","source":{"db":"shop","table":"users"}}',
]
CANAL = [
    '{"old":null,"data":[{"id":1,"name":"a\\"b","at":"2024-01-02 03:04:05","sum":10.5}],"type":"INSERT",'
    '"database":"shop","table":"users","pkNames":["id"]}',
    '{"old":[{"id":1,"name":"a\\"b","at":"2024-01-02 03:04:05","sum":10.5}],'
    '"data":[{"id":1,"name":null,"at":null,"sum":1}],"type":"UPDATE","database":"shop","table":"users","pkNames":["id"]}',
    '{"old":null,"data":[{"id":1,"name":null,"at":null,"sum":1}],"type":"DELETE","database":"shop","table":"users",'
    '"pkNames":["id"]}',
]
KINDS = ["+I", "-U", "+U", "-D"]


def encoded(
    format_id: str, changes: list[tuple[Row, Row]], *, name: str = "shop.users", **options: str
) -> tuple[list[str | None], dict[int, str]]:
    given = {f"{format_id}.{option.replace('_', '-').replace('__', '.')}": text for option, text in options.items()}
    encoder = build_images_encoder(format_id, COLUMNS, given, name=name, key=("id",))

    def batch(rows: list[Row]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [
                pa.array([None if row is None else row[place] for row in rows], arrow_type(kind))
                for place, (_, kind) in enumerate(COLUMNS)
            ],
            names=[column for column, _ in COLUMNS],
        )

    before, after = [old for old, _ in changes], [new for _, new in changes]
    was = np.array([old is not None for old in before])
    remains = np.array([new is not None for new in after])
    values, refused = encoder.encode(batch(before), batch(after), was=was, remains=remains)
    return [None if value is None else value.decode() for value in values.to_pylist()], refused


@pytest.mark.parametrize(("format_id", "wanted"), [("debezium-json", DEBEZIUM), ("canal-json", CANAL)])
def test_every_kind_of_change_and_its_reading(format_id: str, wanted: list[str]) -> None:
    values, refused = encoded(format_id, CHANGES)
    assert values == wanted
    assert refused == {}
    read = build_decoder(format_id, COLUMNS, {}).decode([value.encode() for value in wanted])
    assert read.errors == {}
    assert read.kinds is not None
    assert read.kinds.to_pylist() == KINDS
    assert [tuple(row.values()) for row in read.rows.to_pylist()] == [OLD, OLD, NEW, NEW]


def test_nulls_are_left_out_when_asked() -> None:
    options = {"debezium-json.encode.ignore-null-fields": "true", "debezium-json.timestamp-format.standard": "ISO-8601"}
    encoder = build_images_encoder("debezium-json", COLUMNS, options, name="users", key=("id",))
    row = pa.RecordBatch.from_arrays(
        [pa.array([value], arrow_type(kind)) for value, (_, kind) in zip(OLD or (), COLUMNS, strict=True)],
        names=[column for column, _ in COLUMNS],
    )
    values, _ = encoder.encode(row, row, was=np.array([False]), remains=np.array([True]))
    assert json.loads(values[0].as_py()) == {
        "after": {"id": 1, "name": 'a"b', "at": "2024-01-02T03:04:05", "sum": 10.5},
        "op": "c",
        "source": {"table": "users"},
    }
    short = build_images_encoder(
        "canal-json", COLUMNS, {"canal-json.encode.ignore-null-fields": "true"}, name="a.b.c", key=()
    )
    values, _ = short.encode(row, row, was=np.array([True]), remains=np.array([False]))
    assert list(json.loads(values[0].as_py())) == ["data", "type", "database", "table", "pkNames"]
    assert json.loads(values[0].as_py())["database"] == "b"


def test_a_name_of_one_part_has_no_database() -> None:
    assert json.loads(encoded("debezium-json", CHANGES, name="users")[0][0] or "")["source"] == {
        "db": None,
        "table": "users",
    }
    assert json.loads(encoded("canal-json", CHANGES, name="users")[0][0] or "")["database"] is None


def test_a_time_that_is_not_of_a_day_refuses_its_row_in_either_image() -> None:
    columns = [("id", parse_type("INT")), ("t", parse_type("TIME(3)"))]
    encoder = build_images_encoder("debezium-json", columns, {}, name="t", key=("id",))
    kind = arrow_type(parse_type("TIME(3)"))

    def batch(times: list[int]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [pa.array([1] * len(times), pa.int32()), pa.array(times, pa.int64()).view(kind)], names=["id", "t"]
        )

    both, day = np.array([True] * 3), 86_400_000_000
    values, refused = encoder.encode(batch([-1, 0, 5]), batch([5, day, 7]), was=both, remains=both)
    assert sorted(refused) == [0, 1]
    assert [value is None for value in values.to_pylist()] == [True, True, False]
