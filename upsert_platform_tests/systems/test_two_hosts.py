"""Two hosts that sync at once over one lake: one reads a range, both end well, and nothing is doubled."""

from __future__ import annotations

import pytest

from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.s3 import S3
from upsert_platform_tests.systems.hosts import sync_at_once

pytestmark = [pytest.mark.systems, pytest.mark.timeout(900)]


@pytest.mark.soak
def test_two_that_sync_at_once_double_nothing(stack: Stack, s3_server: S3) -> None:
    assert all(batches >= 1 for batches in sync_at_once(stack, s3_server, rounds=3, records=300))
