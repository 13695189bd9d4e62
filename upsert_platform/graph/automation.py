"""Dagster's own automation by data versions, the alternative to the sensor: an asset runs when what it reads changed.

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
_FOLLOWS: Final = (
    (
        dg.AutomationCondition.any_deps_match(dg.AutomationCondition.data_version_changed())
        | dg.AutomationCondition.missing()
    ).since_last_handled()
    & ~dg.AutomationCondition.any_deps_in_progress()
    & ~dg.AutomationCondition.in_progress()
).with_label("what it reads has another data version")


def with_conditions(assets: Iterable[Any]) -> list[Any]:
    """The assets, of which those that are materialised run by themselves when a data version changed."""
    return [
        dg.map_asset_specs(_following, [item])[0] if isinstance(item, dg.AssetsDefinition) else item for item in assets
    ]


def _following(spec: dg.AssetSpec) -> dg.AssetSpec:
    own = spec.automation_condition is not None  # a translator gave it
    return spec if own or not spec.deps else spec.replace_attributes(automation_condition=_FOLLOWS)
