"""A million fuzzed records over key, value and headers of every format: each accounted for, and judged."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from upsert_platform.changelog.accounting import RangeAccount, total
from upsert_platform.changelog.quarantine import quarantined_records
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.kafka.table import KafkaTable
from upsert_platform.referee.kinds import Kind, kind_of
from upsert_platform.referee.verdict import Verdict
from upsert_platform.sync.changelog_hop import ChangelogHop
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform_tests.formats.proto import shop, write_set
from upsert_platform_tests.kafka.answering import Asked, answering
from upsert_platform_tests.kafka.tables import declare, read
from upsert_platform_tests.referee.judging import Declared, records_of
from upsert_platform_tests.soak.fuzzed import FUZZES, Fuzz, fuzzed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2700)]

RECORDS = 1_000_000
SPLITS = 2
SHOWN = 12


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A schema registry with a key's and a value's schema, numbers 1 and 2, and a file of messages."""
    schemas = {
        number: {"type": "record", "name": "record", "fields": [{"name": name, "type": kind}]}
        for number, (name, kind) in enumerate((("id", "int"), ("number", ["null", "int"])), start=1)
    }

    def answer(asked: Asked) -> tuple[int, bytes]:
        number = asked.path.partition("?")[0].rsplit("/", 1)[1]
        if number in ("1", "2"):
            return 200, json.dumps({"schema": json.dumps(schemas[int(number)])}).encode()
        return 404, b'{"error_code": 40403, "message": "Schema not found"}'

    path = write_set(tmp_path_factory.mktemp("proto") / "shop.desc", shop())
    with answering(answer) as server:
        yield {
            f"{side}.{name}": value
            for side, message in (("key", "shop.Key"), ("value", "shop.Value"))
            for name, value in (
                ("avro-confluent.url", server.url),
                ("protobuf.descriptor-file", path),
                ("protobuf.message-class-name", message),
            )
        }


def _table(format_id: str, fuzz: Fuzz, topic: str, bootstrap: str, registered: Mapping[str, str]) -> KafkaTable:
    options = {"topic": topic, "properties.bootstrap.servers": bootstrap, "value.format": format_id, **fuzz.options}
    options["scan.parallelism"] = str(SPLITS)
    options |= {name: value for name, value in registered.items() if name.split(".")[1] == format_id}
    metadata = {"hdr": ("MAP<STRING, BYTES>", "headers")}
    if fuzz.key(random.Random(1), 1):
        columns = {**fuzz.columns, "id": f"{fuzz.columns['id']} NOT NULL"}  # as SQL makes the columns of a key
        return read(declare(columns, metadata=metadata, virtual=True, **{"key.format": format_id, **options}))
    more = {"connector": "kafka", "key.format": None, "scan.startup.mode": "earliest-offset"}
    return read(declare(fuzz.columns, key=(), metadata=metadata, virtual=True, **more, **options))  # type: ignore[arg-type]


