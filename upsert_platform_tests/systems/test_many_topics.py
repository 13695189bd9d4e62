"""The sensor's look at a project of 500 topics of four partitions: over before the next one is due."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.store import Positions
from upsert_platform.graph.jobs import sync_job
from upsert_platform.graph.resources import KafkaResource, MaxComputeResource, PlatformResource, TablestoreResource
from upsert_platform.graph.sensors import new_offsets_sensor
from upsert_platform.local.kafka import Broker, start_broker
from upsert_platform.sync.binding import bind, load

pytestmark = [pytest.mark.soak, pytest.mark.systems, pytest.mark.timeout(600)]
TOPICS, PARTITIONS = 500, 4
AT_ONCE = 50
"""Topics of one request: a controller that makes hundreds misses its broker's heartbeats."""
TICK = 30.0
"""Seconds between two looks of the sensor."""
SQL = """
CREATE TABLE s{n} (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
  'topic' = 's{n}', 'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE t{n} (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
  'topic' = 't{n}', 'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json', 'value.format' = 'json');
INSERT INTO t{n} SELECT id, v FROM s{n};
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of its own: 2,000 partitions would slow other tests down."""
    with start_broker(tmp_path_factory.mktemp("many"), die_with_parent=True) as found:
        yield found


def produce(servers: str, *topics: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50})
    for topic in topics:
        for partition in range(PARTITIONS):
            producer.produce(topic, b'{"id":1,"v":"a"}', b'{"id":1}', partition=partition)
    assert producer.flush(240) == 0


def commit_everything(folder: Path, lake: Lake) -> None:
    """A batch in each changelog that ends where its topic does."""
    binding = bind(*load(folder, root=lake.root))
    for name in binding.sources:
        store = binding.changelog(name, lake)
        head, schema = store.create(), rows.arrow_schema(store.table)
        row = {rows.KIND: "+U", rows.TOPIC: name, rows.PARTITION: 0, rows.OFFSET: 0, rows.ROW: 0, "id": 1, "v": "a"}
        batches = pa.Table.from_pylist([row], schema=schema.remove(0)).to_batches()
        files = write_rows(batches, location=store.location, schema=schema, batch=1)
        ends = Positions({name: dict.fromkeys(range(PARTITIONS), 1)}, {})
        assert store.append(files, head=head, positions=ends, run="r")


def test_five_hundred_topics_are_looked_at_within_a_tick(broker: Broker, tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    names = [f"s{number}" for number in range(TOPICS)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for start in range(0, TOPICS, AT_ONCE):
        asked = [NewTopic(name, PARTITIONS, 1) for name in names[start : start + AT_ONCE]]
        for future in admin.create_topics(asked, operation_timeout=60).values():
            future.result(120)
    produce(broker.bootstrap_servers, *names)
    folder, lake = tmp_path / "project", Lake(str(tmp_path / "lake"))
    folder.mkdir()
    declared = "".join(SQL.format(n=number, servers=broker.bootstrap_servers) for number in range(TOPICS))
    (folder / "many.sql").write_text(declared)
    commit_everything(folder, lake)
    project, _ = load(folder, root=lake.root)
    sensor = new_offsets_sensor(project, sync_job(project))

    def tick(instance: dg.DagsterInstance) -> tuple[dg.RunRequest | str | None, float]:
        """What a look told, and its seconds; with resources of its own, as each look of a daemon has them."""
        platform = PlatformResource(
            project=str(folder),
            home=lake.root,
            kafka=KafkaResource(),
            tablestore=TablestoreResource(),
            maxcompute=MaxComputeResource(),
        )
        began, used = time.monotonic(), _processor()
        with dg.build_sensor_context(instance=instance, resources={"platform": platform}) as context:
            found = sensor.evaluate_tick(context)
        seconds = time.monotonic() - began
        print(f"{TOPICS} topics: {seconds:.2f} s, {_processor() - used:.2f} s of processor")  # noqa: T201 - told by -s
        return found.run_requests[0] if found.run_requests else found.skip_message, seconds

    with dg.DagsterInstance.ephemeral() as instance:
        told, seconds = tick(instance)
        assert told == "no new offsets"
        assert seconds < TICK
        produce(broker.bootstrap_servers, "s7", "s499")
        asked, seconds = tick(instance)
        assert isinstance(asked, dg.RunRequest)
        assert asked.tags["upsert/lag"] == str(2 * PARTITIONS)
        assert seconds < TICK


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
