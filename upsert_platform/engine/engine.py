"""Advances a query by one batch: plan what is new, run its stages, commit state, result and positions together."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.data_files import DataFile, file_system, write_files
from upsert_platform.changelog.store import ChangelogStore, Head, LiveFile, Positions
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.connector import WholeTable
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.plan import now_in_milliseconds
from upsert_platform.engine.store import PLAN, QueryStore

if TYPE_CHECKING:
    from upsert_platform.core.connector import KeyReader
    from upsert_platform.engine.exchange import Part
    from upsert_platform.engine.reading import Piece
    from upsert_platform.engine.runners import Runner
    from upsert_platform.engine.stages import Stage
    from upsert_platform.engine.tasks import Answer, Task

T = TypeVar("T")
MOST_ROWS: Final = 4_500_000
"""About so many rows of an input are taken in one batch, so that memory follows this, and not the backlog."""
_FEW_ROWS: Final = 20_000
"""A task has at least so many rows to read."""


@dataclass(frozen=True)
class Slice:
    """The new batches of an input.

    Attributes:
        files: those that may hold changes of the batches after `after` and up to `upto`.
        commit: identity of the input's commit of `upto`.
    """

    name: str
    location: TableLocation
    changelog_id: str
    after: int
    upto: int
    head: int
    files: tuple[LiveFile, ...]
    commit: str = ""

    @property
    def rows(self) -> int:
        """At most so many changes are read."""
        return sum(item.rows or 0 for item in self.files)


@dataclass(frozen=True)
class QueryBatchPlan:
    """The next batch of a query.

    Attributes:
        head: of the query's table, or None when it does not exist.
        slices: per input that exists.
    """

    head: Head | None
    slices: tuple[Slice, ...]
    first_row: bool = False

    @property
    def behind(self) -> int:
        """Batches of inputs that the query has not applied."""
        return sum(item.head - item.after for item in self.slices)

    @property
    def is_due(self) -> bool:
        """Return whether there is something to do."""
        return self.behind > 0 or (self.first_row and (self.head is None or self.head.batch == 0))


@dataclass(frozen=True)
class QueryBatch:
    """A batch that was committed.

    Attributes:
        read: changes read of all inputs.
        written: rows of the result's changelog.
        state_rows: rows of state written; `state_bytes` is what all state takes after it.
        met: keys that several inserts into one table have, of those that the batch touched.
        late: rows that were left out of a window since it is closed.
        let_go: rows of state that left it: closed windows no longer need them, or nothing changed them for so long.
        forgotten: rows that were taken back after they were let go of, which changes nothing.
    """

    head: Head
    read: int
    written: int
    state_rows: int
    state_bytes: int
    seconds: float
    stages: tuple[float, ...] = field(default=())
    met: int = 0
    late: int = 0
    let_go: int = 0
    forgotten: int = 0


def plan_batch(
    store: QueryStore, inputs: Mapping[str, ChangelogStore], *, most_rows: int = MOST_ROWS
) -> QueryBatchPlan:
    """Compares what the query has applied with the heads of its inputs. No JVM.

    Raises:
        ChangelogError: an input was made anew, or compacted beyond what the query has applied; or the query's plan
            was changed.
    """
    head = store.head()
    positions = head.positions if head is not None else Positions()
    slices: list[Slice] = []
    for name in store.query.tables:
        source = inputs[name]
        after = positions.offsets.get(name, {}).get(0, 0)
        found = source.head_and_files(after=after)
        if found is None:
            continue
        there, files = found
        known = positions.topic_ids.get(name)
        if known is not None and known != there.changelog_id:
            raise ChangelogError(
                f"query '{store.query.name}' was computed from another changelog of '{name}'; run the job 'rebuild' to"
                " compute it anew"
            )
        _check_commit(store, name, source, there, after=after, applied=positions.topic_ids.get(commit_name(name), ""))
        if 0 < after < there.needed:
            raise ChangelogError(
                f"query '{store.query.name}' has applied '{name}' up to batch {after}, but deletes up to batch"
                f" {there.needed} were removed by a compaction or an erasure; run the job 'rebuild' to compute it anew"
            )
        slices.append(_slice(name, source, there, files, after, most_rows))
    return QueryBatchPlan(head, tuple(slices), any(stage.first_row for stage in store.stages()))


def _slice(
    name: str, source: ChangelogStore, head: Head, live: Sequence[LiveFile], after: int, most_rows: int
) -> Slice:
    files = [item for item in live if item.may_hold(after=after, upto=head.batch)]
    upto, total = after, 0
    weights: dict[int, int] = {}
    for item in files:
        last = min(item.last_batch or head.batch, head.batch)
        weights[last] = weights.get(last, 0) + (item.rows or 0)
    for batch in range(after + 1, head.batch + 1):
        total += weights.get(batch, 0)
        if total > most_rows and upto > after:
            break
        upto = batch
    chosen = tuple(item for item in files if item.may_hold(after=after, upto=upto))
    commit = head.run if upto == head.batch else source.commit_of(upto) or ""
    return Slice(name, source.location, head.changelog_id, after, upto, head.batch, chosen, commit)


def commit_name(table: str) -> str:
    """Return the name under which the position of a query has the identity of an input's last applied commit."""
    return f"(commit) {table}"


