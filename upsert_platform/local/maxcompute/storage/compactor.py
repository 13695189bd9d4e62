"""Partitions that a reader found worth compacting: that is done behind it, by a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from upsert_platform.local.maxcompute.schema import Partition

_PATIENCE = 1.0
"""Seconds until a compaction starts: the reader that asked for it goes first."""
_log = logging.getLogger(__name__)


class Compactor:
    """Compacts one partition after the other."""

    def __init__(self, compact: Callable[[str, Partition], object]) -> None:
        self._compact = compact
        self._wanted: dict[int, tuple[str, Partition]] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def ask(self, table_id: str, partition: Partition) -> None:
        """Has a partition compacted in a while, once however often it is asked for until then."""
        with self._lock:
            self._wanted[partition.partition_id] = table_id, partition
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="compactor", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Returns when nothing is compacted any more."""
        self._closing.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while not self._closing.wait(_PATIENCE):
            with self._lock:
                if not self._wanted:
                    self._thread = None
                    return
                table_id, partition = self._wanted.pop(next(iter(self._wanted)))
            try:
                self._compact(table_id, partition)
            except Exception:  # noqa: BLE001 - readers go on merging
                _log.exception("partition %s of table %s was not compacted", partition.partition_id, table_id)
