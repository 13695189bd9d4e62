"""Replays quarantined records: decodes them again as declared now, and commits what is not outdated.

A replayed record keeps its topic, partition and offset. One that a later record of its key has overtaken is marked as
replayed and changes nothing; one that still does not decode stays in quarantine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.head import Head
from upsert_platform.changelog.latest import last_rows
from upsert_platform.changelog.quarantine import quarantined_places, quarantined_records
from upsert_platform.changelog.replays import ACCOUNT_TOPIC, READ_IN, read_in, replays_of
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.source import MODE_UPSERT, DecodesAgain, Source
from upsert_platform.core.types import quote_name
from upsert_platform.sync.binding import Binding
from upsert_platform.sync.replay_order import check_keys
from upsert_platform.writing.same_key import join_by_key

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MOST: Final = 100_000
"""Records of one replay; they pass through the driver."""
_IS_CANDIDATE: Final = internal("candidate")
_UNCERTAIN: Final = (
    "its key is not in the changelog, from which a compaction may have removed its delete: replay the topic from its"
    " first record, or into a new table, or discard the record"
)


@dataclass(frozen=True)
class Replay:
    """The result of a replay.

    Attributes:
        replayed: records that gave changes.
        superseded: records that a later record of their key has overtaken.
        refused: records that still do not decode, by place, with the reason; of very many the first ones.
        batch: the last batch that was committed, or None when nothing was.
        more_refused: how many more still do not decode.
    """

    replayed: int
    superseded: int
    refused: Mapping[tuple[str, int, int], str]
    batch: int | None
    more_refused: int = 0

    @property
    def refused_count(self) -> int:
        """Records that still do not decode."""
        return len(self.refused) + self.more_refused


class StoredRecord:
    """A quarantined record with the methods of one of Kafka's client."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row

    def topic(self) -> str:
        return str(self._row[rows.TOPIC])

    def partition(self) -> int:
        return int(self._row[rows.PARTITION])

    def offset(self) -> int:
        return int(self._row[rows.OFFSET])

    def key(self) -> bytes | None:
        return self._row[rows.RAW_KEY]

    def value(self) -> bytes | None:
        return self._row[rows.RAW_VALUE]

    def timestamp(self) -> tuple[int, int]:
        at: datetime | None = self._row[rows.TIMESTAMP]
        return (0, -1) if at is None else (1, round(at.timestamp() * 1000))

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [(item["key"], item["value"]) for item in self._row[rows.RAW_HEADERS] or ()]

    def leader_epoch(self) -> int | None:
        return None  # not kept with a quarantined record

    def __len__(self) -> int:
        return len(self.value() or b"")


def replay_in_turn(
    spark: SparkSession,
    source: Source,
    store: ChangelogStore,
    *,
    binding: Binding,
    run: str,
    offsets: Sequence[tuple[str, int, int]] | None = None,
) -> Replay:
    """Replays the quarantine of a changelog, MOST records at a time: those that do not decode hold no others up.

    Args:
        binding: of the project, whose queries and tables read the changelog.
        offsets: topic, partition and offset of the records meant; all if None.

    Raises:
        ChangelogError: a query or a table needs its rows in the order in which they were read, or other runs keep
            committing meanwhile; what was replayed by then is committed.
    """
    check_keys(binding, source.table.name)
    if offsets is None:
        columns = quarantined_places(store).columns
        offsets = list(zip(*(column.to_pylist() for column in columns), strict=True))
    whole = Replay(0, 0, {}, None)
    for start in range(0, len(offsets), MOST):
        done = replay(spark, source, store, run=run, offsets=offsets[start : start + MOST])
        told = whole.refused or done.refused
        whole = Replay(
            whole.replayed + done.replayed,
            whole.superseded + done.superseded,
            told,
            done.batch or whole.batch,
            whole.refused_count + done.refused_count - len(told),
        )
    return whole


