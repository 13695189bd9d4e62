"""Columns that only the table has: rows that are put leave them alone, or are refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from upsert_platform.core.errors import DestinationError
from upsert_platform.maxcompute.client import Client
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.frames import stored, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

Make = Callable[..., MaxComputeTable]
DELTA = '"transactional"="true", "write.bucket.num"="4"'
PARTIAL = f'{DELTA}, "acid.partial.fields.update.enable"="true"'
SHARED = "(extra STRING, id BIGINT NOT NULL, v STRING, n INT, PRIMARY KEY (id))"


@pytest.mark.parametrize("api", ["maxstorage", "tunnel"])
def test_rows_set_the_declared_columns_and_leave_the_others(
    spark: SparkSession,
    maxcompute: ServerHandle,
    client: Client,
    opened: Callable[..., MaxComputeDestination],
    api: str,
) -> None:
    name = f"shared_{api}"
    client.run_sql(f"CREATE TABLE {name} {SHARED} TBLPROPERTIES ({PARTIAL})")
    others = ", ".join(f"('theirs {n}', {n}, 'before', {n})" for n in range(1, 5))
    client.run_sql(f"INSERT INTO {name} VALUES {others}")
    destination = opened({"id": "BIGINT", "v": "STRING"}, table_name=name, write_api=api)
    write(spark, destination, 1, [("U", (1, "ours")), ("U", (2, None)), ("D", (3, None)), ("U", (9, "new"))])
    assert stored(maxcompute, destination.table, "id, v, extra, n") == [
        (1, "ours", "theirs 1", 1), (2, None, "theirs 2", 2), (4, "before", "theirs 4", 4), (9, "new", None, None),
    ]  # fmt: skip
    only_key = opened({"id": "BIGINT"}, table_name=name, control_table=f"control_{name}", write_api=api)
    write(spark, only_key, 1, [("U", (1,)), ("U", (10,)), ("D", (9,))])
    assert stored(maxcompute, only_key.table, "id, v, extra, n") == [
        (1, "ours", "theirs 1", 1), (10, None, None, None), (2, None, "theirs 2", 2), (4, "before", "theirs 4", 4),
    ]  # fmt: skip


def test_without_partial_updates_an_undeclared_column_is_refused(
    client: Client, make_table: Make, spark: SparkSession, maxcompute: ServerHandle
) -> None:
    table = make_table({"id": "BIGINT", "v": "STRING"})
    client.run_sql(f"CREATE TABLE {table.target.sql} {SHARED} TBLPROPERTIES ({DELTA})")
    destination = MaxComputeDestination(table)
    wanted = r"the columns 'extra', 'n' of the table are not declared.*'acid\.partial\.fields\.update\.enable' = 'true'"
    with pytest.raises(DestinationError, match=wanted):
        destination.prepare()
    with pytest.raises(DestinationError, match=wanted):
        write(spark, destination, 1, [("U", (1, "a"))])
    destination.close()
    appended = make_table({"id": "BIGINT"}, key=())
    client.run_sql(f"CREATE TABLE {appended.target.sql} (extra STRING, id BIGINT)")
    destination = MaxComputeDestination(appended)
    write(spark, destination, 1, [("U", (1,))])
    assert stored(maxcompute, appended) == [(None, 1)]
    destination.close()


@pytest.mark.parametrize("moves", ["true", "false"])
def test_rows_that_would_leave_values_behind_when_they_move_are_refused(
    client: Client, make_table: Make, moves: str
) -> None:
    options = {"sink_partition_move-rows": moves}
    table = make_table({"id": "BIGINT", "ds": "STRING"}, partitioned_by=["ds"], **options)
    columns = "(id BIGINT NOT NULL, extra STRING, PRIMARY KEY (id)) PARTITIONED BY (ds STRING)"
    client.run_sql(f"CREATE TABLE {table.target.sql} {columns} TBLPROPERTIES ({PARTIAL})")
    destination = MaxComputeDestination(table)
    if moves == "true":
        with pytest.raises(DestinationError, match="a row that moves to another partition would leave their values"):
            destination.prepare()
    else:
        destination.prepare()
    destination.close()
