"""A table whose columns have names that the platform has, or had, for its own: written, checked, compacted, erased."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from upsert_platform.cli.main import main
from upsert_platform.graph.build import build_definitions
from upsert_platform.graph.resources import SparkResource
from upsert_platform.sync.binding import load
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.graph.test_erase import run_erase
from upsert_platform_tests.referee.judging import maxcompute_table, records_of, tablestore_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY: Final = {"_last": "BIGINT", "k0": "STRING"}
NUMBERS: Final = ("_span", "_partitions", "_w", "_count", "_rows", "_place", "_seq0", "_file", "_code")
TEXTS: Final = (
    "_share", "_bucket", "_candidate", "_read_in", "_committed_in", "_keys", "_refused_in", "_late", "_is_read", "_was",
    "_was_topic", "_change", "_found", "_placed", "_key0", "_key_0", "_image_key0", "_changes", "_source", "_before",
    "_failed", "_present_0", "_partition_0", "_partition_fits", "_stored_0", "_number", "_failure", "_gone", "_put",
    "_branch", "_since", "_value", "_all", "_a0", "_status", "_hash0", "_hash1", "_wanted", "_counted", "_side",
    "_error", "_key", "_at", "_row_of_file", "_e", "_k", "e1", "a1", "p0", "k1", "g0", "found", "count", "value", "key",
    "batch", "row", "rows", "order", "topic", "partition", "offset", "timestamp", "reason", "met", "deleted",
)  # fmt: skip
"""Names that the platform's own columns have, or had, while it works on rows."""
COLUMNS: Final = {**KEY, **dict.fromkeys(NUMBERS, "BIGINT"), **dict.fromkeys(TEXTS, "STRING")}
DECLARED: Final = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
PRIMARY_KEY: Final = "PRIMARY KEY (`_last`, k0) NOT ENFORCED"
KAFKA: Final = """'connector' = 'upsert-kafka', 'topic' = '{topic}', 'key.format' = 'json', 'value.format' = 'json',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}'"""
TABLESTORE: Final = """'connector' = 'tablestore', 'table.name' = '{table}', 'auto.create' = 'true',
  'tablestore.endpoint' = '${{UPSERT_TABLESTORE_ENDPOINT}}',
  'tablestore.instance.name' = '${{UPSERT_TABLESTORE_INSTANCE}}',
  'tablestore.access.key.id' = '${{UPSERT_TABLESTORE_ACCESS_KEY_ID}}',
  'tablestore.access.key.secret' = '${{UPSERT_TABLESTORE_ACCESS_KEY_SECRET}}'"""
MAXCOMPUTE: Final = """'connector' = 'maxcompute', 'table.name' = '{table}', 'auto.create' = 'true',
  'odps.end.point' = '${{UPSERT_MAXCOMPUTE_ENDPOINT}}', 'odps.project.name' = '${{UPSERT_MAXCOMPUTE_PROJECT}}',
  'odps.access.id' = '${{UPSERT_MAXCOMPUTE_ACCESS_ID}}', 'odps.access.key' = '${{UPSERT_MAXCOMPUTE_ACCESS_KEY}}',
  'sink.operation' = 'upsert', 'upsert.write.bucket.num' = '4', 'sink.partition.move-rows' = 'true'"""


def declare(stack: Stack) -> None:
    """Tables in each system, a partitioned one, and a query that groups by and sums such columns."""
    text = f"CREATE TABLE things ({DECLARED}, {PRIMARY_KEY}) WITH ({KAFKA.format(topic=stack.topic)});\n"
    for name, options, more in (
        ("things_serving", TABLESTORE.format(table=stack.table), ""),
        ("things_warehouse", MAXCOMPUTE.format(table=stack.table), "PARTITIONED BY (`_partition_0`)"),
        ("things_copy", KAFKA.format(topic=f"{stack.topic}-copy") + ", 'auto.create' = 'true'", ""),
    ):
        text += f"CREATE TABLE {name} ({DECLARED}, {PRIMARY_KEY}) {more} WITH ({options});\n"
        text += f"INSERT INTO {name} SELECT * FROM things WHERE `_w` >= 0;\n"
    text += (
        "CREATE TABLE sums (`_bucket` STRING, `_count` BIGINT, `_rows` BIGINT, `_value` STRING, `_place` STRING,"
        f" PRIMARY KEY (`_bucket`) NOT ENFORCED) WITH ({TABLESTORE.format(table=stack.table + '_sums')});\n"
        "INSERT INTO sums SELECT `_bucket`, COUNT(DISTINCT `_w`), SUM(`_rows`), MAX(`_all`), MAX(`_gone`) FROM things"
        " GROUP BY `_bucket`;\n"
    )
    stack.project.mkdir(parents=True, exist_ok=True)
    (stack.project / "users.sql").write_text(text, "utf-8")


