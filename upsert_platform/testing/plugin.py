"""The pytest fixture `upsert_project`; pytest finds it by itself where the package is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from upsert_platform.testing.harness import ProjectUnderTest


@pytest.fixture
def upsert_project() -> Iterator[Callable[..., ProjectUnderTest]]:
    """Opens projects as `upsert_platform.testing.project` does, and closes them after the test.

    def test_open_orders(upsert_project):
        shop = upsert_project("shop")
        shop.send("orders", [{"order_id": 1, "state": "open"}])
    """
    from upsert_platform.testing.harness import project

    with ExitStack() as stack:

        def opened(*args: Any, **given: Any) -> ProjectUnderTest:
            return stack.enter_context(project(*args, **given))

        yield opened
