"""Changes of a Delta table between two versions, for consumers that continue from their last one.

The table keeps changes when it was made with ``"acid.cdc.mode.enable" = "true"``, and for as long as its
``cdc.data.retain.hours`` say.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from upsert_platform.core.errors import DestinationError
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.maxcompute.choices import WriteApi
from upsert_platform.maxcompute.client import Client
from upsert_platform.maxcompute.connection import Connection, ServiceError, explain
from upsert_platform.maxcompute.ddl import compare
from upsert_platform.maxcompute.maxstorage import MaxStorage
from upsert_platform.maxcompute.read_back import declared_columns
from upsert_platform.maxcompute.reader import ReadColumn, ReadJob, read_frame
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.maxcompute.types import parse_maxcompute_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGE: Final = "_change"
"""STRING column: ``insert``, ``delete``, ``update_before`` or ``update_after``."""
CHANGED_AT: Final = "_changed_at"
"""TIMESTAMP column: when the change was committed."""
_KINDS: Final = {2: "insert", 4: "delete", 16: "update_before", 32: "update_after"}


@dataclass(frozen=True, slots=True)
class TableVersions:
    """The range of a Delta table's history that can be read.

    Attributes:
        latest: its version; reading changes after it gives nothing yet.
        history_hours: for how long versions are kept, or None when that is not told.
        keeps_changes: whether changes can be read.
    """

    latest: int
    history_hours: int | None
    keeps_changes: bool


def table_versions(table: MaxComputeTable) -> TableVersions:
    """The versions of a table as it is now.

    Raises:
        DestinationError: there is no such table, or it has no versions.
        EndpointError: no answer.
    """
    with closing(Client(Connection.of(table.settings))) as client:
        actual = client.table(table.target)
    if actual is None:
        raise DestinationError(f"table '{table.name}': {table.target} does not exist")
    if actual.version is None or not actual.transactional:
        raise DestinationError(f"table '{table.name}': {table.target} is not a Delta table, so it has no versions")
    return TableVersions(actual.version, actual.history_hours, actual.keeps_changes)


def read_changes(
    spark: SparkSession, table: MaxComputeTable, *, after: int, upto: int | None = None
) -> tuple[DataFrame, int]:
    """Changes of a Delta table that were committed after one version and up to another.

    Args:
        after: the version that was read last; 0 reads from the table's beginning.
        upto: the last version to read; the latest if left out.

    Returns:
        The declared columns of every change with `CHANGE` and `CHANGED_AT`, and the version to read on after.
        Changes of a key come in order, in one task.

    Raises:
        DestinationError: the table is missing, differs from its declaration, keeps no changes, or no longer those after
            that version; or that version is ahead of it.
        EndpointError: no answer.
    """
    if table.settings.api is WriteApi.TUNNEL:
        raise DestinationError(f"table '{table.name}': changes are read by MaxStorage; leave 'write.api' out")
    with closing(Client(Connection.of(table.settings))) as client:
        actual = client.table(table.target)
        if actual is None:
            raise DestinationError(f"table '{table.name}': {table.target} does not exist")
        differences = compare(table, actual)
        if differences:
            raise DestinationError(
                f"table '{table.name}': {table.target} does not fit its declaration: {'; '.join(differences)}"
            )
        columns = [*declared_columns(table, actual), *_SYSTEM]
        endpoint = client.tunnel_endpoint()
        with closing(MaxStorage(client.connection, endpoint, table.target)) as storage:
            try:
                session, latest = storage.create_change_session(
                    [c.source for c in columns if not c.partition and c.fixed is None and c not in _SYSTEM],
                    partition_columns=table.partitions.columns,
                    after=after,
                    upto=upto,
                )
            except ServiceError as error:
                explain(
                    error,
                    client.connection,
                    f"reading changes of {table.target} after version {after} (where they are no longer kept, read the"
                    " table as it is, and then the changes after its version)",
                )
        if latest < after:
            raise DestinationError(
                f"table '{table.name}': changes after version {after} were asked for, the latest of {table.target} is"
                f" {latest}: it was made anew or restored. Read it as it is, and then the changes after its version"
            )
        job = ReadJob(
            client.connection, endpoint, table.target, session, tuple(columns), table.partitions.static
        )  # fmt: skip
    from pyspark.sql import functions as F

    kinds = F.create_map(*[F.lit(item) for pair in _KINDS.items() for item in pair])
    frame = read_frame(spark, job)
    return frame.withColumn(CHANGE, kinds[F.col(CHANGE)]), latest if upto is None else min(latest, upto)


_SYSTEM = (
    ReadColumn(CHANGE, "__meta_op_type", LogicalType(TypeName.INT), parse_maxcompute_type("TINYINT")),
    ReadColumn(CHANGED_AT, "__meta_timestamp", LogicalType(TypeName.TIMESTAMP_LTZ), parse_maxcompute_type("TIMESTAMP")),
)
