"""Offset ranges read without a broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from upsert_platform.changelog.accounting import OffsetRange, RangeAccount
from upsert_platform.kafka.source.read_range import RangeReader
from upsert_platform.kafka.table import KafkaTable
from upsert_platform_tests.kafka.tables import FakeRecord


def run(
    table: KafkaTable, given_records: Sequence[FakeRecord], *, reduces: bool = True, piece: int = 1000, end: int = 0
) -> tuple[list[dict[str, Any]], RangeAccount]:
    """Rows of a range from offset 0, without the accounting row, and the account."""
    end = end or (max((record.offset() for record in given_records), default=-1) + 1)

    def fetch(wanted: OffsetRange) -> Iterator[list[FakeRecord]]:
        chosen = [record for record in given_records if wanted.start <= record.offset() < wanted.end]
        for start in range(0, len(chosen), piece):
            yield chosen[start : start + piece]

    reader = RangeReader(table, reduces=reduces, fetch=fetch)
    batches = list(reader.read(OffsetRange("users", 0, 0, end)))
    rows = pa.Table.from_batches(batches).to_pylist()
    account = RangeAccount.from_json(rows.pop()["_accounting"])
    assert account.imbalance() is None
    assert account.rows == sum(row["_kind"] != "?" for row in rows)
    assert account.quarantined == sum(row["_kind"] == "?" for row in rows)
    return sorted(rows, key=lambda row: (row["_offset"], row["_row"] or 0)), account


def brief(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Kind, offset and declared columns, or the reason."""
    return [
        ("?", row["_offset"]) if row["_kind"] == "?" else (row["_kind"], row["_offset"], row["id"], row["name"])
        for row in rows
    ]
