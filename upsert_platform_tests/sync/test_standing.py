"""The verdict that stands where a sync has written nothing: of this table, and of batches that it holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.store import ChangelogStore, Positions
from upsert_platform.core.destination import DestinationState, Verdict
from upsert_platform.sync.standing import accounted, standing_verdict
from upsert_platform_tests.kafka.tables import declare
from upsert_platform_tests.sync.test_one_task import hop_to
from upsert_platform_tests.writing.in_memory import Place

PASSED = Verdict(50, True, False, datetime(2026, 1, 2, tzinfo=UTC), "", "changelog", "table")
FAILED = replace(PASSED, passed=False, detail="missing 1")
UNNAMED = {"changelog_id": "", "table_id": ""}
"""As earlier versions of the platform stored verdicts."""


@pytest.mark.parametrize(
    ("applied", "last", "passes"),
    [
        (50, PASSED, True),
        (50, FAILED, False),
        (51, PASSED, None),
        (51, FAILED, False),
        (7, PASSED, None),
        (7, FAILED, None),
        (50, replace(PASSED, changelog_id="set aside"), None),
        (50, replace(FAILED, changelog_id="set aside"), None),
        (50, replace(PASSED, table_id="dropped"), None),
        (50, replace(FAILED, table_id="dropped"), None),
        (50, replace(PASSED, **UNNAMED), None),
        (50, replace(FAILED, **UNNAMED), False),
        (7, replace(FAILED, **UNNAMED), None),
        (50, None, None),
    ],
)
def test_a_verdict_stands_for_the_table_and_the_batches_that_it_is_of(
    applied: int, last: Verdict | None, *, passes: bool | None, tmp_path: Path
) -> None:
    """None is that a sync has batches to compare."""
    state = DestinationState(applied, "changelog", last, table_id="table")
    standing = standing_verdict(hop_to(Place(), tmp_path), state)
    assert (None if standing is None else standing.passed) == passes


def test_verdicts_are_read_as_any_version_stored_them() -> None:
    old = '{"batch": 50, "passed": true, "complete": false, "at": "2026-01-02T00:00:00+00:00", "detail": ""}'
    assert Verdict.from_json(old) == replace(PASSED, **UNNAMED)
    assert Verdict.from_json(FAILED.to_json()) == FAILED


def test_ranges_of_a_batch_make_no_hole_in_whatever_order_tasks_tell_of_them(tmp_path: Path) -> None:
    store = ChangelogStore(str(tmp_path / "users"), declare())
    head = store.create()
    schema = rows.arrow_schema(store.table)
    files = []
    for start in (20, 0, 10):  # a file for each task that divides the one partition
        account = RangeAccount("users", 0, start, start + 10, 10, 0, 10, 0, 0)
        row = {rows.KIND: rows.KIND_ACCOUNTING, rows.ACCOUNTING: account.to_json()}
        given = pa.RecordBatch.from_pylist([row], schema=schema)
        files += write_rows([given], location=store.location, schema=schema, batch=1)
    assert store.append(files, head=head, positions=Positions({"users": {0: 30}}, {}), run="run") is not None
    found = accounted(store)
    assert ([account.start for account in found.accounts], found.wrong) == ([0, 10, 20], [])
