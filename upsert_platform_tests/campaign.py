"""What of a campaign each run of the tests carries out, and what only `make soak` does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first_of(values: Iterable[Any], *, every: int, begin: int = 0) -> list[Any]:
    """Parameters of a test: one value of `every` in each run, from number `begin` on, the others in `make soak`."""
    return [
        value if number % every == begin else pytest.param(value, marks=pytest.mark.soak)
        for number, value in enumerate(values)
    ]


def seeds(count: int) -> list[Any]:
    """Seeds of random histories: the first in each run, the others in `make soak`."""
    return first_of(range(count), every=count)
