"""Results of check `freshness` while continuous mode runs, in bounded time even if endpoints do not answer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final

from upsert_platform.changelog.lake import Lake
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.sync.binding import Binding, Target
from upsert_platform.sync.freshness import Freshness, FreshnessLimits, Judgement, Waiting, judge
from upsert_platform.sync.status import Look, new_places

_PATIENCE: Final = 5.0
"""Seconds; what does not answer in that time is late."""


def judgements(binding: Binding, names: Iterable[str], lake: Lake) -> Mapping[str, Judgement]:
    """Return the judgements of tables that declare limits, by name. A table that cannot be asked fails: it may be as
    old as it will.
    """
    asked = {name: binding.targets[name] for name in names if FreshnessLimits.of(binding.targets[name].table)}
    places, deadline = new_places(), time.monotonic() + _PATIENCE
    looks = {name: Look(partial(_judged, binding, target, lake), places) for name, target in asked.items()}
    late = f"no answer within {_PATIENCE:g} s"
    return {name: look.result(deadline) or _unknown(late) for name, look in looks.items()}


def _judged(binding: Binding, target: Target, lake: Lake) -> Judgement:
    try:
        return judge(binding, target, lake)
    except UpsertPlatformError as error:
        return _unknown(str(error))


def _unknown(why: str) -> Judgement:
    text = f"how old the table is cannot be told: {why}"
    return Judgement(False, True, text, Freshness(datetime.now(UTC), (Waiting(why, None),)), {})
