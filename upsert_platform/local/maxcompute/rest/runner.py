"""Instances: SQL that was submitted, runs on a thread of its own, and keeps its answer."""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from upsert_platform.local.maxcompute.errors import ServiceError
from upsert_platform.local.maxcompute.sql.context import Result

_KEPT_INSTANCES, _KEPT_RESULTS, _KEPT_BYTES = 5000, 200, 128 << 20
_THREADS = 8


@dataclass
class Instance:
    """One submitted job with one SQL task.

    Attributes:
        source: the job's XML, given back as it came.
        done: set when the task has ended.
    """

    instance_id: str
    task_name: str
    query: str
    source: str
    priority: int
    task_type: str = "SQL"
    started: float = field(default_factory=time.time)
    ended: float | None = None
    result: Result | None = None
    error: ServiceError | None = None
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def status(self) -> str:
        return "Terminated" if self.done.is_set() else "Running"

    @property
    def task_status(self) -> str:
        if not self.done.is_set():
            return "Running"
        return "Failed" if self.error else "Success"

    @property
    def failure(self) -> str:
        """The failure as task results carry it: the code stands where SDKs look for it."""
        assert self.error is not None
        message = self.error.message
        if not message.startswith("ODPS-"):
            code = self.error.code if self.error.code.startswith("ODPS-") else "ODPS-0130071"
            message = f"{code}:{self.error.code} - {message}"
        return f"FAILED: {message}"


class Runner:
    """Runs instances, and remembers the latest of them."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="instance")
        self._instances: OrderedDict[str, Instance] = OrderedDict()
        self._lock = threading.Lock()

    def submit(
        self, task_name: str, query: str, source: str, priority: int, task_type: str, work: Callable[[], Result]
    ) -> Instance:
        """Starts a job; it can be asked for by id at once."""
        moment = time.strftime("%Y%m%d%H%M%S", time.gmtime())
        instance = Instance(f"{moment}{uuid.uuid4().hex[:12]}", task_name, query, source, priority, task_type)
        with self._lock:
            self._instances[instance.instance_id] = instance
            self._forget_results()
            while len(self._instances) > _KEPT_INSTANCES:
                self._instances.popitem(last=False)
        self._pool.submit(self._run, instance, work)
        return instance

    def _forget_results(self) -> None:
        """Lets go of the oldest results when they have become many or large."""
        count = size = 0
        for known in reversed(self._instances.values()):
            if known.result is None or known.result.rows is None:
                continue
            count, size = count + 1, size + known.result.rows.nbytes
            if count > 1 and (count > _KEPT_RESULTS or size > _KEPT_BYTES):
                known.result = Result(known.result.columns)

    def _run(self, instance: Instance, work: Callable[[], Result]) -> None:
        try:
            instance.result = work()
        except ServiceError as error:
            instance.error = error
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is the instance's failure, not the server's
            instance.error = ServiceError(500, "ODPS-0010000", f"ODPS-0010000:System internal error - {error!r}")
        finally:
            instance.ended = time.time()
            instance.done.set()

    def get(self, instance_id: str) -> Instance:
        """The instance of that id.

        Raises:
            ServiceError: NoSuchInstance.
        """
        with self._lock:
            found = self._instances.get(instance_id)
        if found is None:
            raise ServiceError(404, "NoSuchObject", f"ODPS-0410021:Instance not found - {instance_id}")
        return found

    def recent(self) -> list[Instance]:
        with self._lock:
            return list(self._instances.values())

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
