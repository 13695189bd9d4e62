"""Nexmark over upsert topics: persons, auctions and bids that change and are deleted, beside Flink as in `nexmark`.

Each kind of event has a topic with a key. Of ten records one changes an earlier row (the price of a bid, the category
of an auction, the state of a person), and of thirty one deletes one. What the written topic has to hold in the end is
computed by DuckDB from the rows that are left; Flink's final values have to be the same. Queries over windows are left
out: they count rows by their times, which upserts do not come in. So are those whose sinks have no key by which rows of
a bid can be told apart.
"""

from __future__ import annotations

import json
import os
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import duckdb
from confluent_kafka import Producer

from upsert_platform.local.kafka import start_broker
from upsert_platform_tests.bench.kafka import BY_KEY, create_topic, send
from upsert_platform_tests.bench.nexmark import EVENTS, PARTITIONS, SEED, json_events, measured, shown, with_key
from upsert_platform_tests.engine.nexmark import TABLES, upsert_tables

CHOSEN: Final = "q0,q1,q3,q4,q9,q10,q15,q16,q17,q18,q19,q20"
_REACH: Final = 2_000
"""How many rows back one is changed or deleted."""
_PARTS: Final = {
    "person": re.compile(rb'"state":"[A-Z]+"'),
    "auction": re.compile(rb'"category":\d+'),
    "bid": re.compile(rb'"price":\d+'),
}
"""What a change replaces in a row."""
_KINDS: Final = tuple(TABLES)


def run(*, events: int | None = None, queries: str | None = None) -> Iterator[dict[str, Any]]:
    """Measures one `nexmark_upserts` per query.

    Args:
        events: that add rows; those of the environment, or EVENTS of `nexmark`, if left out. Changes come on top.
        queries: as q3,q4; those of the environment, or CHOSEN, if left out.
    """
    count = events if events is not None else int(os.environ.get("NEXMARK_EVENTS", EVENTS))
    chosen = queries or os.environ.get("NEXMARK_QUERIES") or CHOSEN
    with (
        tempfile.TemporaryDirectory() as folder,
        start_broker(Path(folder) / "kafka", die_with_parent=True) as broker,
        duckdb.connect() as database,
    ):
        servers = broker.bootstrap_servers
        for name in TABLES:
            create_topic(servers, name, partitions=PARTITIONS, config={"retention.ms": "-1"})
        left, records = _produce(servers, count, int(os.environ.get("NEXMARK_SEED", SEED)))
        _fill(database, left, Path(folder))
        del left
        for name in map(str.strip, chosen.split(",")):
            yield measured(
                "nexmark_upserts",
                Path(folder),
                servers,
                name,
                _script_of(name, servers),
                recomputed=_computed(database, name),
                goal=">= 2 each",
                rows=records,
            )


def _script_of(name: str, servers: str) -> Callable[..., str]:
    query = with_key(name)
    options = f"'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json', 'value.format' = 'json')"

    def script(target: str, *, bounded: bool) -> str:
        ends = "'scan.bounded.mode' = 'latest-offset', 'properties.group.id' = 'nexmark', " if bounded else ""
        sources = upsert_tables(f"WITH ('connector' = 'upsert-kafka', 'topic' = '{{name}}', {ends}{options}")
        sink = query.target(f"WITH ('connector' = 'upsert-kafka', 'topic' = '{target}', {options}")
        return f"{sources}\n{sink}\nINSERT INTO target {query.flink};\n"

    return script


def _produce(servers: str, count: int, seed: int) -> tuple[dict[str, dict[int, bytes]], int]:
    """Send the events and their changes; return the rows that are left by table, and how many records there are."""
    producer = Producer(
        {
            "bootstrap.servers": servers, "linger.ms": 20, "compression.type": "lz4", "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000, "partitioner": "murmur2_random",
        }
    )  # fmt: skip
    left: dict[str, dict[int, bytes]] = {name: {} for name in TABLES}
    records = 0
    for some in _in_lists(_changes(count, seed)):
        for table in TABLES:
            send(producer, table, [(b'{"id":%d}' % key, row, BY_KEY) for name, key, row in some if name == table])
        for name, key, row in some:
            if row is None:
                del left[name][key]
            else:
                left[name][key] = row
        records += len(some)
    return left, records


def _in_lists(changes: Iterator[tuple[str, int, bytes | None]]) -> Iterator[list[tuple[str, int, bytes | None]]]:
    while some := list(islice(changes, 50_000)):
        yield some


def _changes(count: int, seed: int) -> Iterator[tuple[str, int, bytes | None]]:
    """Table, key and row, or None for a delete, of each record."""
    rng = random.Random(seed)
    lately: dict[str, list[tuple[int, bytes]]] = {name: [] for name in TABLES}
    for at, event in enumerate(json_events(count, seed)):
        name = _KINDS[int(event[14:15])]
        row = event[event.index(b":{", 15) + 1 : -1]
        key = at
        if name == "bid":
            row = b'{"id":%d,' % at + row[1:]
        else:
            key = int(row[6 : row.index(b",")])
        yield name, key, row
        rows = lately[name]
        rows.append((key, row))
        if len(rows) > _REACH:
            rows.pop(rng.randrange(_REACH // 10))
        chance = rng.random()
        if chance < 1 / 10:
            place = rng.randrange(len(rows))
            key, old = rows[place]
            rows[place] = key, _PARTS[name].sub(_other(name, rng), old, count=1)
            yield name, *rows[place]
        elif chance < 1 / 10 + 1 / 30:
            yield name, rows.pop(rng.randrange(len(rows)))[0], None


def _other(name: str, rng: random.Random) -> bytes:
    if name == "person":
        return b'"state":"%s"' % rng.choice([b"AZ", b"CA", b"ID", b"OR", b"WA", b"WY"])
    if name == "auction":
        return b'"category":%d' % (10 + rng.randrange(5))
    return b'"price":%d' % int(10 ** (rng.random() * 6) * 100)


def _fill(database: duckdb.DuckDBPyConnection, left: dict[str, dict[int, bytes]], folder: Path) -> None:
    for name, rows in left.items():
        file = folder / f"{name}.json"
        file.write_bytes(b"\n".join(rows.values()))
        kinds = {"id": "BIGINT", **TABLES[name]}
        columns = ", ".join(
            f"'{item}': '{'TIMESTAMP' if kind.startswith('TIMESTAMP') else kind}'" for item, kind in kinds.items()
        )
        database.execute(
            f"CREATE TABLE {name} AS FROM read_json('{file}', format = 'newline_delimited', columns = {{{columns}}})"
        )
        file.unlink()


def _computed(database: duckdb.DuckDBPyConnection, name: str) -> Counter[str]:
    """The rows of a query as `shown` gives those of a topic."""
    query = with_key(name)
    names = re.findall(r"(?:^|, )`?(\w+)`? [A-Z]+", query.columns)
    found: Counter[str] = Counter()
    answer = database.execute(query.judged)
    while rows := answer.fetchmany(10_000):
        for row in rows:
            data = {column: _text(value) for column, value in zip(names, row, strict=True)}
            found[shown(json.dumps(data).encode(), name)] += 1
    return found


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(" ", "milliseconds")
    return value if value is None or isinstance(value, str) else str(value)
