"""Chunks of a table between two positions of the log, as sums of hashes or as rows. Runs in Spark's tasks.

The rows of a chunk are those of some moment between a low and a high position (DBLog's watermarks): what the log says
up to the low one is visible to the SELECT, and nothing behind the high one is. A server writes a transaction into its
log first and shows it later, so the low position is one of which all is shown; see `server_state.await_visible`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from upsert_platform.core.errors import EndpointError
from upsert_platform.mysql.binlog.stream import log_status
from upsert_platform.mysql.canonical import hash_sql, row_hashes, server_value, sum_of, wrapped
from upsert_platform.mysql.chunks import WHOLE_NUMBERS, Chunk, condition, find_chunks, table_name
from upsert_platform.mysql.connection import Connection
from upsert_platform.mysql.landing import Landing
from upsert_platform.mysql.position import LogPosition
from upsert_platform.mysql.server_state import SETTLE_SECONDS, await_visible, snapshot_end, waiting_sessions
from upsert_platform.mysql.snapshot import SnapshotPart

if TYPE_CHECKING:
    from upsert_platform.mysql.text_values import TextReader

SUMS_DDL: Final = "number INT, rows BIGINT, total DECIMAL(20, 0), low STRING, high STRING"
ROWS_DDL: Final = "number INT, id BIGINT, hash BIGINT, shown ARRAY<STRING>, low STRING, high STRING"
BUCKETS: Final = 4096
_PAUSE: Final = 0.5
_LONGEST_WAIT: Final = 600.0


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a server above which a proof waits.

    Attributes:
        threads: `Threads_running`; None: not looked at.
        lag: seconds that a replica may be behind; None: not looked at.
    """

    threads: int | None = None
    lag: float | None = None

    def wait(self, connection: Connection) -> None:
        """Return when the server's load is below.

        Raises:
            EndpointError: it stays above for ten minutes.
        """
        deadline = time.monotonic() + _LONGEST_WAIT
        while (above := self._above(connection)) is not None:
            if time.monotonic() > deadline:
                raise EndpointError(f"MySQL server {connection.server}: {above} for {_LONGEST_WAIT:.0f} s; prove later")
            time.sleep(_PAUSE)

    def _above(self, connection: Connection) -> str | None:
        if self.threads is not None:
            running = int(connection.query("SHOW GLOBAL STATUS LIKE 'Threads_running'")[0][1])
            if running > self.threads:
                return f"{running} threads run, above --max-load {self.threads}"
        if self.lag is not None:
            lag = replica_lag(connection)
            if lag is not None and lag > self.lag:
                return f"the replica is {lag:.0f} s behind, above --max-lag {self.lag:g}s"
        return None


def replica_lag(connection: Connection) -> float | None:
    """Return the seconds that a server is behind the one that it follows; None of a server that follows none."""
    word = "SHOW ALL SLAVES STATUS" if connection.is_mariadb() else "SHOW REPLICA STATUS"
    import pymysql

    with connection.raw.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute(word)
        found = cursor.fetchall()
    lags = [row.get("Seconds_Behind_Source", row.get("Seconds_Behind_Master")) for row in found]
    known = [float(lag) for lag in lags if lag is not None]
    return max(known) if known else None


