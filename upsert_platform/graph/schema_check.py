"""Asset check `schema_matches`: lake and tables are as they are declared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import dagster as dg

from upsert_platform.core.capabilities import ComparesSchema
from upsert_platform.core.error_catalogue import shown
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.model import Table
from upsert_platform.core.platform_options import Severity, platform_settings
from upsert_platform.graph import keys
from upsert_platform.graph.check_parts import CheckPart
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.resources import PlatformResource

Difference = Callable[[PlatformResource], str | None]
"""Tells how something differs from its declaration; None where it does not."""


def changelog_schema_check(table: Table, names: AssetKeys = AS_DECLARED) -> CheckPart:
    """Compares the types in the lake with those that are declared; columns that it lacks come with the next batch."""

    def difference(platform: PlatformResource) -> str | None:
        store = platform.changelog(platform.sound().sources[table.name])
        try:
            if store.head() is not None:
                store.create()
        except ChangelogError as error:
            return shown(error)
        return None

    return _check(table, names.changelog_key(table.name), difference)


def table_schema_check(target: Table, names: AssetKeys = AS_DECLARED) -> CheckPart:
    """Compares a destination table with its declaration, and changes nothing."""

    def difference(platform: PlatformResource) -> str | None:
        with closing(platform.destination(target.name)) as destination:
            return destination.schema_difference() if isinstance(destination, ComparesSchema) else None

    return _check(target, names.destination_key(target.name), difference)


def _check(table: Table, key: dg.AssetKey, difference: Difference) -> CheckPart:
    def evaluate(_: dg.AssetCheckExecutionContext, platform: PlatformResource) -> Iterator[dg.AssetCheckResult]:
        found = difference(platform)
        fails = platform_settings(table).schema_matches is Severity.ERROR
        yield dg.AssetCheckResult(
            check_name=keys.CHECK_SCHEMA,
            asset_key=key,
            passed=found is None,
            severity=dg.AssetCheckSeverity.ERROR if fails else dg.AssetCheckSeverity.WARN,
            description=found,
        )

    told = "Columns, types and keys are those that are declared."
    return CheckPart(dg.AssetCheckSpec(keys.CHECK_SCHEMA, asset=key, description=told), evaluate)
