"""Dagster's own automation by data versions, the alternative to the sensor: an asset runs when its input changed.

A topic's data version is where it ends, a changelog's what it has read, a table's what it has applied. Each asset then
has runs of its own, so a change takes some looks of the daemon until it is in a table, where the sensor's sync takes
one run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

import dagster as dg

from upsert_platform.core.errors import DeclarationError, Problem

VARIABLE: Final = "UPSERT_PLATFORM_AUTOMATION"


class Automation(StrEnum):
    """The triggers that start runs automatically."""

    SENSOR = "sensor"
    CONDITIONS = "conditions"


def automation_of(text: str | None) -> Automation:
    """The automation that is meant; that of the environment, or the sensor, if nothing is said.

    Raises:
        DeclarationError: there is none of that name.
    """
    found = (text or os.environ.get(VARIABLE) or Automation.SENSOR).strip().lower()
    if found not in list(Automation):
        told = f"{VARIABLE} (automation) takes {' or '.join(Automation)}, not '{found}'"
        raise DeclarationError([Problem(told, None)])
    return Automation(found)


LOOKS: Final = dg.AutomationCondition.on_cron("* * * * *")
"""Of a topic: every minute."""


def on_new_offsets() -> dg.AutomationCondition[Any]:
    """Return the condition of an asset that runs when an input has a new data version, or when it has never run.

    The data version of a topic is its end offsets, that of a changelog the offsets that it holds, that of a table the
    batch that it has applied. A run that finds nothing new changes none of them.

    Example:
        import dagster as dg

        from upsert_platform import on_new_offsets

        @dg.asset(deps=[dg.AssetKey(["tables", "open_orders"])], automation_condition=on_new_offsets())
        def orders_report() -> None:
            ...

        defs = dg.Definitions(assets=[orders_report])
    """
    return (
        (
            dg.AutomationCondition.any_deps_match(dg.AutomationCondition.data_version_changed())
            | dg.AutomationCondition.missing()
        ).since_last_handled()
        & ~dg.AutomationCondition.any_deps_in_progress()
        & ~dg.AutomationCondition.in_progress()
    ).with_label("new offsets: an input has another data version")


def on_overdue() -> dg.AutomationCondition[Any]:
    """Return the condition of an asset that runs when its freshness policy begins to warn or to fail.

    A table has such a policy with the options `freshness.max-age` and `freshness.warn-age`.

    Example:
        from datetime import timedelta

        import dagster as dg

        from upsert_platform import on_overdue

        @dg.asset(
            deps=[dg.AssetKey(["tables", "open_orders"])],
            freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=6)),
            automation_condition=on_overdue(),
        )
        def orders_report() -> None:
            ...

        defs = dg.Definitions(assets=[orders_report])
    """
    late = dg.AutomationCondition.freshness_warned() | dg.AutomationCondition.freshness_failed()
    return (late.newly_true() & ~dg.AutomationCondition.in_progress()).with_label("overdue by its freshness policy")


PRESETS: Final = {"on_new_offsets": on_new_offsets, "on_overdue": on_overdue}
"""The conditions, by the names that templates of a `defs.yaml` use."""


def with_conditions(assets: Iterable[Any]) -> list[Any]:
    """The assets, of which those that are materialised run by themselves when a data version changed."""
    return [
        dg.map_asset_specs(_following, [item])[0] if isinstance(item, dg.AssetsDefinition) else item for item in assets
    ]


def _following(spec: dg.AssetSpec) -> dg.AssetSpec:
    own = spec.automation_condition is not None  # a translator gave it
    return spec if own or not spec.deps else spec.replace_attributes(automation_condition=on_new_offsets())