def _check_commit(
    store: QueryStore, name: str, source: ChangelogStore, head: Head, *, after: int, applied: str
) -> None:
    """Refuses an input that was restored from an older copy: it has other batches than those that were applied.

    Args:
        head: of the input.
        after: the batch of it that the query has applied, and `applied` that batch's commit, empty if unknown.
    """
    known = head.run if after == head.batch else None  # of the last batch no log has to be read
    if applied and 0 < after < head.batch:
        known = source.commit_of(after)
    if after > head.batch or (after and applied and known != applied):
        was = f" of commit '{applied}'" if applied else ""
        now = f"ends with batch {head.batch} of commit '{head.run}'"
        if after <= head.batch:
            now = f"has batch {after} of commit '{known}'" if known else f"no longer knows the commit of batch {after}"
        raise ChangelogError(
            f"query '{store.query.name}' has applied batch {after}{was} of '{name}', but the changelog at {source.uri}"
            f" {now}: it was restored from an older copy, and changes would be lost. Restore the newer copy of the"
            " lake, or run the job 'rebuild' to compute the query anew"
        )


def advance(
    store: QueryStore,
    plan: QueryBatchPlan,
    *,
    runner: Runner,
    run: str,
    lookups: Mapping[str, KeyReader] | None = None,
) -> QueryBatch | None:
    """Computes and commits the planned batch.

    Args:
        lookups: what reads each of the tables in which the query finds rows.

    Returns:
        What was done, or None when another run came first: plan again.
    """
    started = time.monotonic()
    head = plan.head if plan.head is not None else store.create()
    batch = _Batch(store, head, plan, runner, lookups or {})
    try:
        batch.hold_tables()
        seconds = [batch.run(batch.times.at(stage, batch.tally)) for stage in batch.stages]
        batch.let_go_of_idle()
        account = account_file(store, batch.read, batch.written, number=head.batch + 1)
        positions = Positions(
            {**head.positions.offsets, **{item.name: {0: item.upto} for item in plan.slices}},
            {
                **head.positions.topic_ids,
                **{item.name: item.changelog_id for item in plan.slices},
                **{commit_name(item.name): item.commit for item in plan.slices},
                PLAN: store.fingerprint,
                **batch.clocks(),
            },
        )
        after = store.append([*batch.added, *account], head=head, positions=positions, run=run, replaced=batch.removed)
    finally:
        batch.clean()
    if after is None:
        return None
    return QueryBatch(
        after,
        batch.read,
        batch.written,
        batch.state_rows,
        batch.state_bytes,
        time.monotonic() - started,
        tuple(seconds),
        batch.met,
        batch.tally.late,
        batch.let_go,
        batch.forgotten,
    )


