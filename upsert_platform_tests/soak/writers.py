"""Starts a writing process, kills it at random moments, and reads what it says."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO


class Writer:
    """A process of `python -m <module> <arguments>` that prints a line when it begins something.

    Attributes:
        lines: printed so far.
    """

    def __init__(self, module: str, *arguments: str, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.lines: list[str] = []
        self.log = log
        self._errors = log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=dict(environment or os.environ),
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, output: IO[str]) -> None:
        for line in output:
            self.lines.append(line.strip())

    def kill_after(
        self,
        chance: random.Random,
        *,
        lines: int,
        seconds: float,
        at_line: Callable[[], None] = lambda: None,
        patience: float = 240,
    ) -> str:
        """Kills the process (SIGKILL) within so many seconds after a random line, of the first `lines`; the last line.

        Args:
            at_line: is called once for every line until then.
        """
        wanted, seconds = chance.randint(1, lines), chance.uniform(0, seconds)
        deadline = time.monotonic() + patience
        due, seen = None, 0
        while due is None or time.monotonic() < due:
            if due is None and len(self.lines) >= wanted:
                due = time.monotonic() + seconds
            assert self._process.poll() is None, self.tail()
            assert time.monotonic() < deadline, self.tail()
            if seen < len(self.lines):
                seen += 1
                at_line()
            time.sleep(0.02)
        self._process.kill()
        self._close()
        return self.lines[-1]

    def finish(self, *, patience: float = 240) -> list[str]:
        """Waits for the end, which must be a good one; what was printed."""
        code = self._process.wait(patience)
        self._close()
        assert code == 0, self.tail()
        return self.lines

    def tail(self) -> str:
        """The end of what it wrote to its error output."""
        return self.log.read_text(errors="replace")[-4000:]

    def _close(self) -> None:
        self._process.wait(30)
        self._reader.join(30)
        self._errors.close()
