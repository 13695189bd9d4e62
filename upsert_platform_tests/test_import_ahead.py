"""Modules that are imported before they are needed: in the background, and in the process of Python workers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from upsert_platform.core.import_ahead import import_ahead
from upsert_platform.spark.worker_daemon import CLIENTS, CLIENTS_VARIABLE
from upsert_platform.sync.connectors import CONNECTORS

SDKS = {"tablestore": "aiohttp", "maxcompute": "odps.maxstorage.stub"}
"""A module of each client that takes long to import."""
_LOOK = """
import sys
from pyspark import daemon
daemon.manager = lambda: print(*sorted(name for name in {names!r} if name in sys.modules))
from upsert_platform.spark.worker_daemon import main
main()
"""


def test_modules_are_imported_in_the_background_and_one_that_cannot_be_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_ahead.py").write_text("raise RuntimeError('broken')", "utf-8")
    (tmp_path / "sound_ahead.py").write_text("VALUE = 1", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import_ahead(["no_module_of_that_name", "broken_ahead", "sound_ahead"])
    deadline = time.monotonic() + 30
    while not hasattr(sys.modules.get("sound_ahead"), "VALUE"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "broken_ahead" not in sys.modules
    del sys.modules["sound_ahead"]


def test_every_client_is_one_of_a_connectors_endpoint() -> None:
    assert set(CLIENTS) <= {connector.endpoint for connector in CONNECTORS.values()}
    assert set(SDKS) == set(CLIENTS)


@pytest.mark.parametrize(
    ("asked", "found"),
    [("", ""), ("tablestore", "aiohttp"), ("kafka,maxcompute,tablestore", "aiohttp odps.maxstorage.stub")],
)
def test_workers_begin_with_the_clients_that_the_session_names(asked: str, found: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOOK.format(names=list(SDKS.values()))],
        env={**os.environ, CLIENTS_VARIABLE: asked},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == found.split()
