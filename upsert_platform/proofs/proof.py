"""Compares a table with its topics at a stated end, and says what differs once keys have settled.

The table may be written meanwhile, by the platform or by anybody else. Rows that differ are looked at again: what later
records of a key explain is no difference. When the time to settle is over, a key that still differs is a difference if
the topic has not changed it since the stated end; else it is named as moving.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from upsert_platform.changelog.accounting import ends_of_batches
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.core.capabilities import (
    ComparesRecords,
    ExpiresPartitions,
    ExpiresRows,
    FindsDuplicates,
)
from upsert_platform.core.destination import STATUS, Destination
from upsert_platform.core.errors import ChangelogError, DestinationError
from upsert_platform.core.masking import Mask
from upsert_platform.core.types import quote_name, spark_type
from upsert_platform.proofs.ends import APPLIED, LATEST, At, Ends, ends_of_sources
from upsert_platform.proofs.inputs import NotProvableError, ProofInputs, ReadTopic, topics_of
from upsert_platform.sync.binding import Binding, QuerySource, Target, changelog_of
from upsert_platform.sync.comparison import SHOWN_ROWS, Comparison
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.position import check_position
from upsert_platform.sync.reconcile import is_unnamed
from upsert_platform.sync.verify import (
    CHANGE,
    NO_DIFFERENCE,
    as_held,
    judged_by_buckets,
    judged_rows,
    stored_key,
    summed,
)
from upsert_platform.writing.same_key import join_by_key, without_null_keys

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from upsert_platform.changelog.store import ChangelogStore

SETTLE_SECONDS: Final = 60.0
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 16.0


@dataclass(frozen=True)
class Proof:
    """The result of a proof.

    Attributes:
        at: the stated end, in the words of `--at`.
        through: topic to what was read of it at the stated end.
        found: differences, with examples; rows compared.
        moving: keys that differ, and that the topic has changed since the stated end; `moving_keys` names some.
        unknown: rows whose key no record names, of a topic that has let go of records: nobody can tell whether they
            belong there; `unknown_keys` names some.
        strays: keys, as `verify.judged_rows` names them, of rows among those found to be extra whose key no record
            names, of topics that have all of their records; None if there are none.
        duplicates: keys that the table holds more than once; `duplicate_keys` names some.
        quarantined: records that could not be decoded.
        looks: how often rows were looked at.
        batch: of the lake, whose rows are expected; None where the topics say what is expected.
        history: the first batch of which the lake still has the rows; None as with `batch`.
    """

    table: str
    at: str
    through: Mapping[str, ReadTopic]
    found: Comparison
    moving: int = 0
    moving_keys: tuple[str, ...] = ()
    unknown: int = 0
    unknown_keys: tuple[str, ...] = ()
    strays: DataFrame | None = field(default=None, compare=False, repr=False)
    duplicates: int = 0
    duplicate_keys: tuple[str, ...] = ()
    quarantined: int = 0
    looks: int = 1
    seconds: float = 0.0
    batch: int | None = None
    history: int | None = None
    proven_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def equal(self) -> bool:
        """Return whether nothing differs; moving keys are not judged."""
        return self.found.passed and not self.duplicates

    @property
    def position(self) -> str:
        """The end that was read: ``orders-0:42,orders-1:17``."""
        return ",".join(
            f"{topic}-{partition}:{end}"
            for topic, read in sorted(self.through.items())
            for partition, end in read.end.items()
        )


class Inputs(Protocol):
    """Source of the expected rows, which goes on while a proof looks."""

    @property
    def incomplete(self) -> bool:
        """Return whether rows that nothing names may be right all the same."""

    def read_to(self, spark: SparkSession, *, tell: Callable[[str], None]) -> int:
        """Read on to the present end; return its batch."""


def prove(
    spark: SparkSession,
    target: Target,
    binding: Binding,
    lake: Lake,
    *,
    at: At | None = None,
    settle: float = SETTLE_SECONDS,
    strict: bool = False,
    examples: int = SHOWN_ROWS,
    tell: Callable[[str], None] = lambda message: None,
) -> Proof:
    """Compare a table with its topics; write nothing but the proof's own changelogs, which are removed at the end.

    Args:
        at: where the topics end; the offsets that the platform has applied to the table if left out, or, of a table
            that somebody else writes, the latest ones.
        settle: seconds that the writer of the table has to write what the topic holds.
        strict: nobody writes the table, so that nothing has to settle: rows that differ are looked at once. Keys that
            the topics change behind the stated end are moving all the same: where a topic is compacted, their records
            before the end may be gone.
        examples: rows that are described, and keys that are named.
        tell: is given a line per batch that is read, and per look.

    Raises:
        NotProvableError: the rows of the table follow from more than its topics.
        TopicError, EndpointError, RecordError: the topics or the table cannot be read.
    """
    started = time.monotonic()
    sources = topics_of(target, binding)
    run = f"proof-{uuid.uuid4().hex[:12]}"
    inputs = ProofInputs(target, binding, sources, lake.proof(target.table.name, run), run=run)
    with closing(inputs), closing(target.open()) as destination:
        check_provable(destination)
        applied = _applied_ends(target, binding, destination, lake, asked=at is not None and at.word == APPLIED)
        if at is None:
            at = At(LATEST if applied is None else APPLIED)
        if at.word == APPLIED and applied is not None:
            ends = {name: _every_lane(item.discover(), applied[0].get(name, {})) for name, item in sources.items()}
        else:
            ends = ends_of_sources(at, sources)
        batch = inputs.read_to(spark, ends, tell=tell)
        through = dict(inputs.read)
        refused = ExcusedRows(lake.refused(target.table.name))
        hop = DestinationHop(target, inputs.store, destination, refused=refused, run=run)
        judging = Judging(spark, hop, inputs, batch, tell)
        # What our own control record says was applied needs no time to arrive.
        patient = applied is None or not applied[1] or at.word != APPLIED
        found = judging.prove(settle=settle, patient=patient, strict=strict, examples=examples)
        duplicates, duplicate_keys = duplicates_of(spark, target, destination, examples)
        return replace(
            found,
            at=at.form,
            through=through,
            duplicates=duplicates,
            duplicate_keys=duplicate_keys,
            quarantined=inputs.quarantined,
            seconds=time.monotonic() - started,
        )


def check_provable(destination: Destination) -> None:
    name = destination.name
    if isinstance(destination, ComparesRecords):
        raise NotProvableError(
            f"table '{name}' is made of records by its connector's own rules, so no key has an expected row;"
            f" 'upsert-platform verify {name}' compares it with its changelog"
        )
    if not destination.primary_key:
        raise NotProvableError(
            f"table '{name}' has no primary key: rows are appended, and no last value per key can be expected"
        )
    if isinstance(destination, ExpiresRows) and destination.time_to_live() is not None:
        raise NotProvableError(
            f"table '{name}' lets rows expire {destination.time_to_live()} seconds after they were written, which"
            " its topic does not say: a missing row proves nothing"
        )
    if isinstance(destination, ExpiresPartitions) and (lifetimes := destination.partition_lifetimes()) is not None:
        raise NotProvableError(
            f"table '{name}' lets partitions expire {lifetimes.seconds // 86_400} days after they were written last"
            " (its lifecycle), which its topic does not say: a missing row proves nothing; 'upsert-platform verify"
            f" {name}' compares it with its changelog, and counts such rows as expired"
        )


def _applied_ends(
    target: Target, binding: Binding, destination: Destination, lake: Lake, *, asked: bool
) -> tuple[dict[str, Ends], bool] | None:
    """Return the offsets that the platform has applied to a table, by source, and whether it holds all up to them.

    None of a table that the platform does not write, or that was written from another changelog.

    Args:
        asked: the user asks for the applied end, so a reason not to have it is an error.
    """
    store = changelog_of(target.source, lake)
    try:
        state, head = destination.state(), store.head()
        check_position(store, head, state, table=destination.name, uri=destination.uri)
    except (ChangelogError, DestinationError):
        if asked:
            raise
        return None
    if head is None or not state.applied_batch:
        if asked:
            raise DestinationError(
                f"table '{destination.name}' has no control record of the platform: give '--at latest', offsets or a"
                " time"
            )
        return None
    if isinstance(target.source, QuerySource):
        ends = _query_ends(binding, target.source.query.name, lake)
        return ends, state.applied_batch == head.batch and not set(target.source.query.tables) & set(binding.queries)
    return {target.source.table.name: _ends_of(store, state.applied_batch)}, True


def _query_ends(binding: Binding, query: str, lake: Lake) -> dict[str, Ends]:
    """Return the offsets that the result of a query has seen, by source."""
    found: dict[str, Ends] = {}
    for item in binding.query_hop(query, lake, run="proof").plan().slices:
        if item.name in binding.queries:
            found = {**_query_ends(binding, item.name, lake), **found}
        else:
            found[item.name] = _ends_of(binding.changelog(item.name, lake), item.after)
    return found


def _ends_of(store: ChangelogStore, batch: int) -> Ends:
    batches = ends_of_batches(store.accounts(after=0, upto=batch))
    return batches[max(batches)] if batches else {}


def _every_lane(streams: Sequence[Any], applied: Ends) -> Ends:
    """Return applied ends; partitions that were not read yet end at their first offset."""
    return {
        (stream.name, lane.partition): applied.get((stream.name, lane.partition), lane.low)
        for stream in streams
        for lane in stream.partitions
    }


class ExcusedRows(RefusedStore):
    """Rows that the table refused, whatever batch refused them: the batches of a proof are other ones."""

    def keys(self) -> pa.Table:
        """As `RefusedStore.keys`, as of a batch behind all others."""
        import pyarrow as pa

        kept = super().keys()
        last = pa.repeat(pa.scalar((1 << 63) - 1, pa.int64()), kept.num_rows)
        return kept.set_column(kept.schema.get_field_index("batch"), "batch", last)


class Judging:
    """Looks at a table until what differs has settled.

    Args:
        batch: of the changelog that says which rows are expected, with which the stated end ends.
    """

    def __init__(
        self,
        spark: SparkSession,
        hop: DestinationHop,
        inputs: Inputs,
        batch: int,
        tell: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._hop = hop
        self._inputs = inputs
        self._batch = batch
        self._tell = tell
        self._keys = [f"k{index}" for index in range(len(hop.destination.primary_key))]

    def prove(self, *, settle: float, patient: bool, strict: bool, examples: int) -> Proof:
        """Return what differs.

        Args:
            patient: keys that did not change since the stated end have the time to settle as well.
            strict: rows are looked at once, and keys that changed since the stated end are not judged.
        """

        deadline = time.monotonic() + settle
        changes = as_held(
            self._hop.destination, self._hop.changes_with_failures(self._spark, after=0, upto=self._batch)
        )
        joined, equal = judged_by_buckets(
            self._hop, changes, self._hop.destination.read(self._spark), keeps_change=True
        )
        judged = joined.persist()
        try:
            compared = summed(self._hop, judged, batch=self._batch, complete=True, most=0, equal=equal)
            differing = _kept(judged.where(_differs()))
        finally:
            judged.unpersist()
        looks, pause = 1, _FIRST_PAUSE
        moving = differing.limit(0)
        while not compared.passed and not differing.isEmpty():
            head = self._inputs.read_to(self._spark, tell=self._tell)
            changed = self._changed(head)
            if changed is not None:
                moving = join_by_key(differing, changed, self._keys, "left_semi")
            left = deadline - time.monotonic()
            if strict or left <= 0 or (not patient and moving.isEmpty()):
                break
            self._tell(f"looking again at {differing.count():,} rows that differ")
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
            differing = _kept(self._looked_again(differing, head))
            moving = differing.limit(0)  # those of the look before may have settled
            looks += 1
        settled = join_by_key(differing, moving, self._keys, "left_anti")
        if self._inputs.incomplete:
            # Where the topic has let go of records, a row that none of them names may be right.
            unnamed = _kept(settled.where(is_unnamed()))
            unknown = summed(self._hop, unnamed, batch=self._batch, complete=True, most=examples)
            settled = settled.where(~is_unnamed())
        else:
            unknown = None
        found = summed(self._hop, _kept(settled.drop(CHANGE)), batch=self._batch, complete=True, most=examples)
        strays = None
        if unknown is None and found.extra:
            strays = _kept(settled.where(is_unnamed()).select(*self._keys))
        moved = summed(self._hop, _kept(moving.drop(CHANGE)), batch=self._batch, complete=True, most=examples)
        return Proof(
            table=self._hop.destination.name,
            at="",
            through={},
            found=replace(
                found,
                compared=compared.compared,
                rows=compared.rows,
                refused=compared.refused,
            ),
            moving=moved.missing + moved.extra + moved.stale,
            moving_keys=tuple(row["key"] for row in moved.sample),
            unknown=0 if unknown is None else unknown.extra,
            unknown_keys=() if unknown is None else tuple(row["key"] for row in unknown.sample),
            strays=strays,
            looks=looks,
        )

    def _judged(self, upto: int, rows: DataFrame, *, among: DataFrame) -> DataFrame:
        """Return expected and found rows side by side.

        Args:
            among: only rows with these keys are expected, named as in `judged_rows`.
        """
        changes = as_held(self._hop.destination, self._hop.changes_with_failures(self._spark, after=0, upto=upto))
        named = changes.withColumns(dict(zip(self._keys, stored_key(self._hop.destination), strict=True)))
        changes = join_by_key(named, among.select(*self._keys), self._keys, "left_semi").drop(*self._keys)
        return judged_rows(self._hop, changes, rows, keeps_change=True)

    def _looked_again(self, differing: DataFrame, upto: int) -> DataFrame:
        """Return the rows that differ still, as the table has them now and the topic up to a batch."""
        from pyspark.sql import functions as F

        destination = self._hop.destination
        kinds = {column.name: spark_type(column.type) for column in destination.columns if column.type is not None}
        wanted = [
            F.coalesce(F.col(f"{CHANGE}.{quote_name(name)}"), F.col(place).cast(kinds[name])).alias(name)
            for name, place in zip(destination.primary_key, self._keys, strict=True)
        ]
        rows = destination.read(self._spark, keys=without_null_keys(differing.select(*wanted)))
        return self._judged(upto, rows, among=differing).where(_differs())

    def _changed(self, head: int) -> DataFrame | None:
        """Return the keys that records behind the stated end change; None where there are no such records."""
        if head == self._batch:
            return None
        changes = self._hop.changes(self._spark, after=self._batch, upto=head)
        key = zip(self._keys, stored_key(self._hop.destination), strict=True)
        return changes.select(*[value.alias(name) for name, value in key])


def _differs() -> SparkColumn:
    from pyspark.sql import functions as F

    return F.col(STATUS).isNotNull() & ~F.col(STATUS).isin(*NO_DIFFERENCE)


def _kept(rows: DataFrame) -> DataFrame:
    """Return rows as they are now: what they were read from may change."""
    return rows.localCheckpoint(eager=True)


def duplicates_of(
    spark: SparkSession, target: Target, destination: Destination, examples: int
) -> tuple[int, tuple[str, ...]]:
    """Return how many keys a table holds more than once, and some of them as text."""
    from pyspark.sql import functions as F

    if not isinstance(destination, FindsDuplicates):
        return 0, ()
    found = _kept(destination.duplicates(spark))
    names = destination.primary_key
    mask = Mask.of(target.table)
    shown = found.select(*[F.col(quote_name(name)).cast("string").alias(name) for name in names]).limit(examples)
    keys = tuple(", ".join(f"{name}={mask.value(name, row[name])}" for name in names) for row in shown.collect())
    return found.count(), keys
