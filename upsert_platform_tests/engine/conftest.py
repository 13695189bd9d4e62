"""What all tests of queries start from."""

from __future__ import annotations

import pytest

from upsert_platform.engine import store


@pytest.fixture(autouse=True)
def _few_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small histories fill few parts of state; each part costs a little."""
    monkeypatch.setattr(store, "BUCKETS", 2)
