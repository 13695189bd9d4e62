"""Erases one key of a table that is read: from what is written from it, and from the lake with all its history.

First the tables: a delete of the key is committed to the changelog as a batch of its own and applied as any other,
under each table's lease and recorded as its position. When reading back shows that no table has the key, the lake:
files that hold it are rewritten, and those that are not live any more deleted. A kill at any point leaves a project
that works and still holds some of it; the same command run again does all of it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from upsert_platform.changelog import erasure, rows
from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.erasure import EVERY_BATCH, HeldRows, KeyRows
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.replays import ACCOUNT_TOPIC
from upsert_platform.changelog.store import ChangelogStore, Head
from upsert_platform.changelog.upkeep import note_erased
from upsert_platform.core.errors import ChangelogError, DestinationError
from upsert_platform.core.types import quote_name
from upsert_platform.sync.binding import Binding, QuerySource, changelog_of
from upsert_platform.sync.changelog_hop import ChangelogHop
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.erased_elsewhere import (
    in_proofs,
    in_replays,
    in_set_aside,
    readers_of_same,
    refused_keys,
    settle_refused,
    texts_of,
)
from upsert_platform.sync.erased_key import check_erasable, check_rows_apart, erasable_source, key_rows
from upsert_platform.sync.following import follow, tables_behind
from upsert_platform.sync.leased import leased
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.written_key import written_key

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from upsert_platform.kafka.sink.tombstones import KeyBytes

_LOST_RACES = 5
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Held:
    """Everything that holds a key before its erasure.

    Attributes:
        rows: of the changelog, in files that are live; `quarantined` of them are records in quarantine.
        older: files that are not live and hold it.
        tables: names of the tables that are written from it.
        topics: its spellings in the topics; None where they were not read.
        untold: records in quarantine whose key cannot be decoded.
        elsewhere: changelogs, and refused rows, of replays, proofs and resets that hold it, in words; an erasure leaves
            them, and says so.
        refused: rows of it that tables have refused.
        unsought: names of tables whose refused rows were not looked for: Spark alone could compute their keys.
    """

    rows: int
    quarantined: int
    older: int
    tables: tuple[str, ...]
    topics: tuple[KeyBytes, ...] | None = None
    untold: int = 0
    elsewhere: tuple[str, ...] = ()
    refused: int = 0
    unsought: tuple[str, ...] = ()


@dataclass
class Erased:
    """The result of an erasure so far.

    Attributes:
        batch: that deleted the key.
        records: of it in the topics, where these were read, and `tombstones` that were sent.
        rows: taken out of the changelog, and `files` that were rewritten for it.
        deleted: files that held it and were not live any more.
        refused: rows of it that tables had refused.
        untold: records in quarantine that stay, since their key cannot be decoded.
        tables: that were read back and do not have it.
        readers: other tables that read the same topics, or what is written from this one.
        left: what still holds it, in words; empty when all of it is gone.
    """

    batch: int = 0
    records: int = 0
    tombstones: int = 0
    rows: int = 0
    files: int = 0
    deleted: int = 0
    refused: int = 0
    untold: int = 0
    tables: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    left: list[str] = field(default_factory=list)

    @property
    def found(self) -> bool:
        """Return whether anything held the key."""
        return bool(self.rows or self.deleted or self.refused or self.records or self.left)


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
        from upsert_platform.kafka.sink.tombstones import find_key

        live, older = HeldRows(), 0
        if self.store.head() is not None:
            paths = {item.path for item in self.store.files()}
            for path in erasure.data_files(self.store.location):
                held = erasure.held_rows(self.store.location, path, self.key, upto=EVERY_BATCH)
                live += held if path in paths else HeldRows()
                older += bool(held.rows) and path not in paths
        keys = self._written_keys()
        known = {name: texts for name, texts in keys.items() if texts is not None}
        refused = refused_keys(self.lake, known)
        return Held(
            live.rows - live.deletes,
            live.quarantined,
            older,
            tuple(name for name in self.targets if name not in self.leave),
            tuple(find_key(self.source.kafka, self.key.of_record)) if topics else None,
            live.untold,
            tuple(self._elsewhere(set().union(*known.values()))),
            sum(refused[name][text] for name, texts in known.items() for text in texts),
            tuple(name for name, texts in keys.items() if texts is None),
        )

    def _written_keys(self) -> dict[str, set[str] | None]:
        """The key as the refused rows of each table have it; None where Spark alone could compute it.

        An erasure reads it of the delete that it has committed.
        """
        keys: dict[str, set[str] | None] = {}
        for name, target in self.targets.items():
            if isinstance(target.source, QuerySource) or not target.table.primary_key:
                continue
            found = written_key(target, self.key)
            keys[name] = None if found is None else texts_of(found)
        return keys

    def run(self, spark: SparkSession, *, run: str, tombstone: bool, tell: Tell) -> Erased:
        """Erases the key.

        Args:
            run: its name, stored in commits and leases.
            tombstone: whether the topics get tombstones first.
            tell: is given a line per step.

        Raises:
            UpsertPlatformError: a step failed, or another run held what it needs; run it again.
        """
        done = Erased(readers=readers_of_same(self.binding, self.source, self.targets))
        check_rows_apart(self.targets)
        if tombstone:
            self._send(done, tell)
        # What is unread may be of the key, and would come back by the next sync.
        hop = ChangelogHop(self.source, self.store, run=run)
        hop.execute(OnDemand.dividing(spark), hop.plan())
        # The write of the delete drops the rows of the key that its table has refused.
        refused = refused_keys(self.lake, self.targets)
        done.batch = self._delete(run)
        tell(f"batch {done.batch} of the changelog deletes the key")
        for name, _ in follow(spark, self.binding, self.lake, self.source.table.name, run=run, tell=tell):
            tell(f"table '{name}' is up to it")
        keys = {name: texts_of(found) for name, found in self._proven(spark, done, run).items()}
        done.refused = sum(refused[name][text] for name, wanted in keys.items() for text in wanted)
        with ExitStack() as held:
            for name in sorted(self.targets):
                destination = held.enter_context(closing(self.targets[name].open()))
                held.enter_context(leased(destination, owner=run, tell=tell))
            self._erase_from_lake(done, keys, tell)
        done.left += self._elsewhere(set().union(*keys.values()))
        return done

    def _elsewhere(self, wanted: Collection[str]) -> list[str]:
        """Files beside the changelog that hold the key, and stay, in words.

        Args:
            wanted: the key as refused rows have it.
        """
        name = self.source.table.name
        return [
            *in_replays(self.lake, self.key, wanted),
            *in_proofs(self.lake, self.key, name),
            *in_set_aside(self.lake, self.key, name, self.targets, wanted),
        ]

    def _send(self, done: Erased, tell: Tell) -> None:
        from upsert_platform.kafka.sink.tombstones import find_key, send_tombstones

        found = find_key(self.source.kafka, self.key.of_record)
        done.records = sum(item.records for item in found)
        done.tombstones = send_tombstones(self.source.kafka, found)
        tell(f"records of the key in the topics: {done.records}; tombstones sent: {done.tombstones}")

    def _delete(self, run: str) -> int:
        """Commits the batch that deletes the key, and returns its number."""
        for _ in range(_LOST_RACES):
            head = self.store.create()
            schema = rows.arrow_schema(self.store.table)
            made = self._batch(schema, head)
            files = write_rows(made, location=self.store.location, schema=schema, batch=head.batch + 1)
            after = self.store.append(files, head=head, positions=head.positions, run=run)
            if after is not None:
                return after.batch
        raise ChangelogError(f"the changelog of '{self.store.table.name}' is written by another run all the time")

    def _batch(self, schema: pa.Schema, head: Head) -> list[pa.RecordBatch]:
        import pyarrow as pa

        account = RangeAccount(ACCOUNT_TOPIC, -1, 0, 1, records=1, kept=1, rows=1, tombstones=1)
        place = {rows.TOPIC: rows.DELETE_TOPIC, rows.PARTITION: -1, rows.OFFSET: head.batch + 1, rows.ROW: 0}
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
                if isinstance(target.source, QuerySource) or not destination.primary_key:
                    continue  # its rows are not known by this key; whoever left it out answers for it
                store, refused = changelog_of(target.source, self.lake), RefusedStore(self.lake.refused(name))
                hop = DestinationHop(target, store, destination, refused=refused, run=run)
                changes = hop.changes(spark, after=done.batch - 1, upto=done.batch)
                frame = changes.select(*[quote_name(column) for column in destination.primary_key]).persist()
                try:
                    keys[name] = frame.toArrow()
                    count = 0 if name in self.leave else destination.read(spark, keys=frame).count()
                finally:
                    frame.unpersist()
                if keys[name].num_rows != 1:
                    raise ChangelogError(
                        f"the delete of the key is not in the changelog of '{self.store.table.name}' any more: a"
                        " compaction ran meanwhile. Nothing was taken out of the lake yet; run this again"
                    )
                if count:
                    raise DestinationError(
                        f"table '{name}' still has rows of the key ({count}): it was produced again, or by its"
                        " options the table keeps rows whose key is deleted. Nothing was taken out of the lake yet; run"
                        f" this again, or delete them there and run it with --leave {name}"
                    )
        done.tables = tuple(name for name in keys if name not in self.leave)
        return keys

    def _erase_from_lake(self, done: Erased, keys: Mapping[str, Collection[str]], tell: Tell) -> None:
        # Told first, as compaction does: a table that turns up later with less has missed the delete.
        note_erased(self.store, done.batch)
        held, done.files = erasure.erase_rows(self.store, self.key, upto=done.batch)
        done.rows, done.untold = held.rows - held.deletes, held.untold
        done.deleted = erasure.delete_dead_files(self.store, self.key, upto=done.batch)
        tell(f"out of the changelog: {done.rows} rows of {done.files} files; older files deleted: {done.deleted}")
        for name, wanted in keys.items():
            done.left += settle_refused(RefusedStore(self.lake.refused(name)), wanted)
        done.left += erasure.still_held(self.store.location, self.key, upto=done.batch)
