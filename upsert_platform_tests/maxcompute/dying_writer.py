"""A writer that dies as under ``kill -9`` at a chosen point of a batch; run as a process by the recovery tests.

Arguments: JSON of options, point of death, batch number, JSON of rows.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from typing import Any

from upsert_platform.maxcompute import recovery
from upsert_platform.maxcompute.committing import MaxStorageCommitting
from upsert_platform.maxcompute.control import Pending
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.lease import ControlLease
from upsert_platform.maxcompute.table import read_maxcompute_table
from upsert_platform_tests.maxcompute.declare import declare
from upsert_platform_tests.maxcompute.sending import batch, open_job, send

POINTS = ("sent", "recorded", "committed", "applied")


def die() -> None:
    """Ends the process without any clean-up."""
    os._exit(9)


def main(options: dict[str, str], point: str, number: int, rows: list[Any]) -> None:
    """Writes a batch up to the point of death."""
    key = ["id"] if options["sink.operation"] == "upsert" else []
    table, _ = read_maxcompute_table(declare(key=key, options=options))
    assert table is not None
    destination = MaxComputeDestination(table)
    held = destination.lease(owner="dying", duration=timedelta(seconds=60))
    lease = held.__enter__()
    job, storage, table_id = open_job(table)
    send(job, [batch(table, [(operation, tuple(values)) for operation, values in rows])])
    if point == "sent":
        die()
    pending = Pending(
        "maxstorage", (("", job.session.session_id),), (("0", 1),), number - 1, number, "changelog-1", "dying",
        len(rows), table_id,
    )  # fmt: skip
    lease.change(pending=pending.to_text())
    if point == "recorded":
        die()
    if point == "committed":
        ControlLease.change_later = lambda *_arguments, **_values: die()  # type: ignore[method-assign,assignment]
    recovery.commit_recorded(lease, MaxStorageCommitting(storage, table), table)
    die()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4]))
