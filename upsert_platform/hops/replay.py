"""Replays quarantined records: decodes them again as declared now, and commits what is not outdated.

A replayed record keeps its topic, partition and offset. One that a later record of its key has overtaken is marked as
replayed and changes nothing; one that still does not decode stays in quarantine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.errors import ChangelogError
from upsert_platform.source import DecodesAgain, Source

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MOST: Final = 100_000
"""Records of one replay; they pass through the driver."""
ACCOUNT_TOPIC: Final = "(quarantine)"


@dataclass(frozen=True)
class Replay:
    """What a replay did.

    Attributes:
        replayed: records that gave changes.
        superseded: records that a later record of their key has overtaken.
        refused: records that still do not decode, by place, with the reason.
        batch: the batch that was committed, or None when nothing was.
    """

    replayed: int
    superseded: int
    refused: Mapping[tuple[str, int, int], str]
    batch: int | None


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
        ChangelogError: other runs keep committing meanwhile.
    """
    found = store.quarantined(limit=MOST).to_pylist()
    if offsets is not None:
        meant = set(offsets)
        found = [row for row in found if _place(row) in meant]
    decoded, refused, without_rows = _decode(source, found)
    places = [_place(row) for row in found if _place(row) not in refused]
    if not places:
        return Replay(0, 0, refused, None)
    head = store.create()
    current, overtaken = _judge(spark, source, store, decoded, upto=head.batch)
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
    after = store.append(files, head=head, positions=head.positions, run=run)
    if after is None:
        raise ChangelogError(
            f"another run committed to the changelog of '{source.table.name}' during the replay; replay again"
        )
    return Replay(len(done), len(overtaken), refused, after.batch)


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
        keyed = [row for row in block if row[rows.RAW_KEY] is not None]
        refused |= {_place(row): REASON_NO_KEY for row in block if row[rows.RAW_KEY] is None}
        if not keyed:
            continue
        decoded = decoder.decode(RecordBlock.of([StoredRecord(row) for row in keyed], keep=True))
        refused |= {_place(keyed[index]): reason for index, reason in decoded.verdicts.refused.items()}
        empty |= {_place(keyed[index]) for index in decoded.verdicts.skipped}
        batches.append(decoded.batch)
    return pa.Table.from_batches(batches, schema=decoder.schema), refused, empty


def _by_partition(found: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    blocks: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in found:
        blocks.setdefault((row[rows.TOPIC], row[rows.PARTITION]), []).append(row)
    yield from blocks.values()


def _judge(
    spark: SparkSession, source: Source, store: ChangelogStore, decoded: pa.Table, *, upto: int
) -> tuple[DataFrame, set[tuple[str, int, int]]]:
    """The rows that nothing has overtaken, and the places of the records whose rows were all overtaken.

    Within a partition the offset decides, between partitions record time, then place, as in a batch.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    schema = rows.spark_schema(source.table)
    without_batch = schema.removeprefix(f"`{rows.BATCH}` {rows.SYSTEM_COLUMNS[rows.BATCH]}, ")
    candidates = spark.createDataFrame(decoded, schema=without_batch)
    key = [f"`{name.replace('`', '``')}`" for name in source.table.primary_key]
    names = list(source.table.primary_key)
    own = candidates.select(*key).distinct()
    known = (
        store.read(spark, after=0, upto=upto)
        .join(F.broadcast(own), names, "left_semi")
        .groupBy(*key)
        .agg(
            F.collect_list(F.struct(rows.TOPIC, rows.PARTITION, rows.OFFSET, rows.TIMESTAMP)).alias("_known"),
        )
    )
    same = f"k.{rows.TOPIC} = {rows.TOPIC} AND k.{rows.PARTITION} = {rows.PARTITION}"
    order = f"struct({rows.TIMESTAMP}, {rows.TOPIC}, {rows.PARTITION}, {rows.OFFSET})"
    other = f"struct(k.{rows.TIMESTAMP}, k.{rows.TOPIC}, k.{rows.PARTITION}, k.{rows.OFFSET})"
    overtaken = (
        f"exists(coalesce(_known, array()), k -> IF({same}, k.{rows.OFFSET} > {rows.OFFSET}, {other} > {order}))"
    )
    newest = Window.partitionBy(*key).orderBy(
        *[F.col(name).desc_nulls_last() for name in (rows.TIMESTAMP, rows.TOPIC, rows.PARTITION, rows.OFFSET, rows.ROW)]
    )
    judged = (
        candidates.join(known, names, "left")
        .withColumn("_late", F.expr(overtaken))
        .withColumn("_late", F.col("_late") | (F.row_number().over(newest) > 1))
        .persist()
    )
    place = [rows.TOPIC, rows.PARTITION, rows.OFFSET]
    late = judged.groupBy(*place).agg(F.min("_late").alias("all_late")).where("all_late").collect()
    return judged.where(~F.col("_late")).drop("_late", "_known"), {tuple(row[name] for name in place) for row in late}


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
    ddl = rows.spark_schema(source.table).removeprefix(f"`{rows.BATCH}` {rows.SYSTEM_COLUMNS[rows.BATCH]}, ")
    return spark.createDataFrame(table, schema=ddl)
