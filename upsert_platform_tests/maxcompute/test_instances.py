"""What people are told of statements that run, and of those that failed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
import requests
from odps.models import Instance

from upsert_platform.maxcompute.client import Client
from upsert_platform.maxcompute.connection import Connection, ServiceError
from upsert_platform.maxcompute.instances import RunningStatement, share_done, whereabouts
from upsert_platform.maxcompute.table import MaxComputeTable

PROGRESS = """<Progress><Stage ID="M1"><BackupWorkers>0</BackupWorkers><TerminatedWorkers>3</TerminatedWorkers>
<RunningWorkers>1</RunningWorkers><TotalWorkers>4</TotalWorkers></Stage><Stage ID="R2"><BackupWorkers>0</BackupWorkers>
<TerminatedWorkers>0</TerminatedWorkers><RunningWorkers>0</RunningWorkers><TotalWorkers>2</TotalWorkers></Stage>
</Progress>"""


def test_a_statement_that_runs_long_is_told_of_now_and_then(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="upsert_platform.maxcompute.instances")
    instance = client.odps.run_sql("SELECT 1")
    instance.wait_for_success()
    running = RunningStatement(instance, client.connection, shown="SELECT 1 ...", started=100.0)
    for now in (101.0, 109.9, 110.0, 139.9, 140.0):
        running.look(now)
    assert [record.getMessage() for record in caplog.records] == [
        f"'SELECT 1 ...' runs for 10 s, 1 of 1 workers ended (instance {instance.id})",
        f"'SELECT 1 ...' runs for 40 s, 1 of 1 workers ended (instance {instance.id})",
    ]


def test_the_workers_that_ended_are_counted_over_all_stages() -> None:
    answer = requests.Response()
    answer._content = PROGRESS.encode()
    assert share_done(Instance.Task.TaskProgress.parse(None, answer).stages) == ", 3 of 6 workers ended"
    assert share_done(()) == ""


def test_a_statement_that_fails_names_its_instance(client: Client) -> None:
    with pytest.raises(ServiceError, match=r"no_such_table.* \(instance \w+\)$"):
        client.run_sql("SELECT * FROM no_such_table")


def test_the_link_has_no_secret(make_table: Callable[..., MaxComputeTable]) -> None:
    connection = replace(Connection.of(make_table().settings), endpoint="https://service.example.com/api")
    assert whereabouts("20260101x", connection) == (
        "instance 20260101x, https://logview.aliyun.com/logview/?h=https%3A%2F%2Fservice.example.com%2Fapi&p="
        f"{connection.project}&i=20260101x"
    )
