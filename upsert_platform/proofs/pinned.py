"""The changelog of a table of a database at one batch, and the log behind it, as hashes of rows in Spark.

The proof reads the log on from the changelog's position by itself, and writes nothing into the changelog.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.change_rows import ChangesOfFiles
from upsert_platform.changelog.latest import last_rows
from upsert_platform.changelog.latest_in_tasks import latest_of_span, reduction_in_tasks
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.tables import TableLocation, file_system
from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.position import LogPosition
from upsert_platform.mysql.progress import LOG, Progress

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from upsert_platform.changelog.head import Head
    from upsert_platform.mysql.proof_tasks import Places
    from upsert_platform.mysql.server_state import ServerLog
    from upsert_platform.mysql.table_source import MySqlTableSource

_ATTEMPTS: Final = 3


class PinnedTable:
    """A changelog at its last batch, and the log behind it.

    Args:
        folder: of the proof; `close` removes it.

    Raises:
        ReplicationError: the changelog is not consistent yet, or the log does not hold its position.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: MySqlTableSource,
        store: ChangelogStore,
        places: Places,
        folder: TableLocation,
    ) -> None:
        self._spark = spark
        self._source = source
        self._store = store
        self._places = places
        self._folder = folder
        self._names: list[str] = []
        head = store.head()
        progress = None if head is None else source.progress(head.positions)
        if head is None or progress is None or not source.is_settled(progress):
            raise ReplicationError(
                f"table '{source.table.name}': its snapshot is not complete, so nothing can be proven yet; run"
                " job 'sync'"
            )
        self.head: Head = head
        self._begun: Progress = progress
        self._progress: Progress = progress
        self._number = self.number = head.positions.offsets[source.stream][LOG]
        self.base = self._hashed_base()

    def _hashed_base(self) -> DataFrame:
        """Hash the rows of the changelog at once: compaction may put rows of later batches in their places."""
        for _ in range(_ATTEMPTS):
            before = {item.path for item in self._store.files()}
            found = self._hashed_base_by_counting()
            if found is None:
                found = self._hashed_rows().localCheckpoint(eager=True)
            if before <= {item.path for item in self._store.files()}:
                return found
        raise ReplicationError(f"table '{self._source.table.name}': its changelog is being compacted; prove it again")

    def _hashed_base_by_counting(self) -> DataFrame | None:
        """Hash the rows that count, if tasks can tell them by keys alone."""
        from upsert_platform.mysql.proof_tasks import STATES_DDL, ReducedRows

        task, upto = self._places.task, self.head.batch
        span = reduction_in_tasks(
            self._spark, self._store, after=0, upto=upto, key=task.key, columns=task.names, counts_longer=True
        )
        if span is None:
            return None
        hashed = self._spark.range(0, span.tasks, 1, min(span.tasks, self._spark.sparkContext.defaultParallelism))
        found = hashed.mapInArrow(ReducedRows(span, self._places), STATES_DDL).localCheckpoint(eager=True)
        if found.where("place IS NULL").isEmpty():
            return found
        found.unpersist()
        return None

    def _hashed_rows(self) -> DataFrame:
        """Hash every row, and reduce then: tasks exchange some numbers a row."""
        from pyspark.sql.types import StructType

        from upsert_platform.mysql.proof_tasks import STATES_DDL, HashedRows, Then

        places, store, upto = self._places, self._store, self.head.batch
        parallel = self._spark.sparkContext.defaultParallelism
        read = ChangesOfFiles.of(store, columns=places.task.names, upto=upto, tasks=parallel)
        tasks = len(read.shares)
        if not tasks:
            return self._spark.createDataFrame([], STATES_DDL)
        schema = StructType.fromDDL(rows.spark_schema(store.table))
        order = [f"{name} {schema[name].dataType.simpleString()}" for name in rows.ORDER]
        hashed = self._spark.range(0, tasks, 1, tasks).mapInArrow(
            Then(read, HashedRows(places, kept=rows.ORDER)), ", ".join([STATES_DDL, *order])
        )
        key = ["place"] if places.by_value else ["id"]
        names = [name for name in ("id", "place", "n", "r", "hash") if name not in key]
        last = last_rows(hashed, key=key, keep=names, count=store.about_rows(upto=upto))
        return last.where("hash IS NOT NULL").select("id", "place", "n", "r", "hash")

    def _base(self) -> DataFrame:
        task = self._places.task
        found = latest_of_span(
            self._spark, self._store, after=0, upto=self.head.batch, key=task.key, columns=task.names
        )
        return found.where(f"{rows.KIND} <> '{rows.KIND_DELETE}'")

    def number_of(self, position: LogPosition, log: ServerLog) -> int:
        """Return the number of a position, as rows of the log have it.

        Args:
            log: asked for after the position.
        """
        return self.number + replace(log, end=position).bytes_from(self._begun.position)

    def require_there(self, log: ServerLog) -> None:
        """Stop where the log does not go on from the changelog's position.

        Raises:
            ReplicationError: it is another server's, or its files are gone.
        """
        position = self._begun.position
        if log.identity != self._begun.server or not log.has(position):
            raise ReplicationError(
                f"table '{self._source.table.name}': the log of MySQL server {self._source.settings.server} does not"
                f" hold the position {position} of the changelog; run job 'sync' first, which says what helps"
            )

    def read_to(self, end: LogPosition) -> None:
        """Read the log on to a position, into files of the proof.

        Raises:
            ReplicationError: the table was altered or truncated meanwhile.
        """
        from upsert_platform.mysql.landing import Landing
        from upsert_platform.mysql.log_batch import LogBatch

        landing = Landing(self._source.table, self._source.stream)
        while self._progress.position.order() < end.order():
            log = LogBatch(self._source.settings, self._progress, landing, start=self._number)
            self._write(log.read(end), landing.schema)
            if log.counts.truncated or log.table != self._progress.table:
                raise ReplicationError(
                    f"table {self._source.stream} was altered or truncated while it was proven; run job 'sync', and"
                    " prove it again"
                )
            self._number += log.counts.distance
            self._progress = replace(
                self._progress,
                position=log.position,
                told_at=log.told_at,
                unknown_upto=log.unknown_upto,
                begun=log.begun,
                prepared=log.prepared,
            )

    def _write(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        system, folder = file_system(self._folder)
        system.create_dir(folder.rstrip("/"), recursive=True)
        name = f"log-{uuid.uuid4().hex}.parquet"
        count = 0
        with system.open_output_stream(f"{folder}{name}") as sink, pq.ParquetWriter(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                count += batch.num_rows
        if count:
            self._names.append(name)

    def log(self) -> DataFrame:
        """Return the rows of the log behind the changelog: `STATES_DDL`."""
        from upsert_platform.mysql.proof_tasks import STATES_DDL, HashedRows

        return self._of_files(HashedRows(self._places, numbered=True), STATES_DDL)

    def _of_files(self, then: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], ddl: str) -> DataFrame:
        from upsert_platform.mysql.proof_tasks import ReadFiles, Then

        if not self._names:
            return self._spark.createDataFrame([], ddl)
        task = Then(ReadFiles(self._folder, tuple(self._names)), then)
        count = len(self._names)
        return self._spark.range(0, count, 1, count).mapInArrow(task, ddl)

    def shown(self, ids: Sequence[int]) -> dict[int, list[str | None]]:
        """Return the last row of some keys as texts, by the hash of the key."""
        from upsert_platform.mysql.proof_tasks import SHOWN_DDL, ShownRows

        wanted = frozenset(ids)
        task = self._places.task
        base = self._base().mapInArrow(ShownRows(task, wanted), SHOWN_DDL)
        log = self._of_files(ShownRows(task, wanted, numbered=True), SHOWN_DDL)
        found = sorted(base.unionByName(log).collect(), key=lambda row: (row["n"], row["r"]))
        return {row["id"]: row["shown"] for row in found}

    @cached_property
    def position(self) -> LogPosition:
        """The position of the changelog's last batch."""
        return self._begun.position

    def close(self) -> None:
        """Remove the proof's files. Idempotent."""
        self.base.unpersist()
        system, folder = file_system(self._folder)
        with suppress(FileNotFoundError):
            system.delete_dir(folder.rstrip("/"))
