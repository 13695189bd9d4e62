"""A hop in a warm session, from plan to recorded position, beside its writer alone; and the check of its batch."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from upsert_platform.changelog import rows as changelog_rows
from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.head import Positions
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.destination import BatchSpan
from upsert_platform.local.kafka import start_broker
from upsert_platform.sync.binding import Binding, bind, changelog_of, load
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.leased import LEASE
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.verify import check_batch
from upsert_platform_tests.bench.measure import row, watch_memory
from upsert_platform_tests.graph.stack import variables_of
from upsert_platform_tests.local.maxcompute.server import maxcompute_server
from upsert_platform_tests.local.tablestore.server import tablestore_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1_000_000
WIDE_COLUMNS = 60
SYSTEMS = ("topic", "tablestore", "maxcompute")
_FILE_ROWS = 250_000
_COLUMNS = "id BIGINT, name STRING, region STRING, score DOUBLE, visits BIGINT"
_GIVEN = (
    "id", "concat('name of user ', id) AS name", "concat('region-', id % 17) AS region", "id / 7 AS score",
    "id * 3 AS visits", "'U' AS _op", "1L AS _seq",
)  # fmt: skip
_CONNECTORS = {
    "topic": "'connector' = 'upsert-kafka', 'topic' = '{name}', 'auto.create' = 'true', 'auto.create.partitions' = '4',"
    " 'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}',"
    " 'key.format' = 'json', 'value.format' = 'json'",
    "tablestore": "'connector' = 'tablestore', 'table.name' = '{name}', 'auto.create' = 'true',"
    " 'tablestore.endpoint' = '${{UPSERT_TABLESTORE_ENDPOINT}}',"
    " 'tablestore.instance.name' = '${{UPSERT_TABLESTORE_INSTANCE}}',"
    " 'tablestore.access.key.id' = '${{UPSERT_TABLESTORE_ACCESS_KEY_ID}}',"
    " 'tablestore.access.key.secret' = '${{UPSERT_TABLESTORE_ACCESS_KEY_SECRET}}'",
    "maxcompute": "'connector' = 'maxcompute', 'table.name' = '{name}', 'auto.create' = 'true',"
    " 'odps.end.point' = '${{UPSERT_MAXCOMPUTE_ENDPOINT}}', 'odps.project.name' = '${{UPSERT_MAXCOMPUTE_PROJECT}}',"
    " 'odps.access.id' = '${{UPSERT_MAXCOMPUTE_ACCESS_ID}}', 'odps.access.key' = '${{UPSERT_MAXCOMPUTE_ACCESS_KEY}}',"
    " 'sink.operation' = 'upsert', 'upsert.write.bucket.num' = '16'",
}


def run(*, rows: int = ROWS) -> Iterator[dict[str, Any]]:
    """Measures `hop_to_topic`, `hop_to_tablestore`, `hop_to_maxcompute`, `check_of_batch` and `wide_rows`."""
    from upsert_platform.spark.session import open_session

    with (
        tempfile.TemporaryDirectory() as folder,
        start_broker(Path(folder) / "kafka", die_with_parent=True) as broker,
        tablestore_server(Path(folder) / "tablestore") as tablestore,
        maxcompute_server(Path(folder) / "maxcompute") as maxcompute,
    ):
        os.environ.update(variables_of(broker, tablestore, maxcompute))
        bench = _Bench(Path(folder))
        spark = open_session()
        try:
            checks = {}
            for system in SYSTEMS:
                measured, checks[system] = _hop(spark, bench, system, rows)
                yield measured
            yield _checks(checks, rows)
            yield _wide(spark, bench, rows)
        finally:
            spark.stop()


class _Bench:
    """Projects with a lake: a table that is read, of which only the changelog is there, and tables that are written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lake = Lake(str(folder / "lake"))

    def bind(self, name: str, columns: str, targets: dict[str, str]) -> Binding:
        """A project.

        Args:
            targets: declared name to system.
        """
        key = "PRIMARY KEY (id) NOT ENFORCED"
        text = [f"CREATE TABLE {name} ({columns}, {key}) WITH ({_CONNECTORS['topic'].format(name=f'{name}-source')});"]
        for target, system in targets.items():
            text.append(f"CREATE TABLE {target} ({columns}, {key}) WITH ({_CONNECTORS[system].format(name=target)});")
            text.append(f"INSERT INTO {target} SELECT * FROM {name};")
        project = self.folder / name
        project.mkdir()
        (project / "tables.sql").write_text("\n".join(text).replace("{{", "{").replace("}}", "}"), "utf-8")
        return bind(*load(project, root=self.lake.root))

    def hop(self, binding: Binding, name: str) -> DestinationHop:
        target = binding.targets[name]
        refused = RefusedStore(self.lake.refused(name))
        return DestinationHop(
            target, changelog_of(target.source, self.lake), target.open(), refused=refused, run="bench"
        )


