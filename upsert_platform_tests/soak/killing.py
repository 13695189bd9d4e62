"""Runs of the real command that are killed in the middle of a chosen step."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from upsert_platform_tests.graph.stack import Stack

_EVENT = re.compile(r"^\S+ (\S+)  (STEP_START|STEP_SUCCESS|STEP_FAILURE) ", re.MULTILINE)
_EVERY_EVENT = json.dumps({"loggers": {"console": {"config": {"log_level": "DEBUG"}}}})
_POLL_SECONDS = 0.02


@dataclass
class Timeline:
    """When the steps of an undisturbed run began and ended, in seconds since its start.

    Attributes:
        steps: step to start and end, in the order in which they ran.
        seconds: of the whole run.
    """

    steps: dict[str, tuple[float, float]] = field(default_factory=dict)
    seconds: float = 0.0

    def __str__(self) -> str:
        steps = ", ".join(f"{name} {start:.1f}-{end:.1f}" for name, (start, end) in self.steps.items())
        return f"{self.seconds:.1f} s ({steps})"

    def longest(self, other: Timeline) -> Timeline:
        """Each step as it was where it took longer: one with nothing to do tells nothing of its length."""

        def length(timeline: Timeline, step: str) -> float:
            start, end = timeline.steps.get(step, (0.0, 0.0))
            return end - start

        steps = {
            step: max((self, other), key=lambda timeline: length(timeline, step)).steps[step]
            for step in (self.steps | other.steps)
        }
        return Timeline(steps, max(self.seconds, other.seconds))


@dataclass(frozen=True)
class Kill:
    """Where a run was killed: `after` seconds into `step`, or not at all because it had ended by then."""

    step: str
    after: float
    alive: bool

    def __str__(self) -> str:
        return f"{'killed' if self.alive else 'ended before'} {self.after:.1f} s into {self.step}"


def run_timed(stack: Stack, job: str = "sync", *, timeout: float = 600) -> Timeline:
    """Runs a job as a user would, and notes when its steps ran; it must succeed."""
    log = _log(stack)
    timeline = Timeline()
    started = time.monotonic()
    with log.open("wb") as output, _start(stack, job, output) as process, log.open("rb") as seen:
        ended = False
        while not ended:
            ended = process.poll() is not None
            now = time.monotonic() - started
            for step, event in _events(seen.read()):
                begun = timeline.steps.get(step, (now, now))[0]
                timeline.steps[step] = (begun, now)
                assert event != "STEP_FAILURE", _tail(log)
            assert now < timeout, _tail(log)
            time.sleep(_POLL_SECONDS)
        timeline.seconds = time.monotonic() - started
        assert process.returncode == 0, _tail(log)
    return timeline


def run_killed(stack: Stack, step: str, after: float, *, timeout: float = 600) -> Kill:
    """Starts a sync and kills it with SIGKILL, some seconds after a step began ("" is the start of the process)."""
    log = _log(stack)
    deadline = time.monotonic() + timeout
    with log.open("wb") as output, _start(stack, "sync", output) as process, log.open("rb") as seen:
        begun = time.monotonic() if not step else None
        while process.poll() is None and (begun is None or time.monotonic() < begun + after):
            if begun is None and (step, "STEP_START") in _events(seen.read()):
                begun = time.monotonic()
            assert time.monotonic() < deadline, _tail(log)
            time.sleep(_POLL_SECONDS)
        alive = process.poll() is None
        if alive:
            process.send_signal(signal.SIGKILL)
        return Kill(step or "start", after, alive)


def pick(timeline: Timeline, chance: random.Random, step: str) -> tuple[str, float]:
    """A random moment of a step as long as it was in the undisturbed run; of the whole run where no step is named."""
    if not step:
        return "", chance.uniform(0, timeline.seconds)
    start, end = timeline.steps[step]
    return step, chance.uniform(0, end - start)


def _start(stack: Stack, job: str, output: object) -> subprocess.Popen[bytes]:
    config = stack.path / "events.yaml"
    config.write_text(_EVERY_EVENT, "utf-8")
    command = [*stack.command(job), "-c", str(config)]
    return subprocess.Popen(command, env=stack.environment(), stdout=output, stderr=subprocess.STDOUT)  # type: ignore[call-overload]


def _events(text: bytes) -> list[tuple[str, str]]:
    return [(found[1], found[2]) for found in _EVENT.finditer(text.decode(errors="replace"))]


def _log(stack: Stack) -> Path:
    folder = stack.path / "logs"
    folder.mkdir(exist_ok=True)
    return folder / f"{len(list(folder.iterdir())):03d}.log"


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-4000:]
