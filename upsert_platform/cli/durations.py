"""Durations as commands take them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from upsert_platform.core.options import parse_duration


class Seconds(click.ParamType):
    """A duration above zero, in seconds.

    Args:
        zero: takes zero as well.
    """

    name = "duration"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds of ``1s``, ``500 ms`` or ``10 min``."""
        if isinstance(value, float):
            return value
        try:
            found = parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not isinstance(found, timedelta) or found < timedelta(0) or not (found or self._zero):
            self.fail(f"'{value}' is not a duration above zero, such as 1s or 500 ms", param, ctx)
        return found.total_seconds()
