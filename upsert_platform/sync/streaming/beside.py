"""A task that a worker's step leaves to another thread, so that the next turn begins meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Beside:
    """One task at a time, in a thread of its own; used by one worker's thread.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._running: Future[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Return whether a task is under way."""
        return self._running is not None and not self._running.done()

    def begin(self, task: Callable[[], None]) -> None:
        """Begins a task once the one before has ended, which is waited for.

        Raises:
            Exception: of the one before; the new one is carried out all the same.
        """
        before, self._running = self._running, self._thread.submit(task)
        if before is not None:
            before.result()

    def look(self) -> None:
        """Raises what a task failed with that has ended; one that is under way goes on."""
        if not self.is_busy:
            self.wait()

    def wait(self) -> None:
        """Waits for the task's end.

        Raises:
            Exception: of the task; once.
        """
        running, self._running = self._running, None
        if running is not None:
            running.result()
