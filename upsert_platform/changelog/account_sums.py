"""Sums over every account of a changelog, read in bulk: continuous mode commits some each second, for months."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.replays import ACCOUNT_TOPIC

if TYPE_CHECKING:
    from upsert_platform.changelog.head import Head
    from upsert_platform.changelog.store import ChangelogStore


@dataclass(frozen=True, slots=True)
class AccountSums:
    """The accounts of every batch together.

    Attributes:
        records: that were read; what replays, discards and erasures account for is not among them.
        decoded: whether a record gave a value.
    """

    records: int = 0
    decoded: bool = False


_MOST_BATCHES: Final = 10_000
"""Accounts of so many batches are read together; a batch has one for each range that it reads."""
_MOST_TEXTS: Final = 100_000
"""So many accounts are parsed together: a topic may have hundreds of partitions."""
_known: dict[tuple[str, str], tuple[int, AccountSums]] = {}
"""By changelog: up to which batch, and the sums. Accounts of a batch stay as they are, so a process reads them once.

A process that does not look while a backup is put back and passed by new batches goes on with the sums from before.
"""


def account_sums(store: ChangelogStore, head: Head) -> AccountSums:
    """Return the sums over the batches up to a head. No JVM."""
    place = store.location.uri, head.changelog_id
    batch, sums = _known.get(place, (0, AccountSums()))
    if batch > head.batch:  # the lake was restored from a backup
        batch, sums = 0, AccountSums()
    for after in range(batch, head.batch, _MOST_BATCHES):
        upto = min(after + _MOST_BATCHES, head.batch)
        found = store.read_arrow([rows.ACCOUNTING], kind=rows.KIND_ACCOUNTING, after=after, upto=upto)
        for start in range(0, found.num_rows, _MOST_TEXTS):
            sums = _added(sums, found.column(0).slice(start, _MOST_TEXTS).to_pylist())
    _known[place] = head.batch, sums
    return sums


def _added(sums: AccountSums, texts: Sequence[str]) -> AccountSums:
    """The sums with those of accounts, as JSON."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow.json import ParseOptions, read_json

    counts = ("records", "kept", "tombstones")
    schema = pa.schema([("topic", pa.string()), *((name, pa.int64()) for name in counts)])
    options = ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    found = read_json(pa.py_buffer("\n".join(texts).encode()), parse_options=options)
    read = found.filter(pc.not_equal(found.column("topic"), ACCOUNT_TOPIC))
    return AccountSums(
        sums.records + (pc.sum(read.column("records")).as_py() or 0),
        sums.decoded or bool(pc.any(pc.greater(found.column("kept"), found.column("tombstones"))).as_py()),
    )