def _produce(bootstrap: str, topic: str, fuzz: Fuzz, seed: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True})
    failed: list[str] = []
    for key, value, headers in fuzzed(fuzz, seed, count):
        while True:
            try:
                producer.produce(
                    topic,
                    key=key,
                    value=value,
                    headers=headers,
                    on_delivery=lambda error, _: failed.append(str(error)) if error is not None else None,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(120) == 0
    assert failed == []


def test_every_fuzzed_record_is_accounted_for(
    kafka_bootstrap: str,
    make_topic: Callable[..., str],
    registered: dict[str, str],
    tmp_path: Path,
    spark: SparkSession,
    seed: int,
    scale: float,
) -> None:
    count = max(1_000, round(RECORDS * scale / len(FUZZES)))
    wrong: list[str] = []
    started = time.monotonic()
    for format_id, fuzz in FUZZES.items():
        topic = make_topic()
        _produce(kafka_bootstrap, topic, fuzz, f"{seed} {format_id}", count)
        table = _table(format_id, fuzz, topic, kafka_bootstrap, registered)
        source = TopicSource(table.table, table)
        store = ChangelogStore(str(tmp_path / format_id), table.table, mode=source.mode)
        hop = ChangelogHop(source, store, run="fuzz")
        hop.execute(OnDemand.dividing(spark), hop.plan())
        accounts = [item for items in store.accounts(after=0, upto=10**6).values() for item in items]
        lines = _check(store, accounts, count, reduces=source.mode == "upsert")
        words = ""
        if fuzz.judged:
            verdict = _judge(format_id, fuzz, topic, kafka_bootstrap, store)
            left_open = ("open_keys", "unknown")
            lines += [
                f"{item.status} {item.key} {item.detail}"
                for item in verdict.differences
                if item.status not in left_open
            ]
            if verdict.equal_rows < 10 * (verdict.open_keys + verdict.unknown):
                lines.append("the referee leaves too much open")
            words = f"; referee: {verdict.equal_rows} rows equal, {verdict.differing} differ,"
            words += f" {verdict.open_keys + verdict.unknown} left open"
        summed = total(accounts)
        print(  # noqa: T201
            f"{format_id}: {count} records: {summed.kept} kept, {summed.superseded} superseded, {summed.quarantined}"
            f" quarantined, skipped {dict(summed.skipped)}{words}; {time.monotonic() - started:.0f} s"
        )
        print(*lines[:SHOWN], sep="\n", end="\n" * bool(lines))  # noqa: T201
        wrong += [f"{format_id}: {line}" for line in lines]
    assert wrong == []


def _check(store: ChangelogStore, accounts: list[RangeAccount], count: int, *, reduces: bool) -> list[str]:
    """What of the accounts does not hold."""
    summed = total(accounts)
    skipped = sum(number for _, number in summed.skipped)
    wrong = []
    if summed.records != count or summed.kept + summed.superseded + summed.quarantined + skipped != count:
        wrong.append(f"{count} records, accounted for are {summed}")
    rows = _rows(store, ["_partition", "_offset", "_kind"])
    changed = set(
        zip(*(rows.filter(_is_change(rows))[name].to_pylist() for name in ("_partition", "_offset")), strict=True)
    )
    aside = quarantined_records(store)
    apart = set(zip(aside["_partition"].to_pylist(), aside["_offset"].to_pylist(), strict=True))
    if len(apart) != summed.quarantined or apart & changed:
        wrong.append(f"{len(apart)} records are in quarantine, {len(apart & changed)} of them have rows too")
    if reduces and len(changed) != summed.kept:
        wrong.append(f"{len(changed)} records have rows, {summed.kept} were kept")
    if not reduces and summed.superseded:
        wrong.append(f"{summed.superseded} records were dropped where every record counts")
    return wrong


def _rows(store: ChangelogStore, columns: list[str]) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(store.uri).to_pyarrow_table(columns=columns)


def _is_change(rows: pa.Table) -> Any:
    return pc.is_in(rows["_kind"], value_set=pa.array(["+I", "+U", "-D"]))


def _judge(format_id: str, fuzz: Fuzz, topic: str, bootstrap: str, store: ChangelogStore) -> Verdict:
    """The referee on the last row per key, by offset, of what the changelog holds."""
    names = list(fuzz.columns)
    rows = _rows(store, ["_offset", "_kind", *names])
    last: dict[str, tuple[int, str, list[Any]]] = {}
    changes = rows.filter(_is_change(rows))
    # As numbers: days and times beyond the year 9999 are none of Python's.
    numbers = {"h": pa.int32(), "i": pa.int64()}
    cast = [pa.field(item.name, numbers.get(item.name, item.type)) for item in changes.schema]
    found = changes.cast(pa.schema(cast)).to_pydict()
    for index, offset in enumerate(found["_offset"]):
        key = found["id"][index]
        if key not in last or offset > last[key][0]:
            last[key] = (offset, found["_kind"][index], [found[name][index] for name in names])
    kinds = [kind_of(text) for text in fuzz.columns.values()]
    held = [
        [_plain(value, kind) for value, kind in zip(values, kinds, strict=True)]
        for _, kind_of_row, values in last.values()
        if kind_of_row != "-D"
    ]
    value = None if format_id == "json" else tuple(name for name in names if name != "id")
    declared = Declared(fuzz.columns, ("id",), format_id, value)
    return declared.judge(records_of(bootstrap, topic), held, shown=SHOWN)


def _plain(value: Any, kind: Kind) -> Any:
    """A value of Arrow in the referee's form."""
    if value is None:
        return None
    match kind.root:
        case "TIMESTAMP":
            return value * 1_000
        case "ROW":
            return [_plain(value[name], part) for name, part in kind.parts]
        case "ARRAY":
            return [_plain(item, kind.parts[0][1]) for item in value]
    return value
