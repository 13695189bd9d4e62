"""Alerts of runs that failed and of checks that did not pass, at a webhook of this machine."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import dagster as dg
import pytest

from upsert_platform.core.errors import EndpointError
from upsert_platform.graph.alerts import VARIABLE, Alert, declared_alerts, webhook
from upsert_platform.graph.failures import told_plainly


class Hook:
    """A webhook that keeps what it is sent."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self.status = 200
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.alerts.append(json.loads(body))
                self.send_response(hook.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?key=sesame"


@pytest.fixture
def hook() -> Iterator[Hook]:
    found = Hook()
    thread = threading.Thread(target=found.server.serve_forever, daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


@dg.asset
def table() -> None:
    pass


@dg.asset_check(asset=table, name="fresh")
def check() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=False, severity=dg.AssetCheckSeverity.WARN, description="an hour behind")


@dg.asset
def broken() -> None:
    with told_plainly():
        raise EndpointError("Kafka h:1: not reachable")


@dg.asset_check(asset=table, name="standing")
def standing() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=False, metadata={"new": False}, description="found an hour ago")


def look(name: str, chosen: list[Any], instance: dg.DagsterInstance) -> None:
    """Runs assets, and lets the sensor of that name look at the run."""
    (sensor,) = [item for item in declared_alerts() if item.name == name]
    definitions = dg.Definitions(assets=[item for item in chosen if item is not check], asset_checks=[check, standing])
    job = definitions.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    event = result.get_run_success_event() if result.success else result.get_run_failure_event()
    context = dg.build_run_status_sensor_context(
        sensor_name=name, dagster_instance=instance, dagster_run=result.dagster_run, dagster_event=event
    )
    sensor(context)


def test_what_failed_is_posted_and_what_succeeded_is_not(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    assert declared_alerts() == []
    monkeypatch.setenv(VARIABLE, hook.url)
    with dg.DagsterInstance.ephemeral() as instance:
        look("alerts_of_checks", [table, check], instance)
        (alert,) = hook.alerts
        assert alert["failed"] is False
        assert alert["checks"] == ["warn fresh of table: an hour behind"]
        assert alert["text"].endswith("warn fresh of table: an hour behind")
        hook.alerts.clear()
        look("alerts_of_failed_runs", [table, check, broken], instance)
        (alert,) = hook.alerts
        assert alert["failed"] is True
        assert sorted(alert["checks"]) == [
            "error standing of table: found an hour ago",
            "warn fresh of table: an hour behind",
        ]
        assert re.search(
            r"failed: broken: Kafka h:1: not reachable \[UP-\d{4}\]; (warn fresh|error standing)", alert["text"]
        )


def test_a_webhook_that_fails_is_told_without_its_address(hook: Hook) -> None:
    hook.status = 500
    with pytest.raises(EndpointError, match="answered 500") as told:
        webhook(hook.url)(Alert("x", "sync", "1", failed=True))
    assert "sesame" not in str(told.value)
    with pytest.raises(EndpointError, match="cannot be reached: ConnectionError") as told:
        webhook("http://127.0.0.1:9/hook?key=sesame")(Alert("x", "sync", "1", failed=True))
    assert "sesame" not in str(told.value)
