"""Nexmark: each query as a whole job over one topic of all events, beside Flink if `FLINK_SQL` names a program for it.

`FLINK_SQL` carries out a file of Flink SQL, CREATEs and then one INSERT, and finds the Kafka connector by itself.
`NEXMARK_QUERIES` chooses queries, as q3,q4; `NEXMARK_EVENTS` says how many events, and `NEXMARK_SEED` which. Both jobs
read the same topic, in turn; their final values have to be equal before a time counts. For q14 `PEERS_HOME` names a
folder with Flink's jars at any depth, against which its function is compiled. Then more events come, and each query has
another run: what a run takes that finds a few events behind many.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from upsert_platform.local.kafka import start_broker
from upsert_platform.referee.topic import Record
from upsert_platform_tests.bench.command import timed_flink
from upsert_platform_tests.bench.jobs import _declare, _job
from upsert_platform_tests.bench.kafka import create_topic, send
from upsert_platform_tests.bench.measure import row, watch_memory
from upsert_platform_tests.engine.nexmark import CLOCKED, QUERIES, START, Nexmark, events_table, prepare
from upsert_platform_tests.referee.judging import latest, records_of

EVENTS = 5_000_000
MORE = 100_000
"""Events of the second run."""
SEED = 1
PARTITIONS = 4
BY_CLOCK = frozenset({"q12"})
"""Windows of processing time: two jobs never agree on them."""
_CHUNK = 5_000
"""Events behind one another of a partition."""
_FILLER = "a description of something that is sold to whoever offers most, and some words more to make it long " * 2
_ADDED_KEYS: Final = {
    **dict.fromkeys(("q0", "q1", "q10"), "auction, bidder, `dateTime`"),
    **dict.fromkeys(("q21", "q22"), "auction, bidder, price"),
    "q2": "auction, price",
    "q14": "auction, bidder, bidTime",
}
"""Of the sinks of queries that only add rows: a topic without keys would take a row twice after a failure."""
_TIES: Final = {"q19": ("auction", "rank_number", "price")}
"""Columns that count where equal rows are ranked in the order in which they come."""


def run(*, events: int | None = None, queries: str | None = None) -> Iterator[dict[str, Any]]:
    """Measures one `nexmark` per query, then one `nexmark_more`.

    Args:
        events: in the topic; those of the environment, or EVENTS, if left out.
        queries: as q3,q4; those of the environment, or all, if left out.
    """
    count = events if events is not None else int(os.environ.get("NEXMARK_EVENTS", EVENTS))
    chosen = queries or os.environ.get("NEXMARK_QUERIES") or ",".join(QUERIES)
    with (
        tempfile.TemporaryDirectory() as folder,
        start_broker(Path(folder) / "kafka", die_with_parent=True) as broker,
    ):
        servers = broker.bootstrap_servers
        create_topic(servers, "nexmark", partitions=PARTITIONS, config={"retention.ms": "-1"})
        names = [name.strip() for name in chosen.split(",")]
        events_of = json_events(count + MORE, int(os.environ.get("NEXMARK_SEED", SEED)))
        size = _produce(servers, islice(events_of, count)) // count
        for name in names:
            yield _measured(Path(folder), servers, name, count, size)
        _produce(servers, events_of)
        for name in names:
            with watch_memory() as peak:
                seconds, cpu = _job(Path(folder) / name)
            more: dict[str, Any] = {"query": name, "events_before": count, "cpu_seconds": round(cpu, 1)}
            yield row("nexmark_more", rows=MORE, seconds=seconds, memory=peak, goal="<= 12 s", **more)


def _measured(folder: Path, servers: str, name: str, count: int, size: int) -> dict[str, Any]:
    query = with_key(name)

    def script(target: str, *, bounded: bool) -> str:
        beside = query.beside_in_flink if bounded else query.beside
        text = beside.format(folder=folder / name / "project")
        return f"{text}\n{_script(query, servers, target, bounded=bounded)}"

    def lay_beside(project: Path) -> None:
        prepare(project)
        if "FLINK_SQL" in os.environ and "JAR" in query.beside_in_flink:
            _compile(project / "nexmark.jar")

    return measured("nexmark", folder, servers, name, script, lay_beside, rows=count, bytes_per_event=size)


def with_key(name: str) -> Nexmark:
    """The query, with a key of its sink where the benchmark has none."""
    return replace(QUERIES[name], key=QUERIES[name].key or _ADDED_KEYS[name])


def measured(
    measure: str,
    folder: Path,
    servers: str,
    name: str,
    script: Callable[..., str],
    lay_beside: Callable[[Path], None] = lambda _: None,
    *,
    recomputed: Counter[str] | None = None,
    goal: str = ">= 1.5 each, >= 2 over all; < 4 GB",
    **more: Any,
) -> dict[str, Any]:
    """Runs a query as a whole job, and by Flink if that is there; one measure.

    Args:
        script: makes the statements, of the topic that is written and of whether the sources end (`bounded`).
        lay_beside: lays what they name into the project's folder.
        recomputed: the rows that the topic has to hold in the end, as `shown` gives them; only Flink's if left out.
    """
    for side in ("ours", "flink"):
        settings = {"cleanup.policy": "compact", "retention.ms": "-1"}
        create_topic(servers, f"{name}-{side}", partitions=PARTITIONS, config=settings)
    _declare(folder / name, script(f"{name}-ours", bounded=False))
    lay_beside(folder / name / "project")
    with watch_memory() as peak:
        ours, cpu = _job(folder / name)
    theirs = 0.0
    if "FLINK_SQL" in os.environ:
        with watch_memory() as their_peak:
            theirs = timed_flink(folder / name / "flink.sql", script(f"{name}-flink", bounded=True))
    # Read behind both jobs: what this process holds is no memory of theirs.
    found, messages = _final(servers, f"{name}-ours")
    values = sum(found.values())
    if recomputed is not None:
        _compare(name, _shown_of(found, name), recomputed, "computed")
    if "FLINK_SQL" in os.environ:
        expected, their_messages = _final(servers, f"{name}-flink")
        if name not in BY_CLOCK:
            _judge(name, found, expected)
        more |= {
            "ratio": theirs / ours,
            "ratio_to": "Flink (seconds of its job's process / ours)",
            "flink_seconds": round(theirs, 1),
            "flink_messages": their_messages,
            "flink_memory_mb": round(their_peak.total),
        }
    return row(
        measure,
        seconds=ours,
        memory=peak,
        goal=goal,
        query=name,
        cpu_seconds=round(cpu, 1),
        values=values,
        messages=messages,
        **more,
    )


def _compile(jar: Path) -> None:
    """Compile the function that q14 calls in Flink, into a jar of its own."""
    (tables, *_) = Path(os.environ["PEERS_HOME"]).rglob("flink-table-api-java-uber-*.jar")
    source, classes = Path(__file__).with_name("CountChar.java"), jar.with_suffix("")
    command = ["javac", "--release", "11", "-cp", str(tables), "-d", str(classes), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    with zipfile.ZipFile(jar, "w") as packed:
        for file in classes.rglob("*.class"):
            packed.write(file, file.relative_to(classes))


def _script(query: Nexmark, servers: str, target: str, *, bounded: bool) -> str:
    reach = f"'properties.bootstrap.servers' = '{servers}'"
    source = f"WITH ('connector' = 'kafka', 'topic' = 'nexmark', 'format' = 'json', {reach}"
    if bounded:
        source += (
            ", 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',"
            " 'properties.group.id' = 'nexmark'"
        )
    sink = (
        f"WITH ('connector' = 'upsert-kafka', 'topic' = '{target}', {reach}, 'key.format' = 'json',"
        " 'value.format' = 'json')"
    )
    views = CLOCKED if "clocked" in query.flink else ""
    return f"{events_table(source + ')')}\n{views}\n{query.target(sink)}\nINSERT INTO target {query.flink};\n"


def _final(servers: str, topic: str) -> tuple[Counter[bytes], int]:
    """The values that a topic holds in the end, with how often it has each; and its messages."""
    messages = 0

    def counted() -> Iterator[Record]:
        nonlocal messages
        for record in records_of(servers, topic):
            messages += 1
            yield record

    return Counter(latest(counted()).values()), messages


def shown(value: bytes, name: str) -> str:
    """A row, its columns sorted, numbers and times as both writers mean them."""
    data = json.loads(value, parse_float=lambda text: f"{Decimal(text).normalize():f}", parse_int=str)
    if name in _TIES:
        data = {column: data[column] for column in _TIES[name]}
    return json.dumps({key: plain(item) for key, item in sorted(data.items())})


def plain(item: Any) -> Any:
    """A value of a row, its text as both writers mean it."""
    if isinstance(item, str) and "." in item:  # 12.500 and 12.5, 10:00:00.000 and 10:00:00
        head, _, tail = item.rpartition(".")
        if tail.isdigit():
            return f"{head}.{tail}".rstrip("0").rstrip(".")
    return item


def _judge(name: str, ours: Counter[bytes], theirs: Counter[bytes]) -> None:
    """Equal bytes are equal rows, so only what differs in its text is parsed; takes those out of both counters."""
    assert theirs, f"{name}: Flink wrote nothing"
    for value in ours.keys() & theirs.keys():
        common = min(ours[value], theirs[value])
        for side in (ours, theirs):
            side[value] -= common
    _compare(name, _shown_of(ours, name), _shown_of(theirs, name), "that Flink has")


def _shown_of(values: Counter[bytes], name: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for value, times in values.items():
        if times:
            found[shown(value, name)] += times
    return found


def _compare(name: str, ours: Counter[str], others: Counter[str], whose: str) -> None:
    extra, missing = ours - others, others - ours
    counts = f"{name}: {sum(extra.values())} rows beyond those {whose}, {sum(missing.values())} too few"
    assert ours == others, f"{counts}; extra {list(extra)[:3]}, missing {list(missing)[:3]}"


def _produce(servers: str, values: Iterable[bytes]) -> int:
    """Send events; return how many bytes they have."""
    producer = Producer(
        {
            "bootstrap.servers": servers, "linger.ms": 20, "compression.type": "lz4", "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
        }
    )  # fmt: skip
    sizes = 0

    def records() -> Iterator[tuple[None, bytes, int]]:
        nonlocal sizes
        for at, value in enumerate(values):
            sizes += len(value)
            yield None, value, at // _CHUNK % PARTITIONS

    send(producer, "nexmark", records())
    return sizes


def json_events(count: int, seed: int) -> Iterator[bytes]:
    """Events by the benchmark's proportions, one a millisecond, as JSON objects of one field that is not null."""
    rng = random.Random(seed)
    draw, below = rng.random, rng.randrange
    for at in range(count):
        epoch, nth = divmod(at, 50)
        moment = _time(at)
        persons, auctions = 1000 + epoch + (nth >= 1), 1000 + epoch * 3 + min(max(nth - 1, 0), 3)
        filler = _FILLER[below(80) :][:60]
        if nth == 0:
            state = ("AZ", "CA", "ID", "OR", "WA", "WY")[below(6)]
            yield (
                b'{"event_type":0,"person":{"id":%d,"name":"Peter %d","emailAddress":"%d@b.com",'
                b'"creditCard":"%016d","city":"Boise","state":"%s","dateTime":"%s","extra":"%s"}}'
            ) % (1000 + epoch, at, at, below(10**16), state.encode(), moment, filler.encode())
        elif nth < 4:
            own, first = 1000 + epoch * 3 + nth - 1, below(100)
            seller = (persons - 1) // 4 * 4 if draw() < 0.75 else below(max(1000, persons - 1000), persons)
            yield (
                b'{"event_type":1,"auction":{"id":%d,"itemName":"item %d","description":"%s","initialBid":%d,'
                b'"reserve":%d,"dateTime":"%s","expires":"%s","seller":%d,"category":%d,"extra":"%s"}}'
            ) % (
                own, own, filler.encode(), first, first + below(1000), moment, _time(at + 1 + below(3000)),
                max(seller, 1000), 10 + below(5), filler.encode(),
            )  # fmt: skip
        else:
            auction = (auctions - 1) // 100 * 100 if draw() < 0.5 else below(max(1000, auctions - 100), auctions)
            bidder = (persons - 1) // 100 * 100 + 1 if draw() < 0.75 else below(max(1000, persons - 1000), persons)
            known = ("Google", "Facebook", "Baidu", "Apple")
            channel = known[below(4)] if draw() < 0.5 else f"channel-{below(10_000)}"
            tail = "" if draw() < 0.5 else f"&channel_id={below(10_000)}"
            yield (
                b'{"event_type":2,"bid":{"auction":%d,"bidder":%d,"price":%d,"channel":"%s",'
                b'"url":"https://www.nexmark.com/%d/item.htm?query=1%s","dateTime":"%s","extra":"%s"}}'
            ) % (
                max(auction, 1000), max(bidder, 1000), int(10 ** (draw() * 6) * 100), channel.encode(), at % 97,
                tail.encode(), moment, filler.encode(),
            )  # fmt: skip


def _time(millisecond: int) -> bytes:
    return (START + timedelta(milliseconds=millisecond)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3].encode()
