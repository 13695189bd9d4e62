"""The metrics of continuous mode for Prometheus, on a port of 127.0.0.1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.errors import EndpointError
from upsert_platform.sync.streaming.measures import DELAY_BOUNDS, Numbers

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_LABELS: Final = ("kind", "table")
_COUNTERS: Final = {
    "batches": "Batches that were committed.",
    "records": "Records read of topics, or rows written to a table.",
    "quarantined": "Records that were set aside because they cannot be decoded.",
    "refused": "Rows that the table does not take.",
    "retries": "How often a step failed and was tried again.",
    "commit_seconds": "Seconds that steps with a commit took, all together.",
}
_GAUGES: Final = {
    "lag": "What waits: offsets of the topics of a changelog, batches of queries and tables.",
    "applied": "The last batch.",
}
Read = Callable[[], Mapping[str, Numbers]]
"""Numbers by kind and name, with a blank between."""


class _Collector:
    """Makes metrics of the numbers whenever the page is asked for."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        found = {tuple(place.split(" ", 1)): numbers for place, numbers in self._read().items()}
        for name, text in _COUNTERS.items():
            counter = CounterMetricFamily(f"upsert_platform_{name}", text, labels=_LABELS)
            for place, numbers in found.items():
                counter.add_metric(place, float(getattr(numbers, name)))
            yield counter
        for name, text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"upsert_platform_{name}", text, labels=_LABELS)
            for place, numbers in found.items():
                gauge.add_metric(place, float(getattr(numbers, name)))
            yield gauge
        failing = GaugeMetricFamily("upsert_platform_failing", "1 while the last try of a step failed.", labels=_LABELS)
        passed = GaugeMetricFamily(
            "upsert_platform_check_passed", "1 when the last check of a table passed, else 0.", labels=_LABELS
        )
        delays = HistogramMetricFamily(
            "upsert_platform_delay_seconds",
            "From the time of a record to the moment when its row could be read in the table.",
            labels=_LABELS,
        )
        for place, numbers in found.items():
            failing.add_metric(place, float(bool(numbers.error)))
            if numbers.passed is not None:
                passed.add_metric(place, float(numbers.passed))
            if numbers.kind == "table":
                bounds = [*map(str, DELAY_BOUNDS), "+Inf"]
                counts = accumulate(numbers.delays.counts)
                delays.add_metric(place, list(zip(bounds, map(float, counts), strict=True)), numbers.delays.total)
        yield from (failing, passed, delays, _memory())


def _memory() -> Metric:
    """Resident memory of this process, of Spark's JVM, and of its Python workers."""
    import psutil
    from prometheus_client.core import GaugeMetricFamily

    found = {"loop": 0, "jvm": 0, "workers": 0}
    this = psutil.Process()
    for process in (this, *this.children(recursive=True)):
        try:
            part = "loop" if process == this else "jvm" if process.name() == "java" else "workers"
            found[part] += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    gauge = GaugeMetricFamily("upsert_platform_memory_bytes", "Resident memory.", labels=("process",))
    for part, size in found.items():
        gauge.add_metric((part,), float(size))
    return gauge


@contextmanager
def metrics_page(port: int, read: Read) -> Iterator[int]:
    """Serves the metrics until the end of the block; gives the port.

    Args:
        port: of 127.0.0.1; 0 for a free one.

    Raises:
        EndpointError: the port is taken.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    collector: Any = _Collector(read)
    registry.register(collector)
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise EndpointError(f"metrics cannot be served on port {port}: {error.strerror}; name another port") from None
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
