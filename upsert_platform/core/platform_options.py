"""Options that every table takes, whatever its connector: what the platform itself does with it.

They are read from the declaration and taken out of what connectors see (`Table.platform`).
"""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, field_validator, model_validator

from upsert_platform.core import contracts
from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Options, Table
from upsert_platform.core.options import (
    Boolean,
    CommaList,
    Duration,
    Settings,
    nearest,
    option,
    option_fields,
    read_settings,
)

_PREFIXES: Final = ("check.", "sync.", "freshness.", "history.", "mask.", contracts.PREFIX)
_OWNER: Final = re.compile(r"team:[\w.-]+|[^@\s]+@[^@\s]+\.[^@\s]+")
_TAG_NAME: Final = re.compile(r"([A-Za-z0-9][\w.-]{0,62}/)?[A-Za-z0-9_][\w.-]{0,62}")
_TAG_VALUE: Final = re.compile(r"[\w.-]{0,63}")


class Severity(StrEnum):
    """The severity of a check."""

    ERROR = "error"
    WARN = "warn"
    OFF = "off"


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


_Severity = Annotated[Severity, BeforeValidator(_lower)]


class PlatformSettings(Settings):
    """Options of the platform itself."""

    owners: CommaList = option(
        "owners", (), origin="platform", description="Who is shown as owner of the table's asset: e-mails, team:NAME."
    )
    tags: CommaList = option("tags", (), origin="platform", description="Tags of the table's asset: name=value.")
    mask_columns: CommaList = option(
        "mask.columns",
        (),
        origin="platform",
        description="Columns whose values are shown nowhere: not by commands, checks, metadata, messages or logs, nor"
        " are those of columns that inserts and queries make of them. What is stored is not changed.",
    )
    min_records: int = option(
        "sync.min-records",
        1,
        origin="platform",
        description="Of a table that is read: the sensor starts a sync when so many of its records wait.",
        ge=1,
    )
    max_wait: Duration = option(
        "sync.max-wait",
        timedelta(minutes=5),
        origin="platform",
        description="Of a table that is read: fewer records than `sync.min-records` wait that long at most.",
    )
    retry_after: Duration = option(
        "sync.retry-after",
        timedelta(minutes=5),
        origin="platform",
        description="Of a table that is written: so long after a failure the sensor leaves it out of syncs; twice as"
        " long after each further one, 6 hours at most.",
    )
    last_value_blocking: Boolean = option(
        "check.last-value-per-key.blocking",
        True,
        origin="platform",
        description="Of a table that is written: whether the check that fails fails the run, and stops what reads it.",
    )
    refused_fail_count: int | None = option(
        "check.last-value-per-key.refused-fail-count",
        None,
        origin="platform",
        description="Of a table that is written: so many refused rows make the check fail; from one on it warns.",
        ge=1,
    )
    quarantine_blocking: Boolean = option(
        "check.quarantine-below.blocking",
        False,
        origin="platform",
        description="Of a table that is read: whether the check that fails stops the tables that are written from it,"
        " in continuous mode too.",
    )
    equals_topic: _Severity = option(
        "check.equals-topic",
        Severity.ERROR,
        origin="platform",
        description="Of a table that is written: what the check says where the referee finds a difference.",
    )
    equals_source: _Severity = option(
        "check.equals-source",
        Severity.ERROR,
        origin="platform",
        description="Of a table that is written: what the check says where a proof finds a difference.",
    )
    plan: _Severity = option(
        "check.plan",
        Severity.OFF,
        origin="platform",
        description="Of a table that is written: what the check `unchanged` of job `plan` says where the project as it"
        " is declared changes rows of it. The check computes the insert over the lake and reads the table.",
    )
    schema_matches: _Severity = option(
        "check.schema-matches",
        Severity.ERROR,
        origin="platform",
        description="What the check says where the table, or the lake, is not as it is declared.",
    )
    no_unread_loss: _Severity = option(
        "check.no-unread-loss",
        Severity.ERROR,
        origin="platform",
        description="Of a table that is read: what the check says at most.",
    )
    unread_warn: Duration | None = option(
        "check.no-unread-loss.warn-within",
        None,
        origin="platform",
        description="The check warns when the topic may delete unread records so soon; half of its retention if left"
        " out.",
    )
    unread_fail: Duration | None = option(
        "check.no-unread-loss.fail-within",
        None,
        origin="platform",
        description="The check fails when the topic may delete unread records so soon; a tenth of its retention if left"
        " out.",
    )

    history_retain: Duration | None = option(
        "history.retain",
        None,
        origin="platform",
        description="Of a table that is read: so long compaction keeps every batch of its changelog, for `--as-of`;"
        " what no table needs any more is reduced to the last row per key if left out.",
    )
    max_delay: Duration | None = option(
        "freshness.max-delay",
        None,
        origin="platform",
        description="Of a table that is written: when the oldest record that is not in it is older, the check"
        " `freshness` fails.",
    )
    warn_delay: Duration | None = option(
        "freshness.warn-delay", None, origin="platform", description="The same for a warning; below the other one."
    )
    max_age: Duration | None = option(
        "freshness.max-age",
        None,
        origin="platform",
        description="Longest time between two runs that materialise the table's asset, as Dagster's freshness policy of"
        " it; at least one minute. A topic that brings nothing for so long makes the asset overdue, too, unless"
        " `upsert-platform sync` is started in time.",
    )
    warn_age: Duration | None = option(
        "freshness.warn-age",
        None,
        origin="platform",
        description="The same for a warning; needs `freshness.max-age` and is below it.",
    )

    @field_validator("owners")
    @classmethod
    def _owners_are_known_forms(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for item in value:
            if not _OWNER.fullmatch(item):
                raise ValueError(f"takes e-mail addresses and team:NAME, not '{item}'")
        return value

    @field_validator("tags")
    @classmethod
    def _tags_are_pairs(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for item in value:
            name, _, text = item.partition("=")
            if not _TAG_NAME.fullmatch(name.strip()) or not _TAG_VALUE.fullmatch(text.strip()):
                raise ValueError(f"takes name=value of letters, digits and _ . -, not '{item}'")
        return value

    @model_validator(mode="after")
    def _warns_before_it_fails(self) -> Self:
        warn, fail = self.unread_warn, self.unread_fail
        if self.retry_after <= timedelta(0):
            raise ValueError("'sync.retry-after' is above zero")
        if timedelta(0) in (warn, fail):
            raise ValueError("'check.no-unread-loss.warn-within' and 'fail-within' are above zero")
        if warn is not None and fail is not None and fail >= warn:
            raise ValueError(
                "'check.no-unread-loss.fail-within' is below 'check.no-unread-loss.warn-within', or it would never warn"
            )
        return self

    @model_validator(mode="after")
    def _is_late_before_it_fails(self) -> Self:
        if self.history_retain == timedelta(0):
            raise ValueError("'history.retain' is above zero")
        if timedelta(0) in (self.max_delay, self.warn_delay):
            raise ValueError("'freshness.max-delay' and 'freshness.warn-delay' are above zero")
        if self.max_delay is not None and self.warn_delay is not None and self.warn_delay >= self.max_delay:
            raise ValueError("'freshness.warn-delay' is below 'freshness.max-delay', or it would never warn")
        return self

    @model_validator(mode="after")
    def _age_is_one_of_a_policy(self) -> Self:
        least = timedelta(minutes=1)
        if any(age is not None and age < least for age in (self.max_age, self.warn_age)):
            raise ValueError("'freshness.max-age' and 'freshness.warn-age' are at least one minute")
        if self.warn_age is not None and (self.max_age is None or self.warn_age >= self.max_age):
            raise ValueError("'freshness.warn-age' needs 'freshness.max-age' and is below it, or it would never warn")
        return self

    @property
    def max_wait_seconds(self) -> float:
        """The longest wait of few records."""
        return self.max_wait.total_seconds()

    @property
    def tag_pairs(self) -> dict[str, str]:
        """Tags by name."""
        pairs = (item.partition("=") for item in self.tags)
        return {name.strip(): value.strip() for name, _, value in pairs}


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(option_fields(PlatformSettings))


def is_platform_option(name: str) -> bool:
    """Return whether an option is the platform's own."""
    return name in _names() or name.startswith(_PREFIXES)


def platform_problems(table: Table) -> list[Problem]:
    """Return the problems of a table's platform options."""
    settings, problems = _read(table, table.options)
    names = [column.name for column in table.columns]
    for name in settings.mask_columns if settings is not None and names else ():
        if name not in names:
            told = f"table '{table.name}': option 'mask.columns' names '{name}', which is no column of it"
            place = table.options.location("mask.columns") or table.location
            problems.append(Problem(f"{told}{nearest(name, names)}", place))
        elif name in table.partitioned_by:
            told = f"table '{table.name}': option 'mask.columns' names '{name}', whose values are names of partitions"
            place = table.options.location("mask.columns") or table.location
            problems.append(Problem(f"{told}, which are shown; partition by another column", place))
    return [*problems, *contracts.contract_problems(table)]


def platform_settings(table: Table) -> PlatformSettings:
    """The platform's own options of a table of a project without errors."""
    return _read(table, table.platform)[0] or PlatformSettings()


def _read(table: Table, options: Options) -> tuple[PlatformSettings | None, list[Problem]]:
    own, _ = split_options(options)
    return read_settings(
        PlatformSettings,
        own,
        subject=f"table '{table.name}'",
        location=table.location,
        ignore=lambda name: name.startswith(contracts.PREFIX),
    )


def split_options(options: Options) -> tuple[Options, Options]:
    """The platform's own options, and those that connectors see."""
    own = {name: value for name, value in options.items() if is_platform_option(name)}
    others = {name: value for name, value in options.items() if name not in own}
    places = {name: place for name in options if (place := options.location(name)) is not None}
    return Options(own, places), Options(others, places)
