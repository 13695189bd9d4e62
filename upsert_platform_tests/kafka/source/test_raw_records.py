"""Tables of raw records: without a key, every record is kept as it is."""

from __future__ import annotations

import pyarrow as pa

from upsert_platform.changelog.accounting import OffsetRange, RangeAccount
from upsert_platform.kafka.source.read_range import RangeReader
from upsert_platform_tests.kafka.tables import declare, read, records


def test_null_is_a_value_like_any_other_to_the_raw_format() -> None:
    """As in Flink: tombstones and null keys are records with nulls."""
    options = {"key.format": "raw", "key.fields": "id", "value.format": "raw", "value.fields-include": "EXCEPT_KEY"}
    table = read(declare(key=(), connector="kafka", columns={"id": "BYTES", "name": "BYTES"}, **options))
    given = records(("k", "v"), ("k", None), (None, "v"), (None, None), ("", ""))
    reader = RangeReader(table, reduces=False, fetch=lambda wanted: iter([given]))
    rows = pa.Table.from_batches(list(reader.read(OffsetRange("users", 0, 0, len(given))))).to_pylist()
    account = RangeAccount.from_json(rows.pop()["_accounting"])
    pairs = [(b"k", b"v"), (b"k", None), (None, b"v"), (None, None), (b"", b"")]
    assert [(row["_kind"], row["id"], row["name"]) for row in rows] == [("+I", *pair) for pair in pairs]
    assert account.imbalance() is None
    assert (account.kept, account.tombstones, account.skipped) == (5, 2, ())
