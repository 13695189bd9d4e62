"""The dashboard and the alerts of the documents, asked of a Prometheus that reads continuous mode's page.

Grafana itself is not in Debian's packages: that the file loads is judged by the classes that Grafana publishes for it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from upsert_platform.local.process import free_port
from upsert_platform_tests.graph.stack import Stack

pytestmark = [pytest.mark.systems, pytest.mark.timeout(300)]
DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD = DOCS / "continuous-dashboard.json"
_VARIABLES = {"$table": ".*", "$__rate_interval": "20s", "$__interval": "20s"}
_PATIENCE = 120.0
_CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
scrape_configs: [{{job_name: continuous, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}]
"""


def _program() -> str:
    cache = Path(os.environ.get("UPSERT_PLATFORM_CACHE") or Path.home() / ".cache" / "upsert_platform")
    unpacked = cache / "libraries" / "usr" / "bin" / "prometheus"
    found = shutil.which("prometheus") or (str(unpacked) if unpacked.is_file() else None)
    assert found, "prometheus is not there: run scripts/setup-systems"
    return found


def _expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    for name, value in _VARIABLES.items():
        found = [text.replace(name, value) for text in found]
    return found


def _alerts() -> dict[str, str]:
    """Name and expression of each alert of the page."""
    page = (DOCS / "continuous.md").read_text("utf-8")
    section = page.split("## Alerts", 1)[1].split("\n## ", 1)[0]
    return dict(re.findall(r"^\| ([\w ]+) \| `([^`]+)` \|", section, re.MULTILINE))


class Watched:
    """A stream with its page, and the Prometheus that reads it."""

    def __init__(self, stack: Stack, stream: subprocess.Popen[bytes], port: int) -> None:
        self.stack, self.stream, self._port = stack, stream, port

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now, each with its value."""
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/query?{query}", timeout=20) as answer:
            data = json.load(answer)
        assert data["status"] == "success", data
        found: list[dict[str, Any]] = data["data"]["result"]
        return found

    def until(self, *expressions: str, shown: bool = True) -> None:
        """Waits until every expression has series, or none where they are not to be shown."""
        deadline = time.monotonic() + _PATIENCE
        while waiting := [text for text in expressions if bool(self.ask(text)) is not shown]:
            assert time.monotonic() < deadline, (waiting, (self.stack.path / "stream.log").read_text("utf-8"))
            time.sleep(0.5)


@pytest.fixture
def watched(stack: Stack) -> Iterator[Watched]:
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(200))
    page, port = free_port(), free_port()
    stream = [sys.executable, "-m", "upsert_platform.cli.main", "stream", "--metrics-port", str(page)]
    config = stack.path / "prometheus.yml"
    config.write_text(_CONFIG.format(port=page), "utf-8")
    server = [
        _program(), f"--config.file={config}", f"--storage.tsdb.path={stack.path / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for name, command in (("stream", stream), ("prometheus", server)):
            with (stack.path / f"{name}.log").open("wb") as log:
                processes.append(subprocess.Popen(command, env=stack.environment(), stdout=log, stderr=log))
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5).close()
                break
            except OSError:
                assert processes[1].poll() is None, (stack.path / "prometheus.log").read_text("utf-8")
                assert time.monotonic() < deadline
                time.sleep(0.2)
        yield Watched(stack, processes[0], port)
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(120)


def test_every_panel_shows_something_and_alerts_fire_when_they_should(watched: Watched) -> None:
    """Every query of the dashboard has series while rows arrive; only `gone` fires, and after the stream has ended."""
    wanted = _expressions()
    assert len(wanted) > 8
    watched.until('upsert_platform_batches_total{kind="table"} > 0')
    watched.stack.produce(watched.stack.users.second_wave(50))
    watched.until(*wanted)
    alerts = _alerts()
    assert {"late", "gone", "differs"} <= set(alerts)
    firing = [name for name, text in alerts.items() if name != "late" and watched.ask(text)]
    assert firing == []
    watched.stream.send_signal(signal.SIGTERM)
    assert watched.stream.wait(120) == 0
    watched.until(alerts["gone"])


def test_grafanas_classes_read_every_field_of_the_dashboard() -> None:
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard

    data = json.loads(DASHBOARD.read_text("utf-8"))
    written = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(data)))
    assert _left_out(data, written) == []


def _left_out(one: Any, other: Any, path: str = "") -> list[str]:
    """Paths of what one value has and the other has not, or has otherwise."""
    if isinstance(one, dict):
        return [
            item
            for key in one
            for item in (_left_out(one[key], other[key], f"{path}.{key}") if key in other else [f"{path}.{key}"])
        ]
    if isinstance(one, list):
        pairs = zip(one, other, strict=True)
        return [item for at, (left, right) in enumerate(pairs) for item in _left_out(left, right, f"{path}[{at}]")]
    return [] if one == other else [path]