def _commit(store: ChangelogStore, columns: dict[str, pa.Array]) -> None:
    """A batch of changes with these columns, as a read of the topic would have committed it."""
    head = store.create()
    schema = changelog_rows.arrow_schema(store.table)
    count = len(columns["id"])
    given = {
        **columns,
        changelog_rows.KIND: pa.repeat(pa.scalar(changelog_rows.KIND_UPDATE_AFTER), count),
        changelog_rows.TOPIC: pa.repeat(pa.scalar("source"), count),
        changelog_rows.PARTITION: pa.repeat(pa.scalar(0, pa.int32()), count),
        changelog_rows.OFFSET: pa.array(np.arange(count) + head.batch * count),
        changelog_rows.ROW: pa.repeat(pa.scalar(0, pa.int32()), count),
    }
    files = []
    for start in range(0, count, _FILE_ROWS):
        part = {name: values.slice(start, _FILE_ROWS) for name, values in given.items()}
        size = len(part["id"])
        arrays = [
            part[item.name].cast(item.type) if item.name in part else pa.nulls(size, item.type) for item in schema
        ]
        made = [pa.RecordBatch.from_arrays(arrays, schema=schema), _account(schema, start, size)]
        files += write_rows(made, location=store.location, schema=schema, batch=head.batch + 1)
    assert store.append(files, head=head, positions=Positions(), run="bench") is not None


def _account(schema: pa.Schema, start: int, rows: int) -> pa.RecordBatch:
    """What a read of as many records tells of them: by it a check knows how much a sample of earlier rows costs."""
    account = RangeAccount("source", 0, start, start + rows, records=rows, kept=rows, rows=rows)
    told = {
        changelog_rows.KIND: changelog_rows.KIND_ACCOUNTING,
        changelog_rows.TOPIC: account.topic,
        changelog_rows.PARTITION: account.partition,
        changelog_rows.OFFSET: account.start,
        changelog_rows.ACCOUNTING: account.to_json(),
    }
    return pa.RecordBatch.from_pylist([told], schema=schema)


def _users(count: int) -> dict[str, pa.Array]:
    ids = np.arange(count)
    texts = pa.array(ids).cast(pa.string())
    import pyarrow.compute as pc

    return {
        "id": pa.array(ids),
        "name": pc.binary_join_element_wise("name of user", texts, " "),
        "region": pc.binary_join_element_wise("region", pa.array(ids % 17).cast(pa.string()), "-"),
        "score": pa.array(ids / 7),
        "visits": pa.array(ids * 3),
    }


