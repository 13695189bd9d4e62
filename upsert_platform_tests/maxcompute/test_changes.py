"""Changes of a Delta table between two versions, as frames (section 2.7, catalogue 43 to 48)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from upsert_platform.core.errors import DestinationError
from upsert_platform.maxcompute.changes import CHANGE, CHANGED_AT, TableVersions, read_changes, table_versions
from upsert_platform.maxcompute.client import Client
from upsert_platform.maxcompute.compaction import compact_statement
from upsert_platform.maxcompute.ddl import prepare_table
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform_tests.maxcompute.sending import append

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., MaxComputeTable]


def test_43_to_48_changes_are_read_on_from_a_version(spark: SparkSession, client: Client, make_table: Make) -> None:
    table = make_table({"id": "BIGINT", "v": "STRING", "ds": "STRING"}, key=["id", "ds"], partitioned_by=["ds"])
    client.run_sql(
        f"CREATE TABLE {table.target.sql} (id BIGINT NOT NULL, v STRING, PRIMARY KEY (id)) PARTITIONED BY (ds STRING)"
        " TBLPROPERTIES ('transactional'='true', 'acid.cdc.mode.enable'='true', 'write.bucket.num'='4')"
    )
    assert table_versions(table) == TableVersions(latest=1, history_hours=24, keeps_changes=True)
    nothing, version = read_changes(spark, table, after=0)
    assert (nothing.collect(), version) == ([], 1)
    client.run_sql(f"INSERT INTO {table.target.sql} PARTITION (ds='a') VALUES (1, '1'), (2, '2')")
    client.run_sql(f"UPDATE {table.target.sql} SET v = '3' WHERE id = 1")
    client.run_sql(f"DELETE FROM {table.target.sql} WHERE id = 2")
    first, version = read_changes(spark, table, after=1, upto=2)
    assert version == 2
    assert sorted(first.drop(CHANGED_AT).collect()) == [(1, "1", "a", "insert"), (2, "2", "a", "insert")]
    later, version = read_changes(spark, table, after=version)
    assert version == 4
    found = [tuple(row) for row in later.select("id", "v", CHANGE).collect()]
    assert [row for row in found if row[0] == 1] == [(1, "1", "update_before"), (1, "3", "update_after")]
    assert [row for row in found if row[0] == 2] == [(2, "2", "delete")]
    assert later.where(f"{CHANGED_AT} IS NULL").count() == 0


def test_a_table_without_a_change_log_says_so(spark: SparkSession, make_table: Make) -> None:
    table = make_table()
    append(table, [("U", (1, "a"))])
    assert not table_versions(table).keeps_changes
    with pytest.raises(DestinationError, match=r"acid\.cdc\.mode\.enable"):
        read_changes(spark, table, after=0)
    appended = make_table(key=())
    append(appended, [("U", (1, "a"))])
    with pytest.raises(DestinationError, match="not a Delta table"):
        table_versions(appended)
    with pytest.raises(DestinationError, match="does not exist"):
        table_versions(make_table())


KEEPS_CHANGES = "'transactional'='true', 'acid.cdc.mode.enable'='true', 'write.bucket.num'='4'"


def with_changes(client: Client, table: MaxComputeTable) -> None:
    """Makes the table with a change log, and inserts three rows, one version each."""
    client.run_sql(
        f"CREATE TABLE {table.target.sql} (id BIGINT NOT NULL, name STRING, PRIMARY KEY (id))"
        f" TBLPROPERTIES ({KEEPS_CHANGES})"
    )
    for number in range(3):
        client.run_sql(f"INSERT INTO {table.target.sql} VALUES ({number}, 'a')")


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_version_whose_changes_a_compaction_removed_is_an_error(
    spark: SparkSession, client: Client, make_table: Make, after: int
) -> None:
    table = make_table()
    with_changes(client, table)
    client.run_sql(compact_statement(table, ""))
    client.run_sql(f"INSERT INTO {table.target.sql} VALUES (9, 'b')")
    with pytest.raises(DestinationError, match=r"(?s)read the table as it is.*begins at version 5"):
        read_changes(spark, table, after=after)
    later, version = read_changes(spark, table, after=5)
    assert ([row["id"] for row in later.collect()], version) == ([9], 6)


def test_a_version_ahead_of_the_table_is_an_error(spark: SparkSession, client: Client, make_table: Make) -> None:
    table = make_table()
    with_changes(client, table)
    nothing, version = read_changes(spark, table, after=4)
    assert (nothing.collect(), version) == ([], 4)
    with pytest.raises(DestinationError, match="after version 5"):
        read_changes(spark, table, after=5)


def test_the_platform_compacts_no_table_that_keeps_changes(client: Client, make_table: Make) -> None:
    table = make_table(**{"upsert_major-compact_enable": "true"})
    with_changes(client, table)
    with pytest.raises(DestinationError, match=r"'upsert\.major-compact\.enable' = 'true': it keeps changes"):
        prepare_table(client, table)
    plain = replace(table, settings=table.settings.model_copy(update={"compaction": False}))
    with closing(MaxComputeDestination(plain)) as destination:
        destination.prepare()
        with pytest.raises(DestinationError, match="it keeps changes"):
            destination.compact(owner="job")
    assert "COMPACT" not in client.run_sql(f"SHOW HISTORY FOR TABLE {table.target.sql}")