class Marks:
    """Positions of the log as the server reports them, and which of them every new SELECT sees."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = log_status(connection)
        self._tells = connection.is_mariadb()
        self._seen: deque[tuple[float, LogPosition]] = deque()
        await_visible(connection, self.now())

    def now(self) -> LogPosition:
        """Return the end of the log."""
        row = self._connection.query(self._sql)[0]
        found = LogPosition(str(row[0]), int(row[1]))
        self._seen.append((time.monotonic(), found))
        return found

    def visible(self) -> LogPosition:
        """Return a position up to which a SELECT that begins now sees everything."""
        if self._tells:
            return snapshot_end(self._connection)
        since = time.monotonic() - SETTLE_SECONDS
        if len(self._seen) > 1 and self._seen[1][0] <= since and not waiting_sessions(self._connection):
            while len(self._seen) > 1 and self._seen[1][0] <= since:
                self._seen.popleft()
        return self._seen[0][1]


@dataclass(frozen=True)
class ChunkTask:
    """The inputs of tasks that look at a table. Travels inside of their functions, for it holds the password.

    Attributes:
        names: columns that are compared, in their order.
        shown: how a row's columns are shown: names that are not masked.
    """

    part: SnapshotPart
    names: tuple[str, ...]
    load: Load
    shown: frozenset[str] = frozenset()

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the primary key columns."""
        return self.part.found.primary_key

    @property
    def json(self) -> tuple[str, ...]:
        """Names of columns of the server's JSON type."""
        return tuple(column.name for column in self.part.found.columns if column.kind == "json")

    def server_hash(self) -> str | None:
        """Return the SQL of a row's hash; None where rows have to be fetched for it."""
        return self._hash_of(self.names)

    def _hash_of(self, names: Sequence[str]) -> str | None:
        found = {column.name: column for column in self.part.found.columns}
        kinds = Landing(self.part.table, "").schema
        values = [server_value(found[name], kinds.field(name).type) for name in names]
        return None if None in values else hash_sql([value for value in values if value is not None])

    def sums(self, chunks: Sequence[tuple[int, Chunk]]) -> Iterator[pa.RecordBatch]:
        """Yield rows and sum of each chunk: `SUMS_DDL`."""
        hashed = self.server_hash()
        with Connection(self.part.settings.server) as connection:
            marks = Marks(connection)
            for number, chunk in chunks:
                self.load.wait(connection)
                marks.now()
                low = marks.visible()
                if hashed is None:
                    count, total = self._fetched_sum(connection, chunk)
                else:
                    where = condition(self.part.found, chunk)
                    sql = f"SELECT COUNT(*), COALESCE(SUM({hashed}), 0) FROM {table_name(self.part.found)}{where}"
                    ((count, total),) = connection.query(sql)
                yield _sums([(number, int(count), wrapped(int(total)))], low, marks.now())

    def bucket_sums(self) -> Iterator[pa.RecordBatch]:
        """Yield rows and sum of each bucket of keys, all of them of one moment: `SUMS_DDL`.

        One transaction reads the chunks, so that they show the table at one moment, whatever the order of keys is.
        """
        hashed, keys = self.server_hash(), self._hash_of(self.key)
        rows, totals = np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.uint64)
        found = self.part.found
        with Connection(self.part.settings.server) as connection:
            marks = Marks(connection)
            low = marks.visible()
            connection.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            high = marks.now()
            after, ended = None, False
            while not ended:
                self.load.wait(connection)
                chunks, ended = find_chunks(connection, found, after=after, rows=self.part.settings.chunk_size, most=1)
                for chunk in chunks:
                    after = chunk.upto
                    if hashed is None or keys is None:
                        for batch in self._rows(connection, chunk):
                            buckets = self.ids(batch) % np.uint64(BUCKETS)
                            np.add.at(rows, buckets, 1)
                            np.add.at(totals, buckets, self.hashes(batch))
                        continue
                    sql = (
                        f"SELECT {keys} % {BUCKETS} AS bucket, COUNT(*), COALESCE(SUM({hashed}), 0)"
                        f" FROM {table_name(found)}{condition(found, chunk)} GROUP BY bucket"
                    )
                    for bucket, count, total in connection.query(sql):
                        rows[int(bucket)] += int(count)
                        totals[int(bucket)] += np.uint64(wrapped(int(total)))
        every = zip(range(BUCKETS), rows.tolist(), totals.tolist(), strict=True)
        yield _sums(list(every), low, high)

    def rows(
        self, chunks: Sequence[tuple[int, Chunk]], *, buckets: frozenset[int] = frozenset()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of chunks with their hashes: `ROWS_DDL`.

        Behind the rows of a chunk there is one without an id, or one per bucket, with the positions between which they
        were read.

        Args:
            buckets: only rows of these buckets of keys, which are their numbers then.
        """
        with Connection(self.part.settings.server) as connection:
            marks = Marks(connection)
            for number, chunk in chunks:
                self.load.wait(connection)
                marks.now()
                low = marks.visible()
                for every in self._rows(connection, chunk):
                    batch = self._of_buckets(every, buckets)
                    ids = self.ids(batch)
                    numbers = ids % np.uint64(BUCKETS) if buckets else np.full(batch.num_rows, number)
                    yield _looked_at(self, batch, numbers)
                yield _bare(sorted(buckets) or [number], low, marks.now())

    def _of_buckets(self, batch: pa.RecordBatch, buckets: frozenset[int]) -> pa.RecordBatch:
        if not buckets:
            return batch
        wanted = np.isin((self.ids(batch) % np.uint64(BUCKETS)).astype(np.int64), list(buckets))
        return batch.filter(pa.array(wanted))

    def _fetched_sum(self, connection: Connection, chunk: Chunk) -> tuple[int, int]:
        rows, total = 0, 0
        for batch in self._rows(connection, chunk):
            rows, total = rows + batch.num_rows, wrapped(total + sum_of(self.hashes(batch)))
        return rows, total

    def _rows(self, connection: Connection, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """The declared columns of a chunk's rows, in their types."""
        from upsert_platform.mysql.row_packets import read_rows

        landing = Landing(self.part.table, self.part.found.full_name)
        readers = self._readers()
        sql = f"SELECT {', '.join(reader.select for reader in readers)} FROM {table_name(self.part.found)}"
        for block in read_rows([connection], [sql + condition(self.part.found, chunk)], readers):
            yield landing.snapshot(block, offset=0, first=0)

    def _readers(self) -> list[TextReader]:
        from upsert_platform.mysql.text_values import text_reader

        rules = self.part.settings.type_rules
        by_name = {column.name: column for column in self.part.found.columns}
        return [text_reader(by_name[name], rules, table=self.part.found.full_name) for name in self.names]

    def hashes(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return the hash of each row over the columns that are compared."""
        return row_hashes(batch, self.names, spaced=self.json, rules=self.part.settings.type_rules)

    @property
    def by_value(self) -> bool:
        """Return whether the key is one whole number, so that this process orders keys as the server does."""
        kinds = {column.name: column.kind for column in self.part.found.columns}
        return len(self.key) == 1 and kinds[self.key[0]] in WHOLE_NUMBERS

    @property
    def bias(self) -> int:
        """Return what is taken off a key that is a whole number, for 64 bits with a sign to hold BIGINT UNSIGNED."""
        column = next(item for item in self.part.found.columns if item.name == self.key[0])
        return 1 << 63 if column.kind == "bigint" and column.unsigned else 0

    def numbers(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return the keys that are whole numbers, less `bias`, in their order: ``int64``."""
        values = batch.column(self.key[0])
        if self.bias:
            biased = values.cast(pa.uint64()).to_numpy(zero_copy_only=False) ^ np.uint64(self.bias)
            return biased.view(np.int64)
        return values.cast(pa.int64()).to_numpy(zero_copy_only=False)

    def ids(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return 64 bits that stand for each row's key: its number, or the hash that the server has of it."""
        if self.by_value:
            return self.numbers(batch).view(np.uint64)
        return row_hashes(batch, self.key, spaced=self.json, rules=self.part.settings.type_rules)

    def texts(self, batch: pa.RecordBatch) -> pa.Array:
        """Return what is shown of each row: its columns as texts, masked ones left out."""
        lines = []
        for name in self.names:
            texts = _text(batch.column(name)).to_pylist()
            lines.append(texts if name in self.shown else [None if text is None else "***" for text in texts])
        return pa.array([list(row) for row in zip(*lines, strict=True)], pa.list_(pa.string()))


def _text(values: pa.Array) -> pa.Array:
    if pa.types.is_binary(values.type):
        return pa.array([None if value is None else f"0x{value.hex()}" for value in values.to_pylist()], pa.string())
    return values.cast(pa.string())


def _sums(found: Sequence[tuple[int, int, int]], low: LogPosition, high: LogPosition) -> pa.RecordBatch:
    from decimal import Decimal

    count = len(found)
    return pa.record_batch(
        {
            "number": pa.array([item[0] for item in found], pa.int32()),
            "rows": pa.array([item[1] for item in found], pa.int64()),
            "total": pa.array([Decimal(item[2]) for item in found], pa.decimal128(20, 0)),
            "low": pa.array([low.to_json()] * count),
            "high": pa.array([high.to_json()] * count),
        }
    )


def _bare(numbers: Sequence[int], low: LogPosition, high: LogPosition) -> pa.RecordBatch:
    """Rows that say between which positions chunks were read."""
    count = len(numbers)
    return pa.record_batch(
        {
            "number": pa.array(numbers, pa.int32()),
            "id": pa.nulls(count, pa.int64()),
            "hash": pa.nulls(count, pa.int64()),
            "shown": pa.nulls(count, pa.list_(pa.string())),
            "low": pa.array([low.to_json()] * count, pa.string()),
            "high": pa.array([high.to_json()] * count, pa.string()),
        }
    )


def _looked_at(task: ChunkTask, batch: pa.RecordBatch, numbers: np.ndarray) -> pa.RecordBatch:
    given: dict[str, Any] = {
        "number": pa.array(numbers.astype(np.int32)),
        "id": pa.array(task.ids(batch).view(np.int64)),
        "hash": pa.array(task.hashes(batch).view(np.int64)),
        "shown": task.texts(batch),
        "low": pa.nulls(batch.num_rows, pa.string()),
        "high": pa.nulls(batch.num_rows, pa.string()),
    }
    return pa.record_batch(given)
