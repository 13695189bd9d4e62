"""The start of a replay, as users write it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.source import Start


def start_of(*, timestamp: str | None = None, offsets: Mapping[str, int] | None = None) -> Start:
    """The start that is meant; the first record if nothing is given.

    Args:
        timestamp: as ISO 8601 (in UTC unless it names an offset), or milliseconds since 1970.
        offsets: partition to offset.

    Raises:
        ChangelogError: both are given, or one does not read so.
    """
    if timestamp is not None and offsets:
        raise ChangelogError("a replay starts at a timestamp or at offsets, not at both")
    if timestamp is not None:
        return Start(timestamp=_milliseconds(timestamp))
    found = []
    for partition, offset in (offsets or {}).items():
        if not partition.strip().isdigit() or offset < 0:
            raise ChangelogError(f"'{partition}: {offset}' is not a partition and an offset, such as 0: 42")
        found.append((int(partition), offset))
    return Start(offsets=tuple(sorted(found)))


def _milliseconds(text: str) -> int:
    if text.strip().isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ChangelogError(
            f"'{text}' is not a timestamp, such as 2026-11-01T12:00:00Z or 1793534400000 (milliseconds)"
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
