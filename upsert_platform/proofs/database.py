"""Proves that a table equals the table of MySQL or MariaDB that it follows, while both are written.

The database is compared with the changelog, and the changelog with the destination. The server computes sums of hashes
of chunks of the primary key, each between two positions of its log (DBLog's watermarks). A chunk is equal where the
rows of the changelog at some position between the two have the same sum. The rows of other chunks are fetched and
compared key by key: a row is right if its key had that value between the two positions; a wrong one is so twice.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.changelog.head import commit_record, head_of_record
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.old_proofs import RESUMED
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.tables import file_system
from upsert_platform.core.errors import ChangelogError, DestinationError
from upsert_platform.core.masking import Mask
from upsert_platform.mysql.catalog import read_table
from upsert_platform.mysql.chunks import Chunk, find_chunks
from upsert_platform.mysql.connection import Connection
from upsert_platform.mysql.position import LogPosition
from upsert_platform.mysql.server_state import ServerLog, read_server_log
from upsert_platform.mysql.snapshot import SnapshotPart
from upsert_platform.mysql.table_source import MySqlTableSource
from upsert_platform.proofs.inputs import NotProvableError
from upsert_platform.proofs.pinned import PinnedTable
from upsert_platform.sync.binding import Target, changelog_of
from upsert_platform.sync.comparison import SHOWN_ROWS, Comparison
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.verify import check_everything

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from upsert_platform.changelog.head import Head
    from upsert_platform.changelog.store import ChangelogStore
    from upsert_platform.changelog.tables import TableLocation
    from upsert_platform.mysql.chunk_sums import ChunkTask, Load
    from upsert_platform.mysql.columns import MySqlTable
    from upsert_platform.mysql.proof_tasks import BucketSums, Places

_ROUND_CHUNKS: Final = 500
"""Chunks of a round, behind which a proof may be resumed."""
_MOST_DURING: Final = 200_000
"""Changes between the positions of chunks that are held at once; beyond, rows are fetched."""
_STATE: Final = "database.json"
_WRAP: Final = 1 << 64
"""Sums of hashes have no digits beyond."""
_FOUND_DDL: Final = "id BIGINT, number INT, status STRING, shown ARRAY<STRING>"


@dataclass(frozen=True)
class Differences:
    """Rows of a changelog that differ from those of the database.

    Attributes:
        rows: of the database that were compared.
        fetched: chunks, or buckets of keys, whose rows were fetched since their sums differ.
        examples: status, key and difference of some.
        through: up to where the log counts in all of the comparison.
    """

    rows: int = 0
    missing: int = 0
    extra: int = 0
    stale: int = 0
    chunks: int = 0
    fetched: int = 0
    examples: tuple[Mapping[str, str], ...] = ()
    through: LogPosition | None = None

    def plus(self, other: Differences, *, examples: int) -> Differences:
        """Return the sum of two, through the earlier position."""
        ends = [item.through for item in (self, other) if item.through is not None]
        return Differences(
            self.rows + other.rows,
            self.missing + other.missing,
            self.extra + other.extra,
            self.stale + other.stale,
            self.chunks + other.chunks,
            self.fetched + other.fetched,
            (*self.examples, *other.examples)[:examples],
            min(ends, key=LogPosition.order) if ends else None,
        )


@dataclass(frozen=True)
class DatabaseProof:
    """The result of a proof against the database.

    Attributes:
        stream: schema and table of the database.
        changelog: the database beside the changelog.
        destination: the changelog beside the destination, at the batch that this has applied.
        through: position of the log up to which both hold.
    """

    table: str
    stream: str
    changelog: Differences
    destination: Comparison
    through: LogPosition
    seconds: float = 0.0
    proven_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def missing(self) -> int:
        """Rows of the database that the changelog, or rows of the changelog that the destination does not have."""
        return self.changelog.missing + self.destination.missing

    @property
    def extra(self) -> int:
        """Rows that the database, or the changelog, does not have."""
        return self.changelog.extra + self.destination.extra

    @property
    def stale(self) -> int:
        """Rows with another value."""
        return self.changelog.stale + self.destination.stale

    @property
    def refused(self) -> int:
        """Rows that the destination refused, whose rows in it are not judged."""
        return self.destination.refused

    @property
    def expired(self) -> int:
        """Rows that the destination lacks, and may have let go of since they are too old."""
        return self.destination.expired

    @property
    def equal(self) -> bool:
        """Return whether nothing differs; refused and expired rows are not judged."""
        return not (self.missing or self.extra or self.stale)

    @property
    def examples(self) -> list[dict[str, str]]:
        """Some rows that differ, each with the side that has it wrong."""
        return [
            *({**row, "in": "changelog"} for row in self.changelog.examples),
            *({**row, "in": "destination"} for row in self.destination.sample),
        ]


def follows_database(target: Target) -> bool:
    """Return whether a table is written from a table of MySQL or MariaDB."""
    return isinstance(target.source, MySqlTableSource)


def prove_database(
    spark: SparkSession,
    target: Target,
    lake: Lake,
    *,
    max_threads: int | None = None,
    max_lag: float | None = None,
    resume: bool = False,
    examples: int = SHOWN_ROWS,
    tell: Callable[[str], None] = lambda message: None,
) -> DatabaseProof:
    """Compare a table with the database that it follows; write nothing into either, nor into the changelog.

    Args:
        max_threads: `Threads_running` of the server, above which the proof waits.
        max_lag: seconds that the server, if it is a replica, may be behind before the proof waits.
        resume: go on behind the last round that a killed proof of the table has finished.
        examples: rows that are described, of each side.
        tell: is given a line per round.

    Raises:
        NotProvableError: the table is not written from a table of a database.
        ReplicationError: the changelog is not consistent, or its position is not in the log.
        EndpointError: the server does not answer, or its load stays too high.
        DestinationError: the table holds nothing yet.
    """
    from upsert_platform.mysql.chunk_sums import Load

    started = time.monotonic()
    source = target.source
    if not isinstance(source, MySqlTableSource):
        raise NotProvableError(
            f"table '{target.table.name}' is written from '{source.table.name}', which is no table of MySQL or MariaDB:"
            f" 'upsert-platform prove {target.table.name}' compares it with its topics"
        )
    found = compare_database(
        spark, source, lake, load=Load(max_threads, max_lag), resume=resume, examples=examples, tell=tell
    )
    store = changelog_of(source, lake)
    with closing(target.open()) as destination:
        refused = RefusedStore(lake.refused(target.table.name))
        hop = DestinationHop(target, store, destination, refused=refused, run="proof")
        plan = hop.plan()
        applied, head = plan.state.applied_batch, plan.head
        if head is None or not applied:
            raise DestinationError(f"table '{target.table.name}': nothing was written to it yet; run job 'sync'")
        compared = check_everything(spark, hop, upto=applied)
    assert found.through is not None
    through = found.through
    if applied < head.batch:
        through = min(through, _position_of(store, source, head, applied), key=LogPosition.order)
    return DatabaseProof(
        target.table.name,
        source.stream,
        found,
        replace(compared, sample=compared.sample[:examples]),
        through,
        seconds=time.monotonic() - started,
    )


def compare_database(
    spark: SparkSession,
    source: MySqlTableSource,
    lake: Lake,
    *,
    load: Load,
    resume: bool = False,
    examples: int = SHOWN_ROWS,
    tell: Callable[[str], None] = lambda message: None,
) -> Differences:
    """Return how the changelog of a table differs from the database. Other arguments and errors as `prove_database`.

    Args:
        load: of the server, above which the proof waits.
    """
    return _DatabaseRun(spark, source, lake, load, examples, tell).compare(resume=resume)


def _position_of(store: ChangelogStore, source: MySqlTableSource, head: Head, batch: int) -> LogPosition:
    """Return the position of the log with which a batch of the changelog ends.

    Raises:
        ChangelogError: the changelog does not know the batch any more.
    """
    for commit in store.opened().history():
        record = commit_record(commit.get("userMetadata"))
        if record is not None and record["batch"] == batch:
            found = head_of_record(record, changelog_id=head.changelog_id, floor=head.floor)
            progress = source.progress(found.positions)
            if progress is not None:
                return progress.position
    raise ChangelogError(f"the changelog of '{store.table.name}' does not know batch {batch} any more; run job 'sync'")


class _DatabaseRun:
    """Compares a changelog with its table of the database, round by round."""

    def __init__(
        self,
        spark: SparkSession,
        source: MySqlTableSource,
        lake: Lake,
        load: Load,
        examples: int,
        tell: Callable[[str], None],
    ) -> None:
        from upsert_platform.mysql.proof_tasks import Places

        self._spark = spark
        self._source = source
        self._lake = lake
        self._examples = examples
        self._tell = tell
        self._connection = Connection(source.settings.server)
        found = read_table(self._connection, source.settings.database, source.settings.table)
        if found is None or found.primary_key != source.table.primary_key:
            raise NotProvableError(f"table {source.stream} is gone, or has another key than '{source.table.name}'")
        self._task = _task(source, found, lake, load)
        self._places = Places(self._task)

    def compare(self, *, resume: bool) -> Differences:
        """Return what differs. Closes its connection."""
        run = f"database-{uuid.uuid4().hex[:12]}"
        folder = self._lake.proof(self._source.table.name, run).changelog("log")
        state = _State(self._lake.proof(self._source.table.name, RESUMED).changelog("state"))
        with closing(self._connection.raw):
            store = changelog_of(self._source, self._lake)
            with closing(PinnedTable(self._spark, self._source, store, self._places, folder)) as pinned:
                pinned.require_there(read_server_log(self._connection))
                whole, after = (state.read() if resume else None) or (Differences(), None)
                ended = False
                while not ended:
                    found, after, ended = self._round(pinned, after)
                    whole = whole.plus(found, examples=self._examples)
                    if not ended and after is not None:
                        state.write(whole, after)
                    self._tell(f"{whole.rows:,} rows of {self._source.stream} compared, {whole.fetched} chunks fetched")
                state.clear()
                return whole

    def _round(
        self, pinned: PinnedTable, after: tuple[str, ...] | None
    ) -> tuple[Differences, tuple[str, ...] | None, bool]:
        """Compare the next chunks: what differs, the last key, and whether it was the last of the table."""
        from upsert_platform.mysql.proof_tasks import BucketSums

        if self._places.by_value:
            chunks, ended = find_chunks(
                self._connection,
                self._task.part.found,
                after=after,
                rows=self._source.settings.chunk_size,
                most=_ROUND_CHUNKS,
            )
            sums = self._in_tasks(list(enumerate(chunks)), "sums")
        else:
            chunks, ended = [Chunk(None, None)], True
            sums = self._in_one_task(BucketSums(self._task))
        log = read_server_log(self._connection)
        groups = [_Group.of(row, pinned, log) for row in sums]
        pinned.read_to(max((LogPosition.from_json(row["high"]) for row in sums), key=LogPosition.order))
        judging = _Judging(self._spark, pinned, self._places, chunks)
        differing = judging.differing(groups)
        found = Differences(
            rows=sum(group.rows for group in groups),
            chunks=len(groups),
            fetched=len(differing),
            through=min((LogPosition.from_json(row["low"]) for row in sums), key=LogPosition.order),
        )
        if differing:
            found = self._with_rows(pinned, judging, chunks, differing, found)
        return found, chunks[-1].upto, ended

    def _with_rows(
        self,
        pinned: PinnedTable,
        judging: _Judging,
        chunks: Sequence[Chunk],
        differing: Sequence[int],
        found: Differences,
    ) -> Differences:
        """Add the rows that differ in chunks, or buckets, whose sums do: those that differ in two looks."""
        wrong = self._look(pinned, judging, chunks, differing)
        numbers = sorted({row["number"] for row in wrong.select("number").distinct().collect()})
        if not numbers:
            return found
        again = self._look(pinned, judging, chunks, numbers).select("id", "status")
        wrong = wrong.join(again, ["id", "status"], "left_semi").localCheckpoint(eager=True)
        counts = {row["status"]: row["count"] for row in wrong.groupBy("status").count().collect()}
        return replace(
            found,
            missing=counts.get("missing", 0),
            extra=counts.get("extra", 0),
            stale=counts.get("stale", 0),
            examples=self._described(pinned, wrong),
        )

    def _look(
        self, pinned: PinnedTable, judging: _Judging, chunks: Sequence[Chunk], numbers: Sequence[int]
    ) -> DataFrame:
        """Fetch rows of chunks, or buckets, and return those that differ: `_FOUND_DDL`."""
        from pyspark.sql import functions as F

        from upsert_platform.mysql.chunk_sums import ROWS_DDL
        from upsert_platform.mysql.proof_tasks import BucketRows

        if self._places.by_value:
            frame = self._frame([(number, chunks[number]) for number in numbers], "rows", ROWS_DDL)
        else:
            task = BucketRows(self._task, frozenset(numbers))
            frame = self._spark.range(0, 1, 1, 1).mapInArrow(task, ROWS_DDL)
        fetched = frame.localCheckpoint(eager=True)
        bare = fetched.where(F.col("id").isNull()).select("number", "low", "high").collect()
        log = read_server_log(self._connection)
        ends = [(row, LogPosition.from_json(row["low"]), LogPosition.from_json(row["high"])) for row in bare]
        pinned.read_to(max((high for _, _, high in ends), key=LogPosition.order))
        marks = {row["number"]: (pinned.number_of(low, log), pinned.number_of(high, log)) for row, low, high in ends}
        return judging.wrong(fetched.where(F.col("id").isNotNull()), marks)

    def _described(self, pinned: PinnedTable, wrong: DataFrame) -> tuple[Mapping[str, str], ...]:
        rows = wrong.orderBy("status", "id").limit(self._examples).collect()
        # Of a missing row the changelog has nothing to show.
        of_changelog = [row["id"] for row in rows if row["status"] != "missing"]
        held = pinned.shown(of_changelog) if of_changelog else {}
        names, key = self._task.names, self._task.key
        described = []
        for row in rows:
            own, there = held.get(row["id"]), row["shown"]
            of_key = dict(zip(names, there or own or [None] * len(names), strict=True))
            differing = [
                f"{name}: expected {expected!r}, found {value!r}"
                for name, expected, value in zip(names, there or (), own or (), strict=False)
                if expected != value or name not in self._task.shown
            ]
            described.append(
                {
                    "status": row["status"],
                    "key": ", ".join(f"{name}={of_key[name]}" for name in key),
                    "difference": "; ".join(differing) if row["status"] == "stale" else "",
                }
            )
        return tuple(described)

    def _in_tasks(self, numbered: Sequence[tuple[int, Chunk]], what: str) -> list[Any]:
        from upsert_platform.mysql.chunk_sums import SUMS_DDL

        return self._frame(numbered, what, SUMS_DDL).collect()

    def _frame(self, numbered: Sequence[tuple[int, Chunk]], what: str, ddl: str) -> DataFrame:
        from upsert_platform.mysql.proof_tasks import OfChunks

        tasks = min(len(numbered), max(1, self._spark.sparkContext.defaultParallelism))
        shares = tuple(tuple(numbered[number::tasks]) for number in range(tasks))
        return self._spark.range(0, tasks, 1, tasks).mapInArrow(OfChunks(self._task, shares, what), ddl)

    def _in_one_task(self, task: BucketSums) -> list[Any]:
        from upsert_platform.mysql.chunk_sums import SUMS_DDL

        return self._spark.range(0, 1, 1, 1).mapInArrow(task, SUMS_DDL).collect()


def _task(source: MySqlTableSource, found: MySqlTable, lake: Lake, load: Load) -> ChunkTask:
    from upsert_platform.mysql.chunk_sums import ChunkTask

    declared = [column.name for column in source.table.columns]
    there = {column.name for column in found.columns}
    names = tuple(dict.fromkeys([*found.primary_key, *(name for name in declared if name in there)]))
    masked = Mask.of(source.table).columns
    part = SnapshotPart(source.settings, source.table, found, 0, 0, lake.changelog(source.table.name))
    return ChunkTask(part, names, load, frozenset(names).difference(masked))


@dataclass(frozen=True)
class _Group:
    """A chunk, or a bucket of keys, as the server has summed it up.

    Attributes:
        low, high: numbers of the positions between which it was read.
    """

    number: int
    rows: int
    total: int
    low: int
    high: int

    @staticmethod
    def of(row: Any, pinned: PinnedTable, log: ServerLog) -> _Group:
        low, high = (pinned.number_of(LogPosition.from_json(row[name]), log) for name in ("low", "high"))
        return _Group(row["number"], row["rows"], int(row["total"]), low, high)


class _Judging:
    """Compares what the server has told with the changelog and the log behind it."""

    def __init__(self, spark: SparkSession, pinned: PinnedTable, places: Places, chunks: Sequence[Chunk]) -> None:
        from upsert_platform.mysql.proof_tasks import Numbering

        self._spark = spark
        self._pinned = pinned
        bias = places.task.bias if places.by_value else 0
        last = (1 << 63) - 1
        uppers = tuple(last if chunk.upto is None else int(chunk.upto[0]) - bias for chunk in chunks)
        first = chunks[0].after
        after = None if first is None else int(first[0]) - bias
        self._numbering = Numbering(uppers if places.by_value else None, after)
        above = [] if after is None else [f"place > {after}"]
        below = [f"place <= {uppers[-1]}"] if places.by_value else []
        self._inside = " AND ".join([*above, *below]) or "TRUE"

    def _numbered(self, frame: DataFrame) -> DataFrame:
        from upsert_platform.mysql.proof_tasks import STATES_DDL

        return frame.where(self._inside).mapInArrow(self._numbering, f"{STATES_DDL}, number INT")

    def differing(self, groups: Sequence[_Group]) -> list[int]:
        """Return the numbers of those whose sums the changelog has at no position between theirs."""
        base = {group.number: [0, 0] for group in groups}
        summed = self._pinned.base.where(self._inside).mapInArrow(
            replace(self._numbering, sums=True), "number INT, rows BIGINT, total DECIMAL(20, 0)"
        )
        for row in summed.collect():
            base[row["number"]][0] += row["rows"]
            base[row["number"]][1] += int(row["total"])
        earlier, during = self._changes(groups)
        for row in earlier:
            base[row["number"]][0] += row["rows"]
            base[row["number"]][1] += int(row["total"])
        if len(during) > _MOST_DURING:
            busy = {row["number"] for row in during}
            return sorted(busy | {group.number for group in groups if not _matches(group, base[group.number], [])})
        steps: dict[int, list[tuple[int, int]]] = {}
        for row in during:
            steps.setdefault(row["number"], []).append(_step(row))
        return [
            group.number for group in groups if not _matches(group, base[group.number], steps.get(group.number, []))
        ]

    def _changes(self, groups: Sequence[_Group]) -> tuple[list[Any], list[Any]]:
        """Return sums of the changes before each group's low position, and the changes up to its high one."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        from upsert_platform.mysql.proof_tasks import STATES_DDL

        log = self._pinned.log().where(self._inside).persist()
        try:
            if log.isEmpty():
                return [], []
            changed = log.select("id").distinct()
            before = self._pinned.base.where(self._inside).join(changed, "id", "left_semi").select(*log.columns)
            order = Window.partitionBy("id").orderBy("n", "r")
            every = before.unionByName(log).withColumn("prev", F.lag("hash").over(order))
            placed = every.where("n >= 0").mapInArrow(self._numbering, f"{STATES_DDL}, prev BIGINT, number INT")
            marks = self._spark.createDataFrame(
                [(group.number, group.low, group.high) for group in groups], "number INT, low BIGINT, high BIGINT"
            )
            changes = placed.join(F.broadcast(marks), "number").where("n <= high").persist()
            weight = "CASE WHEN {0} IS NULL THEN 0 ELSE 1 END"
            value = "CAST(COALESCE({0}, 0) AS DECIMAL(20, 0))"
            earlier = (
                changes.where("n <= low")
                .groupBy("number")
                .agg(
                    F.sum(F.expr(f"{weight.format('hash')} - {weight.format('prev')}")).alias("rows"),
                    F.sum(F.expr(f"{value.format('hash')} - {value.format('prev')}")).alias("total"),
                )
            )
            during = changes.where("n > low").orderBy("number", "n", "r").limit(_MOST_DURING + 1)
            found = earlier.collect(), during.select("number", "hash", "prev").collect()
            changes.unpersist()
            return found
        finally:
            log.unpersist()

    def wrong(self, fetched: DataFrame, marks: Mapping[int, tuple[int, int]]) -> DataFrame:
        """Return the rows that differ: `_FOUND_DDL`.

        Args:
            fetched: rows of the database, of all keys of the numbers in `marks`.
            marks: number to the positions between which it was read.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        bounds = self._spark.createDataFrame(
            [(number, low, high) for number, (low, high) in marks.items()], "number INT, low BIGINT, high BIGINT"
        )
        # A key has one place, so rows of other numbers play no part.
        log = self._numbered(self._pinned.log()).join(F.broadcast(bounds), "number").persist()
        base = self._numbered(self._pinned.base).join(F.broadcast(bounds), "number").persist()
        try:
            born = log.join(base.select("id"), "id", "left_anti").select("id", "place", *bounds.columns).distinct()
            none = born.selectExpr("id", "place", "-1L AS n", "0 AS r", "CAST(NULL AS BIGINT) AS hash", *bounds.columns)
            states = base.unionByName(log).unionByName(none)
            order = Window.partitionBy("id").orderBy("n", "r")
            valid = (
                states.withColumn("until", F.lead("n").over(order))
                .where("n <= high AND (until IS NULL OR until > low)")
                .groupBy("id", "number")
                .agg(
                    F.collect_set("hash").alias("hashes"),
                    F.max(F.col("hash").isNull()).alias("absent"),
                    F.max_by("hash", F.struct("n", "r")).alias("last"),
                )
            )
            there = fetched.selectExpr("id", "number AS there", "hash", "shown")
            joined = valid.join(there, "id", "full_outer")
            right = F.when(F.col("hash").isNull(), F.coalesce(F.col("absent"), F.lit(True))).otherwise(
                F.coalesce(F.array_contains("hashes", F.col("hash")), F.lit(False))
            )
            status = F.when(F.col("hash").isNull(), "extra").when(F.col("last").isNull(), "missing").otherwise("stale")
            found = joined.where(~right).select(
                "id", F.coalesce("number", "there").alias("number"), status.alias("status"), "shown"
            )
            return found.localCheckpoint(eager=True)
        finally:
            log.unpersist()
            base.unpersist()


def _step(row: Any) -> tuple[int, int]:
    rows = (row["hash"] is not None) - (row["prev"] is not None)
    return rows, (row["hash"] or 0) - (row["prev"] or 0)


def _matches(group: _Group, base: Sequence[int], steps: Sequence[tuple[int, int]]) -> bool:
    """Return whether the changelog has the server's sum before the first of some changes, or behind one of them."""
    rows, total = base
    if (rows, total % _WRAP) == (group.rows, group.total):
        return True
    for more, value in steps:
        rows, total = rows + more, total + value
        if (rows, total % _WRAP) == (group.rows, group.total):
            return True
    return False


class _State:
    """The differences that a proof has found so far, kept behind every round."""

    def __init__(self, location: TableLocation) -> None:
        self._location = location

    def read(self) -> tuple[Differences, tuple[str, ...]] | None:
        """Return the differences found and the last key, or None where no proof was broken off."""
        system, folder = file_system(self._location)
        try:
            with system.open_input_file(f"{folder}{_STATE}") as file:
                held = json.loads(file.read())
        except FileNotFoundError:
            return None
        found = held["found"]
        found["through"] = LogPosition(**found["through"])
        return Differences(**{**found, "examples": tuple(found["examples"])}), tuple(held["after"])

    def write(self, found: Differences, after: tuple[str, ...]) -> None:
        """Keep them."""
        system, folder = file_system(self._location)
        system.create_dir(folder.rstrip("/"), recursive=True)
        with system.open_output_stream(f"{folder}{_STATE}") as file:
            file.write(json.dumps({"found": asdict(found), "after": after}).encode())

    def clear(self) -> None:
        """Forget them."""
        system, folder = file_system(self._location)
        try:
            system.delete_file(f"{folder}{_STATE}")
        except FileNotFoundError:
            return
