"""Options of `faker` and `datagen` tables."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from upsert_platform.core.options import Boolean, Duration, Settings, option


class GeneratedSettings(Settings):
    """Options that both connectors have."""

    rows_per_second: int = option(
        "rows-per-second", 10_000, origin="flink,maxcompute",
        description="Without `number-of-rows`, a run makes the rows of one second: as many as this.", gt=0,
    )  # fmt: skip
    number_of_rows: int | None = option(
        "number-of-rows", None, origin="flink",
        description="So many rows are made in all, by the first run; without it every run makes more.", ge=0,
    )  # fmt: skip


class FakerSettings(GeneratedSettings):
    """Options of `faker`."""

    connector: Literal["faker"] = option("connector", origin="maxcompute", description="`faker`.")


class FakerField(Settings):
    """Options of a column of a `faker` table."""

    expression: str = option(
        "fields.<column>.expression", origin="maxcompute",
        description="What the values are made of: `#{provider.name 'argument'}`, with text around it if wanted.",
    )  # fmt: skip
    null_rate: float = option(
        "fields.<column>.null-rate", 0.0, origin="flink",
        description="The share of values that are null.", ge=0, le=1,
    )  # fmt: skip


class DatagenSettings(GeneratedSettings):
    """Options of `datagen`."""

    connector: Literal["datagen"] = option("connector", origin="flink", description="`datagen`.")


class DatagenField(Settings):
    """Options of a column of a `datagen` table."""

    kind: Literal["random", "sequence"] = option(
        "fields.<column>.kind", "random", origin="flink",
        description="`random` values, or a `sequence` of whole numbers from `start` to `end`.",
    )  # fmt: skip
    start: int | None = option(
        "fields.<column>.start", None, origin="flink", description="First number of a sequence.",
    )  # fmt: skip
    end: int | None = option(
        "fields.<column>.end", None, origin="flink",
        description="Last number of a sequence; the table has no rows beyond it.",
    )  # fmt: skip
    min: Decimal | None = option(
        "fields.<column>.min", None, origin="flink",
        description="Least number; without it that of the type (of DOUBLE and FLOAT 0).",
    )  # fmt: skip
    max: Decimal | None = option(
        "fields.<column>.max", None, origin="flink",
        description="Greatest number; without it that of the type (of DOUBLE and FLOAT 1).",
    )  # fmt: skip
    max_past: Duration | None = option(
        "fields.<column>.max-past", None, origin="flink",
        description="How long before the run times may lie; without it they are those of the run.",
    )  # fmt: skip
    length: int = option(
        "fields.<column>.length", 100, origin="flink", description="Characters of texts, bytes of BYTES.", ge=0,
    )  # fmt: skip
    var_len: Boolean = option(
        "fields.<column>.var-len", False, origin="flink",
        description="Whether texts are of any length from 1 up to `length`.",
    )  # fmt: skip
    null_rate: float = option(
        "fields.<column>.null-rate", 0.0, origin="flink",
        description="The share of values that are null.", ge=0, le=1,
    )  # fmt: skip
