"""The store: tables with versions. A commit is one SQLite transaction that adds segment files to partitions."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from upsert_platform.local.data_lock import lock_data
from upsert_platform.local.maxcompute.errors import no_such_partition, no_such_table, semantic_error
from upsert_platform.local.maxcompute.schema import Partition, Table, full_spec
from upsert_platform.local.maxcompute.storage.catalogue import Catalogue
from upsert_platform.local.maxcompute.storage.compactor import Compactor
from upsert_platform.local.maxcompute.storage.compute import Compute
from upsert_platform.local.maxcompute.storage.partial import is_partial, resolve
from upsert_platform.local.maxcompute.storage.segments import File, Segment, SegmentFiles
from upsert_platform.local.maxcompute.storage.snapshot import Rows, Snapshots

_SEGMENT_COLUMNS = "segment_id, partition_id, version, resets, compacted, path, rows, bytes, columns"
_COMPACT_SEGMENTS = 64
_READ_ATTEMPTS = 5
_SMALL_BYTES = 1 << 20
_COMPACT_DEAD_ROWS = 200_000


@dataclass(frozen=True)
class Change:
    """The change of a commit to one partition: it adds files, after emptying the partition if it resets."""

    spec: str
    files: tuple[File, ...]
    resets: bool = False


class Store:
    """Owns the catalogue, the segment files and the compute engine of one data directory.

    Raises:
        OSError: another server uses the directory.
    """

    def __init__(self, data: Path, *, threads: int = 2) -> None:
        data.mkdir(parents=True, exist_ok=True)
        # Before anything is looked at: what another server is about to commit is a stray to this one.
        self._lock = lock_data(data)
        self.catalogue = Catalogue(data / "catalogue.sqlite")
        self.files = SegmentFiles(data)
        self.compute = Compute(data / "scratch", threads=threads)
        self.snapshots = Snapshots(self.files, self.compute)
        self._compactor = Compactor(self.compact_unless_changed)
        self._locks: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
        self._locks_lock = threading.Lock()
        known = {row[0] for row in self.catalogue.execute("SELECT path FROM segments UNION SELECT path FROM staged")}
        self.files.remove_strays(known)

    def close(self) -> None:
        self._compactor.close()
        self.compute.close()
        self.catalogue.close()
        self._lock.close()

    def lock(self, table_id: str) -> threading.RLock:
        """Held while a table is changed; readers do not need it."""
        with self._locks_lock:
            return self._locks[table_id]

    # Reading

    def segments(self, partition: Partition, version: int | None = None) -> list[Segment]:
        """Return the segments of the partition at a version (the present if None), oldest first."""
        found = self._segments(
            "partition_id = ? AND version <= ?", partition.partition_id, 1 << 62 if version is None else version
        )
        start = max((index for index, segment in enumerate(found) if segment.resets), default=0)
        return [segment for segment in found[start:] if segment.file.rows]

    def changes(self, partition: Partition, after: int, to: int) -> list[Segment]:
        """The segments that commits after one version, up to another, have written."""
        return self._segments(
            "partition_id = ? AND version > ? AND version <= ? AND compacted = 0", partition.partition_id, after, to
        )

    def _segments(self, condition: str, *values: object) -> list[Segment]:
        rows = self.catalogue.execute(
            f"SELECT {_SEGMENT_COLUMNS} FROM segments WHERE {condition} ORDER BY version, segment_id", *values
        )
        return [
            Segment(
                segment_id=row[0],
                partition_id=row[1],
                version=row[2],
                resets=bool(row[3]),
                compacted=bool(row[4]),
                file=File(row[5], row[6], row[7], tuple(json.loads(row[8]))),
            )
            for row in rows
        ]

    def rows(self, table: Table, partition: Partition, version: int | None = None) -> Rows:
        """The rows of a partition at a version; compacted behind its reader when its segments are many."""
        for _ in range(_READ_ATTEMPTS):
            try:
                return self._rows(table, partition, version)
            except FileNotFoundError:
                # A compaction has replaced the files since they were listed.
                continue
        raise no_such_table(table.name)

    def _rows(self, table: Table, partition: Partition, version: int | None) -> Rows:
        segments = self.segments(partition, version)
        found = self.snapshots.rows(table, segments)
        if version is None:
            dead = found.table.num_rows - found.count
            if len(segments) > _COMPACT_SEGMENTS or dead > max(_COMPACT_DEAD_ROWS, found.count):
                self._compactor.ask(table.table_id, partition)
        return found

    def partition(self, table: Table, spec: str) -> Partition:
        """The partition of a canonical spec, or the only one of a table without partitions.

        Raises:
            ServiceError: NoSuchPartition.
        """
        found = self.catalogue.find_partition(table.table_id, spec)
        if found is None:
            raise no_such_partition(table.name, spec)
        return found

    def statistics(self, table: Table, partition: Partition | None = None) -> tuple[int, int]:
        """Bytes on disk and records of a table or one partition; records that were replaced still count."""
        partitions = [partition] if partition is not None else self.catalogue.partitions(table.table_id)
        files = [segment.file for found in partitions for segment in self.segments(found)]
        return sum(file.bytes for file in files), sum(file.rows for file in files)

    # Changing

    def commit(
        self,
        table_id: str,
        changes: Sequence[Change],
        operation: str,
        *,
        create_partitions: bool = False,
        along: Callable[[], object] = lambda: None,
    ) -> Table:
        """Makes changes visible at once, under one new version; nothing changes when there is nothing to change.

        Args:
            along: what is to be written to the catalogue in the same transaction, such as the session's status.

        Raises:
            ServiceError: NoSuchTable or NoSuchPartition, with nothing changed.
        """
        changes = [change for change in changes if change.resets or any(file.rows for file in change.files)]
        with self.lock(table_id):
            given = _paths(changes)
            changes = [self._gathered(self._whole(table_id, change)) for change in changes]
            try:
                self.files.sync(file for change in changes for file in change.files)
                table = self._committed(table_id, changes, operation, create=create_partitions, along=along)
            except BaseException:
                self.files.remove(_paths(changes) - given)
                raise
        self.files.remove(given - _paths(changes))
        return table

    def _committed(
        self, table_id: str, changes: Sequence[Change], operation: str, *, create: bool, along: Callable[[], object]
    ) -> Table:
        with self.catalogue.durable():
            table = self.catalogue.table_by_id(table_id)
            if table is None:
                raise no_such_table(table_id)
            along()
            if not changes:
                return table
            table = self.catalogue.add_version(table, operation)
            for change in changes:
                self._apply(table, change, create=create)
            return table

    def _gathered(self, change: Change) -> Change:
        """The change with runs of small files written as one: each would cost a sync now and an open file later."""
        gathered: list[File] = []
        for _, run in itertools.groupby(change.files, key=lambda file: (file.columns, file.bytes > _SMALL_BYTES)):
            files = list(run)
            if len(files) > 1 and files[0].bytes <= _SMALL_BYTES:
                files = self.files.join(files)
            gathered += files
        return replace(change, files=tuple(gathered))

    def _whole(self, table_id: str, change: Change) -> Change:
        """The change with partial updates made whole rows."""
        table = self.catalogue.table_by_id(table_id)
        if table is None or not is_partial(change.files):
            return change
        partition = self.catalogue.find_partition(table_id, change.spec)
        empty = Rows(table.arrow_schema.empty_table(), None)
        current = empty if change.resets or partition is None else self.rows(table, partition)
        return replace(change, files=(resolve(self.files, self.compute, table, change.files, current),))

    def _apply(self, table: Table, change: Change, *, create: bool) -> None:
        if create:
            partition = self.catalogue.add_partition(table.table_id, change.spec)
        else:
            partition = self.partition(table, change.spec)
        files = change.files or (File("", 0, 0, ()),)
        for number, file in enumerate(files):
            resets = change.resets and number == 0
            self._add(table, partition, file, version=table.version, resets=resets, compacted=False)
        self.catalogue.execute(
            "UPDATE partitions SET modified = ? WHERE partition_id = ?", time.time(), partition.partition_id
        )

    def _add(
        self, table: Table, partition: Partition, file: File, *, version: int, resets: bool, compacted: bool
    ) -> None:
        self.catalogue.execute(
            "INSERT INTO segments (table_id, partition_id, version, resets, compacted, rows, bytes, path, columns)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            table.table_id,
            partition.partition_id,
            version,
            int(resets),
            int(compacted),
            file.rows,
            file.bytes,
            file.path,
            json.dumps(file.columns),
        )

    def write(self, table: Table, rows: pa.Table) -> File:
        """Writes rows of the table's own columns, not yet committed."""
        return self.files.write_table(rows, columns=[column.column_id for column in table.columns])

    def compact(self, table: Table, partition: Partition, *, major: bool = False) -> None:
        """Replaces what a reader has to merge by one file.

        Args:
            major: a commit of its own, behind which the partition's history is gone; otherwise versions stay readable
                until they are older than the table keeps them.
        """
        with self.lock(table.table_id):  # nothing changes meanwhile
            self.compact_unless_changed(table.table_id, partition, major=major)

    def compact_unless_changed(self, table_id: str, partition: Partition, *, major: bool = False) -> bool:
        """Compacts as `compact`, but lets commits pass: what they add stands behind the one file.

        Returns:
            Whether it was compacted: not where that changed nothing, or where what was read was replaced meanwhile.
        """
        current, segments = self.catalogue.table_by_id(table_id), self.segments(partition)
        is_done = not segments or (len(segments) == 1 and segments[0].compacted)
        if current is None or (is_done and not major):
            return False
        try:
            file = self.write(current, self.snapshots.rows(current, segments).live_table())
        except FileNotFoundError:  # another compaction, or a statement, has removed them
            return False
        try:
            self.files.sync([file])
            with self.lock(table_id):
                latest = self.catalogue.table_by_id(table_id)
                is_same = latest is not None and latest.columns == current.columns
                if not is_same or self.segments(partition)[: len(segments)] != segments:
                    self.files.remove([file.path])
                    return False
                horizon = time.time() + 1 if major else time.time() - current.retain_hours * 3600
                with self.catalogue.durable():
                    # Of the last version that was read, so that what was committed meanwhile follows it.
                    version = self.catalogue.add_version(current, "COMPACT").version if major else segments[-1].version
                    self._add(current, partition, file, version=version, resets=True, compacted=True)
                    forgotten = self._forget_before(partition, horizon)
        except BaseException:
            self.files.remove([file.path])
            raise
        self.files.remove(forgotten)
        return True

    def _forget_before(self, partition: Partition, horizon: float) -> list[str]:
        """Removes segments that only versions older than the horizon need, and gives their files."""
        rows = self.catalogue.execute(
            "SELECT s.segment_id, s.version FROM segments s JOIN versions v USING (table_id, version)"
            " WHERE s.partition_id = ? AND s.resets = 1 AND v.committed < ?"
            " ORDER BY s.version DESC, s.segment_id DESC LIMIT 1",
            partition.partition_id,
            horizon,
        )
        if not rows:
            return []
        segment_id, version = rows[0]
        values = (partition.partition_id, version, version, segment_id)
        older = "partition_id = ? AND (version < ? OR (version = ? AND segment_id < ?))"
        paths = self.catalogue.execute(f"SELECT path FROM segments WHERE {older}", *values)
        self.catalogue.execute(f"DELETE FROM segments WHERE {older}", *values)
        self.catalogue.execute(
            "UPDATE partitions SET first_version = ? WHERE partition_id = ?", version, partition.partition_id
        )
        return [path for (path,) in paths if path]

    # Partitions and tables

    def leaf(self, table: Table, spec: str | None) -> Partition:
        """The partition that a request names, in canonical form.

        Raises:
            ServiceError: the spec does not fit the table, or the partition does not exist.
        """
        if bool(table.partition_keys) != bool(spec):
            wanted = "a partition spec is required" if table.partition_keys else "it has no partitions"
            raise semantic_error(f"table {table.name}: {wanted}")
        return self.partition(table, full_spec(table, spec) if spec else "")

    def forget(self, partition: Partition) -> None:
        """Removes a partition with its rows; the caller holds the table's lock."""
        paths = self.catalogue.execute("SELECT path FROM segments WHERE partition_id = ?", partition.partition_id)
        with self.catalogue.durable():
            self.catalogue.execute("DELETE FROM segments WHERE partition_id = ?", partition.partition_id)
            self.catalogue.execute("DELETE FROM partitions WHERE partition_id = ?", partition.partition_id)
        self.files.remove(path for (path,) in paths if path)

    def drop(self, table: Table) -> None:
        """Removes a table with everything that belongs to it, and what its sessions have staged."""
        sessions = "session_id IN (SELECT session_id FROM sessions WHERE table_id = ?)"
        with self.lock(table.table_id):
            paths = self.catalogue.execute("SELECT path FROM segments WHERE table_id = ?", table.table_id)
            with self.catalogue.durable():
                paths += self.catalogue.execute(f"DELETE FROM staged WHERE {sessions} RETURNING path", table.table_id)
                self.catalogue.execute(f"DELETE FROM streams WHERE {sessions}", table.table_id)
                for name in ("segments", "partitions", "versions", "tables"):
                    self.catalogue.execute(f"DELETE FROM {name} WHERE table_id = ?", table.table_id)
            self.files.remove(path for (path,) in paths if path)


def _paths(changes: Sequence[Change]) -> set[str]:
    return {file.path for change in changes for file in change.files}
