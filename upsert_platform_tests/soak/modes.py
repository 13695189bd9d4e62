"""The ways in which the tables of the long tests are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from upsert_platform.referee.selection import Condition

_TABLESTORE: Final = (
    "'connector' = 'tablestore', 'auto.create' = 'true', 'retry.deadline' = '20 s',"
    " 'tablestore.endpoint' = '${UPSERT_TABLESTORE_ENDPOINT}',"
    " 'tablestore.instance.name' = '${UPSERT_TABLESTORE_INSTANCE}',"
    " 'tablestore.access.key.id' = '${UPSERT_TABLESTORE_ACCESS_KEY_ID}',"
    " 'tablestore.access.key.secret' = '${UPSERT_TABLESTORE_ACCESS_KEY_SECRET}'"
)
_MAXCOMPUTE: Final = (
    "'connector' = 'maxcompute', 'auto.create' = 'true', 'sink.operation' = 'upsert', 'upsert.write.bucket.num' = '2',"
    " 'schema.change.behavior' = 'evolve',"
    " 'odps.end.point' = '${UPSERT_MAXCOMPUTE_ENDPOINT}', 'odps.project.name' = '${UPSERT_MAXCOMPUTE_PROJECT}',"
    " 'odps.access.id' = '${UPSERT_MAXCOMPUTE_ACCESS_ID}', 'odps.access.key' = '${UPSERT_MAXCOMPUTE_ACCESS_KEY}'"
)
_KAFKA: Final = (
    "'connector' = 'upsert-kafka', 'properties.bootstrap.servers' = '${UPSERT_KAFKA_BOOTSTRAP_SERVERS}',"
    " 'key.format' = 'json', 'value.format' = 'json', 'auto.create' = 'true', 'auto.create.partitions' = '3'"
)


@dataclass(frozen=True)
class Mode:
    """A way to keep a table.

    Attributes:
        options: of its declaration; the place of the table is added.
        where: conditions of the insert, for the statement and for the referee.
        needs: columns without which it cannot be.
    """

    system: str
    options: str
    where: tuple[str, tuple[Condition, ...]] = ("", ())
    partitioned: bool = False
    needs: tuple[str, ...] = ()


MODES: Final[Mapping[str, Mode]] = {
    "tablestore put": Mode("tablestore", _TABLESTORE),
    "tablestore update": Mode(
        "tablestore", f"{_TABLESTORE}, 'insert.mode' = 'update', 'delete.mode' = 'row_and_column'"
    ),
    "tablestore where": Mode("tablestore", _TABLESTORE, (" WHERE n >= 3", (Condition("n", ">=", 3),))),
    "maxcompute storage": Mode("maxcompute", _MAXCOMPUTE),
    "maxcompute tunnel": Mode("maxcompute", f"{_MAXCOMPUTE}, 'write.api' = 'tunnel'"),
    "maxcompute moves": Mode("maxcompute", _MAXCOMPUTE, partitioned=True, needs=("ds",)),
    "maxcompute tunnel moves": Mode(
        "maxcompute", f"{_MAXCOMPUTE}, 'write.api' = 'tunnel'", partitioned=True, needs=("ds",)
    ),
    "maxcompute where": Mode(
        "maxcompute", _MAXCOMPUTE,
        (" WHERE s IS NOT NULL AND s <> 'a'", (Condition("s", "is not null"), Condition("s", "<>", "a"))),
        needs=("s",),
    ),
    "kafka at least once": Mode("kafka", _KAFKA),
    "kafka exactly once": Mode("kafka", f"{_KAFKA}, 'sink.delivery-guarantee' = 'exactly-once'"),
}  # fmt: skip
