"""The changelog of one table: a Delta Lake table whose every commit carries a batch and the position after it.

Positions are read and commits are made by delta-rs, without a JVM; rows are written by Spark's workers
(`data_files.py`) and read by Spark.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.damage import naming
from upsert_platform.changelog.data_files import DataFile, read_files, read_rows, write_frame
from upsert_platform.changelog.declared_values import cut_keys, frame_with_declared_keys
from upsert_platform.changelog.evolution import add_columns, check_key, keep_key, key_text, missing_columns
from upsert_platform.changelog.head import (
    HISTORY_DEPTH,
    ID_PROPERTY,
    KEY_PROPERTY,
    MODE_PROPERTY,
    Applied,
    Head,
    Positions,
    applied_name,
    commit_of_batch,
    commit_record,
    commit_text,
    head_of_record,
    read_head,
    record_of_head,
)
from upsert_platform.changelog.kept_table import KeptTable
from upsert_platform.changelog.live_files import LiveFile, live_dataset, live_files, read_kind
from upsert_platform.changelog.tables import TableLocation, create_table, creation_lock, open_table
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.model import Table

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds
    from deltalake import CommitProperties, DeltaTable
    from deltalake.table import Metadata
    from pyspark.sql import DataFrame, SparkSession

_RUN_DEPTH: Final = 5000
"""How many commits of one run are looked up."""

_COMMIT_ATTEMPTS: Final = 8
"""How often a commit is tried while others come first."""


class ChangelogStore:
    """Reads and appends the changelog of a table.

    Args:
        location: of the Delta table; a path by itself will do.
        table: the declared table; gives the columns.
        mode: ``upsert`` or ``append``.
    """

    keeps_key = True
    """Whether the table's properties hold its primary key, so that another one is refused."""
    merges_files = True
    """Whether small files are all of rows that may be put together."""

    def __init__(self, location: TableLocation | str, table: Table, *, mode: str = "upsert") -> None:
        self.location = TableLocation.of(location)
        self.uri = self.location.uri
        self.table = table
        self.mode = mode
        self._kept: KeptTable | None = None
        self._known: tuple[DeltaTable, int, Head] | None = None

    def keep_open(self) -> None:
        """From now on looks through one handle that is brought up to date: for a thread that looks every second."""
        self._kept = KeptTable(self.location)

    def beside(self) -> Self:
        """Return the same changelog for another thread, which keeps it open for itself."""
        found = copy(self)
        found._known = None  # noqa: SLF001 - of the same class
        found.keep_open()
        return found

    def begin_look(self) -> None:
        """Keep the table open, and show one version of it, the newest at the next read, up to the next call."""
        if self._kept is None or not self._kept.in_looks:
            self._kept = KeptTable(self.location, in_looks=True)
        self._kept.begin_look()

    def _looked_at(self) -> DeltaTable | None:
        """The table as it is now, for reading alone; what commits opens it anew."""
        return self._delta() if self._kept is None else self._kept.table()

    def _delta(self) -> DeltaTable | None:
        return open_table(self.location)

    def head(self) -> Head | None:
        """The state after the last commit, or None when the changelog does not exist. No JVM.

        Raises:
            ChangelogError: the table at the URI is not a changelog of the platform, or its position is lost.
        """
        delta = self._looked_at()
        return None if delta is None else self._head_in(delta)

    def _head_in(self, delta: DeltaTable) -> Head:
        version = delta.version()
        if self._known is not None and self._known[0] is delta and self._known[1] == version:
            return self._known[2]
        found = read_head(delta, name=self.table.name, uri=self.uri, mode=self.mode)
        if self.keeps_key:
            check_key(delta, self.table)
        if self._kept is not None:
            self._known = delta, version, found
        return found

    def check_declared(self) -> Head | None:
        """Return `head` of a changelog that fits the table as it is declared. No JVM.

        Raises:
            ChangelogError: its key, or a type or a name of a column, is another one, or it is no changelog.
        """
        delta = self._looked_at()
        if delta is None:
            return None
        found = self._head_in(delta)
        missing_columns(delta, self.table)
        return found

    def head_and_files(self, *, after: int) -> tuple[Head, list[LiveFile]] | None:
        """`head`, and `files` if it has a batch after `after`, of one version of the table; None where there is none.

        Raises:
            ChangelogError: as `head` does.
        """
        delta = self._looked_at()
        if delta is None:
            return None
        head = self._head_in(delta)
        return head, live_files(delta) if head.batch > after else []

    def create(self) -> Head:
        """Creates the changelog if it does not exist, and returns its head. No JVM.

        Two runs may do so at once: below a path a lock lets one go first, behind a URI the store takes one of them.
        """
        found = self.head()
        if found is not None:
            missing_columns(self._looked_at() or self.opened(), self.table)
            return found
        with creation_lock(self.location):
            if self._delta() is None:
                self._create()
        created = self.head()
        if created is None:
            raise ChangelogError(f"the changelog at {self.uri} was created, but cannot be opened again")
        return created

    def _create(self) -> None:
        create_table(
            self.location,
            self._schema(),
            {
                ID_PROPERTY: str(uuid.uuid4()),
                MODE_PROPERTY: self.mode,
                **({KEY_PROPERTY: key_text(self.table)} if self.keeps_key else {}),
                "delta.enableDeletionVectors": "false",
                "delta.checkpointInterval": "10",
                # What readers choose files by; statistics of more columns cost as much as writing some.
                "delta.dataSkippingStatsColumns": f"{rows.BATCH},{rows.KIND}",
                **self._properties(),
            },
        )

    def _schema(self) -> pa.Schema:
        """Columns of a new table."""
        return rows.arrow_schema(self.table)

    def _properties(self) -> dict[str, str]:
        """Further properties of a new table."""
        return {}

    def write(self, frame: DataFrame, *, batch: int | None) -> list[DataFile]:
        """Writes a frame of the columns of `rows.spark_schema` into data files for `append` or `replace`.

        Args:
            batch: of all rows; None where each keeps its own.
        """
        return write_frame(frame, location=self.location, schema=rows.arrow_schema(self.table), batch=batch)

    def append(
        self,
        files: Sequence[DataFile],
        *,
        head: Head,
        positions: Positions,
        run: str,
        replaced: Collection[str] = (),
        unchanged: Collection[str] = (),
    ) -> Head | None:
        """Commits the batch after `head`. No JVM, so the commit ends with the driver: none comes after a kill.

        Args:
            files: what `data_files` wrote for this batch.
            positions: where reading goes on after this batch.
            run: name of this run, for `batches_of_run`.
            replaced: paths of files whose rows are in `files` as far as they are needed.
            unchanged: paths of further files that `files` were made of. They stay; an erasure, which takes rows out
                of files and adds no batch, may have come meanwhile.

        Returns:
            The new head, or None when another run committed that number, or replaced one of those files, first: plan
            again from the head.

        Raises:
            ChangelogError: other commits (compactions, say) came first again and again, or the folder is read-only.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction

        batch = head.batch + 1
        attempt = f"{run}/{uuid.uuid4().hex[:8]}"
        actions: list[AddAction | RemoveAction] = [
            AddAction(item.path, item.size, {}, item.modified, True, item.statistics(batch)) for item in files
        ]
        now = int(time.time() * 1000)
        actions += [RemoveAction(path, True, now, partition_values={}) for path in sorted(replaced)]
        for number in range(1, _COMMIT_ATTEMPTS + 1):
            delta = self.opened()
            before = self._head_in(delta)
            if (before.changelog_id, before.batch, before.run) != (head.changelog_id, head.batch, head.run):
                break
            needed = {*replaced, *unchanged}
            if needed and not needed <= {item.path for item in live_files(delta)}:
                break
            try:
                columns = missing_columns(delta, self.table)
                if columns:
                    add_columns(delta, columns, metadata=self.commit_metadata(delta))
                    continue
                if self.keeps_key and not check_key(delta, self.table):
                    keep_key(delta, self.table, metadata=self.commit_metadata(delta))
                    continue
                after = replace(before, batch=batch, positions=positions, run=attempt)
                properties = CommitProperties(
                    custom_metadata={
                        "userMetadata": commit_text(record_of_head(after)),
                        "isBlindAppend": not replaced,
                    },
                    # Nothing but the version that follows the one looked at, which has no batch of this number.
                    max_commit_retries=0,
                    app_transactions=[Transaction(head.changelog_id, batch)],
                )
                with naming(f"{self.uri}/_delta_log", writes=True):
                    delta.create_write_transaction(
                        actions, mode="append", schema=delta.schema(), commit_properties=properties
                    )
                record = json.loads(json.dumps(record_of_head(after)))
                return head_of_record(record, changelog_id=after.changelog_id, floor=after.floor, erased=after.erased)
            except CommitFailedError as error:
                if number == _COMMIT_ATTEMPTS:
                    raise ChangelogError(
                        f"batch {batch} of the changelog at {self.uri} was not committed in {number} attempts: other"
                        f" commits came first each time, or its folder cannot be written ({error})"
                    ) from error
                time.sleep(random.uniform(0.01, 0.02 * 2**number))
        found = self.head()
        # A commit whose answer was lost is found to be there by the next attempt.
        return found if found is not None and found.run == attempt else None

    def replace(self, files: Sequence[DataFile], *, replaced: Collection[str], reduced: int = 0) -> bool:
        """Commits files in the place of others, beside whatever is appended meanwhile. No JVM.

        Args:
            files: with the rows of `replaced`, as far as they are needed.
            replaced: paths of files of the present version.
            reduced: the batch up to which the commit reduces history.

        Returns:
            False when one of `replaced` was replaced by another run first; nothing was changed then.

        Raises:
            ChangelogError: other commits came first again and again, or the folder is read-only.
        """
        from deltalake import CommitProperties
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction

        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(item.path, item.size, {}, item.modified, False, item.statistics(0)) for item in files
        ]
        actions += [RemoveAction(path, False, now, partition_values={}) for path in sorted(replaced)]
        for number in range(1, _COMMIT_ATTEMPTS + 1):
            delta = self.opened()
            if not set(replaced) <= {item.path for item in live_files(delta)}:
                return False
            # The head is read before the commit, which fails when something came between.
            properties = CommitProperties(
                custom_metadata={"userMetadata": self.commit_metadata(delta, reduced=reduced)}, max_commit_retries=0
            )
            try:
                with naming(f"{self.uri}/_delta_log", writes=True):
                    delta.create_write_transaction(
                        actions, mode="append", schema=delta.schema(), commit_properties=properties
                    )
                return True
            except CommitFailedError as error:
                if number == _COMMIT_ATTEMPTS:
                    raise ChangelogError(
                        f"files of the changelog at {self.uri} were not replaced in {number} attempts: other commits"
                        f" came first each time, or its folder cannot be written ({error})"
                    ) from error
                time.sleep(random.uniform(0.01, 0.02 * 2**number))
        return False

    def metadata(self) -> Metadata | None:
        """Return what the table says of itself, as of the latest look; None where it does not exist. No JVM."""
        delta = self._looked_at()
        return None if delta is None else delta.metadata()

    def opened(self) -> DeltaTable:
        """The table as it is now.

        Raises:
            ChangelogError: it does not exist (any more).
        """
        delta = self._delta()
        if delta is None:
            raise ChangelogError(f"the changelog at {self.uri} vanished while this run wrote to it")
        return delta

    def commit_metadata(
        self, delta: DeltaTable, *, reduced: int = 0, noted: Mapping[str, Applied] | None = None
    ) -> str:
        """Return the userMetadata of a commit that adds no batch: the last commit always has the positions.

        Args:
            delta: the table that the commit changes. It must be committed as the version after this one, without a
                rebase: behind a batch that came meanwhile it would repeat the positions before that batch.
            reduced: the batch up to which the commit reduces history.
            noted: what consumers hold now.
        """
        head = self._head_in(delta)
        record = record_of_head(replace(head, held={**head.held, **(noted or {})}))
        return commit_text({**record, **({"reduced": reduced} if reduced else {})})

    def commit_beside(
        self, change: Callable[[DeltaTable, CommitProperties], object], *, noted: Mapping[str, Applied] | None = None
    ) -> None:
        """Makes a commit that adds no batch; it is made anew from the table as it is then where another came first.

        Args:
            change: commits to the table it is given, with the properties it is given.
            noted: what consumers hold, with the commit's transactions (`upkeep.note_applied`).

        Raises:
            ChangelogError: other commits came first again and again, or the folder is read-only.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        for number in range(1, _COMMIT_ATTEMPTS + 1):
            delta = self.opened()
            properties = CommitProperties(
                custom_metadata={"userMetadata": self.commit_metadata(delta, noted=noted)},
                max_commit_retries=0,
                app_transactions=[Transaction(applied_name(name), item.batch) for name, item in (noted or {}).items()],
            )
            try:
                with naming(f"{self.uri}/_delta_log", writes=True):
                    change(delta, properties)
                return
            except CommitFailedError as error:
                if number == _COMMIT_ATTEMPTS:
                    raise ChangelogError(
                        f"the changelog at {self.uri} was not changed in {number} attempts: other commits came first"
                        f" each time, or its folder cannot be written ({error})"
                    ) from error
                time.sleep(random.uniform(0.01, 0.02 * 2**number))

    def commit_of(self, batch: int) -> str | None:
        """Return the identity of a batch's commit; None where nothing tells it any more. No JVM."""
        delta = self._looked_at()
        return None if delta is None else commit_of_batch(delta, self._head_in(delta), batch)

    def committed_at(self) -> datetime | None:
        """Return the time (UTC) of the last commit of a batch, as far as the latest commits reach back; None before the
        first. No JVM.
        """
        delta = self._looked_at()
        found: dict[int, int] = {}
        for commit in delta.history(HISTORY_DEPTH) if delta else ():
            record = commit_record(commit.get("userMetadata"))
            if record is not None and record["batch"] and "timestamp" in commit:
                # Compactions carry the batch of the head on; the oldest commit of a batch made it.
                found[record["batch"]] = commit["timestamp"]
        return datetime.fromtimestamp(found[max(found)] / 1000, UTC) if found else None

    def commit_records(self) -> list[dict[str, Any]]:
        """Return the records that the platform wrote into the latest commits, newest first. No JVM."""
        delta = self._delta()
        records = (commit_record(item.get("userMetadata")) for item in (delta.history(HISTORY_DEPTH) if delta else ()))
        return [record for record in records if record is not None]

    def batches_of_run(self, run: str) -> list[int]:
        """Numbers of the batches that a run committed, ascending, as far as the table's log tells. No JVM."""
        delta = self._delta()
        if delta is None:
            return []
        found: set[int] = set()
        for commit in delta.history(_RUN_DEPTH):
            record = commit_record(commit.get("userMetadata"))
            if record is None:
                continue
            if record["run"].partition("/")[0] == run:
                found.add(record["batch"])
            elif found:
                break
        return sorted(found)

    def accounts(self, *, after: int, upto: int) -> dict[int, list[RangeAccount]]:
        """Return the account of every offset, batch to ranges, for the batches after `after` up to `upto`. No JVM.

        Ranges of a batch are in the order of their places, however many files of however many tasks tell of them.
        """
        result: dict[int, list[RangeAccount]] = {}
        table = self.read_arrow([rows.BATCH, rows.ACCOUNTING], kind=rows.KIND_ACCOUNTING, after=after, upto=upto)
        for batch, text in zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True):
            result.setdefault(batch, []).append(RangeAccount.from_json(text))
        for ranges in result.values():
            ranges.sort(key=lambda item: (item.topic, item.partition, item.start))
        return result

    def read_arrow(self, columns: Sequence[str], *, kind: str, after: int, upto: int | None) -> pa.Table:
        """Columns of the rows of a kind in the batches after `after` and up to `upto`. No JVM."""
        return read_kind(
            self._looked_at(), self.location, rows.arrow_schema(self.table), columns, kind=kind, after=after, upto=upto
        )

    def count_changes(self) -> int:
        """Return the number of change rows, history included, by reading their kinds alone. No JVM.

        A dataset of Arrow's, and an array of Python's values, would load pandas: half a second of a run without work.

        Raises:
            ChangelogError: a file is damaged, or gone meanwhile.
        """
        import pyarrow as pa

        schema = pa.schema([rows.system_schema().field(rows.KIND)])
        found = read_rows(self.location, [item.path for item in self.files()], schema=schema)
        counts = (tuple(item.values()) for part in found for item in part.column(0).value_counts().to_pylist())
        return sum(count for kind, count in counts if kind in rows.CHANGE_KINDS)

    def dataset(self) -> ds.Dataset:
        """The live rows, for reading with Arrow; without any where the changelog does not exist. No JVM."""
        import pyarrow.dataset as ds

        delta = self._looked_at()
        return ds.dataset(rows.arrow_schema(self.table).empty_table()) if delta is None else live_dataset(delta)

    def files(self) -> list[LiveFile]:
        """The live data files. No JVM."""
        delta = self._looked_at()
        return live_files(delta) if delta is not None else []

    def about_rows(self, *, after: int = 0, upto: int) -> int:
        """About how many changes the batches after `after` up to `upto` have, by the statistics of files. No JVM."""
        files = [item for item in self.files() if item.may_hold(after=after, upto=upto)]
        return sum(item.rows_between(after=after, upto=upto) for item in files)

    def transaction_version(self, name: str) -> int:
        """The number that was last committed under a name, 0 before the first; see `upkeep.note_applied`. No JVM."""
        delta = self._looked_at()
        return 0 if delta is None else delta.transaction_version(name) or 0

    def rows_of(self, spark: SparkSession, files: Sequence[LiveFile]) -> DataFrame:
        """All rows of some files, of every kind: the columns of `rows.spark_schema`."""
        found = read_files(spark, self.location, [item.path for item in files], schema=rows.spark_schema(self.table))
        return frame_with_declared_keys(found, cut_keys(self.table))

    def read(self, spark: SparkSession, *, after: int, upto: int) -> DataFrame:
        """Change rows of the batches after `after` and up to `upto`: all columns, no quarantine, no accounting."""
        kinds = ", ".join(f"'{kind}'" for kind in rows.CHANGE_KINDS)
        found = [item for item in self.files() if item.may_hold(after=after, upto=upto)]
        return self.rows_of(spark, found).where(
            f"{rows.BATCH} > {after} AND {rows.BATCH} <= {upto} AND {rows.KIND} IN ({kinds})"
        )
