"""Erases one key of a table that is read: from what is written from it, and from the lake with all its history.

First the tables: a delete of the key is committed to the changelog as a batch of its own and applied as any other,
under each table's lease and recorded as its position. When reading back shows that no table has the key, the lake:
files that hold it are rewritten, and those that are not live any more deleted. A kill at any point leaves a project
that works and still holds some of it; the same command run again does all of it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from upsert_platform.changelog import erasure, rows
from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.data_files import write_here
from upsert_platform.changelog.erasure import KeyRows
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.replays import ACCOUNT_TOPIC
from upsert_platform.changelog.store import ChangelogStore, Head
from upsert_platform.changelog.upkeep import raise_floor
from upsert_platform.errors import ChangelogError, DestinationError
from upsert_platform.hops.binding import Binding, QuerySource, changelog_of
from upsert_platform.hops.changelog_hop import ChangelogHop
from upsert_platform.hops.destination_hop import DestinationHop
from upsert_platform.hops.erased_key import check_erasable, erasable_source, key_rows
from upsert_platform.hops.following import check_keys, follow, tables_behind
from upsert_platform.hops.leased import leased
from upsert_platform.types import quote_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from upsert_platform.kafka.source.tombstones import KeyBytes

DELETE_TOPIC = "(erase)"
"""Topic of the row that deletes the key: it stands in no partition, so it is later than every row of them."""
_LOST_RACES = 5
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Held:
    """What holds a key before it is erased.

    Attributes:
        rows: of the changelog, in files that are live; `quarantined` of them are records in quarantine.
        older: files that are not live and hold it.
        tables: names of the tables that are written from it.
        topics: its spellings in the topics; None where they were not read.
    """

    rows: int
    quarantined: int
    older: int
    tables: tuple[str, ...]
    topics: tuple[KeyBytes, ...] | None = None


@dataclass
class Erased:
    """What was done, by now.

    Attributes:
        batch: that deleted the key.
        tombstones: sent to the topics.
        rows: taken out of the changelog, and `files` that were rewritten for it.
        deleted: files that were not live and held it.
        refused: rows taken out of what tables refused.
        tables: that were read back and do not have it.
        left: what still holds it, in words; empty when all of it is gone.
    """

    batch: int = 0
    tombstones: int = 0
    rows: int = 0
    files: int = 0
    deleted: int = 0
    refused: int = 0
    tables: tuple[str, ...] = ()
    left: list[str] = field(default_factory=list)


class Erasure:
    """One key of one table.

    Args:
        key: values of the primary key columns, as JSON has them.
        leave: tables and queries that are somebody else's business.

    Raises:
        UpsertPlatformError: no such table, a key that is not one, or something holds rows that cannot be erased by key.
    """

    def __init__(
        self, binding: Binding, lake: Lake, table: str, key: Mapping[str, Any], *, leave: Collection[str] = ()
    ) -> None:
        self.binding, self.lake, self.leave = binding, lake, frozenset(leave)
        self.source = erasable_source(binding, table)
        self.store: ChangelogStore = changelog_of(self.source, lake)
        self.key: KeyRows = key_rows(self.source.kafka, key)
        self.targets = tables_behind(binding, table)
        check_erasable(binding, table, self.targets, self.leave, lake)

    def held(self, *, topics: bool) -> Held:
        """Looks what holds the key; writes nothing.

        Args:
            topics: whether the topics are read too.
        """
        from upsert_platform.kafka.source.tombstones import find_key

        found = {}
        live: set[str] = set()
        if self.store.head() is not None:
            live = {item.path for item in self.store.files()}
            for path in erasure.data_files(self.store.location):
                held = erasure.held_rows(self.store.location, path, self.key, upto=1 << 62)
                if held.rows:
                    found[path] = held
        return Held(
            sum(held.rows for path, held in found.items() if path in live),
            sum(held.quarantined for path, held in found.items() if path in live),
            sum(path not in live for path in found),
            tuple(name for name in self.targets if name not in self.leave),
            tuple(find_key(self.source.kafka, self.key.of_record)) if topics else None,
        )

    def run(self, spark: SparkSession, *, run: str, tombstone: bool, tell: Tell) -> Erased:
        """Erases the key.

        Args:
            run: its name, stored in commits and leases.
            tombstone: whether the topics get tombstones first.
            tell: is given a line per step.

        Raises:
            UpsertPlatformError: a step failed, or another run held what it needs; run it again.
        """
        done = Erased()
        check_keys(self.binding, self.source.table.name)
        if tombstone:
            done.tombstones = self._send(tell)
        # What is unread may be of the key, and would come back by the next sync.
        hop = ChangelogHop(self.source, self.store, run=run)
        hop.execute(spark, hop.plan())
        done.batch = self._delete(run)
        tell(f"batch {done.batch} of the changelog deletes the key")
        for name, _ in follow(spark, self.binding, self.lake, self.source.table.name, run=run, tell=tell):
            tell(f"table '{name}' is up to it")
        keys = self._proven(spark, done, run)
        with ExitStack() as held:
            for name in sorted(self.targets):
                destination = held.enter_context(closing(self.targets[name].open()))
                held.enter_context(leased(destination, owner=run, tell=tell))
            self._erase_from_lake(done, keys, tell)
        done.left += self._elsewhere(done.batch)
        return done

    def _send(self, tell: Tell) -> int:
        from upsert_platform.kafka.source.tombstones import find_key, send_tombstones

        found = find_key(self.source.kafka, self.key.of_record)
        sent = send_tombstones(self.source.kafka, found)
        tell(f"the topics hold {sum(item.records for item in found)} records of the key; {sent} tombstones were sent")
        return sent

    def _delete(self, run: str) -> int:
        """Commits the batch that deletes the key, and returns its number."""
        for _ in range(_LOST_RACES):
            head = self.store.create()
            schema = rows.arrow_schema(self.store.table)
            made = self._batch(schema, head)
            files = write_here(made, location=self.store.location, schema=schema, batch=head.batch + 1)
            after = self.store.append(files, head=head, positions=head.positions, run=run)
            if after is not None:
                return after.batch
        raise ChangelogError(f"the changelog of '{self.store.table.name}' is written by another run all the time")

    def _batch(self, schema: pa.Schema, head: Head) -> list[pa.RecordBatch]:
        import pyarrow as pa

        account = RangeAccount(ACCOUNT_TOPIC, -1, 0, 1, records=1, kept=1, rows=1, tombstones=1)
        place = {rows.TOPIC: DELETE_TOPIC, rows.PARTITION: -1, rows.OFFSET: head.batch + 1, rows.ROW: 0}
        told: list[dict[str, Any]] = [
            {rows.KIND: rows.KIND_DELETE, **place},
            {rows.KIND: rows.KIND_ACCOUNTING, rows.ACCOUNTING: account.to_json()},
        ]
        key = self.key.key
        columns = []
        for item in schema:
            if item.name in key.schema.names:
                value = key.column(item.name).cast(item.type)
                columns.append(pa.concat_arrays([value, pa.nulls(1, item.type)]))
            else:
                columns.append(pa.array([row.get(item.name) for row in told], item.type))
        return [pa.RecordBatch.from_arrays(columns, schema=schema)]

    def _proven(self, spark: SparkSession, done: Erased, run: str) -> dict[str, pa.Table]:
        """Reads the key back from every table; the keys that its rows would have there, by table.

        Raises:
            DestinationError: a table has not applied the delete, or has a row of the key all the same.
        """
        keys: dict[str, pa.Table] = {}
        for name, target in self.targets.items():
            with closing(target.open()) as destination:
                wanted = done.batch
                if isinstance(target.source, QuerySource):
                    head = changelog_of(target.source, self.lake).head()
                    wanted = head.batch if head is not None else 0
                if destination.state().applied_batch < wanted:
                    raise DestinationError(
                        f"table '{name}' has not applied the delete of the key: another run writes it. Nothing was"
                        " taken out of the lake yet; end that run ('upsert-platform stream', say), and run this again"
                    )
                if name in self.leave or isinstance(target.source, QuerySource):
                    continue  # what a query gives is not known by this key; whoever left it out answers for it
                store, refused = changelog_of(target.source, self.lake), RefusedStore(self.lake.refused(name))
                hop = DestinationHop(target, store, destination, refused=refused, run=run)
                changes = hop.changes(spark, after=done.batch - 1, upto=done.batch)
                frame = changes.select(*[quote_name(column) for column in destination.primary_key]).persist()
                try:
                    count = destination.read(spark, keys=frame).count()
                    keys[name] = frame.toArrow()
                finally:
                    frame.unpersist()
                if count:
                    raise DestinationError(
                        f"table '{name}' still has {count} rows of the key: by its options it keeps rows whose key is"
                        " deleted. Nothing was taken out of the lake yet; delete them there, and run this again with"
                        f" --leave {name}"
                    )
        done.tables = tuple(keys)
        return keys

    def _erase_from_lake(self, done: Erased, keys: Mapping[str, pa.Table], tell: Tell) -> None:
        # Told first, as compaction does: a table that turns up later with less has missed the delete.
        raise_floor(self.store, done.batch)
        done.rows, done.files = erasure.erase_rows(self.store, self.key, upto=done.batch)
        done.deleted = erasure.delete_dead_files(self.store, self.key, upto=done.batch)
        tell(f"{done.rows} rows of {done.files} files are out of the changelog, {done.deleted} older files deleted")
        for name, found in keys.items():
            done.refused += self._settle(name, found)
        for path, count in erasure.still_held(self.store.location, self.key, upto=done.batch).items():
            done.left.append(
                f"{self.store.location.uri}/{path}: {count} rows, which a run that has not ended may commit"
            )

    def _settle(self, name: str, key: pa.Table) -> int:
        """Takes a key out of what a table refused, and deletes the files that held it; under the table's lease."""
        from upsert_platform.writing.row_text import refused_row

        store = RefusedStore(self.lake.refused(name))
        wanted = set()
        for batch in key.to_batches():
            for at in range(batch.num_rows):
                row = refused_row(batch, at, columns=batch.schema.names, key=batch.schema.names, reason="")
                wanted.add(_canonical(row.key))
        gone = [text for text in store.keys()["key"].to_pylist() if _canonical(text) in wanted]
        if gone:
            store.settle(gone)
        store.remove_unused(hours=0)
        return len(gone)

    def _elsewhere(self, batch: int) -> list[str]:
        """Other tables of the lake with rows of the key: of replays into new tables."""
        from pyarrow import fs

        from upsert_platform.changelog.data_files import file_system

        told = []
        every = self.lake.replays()
        system, folder = file_system(every)
        selector = fs.FileSelector(folder or "/", allow_not_found=True, recursive=True)
        for item in system.get_file_info(selector):
            path = item.path.removeprefix(folder)
            if not item.is_file or not path.endswith(".parquet") or "_delta_log" in path:
                continue
            held = erasure.held_rows(every, path, self.key, upto=1 << 62)
            if held.rows:
                told.append(
                    f"{every.uri}/{path}: {held.rows} rows, of a replay into a new table; delete the row there, and the"
                    " folder of that replay"
                )
        return told


def _canonical(key: str) -> str:
    return json.dumps(json.loads(key, parse_float=str), sort_keys=True)
