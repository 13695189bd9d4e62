"""Options of what becomes of records that cannot be decoded, and from how many of them on a table is called bad."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from upsert_platform.core.options import Settings, option
from upsert_platform.kafka.modes import OnError


def lower(value: object) -> object:
    """A text in the letters in which choices are told."""
    return value.strip().lower() if isinstance(value, str) else value


class QuarantineSettings(Settings):
    """Options that every Kafka table has."""

    on_error: Annotated[OnError, BeforeValidator(lower)] = option(
        "on-error",
        OnError.QUARANTINE,
        origin="platform",
        description="Whether a record that cannot be decoded is kept in quarantine or fails the batch.",
    )
    quarantine_fail_count: int | None = option(
        "quarantine.fail-count",
        None,
        origin="platform",
        description="So many records in quarantine make the check `quarantine_below` fail; from one on it warns.",
        ge=1,
    )
    quarantine_fail_percent: int | None = option(
        "quarantine.fail-percent",
        None,
        origin="platform",
        description="So many percent of all records read make the check `quarantine_below` fail while in quarantine.",
        ge=1,
        le=100,
    )
