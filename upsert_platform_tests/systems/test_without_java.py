"""A machine without Java: a sync with new records ends with what to install, and reads them once Java is there.

A sync without new records asks for no Java, where every row goes through Spark too.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from upsert_platform_tests.graph.stack import Stack

pytestmark = [pytest.mark.systems, pytest.mark.timeout(300)]

WHAT_TO_INSTALL = (
    "Java was not found: install Java 17 or newer (a JRE suffices) and put it on PATH or name it in JAVA_HOME"
)


def test_a_sync_with_new_records_ends_with_one_line_that_says_what_to_install(stack: Stack) -> None:
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(5))
    own = {"PATH": str(stack.path), "JAVA_HOME": "", "UPSERT_SPARK_LOCAL_ROWS": "0", "COLUMNS": "80"}
    environment = {**stack.environment(), **own}
    commands = {"dagster": stack.command(), "ours": [str(Path(sys.executable).parent / "upsert-platform"), "sync"]}
    for name, command in commands.items():
        done = subprocess.run(command, env=environment, cwd=stack.path, capture_output=True, text=True, check=False)
        assert done.returncode == 1, name
        assert "Traceback" not in done.stderr + done.stdout
        if name == "ours":
            assert f"changelogs__users  failed: {WHAT_TO_INSTALL} [UP-2101]" in done.stderr
            assert f"changelogs__users: {WHAT_TO_INSTALL} [UP-2101]" in done.stdout.splitlines()[-3:], done.stdout
            continue
        lines = done.stderr.splitlines()
        last = [line.strip() for line in lines if line and not line.startswith("Error: Run ")][-1]  # Dagster's own end
        assert last == f"changelogs__users: failed: {WHAT_TO_INSTALL} [UP-2101]", done.stderr
    assert stack.run().success
    assert stack.serving_differences() == []


def test_a_sync_without_new_records_starts_no_java(stack: Stack) -> None:
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(5))
    assert stack.run().success
    started = stack.path / "java-was-started"
    program = stack.path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ntouch '{started}'\nexit 1\n", "utf-8")
    program.chmod(0o755)
    own = {"JAVA_HOME": str(stack.path / "jdk"), "UPSERT_SPARK_LOCAL_ROWS": "0"}
    environment = {**stack.environment(), **own}

    def run() -> int:
        return subprocess.run(stack.command(), env=environment, cwd=stack.path, capture_output=True).returncode

    assert run() == 0
    assert not started.exists()
    stack.produce(stack.users.second_wave(5))
    assert run() == 1
    assert started.exists(), "a run with new records asks for Java"
