"""Looks of a process of its own are those of this one, and what it cannot tell is asked here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from upsert_platform.changelog import pauses
from upsert_platform.cli.look_beside import looking_beside
from upsert_platform.graph.pending import pending
from upsert_platform.sync.looks import Asked, Kind, Look, Looks
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.referee.judging import records_of

CHECKS = {"offsets_accounted": True, "quarantine_below": True}
USERS, SERVING, WAREHOUSE = (
    Asked(Kind.CHANGELOG, "users"), Asked(Kind.TABLE, "users_serving"), Asked(Kind.TABLE, "users_warehouse")
)  # fmt: skip


@pytest.fixture
def written(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """A project whose tables are written, of this process's environment."""
    stack.declare(serving=", 'freshness.max-delay' = '1 h'")
    stack.produce(stack.users.first_wave(20))
    assert stack.run().success
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    return stack


def test_a_process_asks_what_this_one_asks(written: Stack) -> None:
    here = Looks(written.platform().hops()).of([USERS, SERVING, WAREHOUSE])
    with looking_beside() as beside:
        assert beside.looks == here
    passed = {"last_value_per_key": True}
    records = len(list(records_of(written.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], written.topic)))
    assert here == {
        USERS: Look(1, records, CHECKS),
        SERVING: Look(1, checks={**passed, "freshness": True}),
        WAREHOUSE: Look(1, checks=passed),
    }
    written.produce(written.users.second_wave(5))
    pauses.pause(written.platform().lake, "users_warehouse", reason="stock-taking")
    with looking_beside() as beside:
        found = beside.looks
    assert found[USERS].work == "5 offsets to read"
    assert "stock-taking" in found[WAREHOUSE].note


def test_a_process_that_fails_or_is_not_waited_for_tells_nothing(
    written: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(written.path / "nowhere"))
    with looking_beside() as beside:
        assert beside.looks == {}
    with looking_beside() as beside:
        process = beside._process
    assert process.returncode != 0


def test_known_looks_are_taken_and_others_made(written: Stack) -> None:
    definitions = written.definitions()
    repository, job = definitions.get_repository_def(), definitions.resolve_job_def("sync")
    known = {USERS: Look(7, 8, CHECKS, "9 offsets to read"), Asked(Kind.TABLE, "of nobody"): Look(work="all")}
    with dg.DagsterInstance.ephemeral() as instance:
        found = {item.key.to_user_string(): item for item in pending(repository, job, instance=instance).states}
        told = {
            item.key.to_user_string(): item
            for item in pending(repository, job, instance=instance, known=known).states
        }  # fmt: skip
    name = "changelogs/users"
    assert (found[name].batch, found[name].work) == (1, "")
    assert (told[name].batch, told[name].offsets, told[name].work) == (7, 8, "9 offsets to read")
    del found[name], told[name]
    assert told == found


def test_the_command_finds_nothing_new_by_it(written: Stack, tmp_path: Path) -> None:
    assert written.execute("sync").returncode == 0  # so that the instance has results of the checks
    command = [str(Path(sys.executable).parent / "upsert-platform"), "sync", "--json"]
    done = subprocess.run(command, env=written.environment(), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout.splitlines()[-1])
    assert shown["run"] is None
    assert {item["asset"]: item["batch"] for item in shown["assets"]} == {
        "changelogs/users": 1, "tables/users_serving": 1, "tables/users_warehouse": 1
    }  # fmt: skip
