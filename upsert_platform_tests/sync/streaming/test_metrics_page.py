"""The page for Prometheus, and that documents and the dashboard name what is on it."""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from upsert_platform.core.errors import EndpointError
from upsert_platform.sync.streaming.measures import Measures
from upsert_platform.sync.streaming.metrics_page import metrics_page

DOCS = Path(__file__).parents[3] / "docs"


def page() -> str:
    users = Measures("users", "table")
    users.add(batches=2, records=3, commit_seconds=0.5)
    users.set(lag=4, passed=True, error="gone")
    users.add(delays=[np.array([0.05, 0.3, 9_999.0])])
    topic = Measures('us"ers', "changelog")
    numbers = {"table users": users.read(), 'changelog us"ers': topic.read()}
    with (
        metrics_page(0, lambda: numbers) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer,
    ):
        return str(answer.read().decode())


def test_numbers_of_every_table_are_on_the_page() -> None:
    found = page()
    for line in (
        'upsert_platform_records_total{kind="table",table="users"} 3.0',
        'upsert_platform_lag{kind="table",table="users"} 4.0',
        'upsert_platform_failing{kind="table",table="users"} 1.0',
        'upsert_platform_check_passed{kind="table",table="users"} 1.0',
        'upsert_platform_delay_seconds_bucket{kind="table",le="0.1",table="users"} 1.0',
        'upsert_platform_delay_seconds_bucket{kind="table",le="0.5",table="users"} 2.0',
        'upsert_platform_delay_seconds_bucket{kind="table",le="+Inf",table="users"} 3.0',
        'upsert_platform_batches_total{kind="changelog",table="us\\"ers"} 0.0',
    ):
        assert line in found.splitlines(), found
    assert 'check_passed{kind="changelog"' not in found
    assert float(re.findall(r'memory_bytes\{process="loop"\} (\S+)', found)[0]) > 1e6


@pytest.mark.parametrize("document", ["continuous.md", "continuous-dashboard.json"])
def test_documents_name_metrics_that_there_are(document: str) -> None:
    known = set(re.findall(r"^(upsert_platform_\w+)", page(), re.MULTILINE))
    named = set(re.findall(r"upsert_platform_\w+", (DOCS / document).read_text("utf-8")))
    named -= {"upsert_platform_delay_seconds"} if document == "continuous.md" else set()  # the histogram as a whole
    assert len(named) > 5
    assert named <= known
    if document.endswith("json"):
        panels = json.loads((DOCS / document).read_text("utf-8"))["panels"]
        assert all(target["expr"] for panel in panels for target in panel["targets"])


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EndpointError, match=f"port {port}.*name another"), metrics_page(port, dict):
            pass
