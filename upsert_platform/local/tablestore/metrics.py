"""Counters per operation, and a journal of the last requests."""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import NamedTuple


class Entry(NamedTuple):
    """A request of the journal."""

    at: float
    request_id: str
    operation: str
    status: int
    code: str
    request_bytes: int
    response_bytes: int
    seconds: float


class Metrics:
    """Counts requests; keeps the last ones."""

    def __init__(self, journal: int = 2000) -> None:
        self.started = time.time()
        self.requests: Counter[tuple[str, int, str]] = Counter()
        self.seconds: Counter[str] = Counter()
        self.bytes_in: Counter[str] = Counter()
        self.bytes_out: Counter[str] = Counter()
        self.commits = 0
        self.journal: deque[Entry] = deque(maxlen=journal)

    def count(self, entry: Entry) -> None:
        self.requests[entry.operation, entry.status, entry.code] += 1
        self.seconds[entry.operation] += entry.seconds  # type: ignore[assignment]
        self.bytes_in[entry.operation] += entry.request_bytes
        self.bytes_out[entry.operation] += entry.response_bytes
        self.journal.append(entry)

    def text(self, *, rows_written: int, tables: int) -> str:
        """The counters in the Prometheus text form."""
        lines = [
            f"tablestore_uptime_seconds {time.time() - self.started:.1f}",
            f"tablestore_tables {tables}",
            f"tablestore_rows_written_total {rows_written}",
            f"tablestore_commits_total {self.commits}",
        ]
        for (operation, status, code), count in sorted(self.requests.items()):
            labels = f'operation="{operation}",status="{status}",code="{code}"'
            lines.append(f"tablestore_requests_total{{{labels}}} {count}")
        for name, counter in (
            ("request_seconds", self.seconds),
            ("request_bytes", self.bytes_in),
            ("response_bytes", self.bytes_out),
        ):
            lines.extend(
                f'tablestore_{name}_total{{operation="{operation}"}} {value:.6g}'
                if name == "request_seconds"
                else f'tablestore_{name}_total{{operation="{operation}"}} {value}'
                for operation, value in sorted(counter.items())
            )
        return "\n".join(lines) + "\n"

    def journal_text(self) -> str:
        """The journal, oldest first: one request per line."""
        return "".join(
            f"{entry.at:.3f} {entry.request_id} {entry.operation} {entry.status} {entry.code or '-'} "
            f"in={entry.request_bytes} out={entry.response_bytes} ms={entry.seconds * 1000:.2f}\n"
            for entry in self.journal
        )