def _hop(spark: SparkSession, bench: _Bench, system: str, rows: int) -> tuple[dict[str, Any], tuple[float, float]]:
    """The hop of a system against its writer alone, both in the same warm session; and seconds of hop and check."""
    name = f"users_{system}"
    binding = bench.bind(f"{name}_read", _COLUMNS, {name: system, f"{name}_alone": system})
    hop, other = bench.hop(binding, name), bench.hop(binding, f"{name}_alone")
    with closing(hop.destination), closing(other.destination):
        other.destination.prepare()
        alone, taken, checked = [], [], []
        with watch_memory() as peak:
            for turn, count in enumerate((max(1, rows // 10), rows, rows)):  # the first one warms the session up
                alone.append(_written(spark, other, count, batch=turn + 1))
                _commit(hop.store, _users(count))
                started = time.monotonic()
                done = hop.execute(OnDemand.dividing(spark), hop.plan())
                taken.append(time.monotonic() - started)
                assert done is not None
                assert done.report.upserts == count, done.report
                checked.append(_checked(spark, hop, after=turn, count=count))
    measured = row(
        f"hop_to_{system}",
        rows=rows,
        seconds=min(taken[1:]),
        memory=peak,
        ratio=min(alone[1:]) / min(taken[1:]),
        ratio_to="Destination.write of as many rows that Spark makes, in the same session",
        goal=">= 0.5",
        alone_seconds=round(min(alone[1:]), 3),
        first_seconds=round(taken[1], 3),  # the table was nearly empty; the next one replaces every row
        check_seconds=round(min(checked[1:]), 3),
    )
    return measured, (min(taken[1:]), min(checked[1:]))


def _written(spark: SparkSession, hop: DestinationHop, count: int, *, batch: int) -> float:
    """Seconds of the writer with rows that are in memory."""
    changes = spark.range(0, count, 1, 4).selectExpr(*_GIVEN).persist()
    assert changes.count() == count
    try:
        with hop.destination.lease(owner="bench", duration=LEASE) as lease:
            started = time.monotonic()
            report = hop.destination.write(changes, span=BatchSpan(batch - 1, batch, "bench", "bench"), lease=lease)
            seconds = time.monotonic() - started
    finally:
        changes.unpersist()
    assert report.upserts == count, report
    return seconds


def _checked(spark: SparkSession, hop: DestinationHop, *, after: int, count: int) -> float:
    started = time.monotonic()
    found = check_batch(OnDemand.dividing(spark), hop, after=after, upto=after + 1)
    seconds = time.monotonic() - started
    assert found.passed, found
    assert found.compared >= count
    return seconds


def _checks(measured: dict[str, tuple[float, float]], rows: int) -> dict[str, Any]:
    """The check against the hop that it checks; the worst of all systems counts."""
    ratios = {system: check / hop for system, (hop, check) in measured.items()}
    worst = max(ratios, key=lambda system: ratios[system])
    return row(
        "check_of_batch",
        rows=rows,
        seconds=measured[worst][1],
        ratio=ratios[worst],
        ratio_to=f"the hop to {worst}, whose rows it compares",
        goal="<= 0.5",
        **{f"ratio_{system}": round(ratio, 3) for system, ratio in ratios.items()},
    )


def _wide(spark: SparkSession, bench: _Bench, rows: int) -> dict[str, Any]:
    """Rows of many columns into MaxCompute, and their check."""
    kinds = _wide_kinds()
    declared = ", ".join(["id BIGINT", *(f"c{place} {kind}" for place, kind in enumerate(kinds))])
    binding = bench.bind("wide_read", declared, {"wide": "maxcompute"})
    hop = bench.hop(binding, "wide")
    with closing(hop.destination), watch_memory() as peak:
        for turn, count in enumerate((max(1, rows // 100), rows)):  # the first one warms the session up
            _commit(hop.store, _wide_rows(count, kinds))
            started = time.monotonic()
            done = hop.execute(OnDemand.dividing(spark), hop.plan())
            written = time.monotonic() - started
            assert done is not None
            assert done.report.upserts == count
            checked = _checked(spark, hop, after=turn, count=count)
    return row(
        "wide_rows",
        rows=rows,
        seconds=written + checked,
        memory=peak,
        goal="<= 45 s",
        columns=len(kinds) + 1,
        check_seconds=round(checked, 3),
    )


def _wide_kinds() -> Sequence[str]:
    kinds = ("BIGINT", "STRING", "DOUBLE", "TIMESTAMP(3)", "BOOLEAN", "STRING")
    return [kinds[place % len(kinds)] for place in range(WIDE_COLUMNS - 1)]


def _wide_rows(count: int, kinds: Sequence[str]) -> dict[str, pa.Array]:
    import pyarrow.compute as pc

    ids = np.arange(count)
    texts = pa.array(ids).cast(pa.string())
    made = {
        "BIGINT": lambda place: pa.array(ids * (place + 1)),
        "STRING": lambda place: pc.binary_join_element_wise(f"value {place}", texts, " "),
        "DOUBLE": lambda place: pa.array(ids / (place + 3)),
        "TIMESTAMP(3)": lambda place: pa.array((ids * 1000 + place) * 1000, pa.int64()).cast(pa.timestamp("us")),
        "BOOLEAN": lambda place: pa.array((ids + place) % 2 == 0),
    }
    return {"id": pa.array(ids), **{f"c{place}": made[kind](place) for place, kind in enumerate(kinds)}}