def replay(
    spark: SparkSession,
    source: Source,
    store: ChangelogStore,
    *,
    run: str,
    offsets: Sequence[tuple[str, int, int]] | None = None,
) -> Replay:
    """Replays the quarantine of a changelog.

    Args:
        offsets: topic, partition and offset of the records meant; all (up to MOST) if None.

    Raises:
        ChangelogError: another run committed meanwhile, or took records out of quarantine.
    """
    found = quarantined_records(store, limit=MOST, places=None if offsets is None else set(offsets)).to_pylist()
    decoded, refused, without_rows = _decode(source, found)
    places = [_place(row) for row in found if _place(row) not in refused]
    if not places:
        return Replay(0, 0, refused, None)
    # Behind the head: whoever commits from here on has the commit of this batch refused.
    head = store.create()
    holding = [
        item.path for item in store.files() if item.may_hold_kind(rows.KIND_QUARANTINED, after=0, upto=head.batch)
    ]
    _check_waiting(store, places)
    current, overtaken, uncertain = _judge(spark, source, store, decoded, found=found, head=head)
    refused |= dict.fromkeys(uncertain, _UNCERTAIN)
    places = [place for place in places if place not in uncertain]
    if not places:
        return Replay(0, 0, refused, None)
    done = [place for place in places if place not in overtaken]
    account = RangeAccount(
        ACCOUNT_TOPIC,
        -1,
        0,
        len(places),
        records=len(places),
        kept=len(done) - len(without_rows),
        superseded=len(overtaken),
        skipped=(("value without rows", len(without_rows)),) if without_rows else (),
        rows=current.count(),
    )
    files = store.write(current.unionByName(_marks(spark, source, places, account)), batch=head.batch + 1)
    after = store.append(files, head=head, positions=head.positions, run=run, unchanged=holding)
    if after is None:
        raise ChangelogError(
            f"another run committed to the changelog of '{source.table.name}' during the replay; replay again"
        )
    return Replay(len(done), len(overtaken), refused, after.batch)


def _check_waiting(store: ChangelogStore, places: Collection[tuple[str, int, int]]) -> None:
    """Refuses records that have left the quarantine since they were read, which many records take minutes to decode.

    Raises:
        ChangelogError: for the first of them.
    """
    waiting = set(zip(*(column.to_pylist() for column in quarantined_places(store).columns), strict=True))
    gone = sorted(set(places) - waiting)
    if gone:
        topic, partition, offset = gone[0]
        raise ChangelogError(
            f"another run replayed, discarded or erased records of '{store.table.name}' during the replay,"
            f" {topic}-{partition}@{offset} for one; replay again"
        )


def _place(row: Mapping[str, Any]) -> tuple[str, int, int]:
    return row[rows.TOPIC], row[rows.PARTITION], row[rows.OFFSET]


def _decode(
    source: Source, found: Sequence[Mapping[str, Any]]
) -> tuple[pa.Table, dict[tuple[str, int, int], str], set[tuple[str, int, int]]]:
    """Rows of the records that decode, the reasons of those that do not, and those that decode into no row."""
    import pyarrow as pa

    from upsert_platform.kafka.source.read_range import REASON_NO_KEY
    from upsert_platform.kafka.source.records import RecordBlock

    if not isinstance(source, DecodesAgain):
        raise ChangelogError(f"records of table '{source.table.name}' cannot be decoded again: its source keeps none")
    decoder = source.decoder()
    batches: list[pa.RecordBatch] = []
    refused: dict[tuple[str, int, int], str] = {}
    empty: set[tuple[str, int, int]] = set()
    for block in _by_partition(found):
        belongs = [row[rows.RAW_KEY] is not None or source.mode != MODE_UPSERT for row in block]
        refused |= {_place(row): REASON_NO_KEY for row, is_meant in zip(block, belongs, strict=True) if not is_meant}
        meant = [row for row, is_meant in zip(block, belongs, strict=True) if is_meant]
        if not meant:
            continue
        decoded = decoder.decode(RecordBlock.of([StoredRecord(row) for row in meant], keep=True))
        refused |= {_place(meant[index]): reason for index, reason in decoded.verdicts.refused.items()}
        empty |= {_place(meant[index]) for index in decoded.verdicts.skipped}
        batches.append(decoded.batch)
    return pa.Table.from_batches(batches, schema=decoder.schema), refused, empty


