"""INSERT OVERWRITE: rows take the place of what a table holds, once, in one commit (section 2.8, catalogue 6.3)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from upsert_platform.core.errors import DestinationError
from upsert_platform.maxcompute.control import Pending
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.sync.binding import bind
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.frames import Change, frame, span, stored, write
from upsert_platform_tests.maxcompute.sending import let_lease_end
from upsert_platform_tests.sql.reading import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

Opened = Callable[..., MaxComputeDestination]
PEOPLE = [("Bob", 1), ("Tom", 22), ("Kim", 42), ("Kim", 42), ("Bob", 1)]


@pytest.mark.parametrize(
    "options", [pytest.param({}, id="52-table"), pytest.param({"sink_partition": "dt=20200101"}, id="53-static")]
)
def test_rows_replace_the_table_or_its_static_partition(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened, options: dict[str, str]
) -> None:
    destination = opened({"name": "STRING", "n": "INT"}, key=(), **options)
    constant = ("20200101",) if options else ()
    rows: list[Change] = [("U", row) for row in PEOPLE]
    expected = sorted(((*row, *constant) for row in PEOPLE), key=repr)
    for batch in (1, 2):
        write(spark, destination, batch, rows)
    assert stored(maxcompute, destination.table) == sorted(expected * 2, key=repr)
    assert write(spark, destination, 3, [*rows, ("D", ("Ann", None))], replaces=True).upserts == 5
    assert stored(maxcompute, destination.table) == expected
    assert write(spark, destination, 3, rows, replaces=True).metrics == {"already_applied": 1}
    write(spark, destination, 4, [("D", ("Bob", None))], replaces=True)
    assert stored(maxcompute, destination.table) == []
    assert destination.state().applied_batch == 4


def test_82_only_the_dynamic_partitions_that_rows_are_in_are_replaced(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    destination = opened({"n": "INT", "city": "STRING"}, key=(), partitioned_by=["city"])
    write(spark, destination, 1, [("U", (160, "hangzhou")), ("U", (200, "shanghai")), ("U", (300, "shanghai"))])
    write(spark, destination, 2, [("U", (400, "hangzhou")), ("U", (600, "hangzhou"))], replaces=True)
    write(spark, destination, 3, [], replaces=True)
    assert stored(maxcompute, destination.table, "n") == [(200,), (300,), (400,), (600,)]


def test_a_recorded_overwrite_whose_session_is_gone_is_written_again(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    destination = opened({"n": "INT"}, key=())
    write(spark, destination, 1, [("U", (1,))])
    pending = Pending("maxstorage", (("", "gone"),), (("0", 1),), 0, 2, "changelog-1", "dead", 1, replaces=True)
    with destination.lease(owner="dead", duration=timedelta(seconds=60)) as lease:
        lease.change(pending=pending.to_text())
    let_lease_end(destination._control)
    assert destination.state().applied_batch == 1
    write(spark, destination, 2, [("U", (2,)), ("U", (3,))], replaces=True)
    assert stored(maxcompute, destination.table) == [(2,), (3,)]


def test_1_6_10_a_table_with_one_row_per_key_is_not_overwritten(spark: SparkSession, opened: Opened) -> None:
    destination = opened()
    with destination.lease(owner="test", duration=timedelta(seconds=60)) as lease:
        changes = frame(spark, destination.table, [("U", (1, "a"))])
        with pytest.raises(DestinationError, match="INSERT OVERWRITE cannot replace"):
            destination.write(changes, span=span(1, replaces=True), lease=lease)


SOURCE = """CREATE TABLE s (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 't',
  'properties.bootstrap.servers' = 'h:1', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE d (id BIGINT{key}) WITH ('connector' = 'maxcompute', 'odps.project.name' = 'p', 'odps.access.id' = 'i',
  'odps.access.key' = 'k', 'odps.end.point' = 'http://h/api', 'table.name' = 'd',
  'sink.operation' = '{operation}'{more});
INSERT OVERWRITE d SELECT id FROM s;
"""


@pytest.mark.parametrize(
    ("operation", "more", "refused"),
    [
        ("insert", "", None),
        ("upsert", "", "needs a table with 'connector' = 'maxcompute'"),
        ("insert", ", 'sink.coordinator.enable' = 'no'", "rows are replaced in one commit"),
    ],
)
def test_1_6_10_overwriting_needs_a_table_that_is_appended_to_in_one_commit(
    operation: str, more: str, refused: str | None
) -> None:
    from pathlib import Path

    from upsert_platform.core.errors import DeclarationError
    from upsert_platform.core.model import Project

    key = ", PRIMARY KEY (id) NOT ENFORCED" if operation == "upsert" else ""
    scripts, problems = read(SOURCE.format(key=key, operation=operation, more=more))
    project = Project(Path(), scripts.tables, tuple(scripts.inserts))
    if refused is None:
        assert bind(project, problems).targets["d"].insert.overwrite
        return
    with pytest.raises(DeclarationError, match=f"INSERT OVERWRITE d: {refused}"):
        bind(project, problems)
