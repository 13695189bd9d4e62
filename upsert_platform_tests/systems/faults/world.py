"""A project on servers of its own, which faults may stop, disturb and put back."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import dagster as dg

from upsert_platform.local.kafka import Broker
from upsert_platform_tests.graph.stack import Stack, variables_of
from upsert_platform_tests.graph.test_faults import failures
from upsert_platform_tests.local.maxcompute.server import ServerHandle as MaxComputeServer
from upsert_platform_tests.local.tablestore.server import ServerHandle as TablestoreServer

PATIENCE = ", 'retry.deadline' = '20 s', 'request.timeout' = '5 s'"
NO_CAPTURE = (
    "compute_logs: {module: dagster._core.storage.noop_compute_log_manager, class: NoOpComputeLogManager}\n"
    "telemetry: {enabled: false}\n"
)
"""Of an instance whose runs write to their output alone: programs that copy it outlive a run whose clock is wrong."""
PATIENCE_OF_MAXCOMPUTE = ", 'request.timeout' = '10 s'"


@dataclass
class World:
    """A project with both destinations.

    Attributes:
        copies: a folder for copies of the lake.
        told: why runs failed so far.
    """

    stack: Stack
    broker: Broker
    tablestore: TablestoreServer
    maxcompute: MaxComputeServer
    copies: Path
    told: list[str] = field(default_factory=list)

    @property
    def stores(self) -> tuple[TablestoreServer | MaxComputeServer, ...]:
        """The servers of the tables."""
        return self.tablestore, self.maxcompute

    @property
    def changelog(self) -> Path:
        """The folder of the changelog's table."""
        return self.stack.lake / "changelogs" / "users"

    def wave(self, changes: int = 20) -> None:
        """Produces changes of users."""
        self.stack.produce(self.stack.users.second_wave(changes))

    def sync(self, job: str = "sync", **variables: str) -> bool:
        """Runs a job in this process, and notes why it failed, if it did.

        Args:
            variables: of the environment, as names with their values, in place of the present ones.
        """
        with patch.dict(os.environ, variables):
            result = self.stack.run(job)
        self.told += reasons(result)
        return result.success

    def must(self, job: str = "sync") -> None:
        """Runs a job, which succeeds."""
        assert self.sync(job), self.told[-3:]

    def command(
        self, *before: str, job: str = "sync", seconds: float = 240, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a job as a user would, in a process of its own; notes the reasons of its failure.

        Args:
            before: what stands before the command.
        """
        environment = {**self.stack.environment(), **variables}
        Path(environment["DAGSTER_HOME"], "dagster.yaml").write_text(NO_CAPTURE, "utf-8")
        done = subprocess.run(
            [*before, *self.stack.command(job)], env=environment, capture_output=True, text=True,
            timeout=seconds, check=False,
        )  # fmt: skip
        if done.returncode > 0:  # below zero a signal ended it, which says nothing
            reasons = [line for line in done.stderr.splitlines() if line.startswith("    ") and ": failed: " in line]
            self.told += reasons or [done.stderr[-2000:]]
        return done

    def copy(self) -> Path:
        """A copy of the lake as it is."""
        path = self.copies / uuid.uuid4().hex
        shutil.copytree(self.stack.lake, path)
        return path

    def restore(self, copy: Path) -> None:
        """Puts the lake back as it was."""
        shutil.rmtree(self.stack.lake)
        shutil.copytree(copy, self.stack.lake)

    def pids(self) -> dict[str, int]:
        """Server to its process."""
        assert self.tablestore.process is not None and self.maxcompute.process is not None
        return {
            "kafka": int(json.loads(self.broker.server.pid_file.read_text("utf-8"))["pid"]),
            "tablestore": self.tablestore.process.pid,
            "maxcompute": self.maxcompute.process.pid,
        }


def reasons(result: dg.ExecuteInProcessResult) -> list[str]:
    """Why steps of a run failed; of an error that nobody made for a user, its own text behind its class."""
    told = failures(result)
    for event in result.get_step_failure_events():
        error = event.step_failure_data.error
        while error is not None and error.cause is not None:
            error = error.cause
        if str(event.step_key) not in told and error is not None:
            told[str(event.step_key)] = f"raw error: {error.message.strip()}"
    return list(told.values())


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process is stopped (SIGSTOP) within the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def make_world(
    path: Path, broker: Broker, tablestore: TablestoreServer, maxcompute: MaxComputeServer,
    make_topic: Callable[..., str],
) -> World:  # fmt: skip
    """A world with a first wave in its tables."""
    variables: Mapping[str, str] = variables_of(broker, tablestore, maxcompute)
    topic = make_topic(name=f"users-{uuid.uuid4().hex[:8]}", partitions=4, config={"cleanup.policy": "compact"})
    stack = Stack(path / topic, variables, topic)
    stack.declare(serving=PATIENCE, warehouse=PATIENCE_OF_MAXCOMPUTE)
    world = World(stack, broker, tablestore, maxcompute, path / "copies")
    stack.produce(stack.users.first_wave(60))
    return world
