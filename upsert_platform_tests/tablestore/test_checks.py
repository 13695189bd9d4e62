"""What a check expects of a table that is written by `insert.mode` and `delete.mode`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.core.destination import BatchSpan, RefusedRow
from upsert_platform.tablestore.destination import TablestoreDestination
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.sync.expecting import checked
from upsert_platform_tests.tablestore.declared import table_on
from upsert_platform_tests.tablestore.test_destination import MINUTE, change_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING", "score": "DOUBLE"}
Rows = Sequence[Mapping[str, Any]]
FIRST = [{"id": n, "name": f"n{n}", "score": 1.0} for n in range(4)]
SECOND = [{"id": 0, "name": "new", "score": 2.0}, {"id": 1, "name": "new"}, {"id": 2, "_op": "D"}, {"id": 9}]
LAST = [*SECOND, FIRST[3]]
"""The last change of every key."""


CHANGED = [
    {"id": 0, "name": "other", "score": 2.0},  # stale
    {"id": 3, "name": "n3"},  # a null where the table has 1.0
    {"id": 9, "_op": "D"},  # deleted
    {"id": 7},  # missing
]


@pytest.mark.parametrize(
    ("insert", "delete", "refused", "differing"),
    [
        # What differs: stale, missing, extra; rows 1 and 2 are not in the changelog.
        ("put", "row", 0, (2, 1, 2)),
        ("put", "none", 0, (2, 1, 1)),  # rows 2 and 9 have no cells, as a deleted key leaves them
        ("put", "column", 0, (2, 1, 1)),
        ("update", "row", 1, (1, 1, 1)),  # a null says nothing of the cell
        ("update", "none", 2, (1, 1, 2)),
        ("update", "column", 0, (2, 1, 1)),
        ("update", "row_and_column", 0, (2, 1, 2)),
    ],
)
def test_a_check_expects_what_the_modes_write(
    spark: SparkSession,
    server: ServerHandle,
    tmp_path: Path,
    insert: str,
    delete: str,
    refused: int,
    differing: tuple[int, int, int],
) -> None:
    destination = TablestoreDestination(
        table_on(server, COLUMNS, ["id"], {"insert.mode": insert, "delete.mode": delete})
    )
    destination.prepare()
    store = RefusedStore(str(tmp_path / "refused"))
    for batch, rows in enumerate((FIRST, SECOND), start=1):
        span = BatchSpan(batch - 1, batch, "log", "run")

        def keep(found: Sequence[RefusedRow], span: BatchSpan = span) -> None:
            store.append(found, span)

        with destination.lease(owner="test", duration=MINUTE) as lease:
            changes = change_frame(spark, destination.table, rows, sequence=batch)
            destination.write(changes, span=span, lease=lease, keep_refused=keep)
    found = checked(spark, destination, change_frame(spark, destination.table, LAST, sequence=2), store, upto=2)
    assert found.passed, found.sample
    assert found.refused == refused
    nothing = RefusedStore(str(tmp_path / "nothing"))
    changed = change_frame(spark, destination.table, CHANGED, sequence=2)
    found = checked(spark, destination, changed, nothing, upto=2)
    assert (found.stale, found.missing, found.extra) == differing
    assert not any("score: expected None" in item["difference"] for item in found.sample) or not (
        destination.skips_nulls
    )
    destination.close()


@pytest.mark.parametrize(("declared", "found"), [(86_400, 86_400), (-1, None)])
def test_a_tablestore_table_tells_its_time_to_live(server: ServerHandle, declared: int, found: int | None) -> None:
    """That of the table, whatever a later declaration says."""
    table = table_on(server, {"id": "BIGINT NOT NULL"}, ["id"], {"table.time-to-live": str(declared)})
    destination = TablestoreDestination(table)
    assert destination.time_to_live() is None
    destination.prepare()
    later = TablestoreDestination(table_on(server, {"id": "BIGINT NOT NULL"}, ["id"], name=table.table_name))
    assert (destination.time_to_live(), later.time_to_live()) == (found, found)
    destination.close()
    later.close()
