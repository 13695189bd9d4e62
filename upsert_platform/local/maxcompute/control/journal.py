"""The journal of requests and their outcome, without signatures and bodies."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from typing import Any

from upsert_platform.local.maxcompute.http import Request, Response

_KEPT = 20_000


class Journal:
    """The latest requests, and counts of all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._number = 0
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: Counter[str] = Counter()
        self._received: Counter[str] = Counter()

    def add(self, request: Request, operation: str, response: Response, started: float, fault: str) -> None:
        """Notes one request; the status of a dropped connection is 0."""
        elapsed = time.perf_counter() - started
        status = 0 if response.drop else response.status
        with self._lock:
            self._number += 1
            self._entries.append(
                {
                    "number": self._number,
                    "operation": operation,
                    "method": request.method,
                    "path": request.path,
                    "query": dict(request.query),
                    "routed_server": request.headers.get("odps-tunnel-routed-server") or "",
                    "retry_index": request.headers.get("odps-tunnel-retry-index") or "",
                    "bytes": len(request.body),
                    "status": status,
                    "milliseconds": round(elapsed * 1000, 3),
                    "fault": fault,
                    "request_id": request.request_id,
                }
            )
            self._requests[operation, status] += 1
            self._seconds[operation] += elapsed  # type: ignore[assignment]
            self._received[operation] += len(request.body)

    def entries(self, after: int = 0) -> list[dict[str, Any]]:
        """Requests with a number above ``after``, oldest first."""
        with self._lock:
            return [entry for entry in self._entries if entry["number"] > after]

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def metrics(self) -> list[str]:
        """Counts in the text format of Prometheus."""
        with self._lock:
            lines = [
                f'maxcompute_requests_total{{operation="{operation}",status="{status}"}} {count}'
                for (operation, status), count in sorted(self._requests.items())
            ]
            lines += [
                f'maxcompute_request_seconds_total{{operation="{operation}"}} {seconds:.6f}'
                for operation, seconds in sorted(self._seconds.items())
            ]
            lines += [
                f'maxcompute_received_bytes_total{{operation="{operation}"}} {count}'
                for operation, count in sorted(self._received.items())
            ]
        return lines
