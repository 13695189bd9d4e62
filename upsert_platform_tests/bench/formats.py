"""Message formats: rows a second on one core, against what a careful hand would write with the usual libraries.

Both sides turn the same bytes into an Arrow batch of the declared types, or such a batch into the same bytes, in the
same run; the time is the processor's, the best of three.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import fastavro
import orjson
import pyarrow as pa
from pyarrow import json as arrow_json

from upsert_platform.core.types import LogicalType, arrow_type, parse_type
from upsert_platform.formats import build_decoder, build_encoder
from upsert_platform.formats.avro.schema import derive_schema
from upsert_platform.formats.base import Decoder, Encoder
from upsert_platform.formats.json.columns import wire_type
from upsert_platform_tests.bench.measure import row
from upsert_platform_tests.bench.nexmark import json_events as nexmark_events

ROWS = 100_000
REPEATS = 3
Columns = list[tuple[str, LogicalType]]
SIMPLE = {"id": "BIGINT", "name": "STRING", "email": "STRING", "score": "DOUBLE", "updated": "BIGINT"}
TYPED = {"id": "BIGINT", "name": "STRING", "price": "DECIMAL(12, 2)", "day": "DATE", "at": "TIMESTAMP(3)"}
NESTED = {
    "event_type": "INT",
    "person": "ROW<id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING,"
    " `dateTime` TIMESTAMP(3), extra STRING>",
    "auction": "ROW<id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,"
    " `dateTime` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING>",
    "bid": "ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3),"
    " extra STRING>",
}
"""Nexmark's events."""
_ORJSON = "orjson and pa.array by column"


def columns_of(declared: dict[str, str]) -> Columns:
    """Declared columns with their types."""
    return [(name, parse_type(kind)) for name, kind in declared.items()]


def batch_of(declared: dict[str, str], rows: int) -> pa.RecordBatch:
    """Rows like those of a table of users or prices, every tenth name null."""
    made: dict[str, Callable[[int], Any]] = {
        "id": lambda at: at,
        "name": lambda at: None if at % 10 == 0 else f"name of user {at}",
        "email": lambda at: f"user-{at}@example.org",
        "score": lambda at: at / 8,
        "updated": lambda at: 1_700_000_000_000 + at,
        "price": lambda at: Decimal(at * 37 % 1_000_000).scaleb(-2),
        "day": lambda at: at % 20_000,
        "at": lambda at: (1_700_000_000_000 + at * 977) * 1000,
    }
    kinds = {name: arrow_type(parse_type(kind)) for name, kind in declared.items()}
    return pa.record_batch(
        [pa.array(map(made[name], range(rows)), kind) for name, kind in kinds.items()], names=[*kinds]
    )


