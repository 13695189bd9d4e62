"""Two writers of one table: the second comes at every step of the first one's write, and neither spoils it."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from upsert_platform.core.destination import Destination
from upsert_platform.core.errors import LeaseHeldError, UpsertPlatformError
from upsert_platform.kafka.sink.destination import KafkaDestination
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.table import read_maxcompute_table
from upsert_platform.referee.stores import topic_rows
from upsert_platform.tablestore.destination import TablestoreDestination
from upsert_platform_tests.kafka.tables import declare as declare_topic
from upsert_platform_tests.kafka.tables import read as read_topic
from upsert_platform_tests.local.maxcompute.server import ServerHandle as MaxComputeServer
from upsert_platform_tests.local.tablestore.server import ServerHandle as TablestoreServer
from upsert_platform_tests.maxcompute.conftest import options_for
from upsert_platform_tests.maxcompute.declare import declare
from upsert_platform_tests.referee.judging import Declared, maxcompute_table, records_of, tablestore_table, told
from upsert_platform_tests.soak.garbling import Garbler, garbler
from upsert_platform_tests.soak.test_answers import OPERATIONS
from upsert_platform_tests.soak.written_batches import COLUMNS, Batches
from upsert_platform_tests.tablestore.declared import table_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2700)]

STEPS = 60
"""At most so many steps of a write."""
TOPIC_BATCHES = 30
Open = Callable[[str], Destination]
"""Opens the destination at an endpoint."""


def test_tablestore_writers(
    tablestore: TablestoreServer, variables: Mapping[str, str], spark: SparkSession, seed: int, scale: float
) -> None:
    name = f"writers_{uuid.uuid4().hex[:8]}"

    def opened(endpoint: str) -> Destination:
        options = {"tablestore.endpoint": endpoint, "request.timeout": "3 s"}
        return TablestoreDestination(
            table_on(tablestore, {**COLUMNS, "id": "BIGINT NOT NULL"}, ["id"], options, name=name)
        )

    with garbler(int(tablestore.endpoint.rsplit(":", 1)[1])) as proxy:
        _meet_at_every_step(
            proxy, tablestore.endpoint, spark, Batches(f"tablestore {seed}"), opened,
            lambda: tablestore_table(variables, name, COLUMNS, ["id"]), scale,
        )  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS)
def test_maxcompute_writers(
    operation: str,
    maxcompute: MaxComputeServer,
    variables: Mapping[str, str],
    spark: SparkSession,
    seed: int,
    scale: float,
) -> None:
    name = f"writers_{uuid.uuid4().hex[:8]}"
    upserts = OPERATIONS[operation]["sink.operation"] == "upsert"

    def opened(endpoint: str) -> Destination:
        more = {"upsert.write.bucket.num": "2"} if upserts else {}
        options = {
            **options_for(maxcompute, name), "odps.end.point": endpoint, "auto.create": "true", **more,
            **OPERATIONS[operation],
        }  # fmt: skip
        table, problems = read_maxcompute_table(declare(COLUMNS, key=["id"] if upserts else (), options=options))
        assert table is not None, problems
        return MaxComputeDestination(table)

    with garbler(maxcompute.port) as proxy:
        _meet_at_every_step(
            proxy, maxcompute.endpoint, spark, Batches(f"{operation} {seed}", appends=not upserts), opened,
            lambda: maxcompute_table(variables, name, COLUMNS), scale,
        )  # fmt: skip


def _meet_at_every_step(
    proxy: Garbler,
    endpoint: str,
    spark: SparkSession,
    batches: Batches,
    opened: Open,
    rows: Callable[[], Iterator[list[Any]]],
    scale: float,
) -> None:
    """At every request of a write another writer comes with the same batch and, where it gets in, with the next."""
    batches.write_at_last(spark, lambda: opened(proxy.endpoint), 1)
    proxy.calm()
    batches.write_at_last(spark, lambda: opened(proxy.endpoint), 2)
    steps = len(proxy.calls)
    stride = max(1, round(steps / (STEPS * scale)))
    batch, outcomes, wrong = 2, Counter[str](), list[str]()
    started = time.monotonic()
    for step in range(0, steps, stride):
        batch += 1
        proxy.hold(step)
        first: list[str] = []
        thread = threading.Thread(
            target=lambda batch=batch, first=first: first.append(_write(batches, spark, opened(proxy.endpoint), batch))
        )
        thread.start()
        met = proxy.arrived.wait(30)
        second = _write(batches, spark, opened(endpoint), batch)
        call = proxy.calls[step] if met and step < len(proxy.calls) else "none"
        proxy.released.set()
        thread.join(120)
        assert not thread.is_alive()
        proxy.calm()
        outcomes[f"first {first[0].split(':')[0]}, second {second.split(':')[0]}"] += 1
        batches.write_at_last(spark, lambda: opened(endpoint), batch)
        wrong += [f"step {step} ({call}): {item}" for item in (first[0], second) if item.startswith("raw error")]
        wrong += [f"step {step} ({call}): {line}" for line in told(batches.judge(rows(), batch))[:3]]
        print(f"{time.monotonic() - started:.0f} s: step {step} {call}: {first[0][:90]} / {second[:90]}", flush=True)  # noqa: T201
    for name, count in sorted(outcomes.items()):
        print(f"{count:>6} {name}")  # noqa: T201
    print(*wrong, sep="\n")  # noqa: T201
    assert wrong == []
    assert any("second refused" in name for name in outcomes), "the second writer never met the first one's lease"


def _write(batches: Batches, spark: SparkSession, destination: Destination, batch: int) -> str:
    """Writes a batch if the table is free; what came of it."""
    try:
        batches.write(spark, destination, batch)
    except LeaseHeldError as error:
        return f"refused: {error}"
    except UpsertPlatformError as error:
        return f"told: {error}"
    except Exception as error:  # noqa: BLE001 - what no user should see is what is looked for
        return f"raw error: {type(error).__name__}: {error}"
    finally:
        destination.close()
    return "written"


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_topic_writers(
    guarantee: str, kafka_bootstrap: str, make_topic: Callable[..., str], spark: SparkSession, seed: int, scale: float
) -> None:
    """Two writers bring the same batches to a topic, one after the other; each begins at random moments."""
    topic = make_topic(partitions=2)
    options = {
        "topic": topic, "properties.bootstrap.servers": kafka_bootstrap, "sink.delivery-guarantee": guarantee,
        "sink.transactional-id-prefix": topic if guarantee == "exactly-once" else None, "sink.parallelism": "2",
    }  # fmt: skip
    table = read_topic(declare_topic(COLUMNS, **options), writes=True)
    batches = Batches(f"{guarantee} {seed}")
    last = max(4, round(TOPIC_BATCHES * scale))
    outcomes: Counter[str] = Counter()

    def write_all(name: str) -> None:
        chance = random.Random(f"{seed} {name}")
        for batch in range(1, last + 1):
            while True:
                found = _write(batches, spark, KafkaDestination(table), batch)
                outcomes[found.split(":")[0]] += 1
                if found == "written":
                    break
                if not found.startswith("refused"):
                    outcomes[found] += 1
                time.sleep(chance.uniform(0.05, 1.0))

    threads = [threading.Thread(target=write_all, args=(name,)) for name in ("one", "other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(900)
        assert not thread.is_alive()
    records = list(records_of(kafka_bootstrap, topic))
    held = Declared(COLUMNS, ("id",)).last_values(records)
    verdict = batches.judge(topic_rows(held, list(COLUMNS)), last)
    held.close()
    twice = sum(times > 1 for times in Counter((item.key, item.value) for item in records if item.value).values())
    print(dict(outcomes), f"{last} batches, {len(records)} records, {twice} of them twice")  # noqa: T201
    assert told(verdict) == []
    assert guarantee != "exactly-once" or twice == 0
    assert not [name for name in outcomes if name.startswith("raw error")]
