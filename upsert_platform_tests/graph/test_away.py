"""A run whose brokers are away."""

from __future__ import annotations

import time
from pathlib import Path

import dagster as dg
import pytest

from upsert_platform.graph.build import build_definitions
from upsert_platform.graph.resources import KafkaResource, MaxComputeResource, PlatformResource, TablestoreResource
from upsert_platform.kafka import endpoint
from upsert_platform.local.process import free_port
from upsert_platform.sync.binding import load

TABLES = 8
WAIT = 2.0
AWAY = """
CREATE TABLE away{n} (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'a{n}',
  'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE copy{n} (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'c{n}',
  'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json', 'value.format' = 'json');
INSERT INTO copy{n} SELECT id FROM away{n};
"""


def test_a_run_waits_once_for_brokers_that_are_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "REQUEST_SECONDS", WAIT)
    servers = f"127.0.0.1:{free_port()}"
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "away.sql").write_text("".join(AWAY.format(n=n, servers=servers) for n in range(TABLES)), "utf-8")
    project, _ = load(folder, root=str(tmp_path / "lake"))
    platform = PlatformResource(
        project=str(folder),
        home=str(tmp_path / "lake"),
        kafka=KafkaResource(),
        tablestore=TablestoreResource(),
        maxcompute=MaxComputeResource(),
    )
    job = build_definitions(project, platform=platform).resolve_job_def("sync")
    started = time.monotonic()
    result = job.execute_in_process(raise_on_error=False)
    seconds = time.monotonic() - started
    failed = [event for event in result.all_events if event.event_type is dg.DagsterEventType.STEP_FAILURE]
    assert {str(event.step_key) for event in failed} == {f"changelogs__away{n}" for n in range(TABLES)}
    for event in failed:
        assert f"Kafka {servers}" in str(event.step_failure_data.user_failure_data.description)  # type: ignore[union-attr]
    assert seconds < WAIT * TABLES / 2