class _Batch:
    """The stages of one batch, and what their tasks wrote."""

    def __init__(
        self, store: QueryStore, head: Head, plan: QueryBatchPlan, runner: Runner, lookups: Mapping[str, KeyReader]
    ) -> None:
        from upsert_platform.engine.closing import Times
        from upsert_platform.engine.steps import Tally

        self.store = store
        self.plan = plan
        self.runner = runner
        self.lookups = dict(lookups)
        self.number = head.batch + 1
        self.attempt = uuid.uuid4().hex
        self.buckets, self.state = store.layout()
        self.parts: list[Part] = []
        self.added: list[DataFile] = []
        self.removed: list[str] = []
        self.read = self.met = self.let_go = self.forgotten = 0
        self.tally = Tally()
        now = now_in_milliseconds()
        self.stages = tuple(stage.at(now) for stage in store.stages())
        self.times = Times.of(self.stages, head.positions.topic_ids)

    @property
    def written(self) -> int:
        """Rows of the result."""
        return sum(item.rows for item in self.added) - self.state_rows

    @property
    def state_rows(self) -> int:
        """Rows of state."""
        from upsert_platform.engine.state import KIND_STATE

        return sum(item.rows for item in self.added if item.least_kind == KIND_STATE)

    @property
    def state_bytes(self) -> int:
        """Return the size of all state after this batch."""
        from upsert_platform.engine.state import KIND_STATE

        removed = set(self.removed)
        kept = sum(file.size for files in self.state.values() for file in files if file.path not in removed)
        return kept + sum(item.size for item in self.added if item.least_kind == KIND_STATE)

    def hold_tables(self) -> None:
        """Reads the tables that are looked into as a whole, so that all tasks find the same rows.

        Raises:
            DestinationError, EndpointError: one of them cannot be read.
        """
        from upsert_platform.engine.held_rows import hold

        for name, reader in self.lookups.items():
            if isinstance(reader, WholeTable):
                self.lookups[name] = hold(reader, self.store.location, attempt=self.attempt)

    def run(self, stage: Stage) -> float:
        """Runs a stage; seconds that it took."""
        started = time.monotonic()
        parts = tuple(part for part in self.parts if part.exchange in stage.reads)
        rows = sum(part.rows for part in parts)
        shares = self._shares(stage)
        if stage.scan is not None:
            rows = sum(item.rows for item in self.plan.slices if item.name == stage.scan.table)
        names = {state.name for state in stage.states}
        files = {place: found for place, found in self.state.items() if place[0] in names}
        state = sum(file.size for found in files.values() for file in found)
        count = min(self.runner.parallel(rows=rows, state=state), max(1, rows // _FEW_ROWS) if not state else 1 << 30)
        tasks = self._tasks(stage, parts, files, shares, count)
        for answer in self.runner.run(tasks, rows=rows, state=state):
            self._take(answer)
        return time.monotonic() - started

    def _shares(self, stage: Stage) -> Slice | None:
        if stage.scan is None:
            return None
        return next((item for item in self.plan.slices if item.name == stage.scan.table), None)

    def _tasks(
        self,
        stage: Stage,
        parts: tuple[Part, ...],
        files: Mapping[tuple[str, int], tuple[object, ...]],
        share: Slice | None,
        count: int,
    ) -> list[Task]:
        from upsert_platform.engine.reading import ChangelogShare
        from upsert_platform.engine.tasks import Task, first_bucket

        def task(**settings: object) -> Task:
            found = {name: reader for name, reader in self.lookups.items() if name == stage.looks_up}
            return Task(
                stage, self.store.location, self.number, self.attempt, self.buckets, lookups=found, **settings  # type: ignore[arg-type]
            )  # fmt: skip

        if stage.scan is not None:
            if share is None or not share.files:
                return []
            shared = divide(_pieces(share.files, count), count)
            return [
                task(share=ChangelogShare(share.location, tuple(pieces), share.after, share.upto)) for pieces in shared
            ]
        if not stage.bucketed:
            return [task(parts=(part,)) for part in parts]
        weights: dict[int, int] = {}
        for part in parts:
            for bucket in part.index:
                weights[bucket] = weights.get(bucket, 0) + part.rows // len(part.index)
        if stage.final is not None:  # rows may wait in any of them
            weights |= {bucket: weights.get(bucket, 0) for _, bucket in files}
        first = self.number == 1 and stage.first_row
        if first:
            weights.setdefault(first_bucket(self.buckets), 0)
        return [
            task(
                mine=tuple(mine),
                parts=parts,
                files={place: found for place, found in files.items() if place[1] in mine},
                first=first,
            )
            for mine in divide(list(weights.items()), count)
        ]

    def _take(self, answer: Answer) -> None:
        from upsert_platform.engine.closing import merged

        self.added += answer.added
        self.removed += answer.removed
        self.parts += answer.parts
        self.read += answer.read
        self.met += answer.met
        self.let_go += answer.let_go
        self.forgotten += answer.forgotten
        self.tally = merged(self.tally, answer.tally)

    def let_go_of_idle(self) -> None:
        """Removes the state of buckets in which nothing changed for so long."""
        from upsert_platform.engine.state import Idle

        touched = set(self.removed) | {item.path for item in self.added}
        for stage in self.stages:
            for name, ttl in stage.ttls:
                idle = Idle(ttl, stage.now)
                for (state, bucket), files in self.state.items():
                    if state != name or not all(idle.is_over(file.written) for file in files):
                        continue
                    begins = f"{name}-{bucket:04}-"
                    if any(path.startswith(begins) for path in touched):
                        continue
                    self.removed += [file.path for file in files]
                    self.let_go += sum(file.rows for file in files)

    def clocks(self) -> dict[str, str]:
        """The clocks of windows that close, as the commit keeps them."""
        from upsert_platform.engine.closing import position_name

        return {position_name(end): clock.text() for end, clock in self.times.after(self.tally).items()}

    def clean(self) -> None:
        """Deletes the exchanges of this attempt."""
        from upsert_platform.changelog.exchanges import FOLDER

        system, folder = file_system(self.store.location)
        with suppress(FileNotFoundError):
            system.delete_dir(f"{folder}{FOLDER}/{self.attempt}")


def _pieces(files: Sequence[LiveFile], count: int) -> list[tuple[Piece, int]]:
    """Files with their sizes; those that are more than the share of one task are in parts."""
    from upsert_platform.engine.reading import Piece

    most = max(1, sum(item.size for item in files) // count)
    found: list[tuple[Piece, int]] = []
    for item in files:
        parts = min(count, -(-item.size // most)) if count > 1 else 1
        found += [(Piece(item.path, part, parts), item.size // parts) for part in range(parts)]
    return found


def divide(items: Sequence[tuple[T, int]], count: int) -> list[list[T]]:
    """Weighed items in at most so many shares of about the same weight; none is empty."""
    shares: list[tuple[int, list[T]]] = [(0, []) for _ in range(max(1, min(count, len(items))))]
    for item, weight in sorted(items, key=lambda pair: -pair[1]):
        at = min(range(len(shares)), key=lambda number: (shares[number][0], len(shares[number][1])))
        shares[at][1].append(item)
        shares[at] = (shares[at][0] + weight, shares[at][1])
    return [mine for _, mine in shares if mine]


def account_file(store: QueryStore, read: int, written: int, *, number: int) -> list[DataFile]:
    """The accounting of a batch, as changelogs of topics have it: changes read, and rows that they gave."""
    import pyarrow as pa

    account = RangeAccount(f"(query {store.query.name})", 0, 0, read, records=read, kept=read, rows=written)
    schema = store.result().schema
    given = {rows.KIND: rows.KIND_ACCOUNTING, rows.ACCOUNTING: account.to_json()}
    columns = [pa.array([given.get(item.name)], item.type) for item in schema]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    manifests = write_files([batch], location=store.location, schema=schema, batch=number)
    return [DataFile(**row) for manifest in manifests for row in manifest.to_pylist()]