def _by_partition(found: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    blocks: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in found:
        blocks.setdefault((row[rows.TOPIC], row[rows.PARTITION]), []).append(row)
    yield from blocks.values()


def _judge(
    spark: SparkSession,
    source: Source,
    store: ChangelogStore,
    decoded: pa.Table,
    *,
    found: Sequence[Mapping[str, Any]],
    head: Head,
) -> tuple[DataFrame, set[tuple[str, int, int]], set[tuple[str, int, int]]]:
    """The rows to commit, and places of records: those whose rows were all overtaken, and those that are left alone.

    A row counts by the batch that read its record, not by that of a replay: so the records of a key are in the order in
    which they would be had each been decoded at once. Where a record that comes back is overtaken, but has itself
    overtaken the row that counted so far, the one that counts now is committed again in its place. A record of a key
    that is not known is left alone where a compaction may have removed its delete: none does so while the record waits,
    but a replay of the topic may have brought one that was read, or is older than all that was, before that.

    Args:
        found: the quarantined records that `decoded` was made of.
    """
    from pyspark.sql import functions as F

    candidates = spark.createDataFrame(decoded, schema=_schema_without_batch(source))
    if not source.table.primary_key:  # every record stands for itself
        return candidates, set(), set()
    names = list(source.table.primary_key)
    key = [F.col(quote_name(name)) for name in names]
    place = [rows.TOPIC, rows.PARTITION, rows.OFFSET]
    upto = head.batch
    known = store.read(spark, after=0, upto=upto)
    known = join_by_key(known, F.broadcast(candidates.select(*key).distinct()), names, "left_semi").persist()
    dates = _dates_of(store, found, upto=upto) | _read_in(store, known, upto=upto)
    ddl = f"{rows.TOPIC} STRING, {rows.PARTITION} INT, {rows.OFFSET} BIGINT, {READ_IN} BIGINT"
    dated = spark.createDataFrame([(*at, batch) for at, batch in dates.items()], ddl)
    every = known.withColumn(_IS_CANDIDATE, F.lit(False)).unionByName(
        candidates.withColumn(rows.BATCH, F.lit(None).cast("bigint")).withColumn(_IS_CANDIDATE, F.lit(True))
    )
    every = every.join(F.broadcast(dated), place, "left").withColumn(rows.BATCH, F.coalesce(READ_IN, rows.BATCH))
    counted = last_rows(known, key=names).select(
        *key, *[F.col(name).alias(internal(f"was{name}")) for name in (*place, rows.ROW)]
    )
    unchanged = F.lit(True)
    for name in (*place, rows.ROW):
        unchanged = unchanged & F.col(name).eqNullSafe(F.col(internal(f"was{name}")))
    current = join_by_key(last_rows(every, key=names), counted, names, "left").where(~unchanged).persist()
    is_unknown = F.col(internal(f"was{rows.TOPIC}")).isNull()
    is_put = F.col(_IS_CANDIDATE) & (F.col(rows.KIND) != rows.KIND_DELETE)
    uncertain = F.lit(head.floor > 0) & is_put & is_unknown & (F.col(rows.BATCH) <= head.floor)
    of_uncertain = join_by_key(candidates, current.where(uncertain).select(*key), names, "left_semi")
    alone = {tuple(row) for row in of_uncertain.select(*place).collect()}
    current = current.where(~uncertain)
    kept = {tuple(row) for row in current.where(_IS_CANDIDATE).select(*place).collect()}
    every_place = {tuple(row) for row in candidates.select(*place).collect()}
    return current.select(*candidates.columns), every_place - kept - alone, alone


def _dates_of(
    store: ChangelogStore, found: Sequence[Mapping[str, Any]], *, upto: int
) -> dict[tuple[str, int, int], int]:
    """Places of quarantined records with the batches that had read them; a replay of the topic brought some of them."""
    accounts = store.accounts(after=0, upto=upto)
    replays = set(replays_of(accounts))
    dates = {_place(row): row[rows.BATCH] for row in found}
    return dates | read_in(accounts, [place for place, batch in dates.items() if batch in replays], upto=upto)


def _read_in(store: ChangelogStore, known: DataFrame, *, upto: int) -> dict[tuple[str, int, int], int]:
    """Places of the known rows that a replay committed, with the batches that had read them."""
    accounts = store.accounts(after=0, upto=upto)
    replays = replays_of(accounts)
    if not replays:
        return {}
    found = known.where(known[rows.BATCH].isin(replays)).select(rows.TOPIC, rows.PARTITION, rows.OFFSET).collect()
    return read_in(accounts, [tuple(row) for row in found], upto=upto)


def _schema_without_batch(source: Source) -> str:
    return rows.spark_schema(source.table).removeprefix(f"`{rows.BATCH}` {rows.SYSTEM_COLUMNS[rows.BATCH]}, ")


def _marks(
    spark: SparkSession,
    source: Source,
    places: Sequence[tuple[str, int, int]],
    account: RangeAccount,
) -> DataFrame:
    """A row per record that left the quarantine, and the accounting row of the replay."""
    import pyarrow as pa

    found: list[dict[str, Any]] = [
        {rows.KIND: rows.KIND_REPLAYED, rows.TOPIC: topic, rows.PARTITION: partition, rows.OFFSET: offset}
        for topic, partition, offset in places
    ]
    found.append({rows.KIND: rows.KIND_ACCOUNTING, rows.ACCOUNTING: account.to_json()})
    schema = rows.arrow_schema(source.table)
    table = pa.Table.from_pylist(found, schema=schema.remove(schema.get_field_index(rows.BATCH)))
    return spark.createDataFrame(table, schema=_schema_without_batch(source))
