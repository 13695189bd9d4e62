"""Options that tables of every database which the platform writes have in common."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from upsert_platform.core.options import Boolean, Settings, option


def lowered(value: object) -> object:
    """Return a text without blanks around it, in lower case; any other value as it is."""
    return value.strip().lower() if isinstance(value, str) else value


def selecting(connector: str) -> Any:
    """Declares the option that selects a connector."""
    return option("connector", connector, origin="platform", description="Selects this connector.")


class WrittenSettings(Settings):
    """Options of a written table: its creation, its tasks, rows that the system rejects, its control table."""

    auto_create: Boolean = option(
        "auto.create", False, origin="platform", description="Creates the table when it is missing."
    )
    parallelism: int | None = option(
        "sink.parallelism",
        None,
        origin="flink",
        description="Writing tasks; by default one per core where they make the rows themselves, else as many as the"
        " changes have partitions.",
        ge=1,
    )
    on_error: Annotated[Literal["quarantine", "fail"], BeforeValidator(lowered)] = option(
        "on-error",
        "quarantine",
        origin="platform",
        description="`quarantine` sets rows that the system will not take aside with the reason, `fail` stops.",
    )
    max_refused_rows: int | None = option(
        "max.refused.rows",
        10_000,
        origin="platform",
        description="Refused rows in one write above which it fails, because the declaration is wrong rather than some"
        " rows.",
        ge=1,
    )
    control_table: str = option(
        "control.table",
        "upsert_platform_control",
        origin="platform",
        description="Table beside the written one that keeps the applied batch, the lease and the last verdict.",
    )
