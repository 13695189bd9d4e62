"""A world: a topic of packed histories, a project that keeps several tables equal to it, and what goes wrong there."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from upsert_platform.changelog import compaction
from upsert_platform.changelog.accounting import total
from upsert_platform.changelog.quarantine import quarantined_records
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.kafka.sink.destination import KafkaDestination
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.referee.last_values import LastValues
from upsert_platform.referee.selection import Selection
from upsert_platform.referee.stores import topic_rows
from upsert_platform.referee.verdict import Verdict, judge
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.replay import replay
from upsert_platform.tablestore.destination import TablestoreDestination
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.local.maxcompute.server import ServerHandle as MaxComputeServer
from upsert_platform_tests.local.tablestore.server import ServerHandle as TablestoreServer
from upsert_platform_tests.referee.judging import Declared, maxcompute_table, records_of, tablestore_table
from upsert_platform_tests.soak.history_records import COLUMNS, ENCODINGS, Histories
from upsert_platform_tests.soak.modes import MODES, Mode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_SECONDS: Final = 240.0


class KilledError(Exception):
    """Stands for the end of the process at some point."""


POINTS: Final[tuple[tuple[type, str], ...]] = (
    (ChangelogStore, "append"),
    (TopicSource, "publish"),
    (TablestoreDestination, "write"),
    (MaxComputeDestination, "write"),
    (KafkaDestination, "write"),
)
"""Methods before and behind which a process may end."""


@dataclass
class World:
    """A topic and the tables that are kept equal to it.

    Attributes:
        format: of the topic.
        spark: the session of what is done in this process; None where only the command is run.
        modes: of the tables, by name of the table.
        source: further options of the topic's table, changed as its declaration is.
        counts: what was done.
    """

    stack: Stack
    spark: SparkSession | None
    tablestore: TablestoreServer
    maxcompute: MaxComputeServer
    format: str
    modes: Mapping[str, str]
    histories: Histories
    chance: random.Random
    source: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def declare(self) -> None:
        """Writes the project as it is by now."""
        encoding = ENCODINGS[self.format]
        names = ("id", *(name for name in encoding.columns if name != "id"))
        self.columns = {name: COLUMNS[name] for name in names}
        if self.histories.extra:
            self.columns["extra"] = "STRING"
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        options = {"key.format": self.format, "value.format": self.format, **encoding.options, **self.source}
        given = "".join(f", '{name}' = '{value}'" for name, value in options.items())
        text = (
            f"CREATE TABLE source ({columns}, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',"
            f" 'topic' = '{self.stack.topic}', 'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}'"
            f"{given});\n"
        )
        for name, mode_name in self.modes.items():
            mode = MODES[mode_name]
            place = f"'{'topic' if mode.system == 'kafka' else 'table.name'}' = '{self.place(name)}'"
            more = f", 'sink.transactional-id-prefix' = '{self.place(name)}'" if "exactly" in mode_name else ""
            partitioned = " PARTITIONED BY (ds)" if mode.partitioned else ""
            text += (
                f"CREATE TABLE {name} ({columns}, PRIMARY KEY (id) NOT ENFORCED){partitioned}"
                f" WITH ({mode.options}, {place}{more});\n"
                f"INSERT INTO {name} SELECT {', '.join(self.columns)} FROM source{mode.where[0]};\n"
            )
        self.stack.project.mkdir(exist_ok=True)
        (self.stack.project / "world.sql").write_text(text, "utf-8")

    def place(self, name: str) -> str:
        """Name of a table in its system."""
        return f"{self.stack.table}_{name}"

    def sync(self, *, tables: tuple[str, ...] | None = None, may_fail: bool) -> None:
        """Runs both hops of every table, or of some."""
        assert self.spark is not None
        platform = self.stack.platform()
        run = f"world-{uuid.uuid4().hex[:8]}"
        with self._tolerant("changelog", may_fail=may_fail):
            hop = platform.changelog_hop("source", run=run)
            plan = hop.plan()
            if plan.backlog:
                done = hop.execute(self._session(), plan)
                self.counts["batches"] += done.batches
        for name in self.modes if tables is None else tables:
            with self._tolerant(self.modes[name], may_fail=may_fail):
                hop2 = platform.destination_hop(name, run=run)
                try:
                    wanted = hop2.plan()
                    if wanted.behind:
                        hop2.execute(self._session(), wanted)
                        self.counts["writes"] += 1
                finally:
                    hop2.destination.close()

    def _session(self) -> OnDemand:
        """Spark for everything, or only for what is more than little."""
        spark = self.spark
        assert spark is not None
        if self.chance.random() < 0.5:
            self.counts["steps by Spark"] += 1
            return OnDemand.dividing(spark)
        self.counts["steps by this process or Spark"] += 1

        def opened() -> SparkSession:
            self.counts["of these, asked for Spark"] += 1
            return spark

        return OnDemand(opened)

    @contextmanager
    def _tolerant(self, doing: str, *, may_fail: bool) -> Iterator[None]:
        try:
            yield
        except (UpsertPlatformError, KilledError) as error:
            if not may_fail:
                raise AssertionError(f"{doing}: {error}") from error
            self.counts["killed steps" if isinstance(error, KilledError) else "failed steps"] += 1

    def settle(self) -> None:
        """Runs without faults until every table has every batch."""
        self.tablestore.faults()
        self.maxcompute.faults()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self.sync(may_fail=False)
            except AssertionError as error:
                if "lease" not in str(error) or time.monotonic() > deadline:
                    raise

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Lets servers fail, and the process end somewhere, until the block ends."""
        kind = self.chance.choice(("none", "tablestore", "maxcompute", "point", "point"))
        self.counts[f"faults: {kind}"] += kind != "none"
        with ExitStack() as held:
            if kind == "tablestore":
                self.tablestore.faults(*self._tablestore_rules())
                held.callback(self.tablestore.faults)
            elif kind == "maxcompute":
                self.maxcompute.faults(*self._maxcompute_rules())
                held.callback(self.maxcompute.faults)
            elif kind == "point":
                held.enter_context(self._ending())
            yield

    def _tablestore_rules(self) -> list[str]:
        kinds = ("cut-before:", "cut-after:", "error:code=OTSServerBusy,", "bad-gateway:")
        often = self.chance.choice((0.05, 0.3))
        return [f"{kind}probability={often},times=40" for kind in self.chance.sample(kinds, 2)]

    def _maxcompute_rules(self) -> list[dict[str, Any]]:
        action = self.chance.choice(("drop", "drop-after", "answer", "answer-after"))
        rule = {
            "operation": "*",
            "action": action,
            "skip": self.chance.randint(0, 40),
            "times": self.chance.randint(1, 6),
        }
        if action.startswith("answer"):
            rule |= self.chance.choice(({"status": 500}, {"status": 502, "code": "html"}, {"status": 429}))
        return [rule]

    def _ending(self) -> Any:
        """A patch with which the process ends before or behind a method, at one of its next calls."""
        owner, name = self.chance.choice(POINTS)
        late, calls = self.chance.random() < 0.5, self.chance.randrange(2)
        real: Callable[..., Any] = getattr(owner, name)

        def ending(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls -= 1
            if calls < 0 and not late:
                raise KilledError(f"before {name}")
            found = real(*arguments, **named)
            if calls < 0:
                raise KilledError(f"behind {name}")
            return found

        return patch.object(owner, name, ending)

    def compact(self) -> None:
        """Compacts the changelog, as the job does."""
        assert self.spark is not None
        platform = self.stack.platform()
        applied = []
        for name in self.modes:
            hop = platform.destination_hop(name, run="compaction")
            applied.append(hop.plan().state.applied_batch)
            hop.destination.close()
        store = platform.changelog_hop("source", run="compaction").store
        if store.head() is not None and compaction.is_worthwhile(store, applied_everywhere=min(applied)):
            compaction.compact(self.spark, store, applied_everywhere=min(applied))
            self.counts["compactions"] += 1

    def replay(self) -> None:
        """Replays the quarantine, as the command does."""
        assert self.spark is not None
        hop = self.stack.platform().changelog_hop("source", run="replay")
        done = replay(self.spark, hop.source, hop.store, run="replay")
        self.counts["replays"] += 1
        self.counts["replayed records"] += done.replayed
        self.counts["records overtaken when replayed"] += done.superseded

    def widen(self) -> None:
        """Adds partitions; keys go to others from then on."""
        from confluent_kafka.admin import AdminClient, NewPartitions

        histories = self.histories
        histories.partitions += self.chance.randint(1, 2)
        admin = AdminClient({"bootstrap.servers": histories.bootstrap})
        admin.create_partitions([NewPartitions(histories.topic, histories.partitions)])[histories.topic].result(30)
        self.counts["widened topics"] += 1

    def declared(self) -> Declared:
        """The topic's table for the referee."""
        encoding = ENCODINGS[self.format]
        given = {**encoding.options, **self.source}
        without_key = given.get("value.fields-include") == "EXCEPT_KEY"
        names = tuple(name for name in self.columns if name != "id" or not without_key)
        options = {
            name.removeprefix("value."): value
            for name, value in given.items()
            if name.startswith(f"value.{self.format}.")
        }
        return Declared(self.columns, ("id",), self.format, names, value_options=options)

    def judge(self) -> dict[str, Verdict]:
        """What the referee says of every table."""
        store = self.stack.platform().changelog_hop("source", run="judge").store
        head = store.head()
        assert head is not None
        ends: dict[tuple[str, int], int] = {}
        batches = []
        for _, accounts in sorted(store.accounts(after=0, upto=head.batch).items()):
            for item in accounts:
                if item.partition >= 0:  # split ranges of a partition come in any order
                    ends[item.topic, item.partition] = max(item.end, ends.get((item.topic, item.partition), 0))
            batches.append(dict(ends))
        declared = self.declared()
        bootstrap = self.histories.bootstrap
        last = declared.last_values(records_of(bootstrap, self.stack.topic), batches=batches)
        try:
            found = {}
            for name, mode_name in self.modes.items():
                mode = MODES[mode_name]
                nulls = {"ds": "__DEFAULT_PARTITION__"} if mode.partitioned else {}
                selection = Selection(declared.whole().columns, mode.where[1], nulls)
                found[name] = judge(last, self._rows(name, mode), declared.target, selection)
        finally:
            last.close()
        self._check_accounts(store, head.batch, last)
        return found

    def explain(self, key: str) -> list[str]:
        """What the topic and the changelog have of a key, as the referee tells it: for whoever repeats the world."""
        import pyarrow.compute as pc

        number = int(json.loads(key)[0])
        lines = [
            f"  {record.partition}@{record.offset} {record.time}: {record.key!r} {record.value!r}"
            for record in records_of(self.histories.bootstrap, self.stack.topic)
            if self.histories.sent[record.partition][record.offset].key == number
        ]
        store = self.stack.platform().changelog_hop("source", run="explain").store
        columns = ["_batch", "_kind", "_partition", "_offset", *self.columns]
        rows = store.dataset().to_table(columns=columns, filter=pc.field("id") == number)
        return [*lines, *(f"  changelog: {list(row.values())}" for row in rows.to_pylist())]

    def _rows(self, name: str, mode: Mode) -> Iterator[list[Any]]:
        variables, place = self.stack.variables, self.place(name)
        if mode.system == "tablestore":
            yield from tablestore_table(variables, place, self.columns, ["id"])
        elif mode.system == "maxcompute":
            yield from maxcompute_table(variables, place, self.columns)
        else:
            held: LastValues = Declared(self.columns, ("id",)).last_values(records_of(self.histories.bootstrap, place))
            yield from topic_rows(held, list(self.columns))
            held.close()

    def _check_accounts(self, store: ChangelogStore, batch: int, last: LastValues) -> None:
        """Every offset is accounted for once, and what is in quarantine is what cannot be decoded, unless overtaken."""
        accounts = [item for items in store.accounts(after=0, upto=batch).values() for item in items]
        parts = [item for item in accounts if item.partition >= 0]
        for partition in self.histories.sent:
            ranges = sorted((item.start, item.end) for item in parts if item.partition == partition and item.offsets)
            assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
        summed = total(parts)
        records = sum(map(len, self.histories.sent.values()))
        assert summed.records == records == last.counts.records
        skipped = sum(count for _, count in summed.skipped)
        assert summed.kept + summed.superseded + summed.quarantined + skipped == records
        found = quarantined_records(store)
        for partition, offset in zip(found["_partition"].to_pylist(), found["_offset"].to_pylist(), strict=True):
            assert not self.histories.sent[partition][offset].good, f"{partition}@{offset} is in quarantine"
        self.counts["records in quarantine"] += found.num_rows


def make_world(
    path: Path,
    variables: Mapping[str, str],
    servers: tuple[TablestoreServer, MaxComputeServer],
    make_topic: Callable[..., str],
    spark: SparkSession | None,
    *,
    chance: random.Random,
    format_id: str,
    modes: list[str],
    count: int,
) -> World:
    """A world of random settings, declared, its topic empty."""
    partitions = chance.randint(1, 4)
    # The times of records are old, and may go back.
    topic = make_topic(name=f"world-{uuid.uuid4().hex[:8]}", partitions=partitions, config={"retention.ms": "-1"})
    stack = Stack(path, variables, topic)
    missing = format_id == "json" and chance.random() < 0.5
    aborted = chance.choice((0.0, 0.0, 0.3))
    encoding = ENCODINGS[format_id]
    bootstrap = variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]
    histories = Histories(bootstrap, topic, encoding, chance, count, partitions, missing=missing, aborted=aborted)
    source = {"scan.buffer-bytes": chance.choice(("64 kb", "64 kb", "8 mb"))}
    source |= chance.choice(({}, {"scan.parallelism": str(chance.choice((2, 3)))}))
    source |= chance.choice(({}, {"batch.max-records": str(chance.choice((count, count * 3)))}))
    if missing:
        source["value.json.fail-on-missing-field"] = "true"
        source["value.fields-include"] = "EXCEPT_KEY"
    names = {f"t{number}": mode for number, mode in enumerate(modes)}
    world = World(stack, spark, *servers, format_id, names, histories, chance, source)
    world.declare()
    return world