def seconds_of(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Processor time of the best of some runs."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def run(*, rows: int = ROWS) -> Iterator[dict[str, Any]]:
    """Measures each format in both directions."""
    for shape, declared, goal in (("simple", SIMPLE, ">= 1.2 M rows/s"), ("typed", TYPED, "")):
        batch, columns = batch_of(declared, rows), columns_of(declared)
        messages = _messages("json", columns, batch)
        yield _decode(f"json_decode_{shape}", "json", columns, messages, _by_orjson, _ORJSON, goal)
    columns, messages = columns_of(NESTED), list(nexmark_events(rows, seed=1))
    yield _decode("json_decode_nested", "json", columns, messages, _by_arrow, "pyarrow.json, times as text", "> 1")
    yield from _troubled(rows)
    batch, columns = batch_of(SIMPLE, rows), columns_of(SIMPLE)
    yield _encode("json_encode", "json", columns, batch, _to_orjson, "to_pylist and orjson.dumps", ">= 300 k rows/s")
    batch, columns = batch_of(TYPED, rows), columns_of(TYPED)
    yield _encode("json_encode_typed", "json", columns, batch, _to_json, "to_pylist and json.dumps", ">= 300 k rows/s")
    messages = _messages("csv", columns, batch)
    yield _decode("csv_decode", "csv", columns, messages, _by_csv, "csv.reader and casts", "> 1")
    yield _encode("csv_encode", "csv", columns, batch, _to_csv, "csv.writer", "> 1")
    messages = _messages("avro", columns, batch)
    yield _decode("avro_decode", "avro", columns, messages, _by_fastavro, "fastavro.schemaless_reader", "> 1")
    yield _encode("avro_encode", "avro", columns, batch, _to_fastavro, "fastavro.schemaless_writer", "> 1")
    yield from _changes(rows)
    from upsert_platform_tests.bench.formats_framed import run_framed

    yield from run_framed(rows)


def _messages(format_id: str, columns: Columns, batch: pa.RecordBatch) -> list[bytes]:
    messages: list[bytes] = build_encoder(format_id, columns, {}).encode(batch)[0].to_pylist()
    return messages


def _decode(
    name: str,
    format_id: str,
    columns: Columns,
    messages: list[bytes],
    peer: Callable[[list[bytes], Columns], Any],
    peer_name: str,
    goal: str,
) -> dict[str, Any]:
    return measure_decoder(name, build_decoder(format_id, columns, {}), columns, messages, peer, peer_name, goal)


def measure_decoder(
    name: str,
    decoder: Decoder,
    columns: Columns,
    messages: list[bytes],
    peer: Callable[[list[bytes], Columns], Any],
    peer_name: str,
    goal: str = "> 1",
) -> dict[str, Any]:
    """A decoder against a peer, on the same messages."""
    assert decoder.decode(messages).errors == {}
    theirs = seconds_of(lambda: peer(messages, columns))
    ours = seconds_of(lambda: decoder.decode(messages))
    return row(name, rows=len(messages), seconds=ours, ratio=theirs / ours, ratio_to=peer_name, goal=goal)


def _by_arrow(messages: list[bytes], columns: Columns) -> pa.Table:
    schema = pa.schema([(name, wire_type(kind)) for name, kind in columns])
    options = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    read = arrow_json.ReadOptions(use_threads=False, block_size=1 << 30)
    return arrow_json.read_json(pa.BufferReader(b"\n".join(messages)), read_options=read, parse_options=options)


def _encode(
    name: str,
    format_id: str,
    columns: Columns,
    batch: pa.RecordBatch,
    peer: Callable[[pa.RecordBatch, Columns], Any],
    peer_name: str,
    goal: str,
) -> dict[str, Any]:
    return measure_encoder(name, build_encoder(format_id, columns, {}), columns, batch, peer, peer_name, goal)


def measure_encoder(
    name: str,
    encoder: Encoder,
    columns: Columns,
    batch: pa.RecordBatch,
    peer: Callable[[pa.RecordBatch, Columns], Any],
    peer_name: str,
    goal: str = "> 1",
) -> dict[str, Any]:
    """An encoder against a peer, on the same rows."""
    theirs = seconds_of(lambda: peer(batch, columns))
    ours = seconds_of(lambda: encoder.encode(batch))
    return row(name, rows=batch.num_rows, seconds=ours, ratio=theirs / ours, ratio_to=peer_name, goal=goal)


def _troubled(rows: int) -> Iterator[dict[str, Any]]:
    """What leaves the fast way: longs in quotes, one broken message in a thousand, and a MAP in every row."""
    columns = columns_of(SIMPLE)
    messages = _messages("json", columns, batch_of(SIMPLE, rows))
    quoted = [orjson.dumps({**orjson.loads(message), "updated": str(at)}) for at, message in enumerate(messages)]
    yield _decode("json_decode_quoted_longs", "json", columns, quoted, _by_orjson, _ORJSON, "")
    broken = [b"{" if at % 1000 == 500 else message for at, message in enumerate(messages)]
    decoder = build_decoder("json", columns, {})
    assert len(decoder.decode(broken).errors) == (rows + 499) // 1000
    yield row("json_decode_one_broken_in_1000", rows=rows, seconds=seconds_of(lambda: decoder.decode(broken)))
    mapped = columns_of({"id": "BIGINT", "tags": "MAP<STRING, STRING>"})
    with_maps = [b'{"id":%d,"tags":{"a":"%d","b":"x"}}' % (at, at) for at in range(rows)]
    yield _decode("json_decode_map", "json", mapped, with_maps, _by_orjson_pairs, _ORJSON, "")


def _changes(rows: int) -> Iterator[dict[str, Any]]:
    """Updates: a Debezium message has both images, a Canal message the new row in quotes and what was changed."""
    columns = columns_of(SIMPLE)
    plain = [message.decode() for message in _messages("json", columns, batch_of(SIMPLE, rows))]
    source = '"source":{"db":"shop","table":"users","ts_ms":1700000000000},"ts_ms":1700000000001'
    debezium = [f'{{"before":{text},"after":{text},{source},"op":"u"}}'.encode() for text in plain]
    yield _change_rows("debezium-json", columns, debezium)
    told = '"database":"shop","table":"users","es":1700000000000,"ts":1700000000001,"isDdl":false,"pkNames":["id"]'
    new = [{name: str(value) for name, value in orjson.loads(text).items()} for text in plain]
    canal = [
        f'{{"data":[{orjson.dumps(row).decode()}],"old":[{{"email":"x"}}],{told},"type":"UPDATE"}}'.encode()
        for row in new
    ]
    yield _change_rows("canal-json", columns, canal)
    told = '"database":"shop","table":"users","ts":1700000000,"xid":1'
    maxwell = [f'{{"data":{text},"old":{{"email":"x"}},{told},"type":"update"}}'.encode() for text in plain]
    yield _change_rows("maxwell-json", columns, maxwell)
    told = '"table":"SHOP.USERS","op_ts":"2026-01-01 00:00:00.000000","primary_keys":["id"]'
    ogg = [f'{{"before":{text},"after":{text},{told},"op_type":"U"}}'.encode() for text in plain]
    yield _change_rows("ogg-json", columns, ogg)


def _change_rows(format_id: str, columns: Columns, messages: list[bytes]) -> dict[str, Any]:
    decoder = build_decoder(format_id, columns, {})
    found = decoder.decode(messages)
    assert found.rows.num_rows == 2 * len(messages)
    ours = seconds_of(lambda: decoder.decode(messages))
    theirs = seconds_of(lambda: [orjson.loads(message) for message in messages])
    name = f"{format_id.replace('-', '_')}_decode"
    return row(name, rows=len(messages), seconds=ours, ratio=theirs / ours, ratio_to="orjson.loads alone")


def _by_orjson(messages: list[bytes], columns: Columns) -> list[pa.Array]:
    rows = [orjson.loads(message) for message in messages]
    arrays = []
    for name, logical in columns:
        values = [item.get(name) for item in rows]
        target = arrow_type(logical)
        if pa.types.is_int64(target) and isinstance(values[0], str):
            values = [None if value is None else int(value) for value in values]
        wire = pa.float64() if pa.types.is_decimal(target) else pa.string() if isinstance(values[0], str) else target
        arrays.append(pa.array(values, wire).cast(target))
    return arrays


def _by_orjson_pairs(messages: list[bytes], columns: Columns) -> list[pa.Array]:
    rows = [orjson.loads(message) for message in messages]
    return [
        pa.array(
            [list(item[name].items()) if isinstance(item[name], dict) else item[name] for item in rows],
            arrow_type(kind),
        )
        for name, kind in columns
    ]


def _by_csv(messages: list[bytes], columns: Columns) -> list[pa.Array]:
    records = [next(csv.reader([message.decode()])) for message in messages]
    texts = [pa.array(column, pa.string()) for column in zip(*records, strict=True)]
    return [text.cast(arrow_type(logical)) for text, (_, logical) in zip(texts, columns, strict=True)]


def _by_fastavro(messages: list[bytes], columns: Columns) -> pa.Table:
    schema = fastavro.parse_schema(derive_schema(columns, legacy=True))
    rows = [fastavro.schemaless_reader(io.BytesIO(message), schema) for message in messages]
    kinds = pa.schema([pa.field(name, arrow_type(logical)) for name, logical in columns])
    arrays = [pa.array([_naive(item[field.name]) for item in rows], field.type) for field in kinds]
    return pa.table(arrays, schema=kinds)


def _naive(value: Any) -> Any:
    return value.replace(tzinfo=None) if getattr(value, "tzinfo", None) is not None else value


def _to_orjson(batch: pa.RecordBatch, columns: Columns) -> list[bytes]:
    return [orjson.dumps(item) for item in batch.to_pylist()]


def _to_json(batch: pa.RecordBatch, columns: Columns) -> list[bytes]:
    return [json.dumps(item, default=str, ensure_ascii=False).encode() for item in batch.to_pylist()]


def _to_csv(batch: pa.RecordBatch, columns: Columns) -> list[bytes]:
    made = []
    for item in batch.to_pylist():
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(item.values())
        made.append(line.getvalue().encode())
    return made


def _to_fastavro(batch: pa.RecordBatch, columns: Columns) -> list[bytes]:
    schema = fastavro.parse_schema(derive_schema(columns, legacy=True))
    made = []
    for item in batch.to_pylist():
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, item)
        made.append(out.getvalue())
    return made
