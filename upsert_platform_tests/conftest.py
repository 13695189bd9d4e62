"""Fixtures that several rooms share: real brokers, topics, a schema registry and Spark, each once per session."""

from __future__ import annotations

import gc
import os
import re
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from upsert_platform.core import redaction
from upsert_platform.local.kafka import Broker, start_broker
from upsert_platform.local.registry import Registry, start_registry
from upsert_platform.spark import jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.scheduler import LoadFileScheduling

    from upsert_platform_tests.local.maxcompute.server import ServerHandle as MaxComputeServer
    from upsert_platform_tests.local.tablestore.server import ServerHandle as TablestoreServer
    from upsert_platform_tests.secure_kafka import SecureBroker

# What is told of somebody's own session is not what tests expect.
os.environ["UPSERT_SPARK_SESSION"] = "off"
# Spark's way for a few rows is a matter of tests of its own: `on_spark` of `upsert_platform_tests.spark_way`.
os.environ["UPSERT_SPARK_LOCAL_ROWS"] = "250000"

_TOGETHER = {
    "/interop/": "interop",
    "/formats/test_avro_confluent.py": "registry",
    "/formats/registered/test_registered_formats.py": "registry",
    "/kafka/catalogue/test_formats.py": "registry",
    "/local/test_registry.py": "registry",
    "/systems/test_wheel.py": "wheel",
    "/systems/test_cluster.py": "wheel",
}
"""Parts of file names to a group: its files run in one worker, which alone starts the servers that only they need."""


_LONG_FIRST = (
    "/systems/test_cluster.py",
    "/systems/test_browser.py",
    "/interop/",
    "/graph/test_internal_names.py",
    "/proofs/",
    "/graph/",
    "/demo/",
    "/discovery/",
    "/soak/",
    "/writing/",
    "/engine/",
    "/kafka/",
    "/maxcompute/",
    "/test_docs.py",
    "/cli/",
    "/sync/",
    "/local/",
    "/tablestore/",
)
"""Files and rooms that take long come first, so that workers end together (needs ``--no-loadscope-reorder``)."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def turn(item: pytest.Item) -> int:
        return next((at for at, room in enumerate(_LONG_FIRST) if room in f"/{item.nodeid}"), len(_LONG_FIRST))

    items.sort(key=turn)
    # `make test-runs` and `make test-systems` collect these files alone; whoever marks in another way has to write the
    # word all the same.
    for mark in ("whole_runs", "systems"):
        files = {item.path for item in items if item.get_closest_marker(mark) is not None}
        silent = sorted(path.name for path in files if re.search(rf"\b{mark}\b", path.read_text("utf-8")) is None)
        if silent:
            raise pytest.UsageError(f"tests of mark '{mark}' in files without this word: {', '.join(silent)}")


def pytest_collection_finish() -> None:
    """What is loaded by now stays: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    """Of ``--dist loadfile``: a worker gets a whole file, or a group of them."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return next((group for part, group in _TOGETHER.items() if part in file), file)

    return Scheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """A failure is told when it happens: a run of many minutes may be ended before its summary."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and config.getvalue("numprocesses"):
        config.pluginmanager.register(_AtOnce(reporter))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test of systems that is skipped fails: what it needs is installed by `scripts/setup-systems`."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and item.get_closest_marker("systems") is not None:
        report.outcome = "failed"
        report.longrepr = f"a test of systems was skipped: {report.longrepr}"
    return report


class _AtOnce:
    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.write_line("")
            self._terminal.write_line(f"failed at {report.when}: {report.nodeid}\n{report.longreprtext[-4000:]}")


@pytest.fixture(autouse=True)
def _own_secrets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers as a secret is not taken out of the texts of the tests behind it."""
    monkeypatch.setattr(redaction, "_known", set(redaction._known))
    redaction._pattern.cache_clear()
    yield
    redaction._pattern.cache_clear()


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One Apache Kafka broker on a free port, for the whole session (one per worker under pytest-xdist)."""
    with start_broker(tmp_path_factory.mktemp("kafka"), die_with_parent=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka_broker: Broker) -> str:
    """``bootstrap.servers`` of the session's broker."""
    return kafka_broker.bootstrap_servers


@pytest.fixture(scope="session")
def make_topic(kafka_bootstrap: str) -> Callable[..., str]:
    """Makes a topic and returns its name: ``make_topic(partitions=4, config={"cleanup.policy": "compact"})``.

    Names are unique unless one is given, so tests share the broker without meeting each other. Records stay whatever
    times tests give them: the broker deletes what is older than a week every second.
    """
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": kafka_bootstrap, "log_level": 0})

    def make(*, partitions: int = 1, config: Mapping[str, str] | None = None, name: str | None = None) -> str:
        topic = name or f"topic-{uuid.uuid4().hex[:12]}"
        new = NewTopic(
            topic, num_partitions=partitions, replication_factor=1, config={"retention.ms": "-1", **(config or {})}
        )
        admin.create_topics([new])[topic].result(30)
        return topic

    return make


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """A fresh topic of one partition."""
    return make_topic()


@pytest.fixture(scope="session")
def older_kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of the release line before, for the whole session."""
    data = tmp_path_factory.mktemp("older-kafka")
    with start_broker(data, version=jars.KAFKA_VERSION_OLDER, die_with_parent=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def secure_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A broker with SASL and TLS listeners and access rules, for the whole session."""
    from upsert_platform_tests.secure_kafka import start_secure_broker

    secure = start_secure_broker(tmp_path_factory.mktemp("secure-kafka"))
    with secure.broker:
        yield secure


@pytest.fixture(scope="session")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """An Apicurio schema registry; its ``url`` is that of the Confluent API."""
    with start_registry(tmp_path_factory.mktemp("registry"), die_with_parent=True) as registry:
        yield registry


@pytest.fixture(scope="session")
def shared_tablestore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TablestoreServer]:
    """One local Tablestore server for the rooms whose tests have tables of their own, and disturb nobody."""
    from upsert_platform_tests.local.tablestore.server import tablestore_server

    with tablestore_server(tmp_path_factory.mktemp("tablestore"), arguments=["--max-tables", "10000"]) as server:
        yield server


@pytest.fixture(scope="session")
def shared_maxcompute(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MaxComputeServer]:
    """One local MaxCompute server for the rooms whose tests have tables of their own, and disturb nobody."""
    from upsert_platform_tests.local.maxcompute.server import maxcompute_server

    with maxcompute_server(tmp_path_factory.mktemp("maxcompute")) as server:
        yield server


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark session for the whole pytest session, as runs open it."""
    from upsert_platform.spark.session import open_session

    session = open_session(
        {
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            # Many small and different queries: what compilers make of them is never used often enough.
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.codegen.wholeStage": "false",
        },
        brief=True,
    )
    yield session
    session.stop()
