"""The asset checks of a project."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import dagster as dg

from upsert_platform.core.model import Table
from upsert_platform.core.platform_options import Severity, platform_settings
from upsert_platform.graph.changelog_checks import changelog_checks
from upsert_platform.graph.check_parts import CheckPart, checks_in_one_step
from upsert_platform.graph.checks import last_value_check
from upsert_platform.graph.freshness_check import freshness_check
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.plan_check import plan_check
from upsert_platform.graph.schema_check import table_schema_check
from upsert_platform.graph.source_check import source_check
from upsert_platform.graph.topic_check import topic_check
from upsert_platform.sync.freshness import FreshnessLimits


def project_checks(
    sources: Iterable[Table], targets: Iterable[Table], names: AssetKeys = AS_DECLARED
) -> Iterator[dg.AssetChecksDefinition]:
    """The checks of changelogs and destinations: those that a table may declare to be off, too.

    Steps of their own have what others wait for, which is `last_value_per_key`, and what takes run configuration.
    """
    for table in sources:
        yield changelog_checks(table, names)
    for table in targets:
        yield last_value_check(table, names)
        parts = list(_parts(table, names))
        if parts:
            yield checks_in_one_step(names.op_name("checks_of_table", table.name), parts, names)
        settings = platform_settings(table)
        if settings.equals_source is not Severity.OFF:
            yield source_check(table, names)
        if settings.plan is not Severity.OFF:
            yield plan_check(table, names)


def _parts(table: Table, names: AssetKeys) -> Iterator[CheckPart]:
    settings = platform_settings(table)
    if settings.schema_matches is not Severity.OFF:
        yield table_schema_check(table, names)
    if FreshnessLimits.of(table) is not None:
        yield freshness_check(table, names)
    if settings.equals_topic is not Severity.OFF:
        yield topic_check(table, names)
