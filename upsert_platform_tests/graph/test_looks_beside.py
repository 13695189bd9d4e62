"""Looks of a process of its own are those of this one, and what it cannot tell is asked here."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import psutil
import pytest

from upsert_platform.changelog import pauses
from upsert_platform.cli.look_beside import LookBeside, looking_beside
from upsert_platform.graph.pending import pending
from upsert_platform.sync.looks import Asked, Kind, Look, Looks
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.referee.judging import records_of

pytestmark = pytest.mark.whole_runs

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


@pytest.mark.soak
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


UNREADABLE = {
    "nothing": b"",
    "words before it": b"functions loaded\n[]",
    "a number": b"7",
    "a list of texts": b'["users"]',
    "no table": b'[{"kind": "table"}]',
    "another kind": b'[{"kind": "view", "table": "users"}]',
    "more than a look has": b'[{"kind": "table", "table": "users", "lag": 1}]',
    "no text": b"\xff\xfe\xff",
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_an_answer_that_cannot_be_read_tells_nothing(case: str) -> None:
    process: Any = SimpleNamespace(wait=lambda: 0)
    assert LookBeside(process, io.BytesIO(UNREADABLE[case])).looks == {}


FUNCTIONS = """
import os, sys, time
from upsert_platform import udf
print("functions are loaded", flush=True)
os.write(1, b"by the way\\n")
open("loaded", "w").close()
time.sleep(float(os.environ.get("LOADING_SECONDS", "0")))

@udf(result_type="BIGINT", arguments=["BIGINT"])
def twice(value):
    return value * 2
"""
WITH_FUNCTIONS = """
CREATE TABLE numbers (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'n',
  'properties.bootstrap.servers' = 'nowhere.invalid:9', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE doubles (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'd',
  'properties.bootstrap.servers' = 'nowhere.invalid:9', 'key.format' = 'json', 'value.format' = 'json');
CREATE FUNCTION twice AS 'functions.twice' LANGUAGE PYTHON;
INSERT INTO doubles SELECT twice(id) FROM numbers;
"""


@pytest.fixture
def with_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a user whose project has a module of functions, which prints when it is loaded."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "functions.py").write_text(FUNCTIONS)
    (tmp_path / "shop" / "shop.sql").write_text(WITH_FUNCTIONS)
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(tmp_path / "shop"))
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "lake"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_modules_of_the_project_print_is_no_answer(with_functions: Path) -> None:
    with looking_beside() as beside:
        found = beside.looks
    assert (with_functions / "loaded").is_file()
    for asked in (Asked(Kind.CHANGELOG, "numbers"), Asked(Kind.TABLE, "doubles")):
        assert "nowhere.invalid:9: the host is not known" in found[asked].work
        assert found[asked].failed


@pytest.mark.parametrize("name", ["calendar", "tomllib", "json"])
def test_modules_of_the_working_folder_are_none_of_the_platforms(with_functions: Path, name: str) -> None:
    (with_functions / f"{name}.py").write_text("open('imported', 'w').close()\nraise SystemExit(1)\n")
    with looking_beside() as beside:
        assert beside.looks
    assert not (with_functions / "imported").exists()


def test_it_ends_with_the_process_that_started_it(with_functions: Path) -> None:
    code = """
import time
from upsert_platform.cli.look_beside import looking_beside
with looking_beside() as beside:
    print(beside._process.pid, flush=True)
    beside.looks
"""
    environment = {**os.environ, "LOADING_SECONDS": "60"}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        child = psutil.Process(int(starter.stdout.readline()))
        deadline = time.monotonic() + 60
        while not (with_functions / "loaded").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert child.is_running()
        starter.send_signal(signal.SIGTERM)
    child.wait(10)


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
