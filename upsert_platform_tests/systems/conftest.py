"""Tests against servers beside the usual ones; the mark `systems` on a test makes it one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from upsert_platform.changelog.tables import OPTIONS_VARIABLE
from upsert_platform.local.s3 import S3, start_s3
from upsert_platform_tests.graph.conftest import stack, variables

__all__ = ["s3", "s3_server", "stack", "variables"]


@pytest.fixture(scope="session", autouse=True)
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """Named in the environment before Spark is started: its workers read the storage options too."""
    with (
        start_s3(tmp_path_factory.mktemp("s3"), die_with_parent=True) as server,
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setenv(OPTIONS_VARIABLE, str(server.options))
        yield server


@pytest.fixture
def s3(s3_server: S3, tmp_path: Path) -> str:
    """A lake of one's own on the S3 server."""
    return f"{s3_server.uri}/{tmp_path.name}"