def row_of(number: int, version: int) -> dict[str, Any]:
    """A row in which no two columns have the same value."""
    row: dict[str, Any] = {"_last": number, "k0": f"key {number}"}
    row |= {name: at * 1000 + number * 7 + version for at, name in enumerate(NUMBERS)}
    row |= {name: f"{name} of {number}, {version}" for name in TEXTS}
    return row | {"_bucket": f"b{number % 3}", "_partition_0": f"p{(number + version) % 2}"}


class World:
    """What the topic says, kept by this test alone."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.rows: dict[int, dict[str, Any]] = {}
        self.producer = Producer(
            {"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], "log_level": 0}
        )

    def put(self, *numbers: int, version: int, **more: Any) -> None:
        for number in numbers:
            row = row_of(number, version) | more
            self.rows[number] = row
            self._send(number, json.dumps(row))

    def delete(self, number: int) -> None:
        del self.rows[number]
        self._send(number, None)

    def spoil(self, number: int) -> None:
        self._send(number, "{")

    def _send(self, number: int, value: str | None) -> None:
        key = json.dumps({"_last": number, "k0": f"key {number}"})
        self.producer.produce(self.stack.topic, key=key, value=value, partition=number % 4)
        self.producer.flush()

    def check(self) -> None:
        """Every table holds just these rows, as readers of their own tell."""
        wanted = sorted([row[name] for name in COLUMNS] for row in self.rows.values() if row["_w"] >= 0)
        variables, table = self.stack.variables, self.stack.table
        assert sorted(map(list, tablestore_table(variables, table, COLUMNS, tuple(KEY)))) == wanted
        assert sorted(map(list, maxcompute_table(variables, table, COLUMNS))) == wanted
        copied: dict[bytes | None, list[Any]] = {}
        for record in records_of(variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], f"{self.stack.topic}-copy"):
            copied.pop(record.key, None)
            if record.value is not None:
                found = json.loads(record.value)
                assert list(found) == list(COLUMNS)
                copied[record.key] = list(found.values())
        assert sorted(copied.values()) == wanted
        sums: dict[str, list[Any]] = {}
        for row in self.rows.values():
            one = sums.setdefault(row["_bucket"], [set(), 0, "", ""])
            one[0].add(row["_w"])
            one[1] += row["_rows"]
            one[2], one[3] = max(one[2], row["_all"]), max(one[3], row["_gone"])
        kinds = {"_bucket": "STRING", "_count": "BIGINT", "_rows": "BIGINT", "_value": "STRING", "_place": "STRING"}
        found_sums = sorted(map(list, tablestore_table(variables, f"{table}_sums", kinds, ("_bucket",))))
        assert found_sums == sorted([name, len(one[0]), *one[1:]] for name, one in sums.items())


def run(stack: Stack, job: str, *, local: bool, config: Any = None) -> None:
    project, problems = load(stack.project, root=str(stack.lake))
    assert not problems, problems
    spark = SparkResource(local_rows=1_000_000 if local else 0)
    definitions = build_definitions(project, platform=stack.platform(), spark=spark)
    done = definitions.resolve_job_def(job).execute_in_process(run_config=config, raise_on_error=False)
    # That a record is in quarantine is no fault of a table.
    checks = [item for item in done.get_asset_check_evaluations() if item.check_name != "quarantine_below"]
    failed = [item.check_name for item in checks if not item.passed]
    assert (done.success, failed) == (True, []), [
        str(event.event_specific_data) for event in done.all_events if event.is_failure
    ]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_columns_with_the_names_of_internal_ones_go_through_every_step(
    stack: Stack, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch by the driver's process, all else by Spark."""
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(stack.project))
    declare(stack)
    world = World(stack)
    world.put(*range(12), version=1)
    run(stack, "sync", local=True)
    world.check()
    world.put(*range(4, 9), version=2)
    world.put(9, version=2, _w=-1)
    world.delete(2)
    world.spoil(10)
    run(stack, "sync", local=False)
    world.check()
    run(stack, "compact", local=False)
    world.put(9, 10, 11, version=3)
    config = {"ops": {"replay_topic": {"config": {"table": "things"}}}}
    run(stack, "replay", local=False, config=config)
    with monkeypatch.context() as kept_open:
        kept_open.setattr("upsert_platform.spark.warm_session.open_session", lambda *_, **__: spark)
        kept_open.setattr(spark, "stop", lambda: None)
        done = CliRunner().invoke(main, ["quarantine", "replay", "things"])
    assert done.exit_code == 0, done.output
    del world.rows[5]
    erased = json.dumps({"_last": 5, "k0": "key 5"})
    code, told, text = run_erase(
        stack, spark, monkeypatch, "things", erased, "--leave", "sums", "--tombstone", "--json"
    )
    assert (code, told.get("left")) == (0, []), text
    run(stack, "sync", local=False)
    run(stack, "verify", local=False)
    world.check()
