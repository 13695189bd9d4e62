"""JVMs with the vendors' clients and the local servers, one each per pytest session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from upsert_platform.spark import jars
from upsert_platform_tests.interop.java import Java, java
from upsert_platform_tests.local.maxcompute.server import ServerHandle as MaxComputeServer
from upsert_platform_tests.local.maxcompute.server import maxcompute_server
from upsert_platform_tests.local.tablestore.server import ServerHandle as TablestoreServer


@pytest.fixture(scope="session")
def kafka_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    """Apache Kafka's own clients, of the version of the broker."""
    log = tmp_path_factory.mktemp("java") / "kafka.log"
    with java(jars.kafka_broker_jars(), log=log, options=["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]) as started:
        yield started


@pytest.fixture(scope="session")
def tablestore_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    """The official Tablestore SDK for Java."""
    with java(
        jars.resolve("tablestore-java-5.17.6"), log=tmp_path_factory.mktemp("java") / "tablestore.log"
    ) as started:
        yield started


@pytest.fixture(scope="session")
def tablestore(shared_tablestore: TablestoreServer) -> TablestoreServer:
    """A local Tablestore server."""
    return shared_tablestore


@pytest.fixture(scope="session")
def maxcompute_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    """The official MaxCompute SDK for Java."""
    log = tmp_path_factory.mktemp("java") / "maxcompute.log"
    arrow = "--add-opens=java.base/java.nio=ALL-UNNAMED"
    with java(
        jars.resolve("maxcompute-java-0.52.3-public"), log=log, options=[arrow, "-Duser.timezone=UTC"]
    ) as started:
        yield started


@pytest.fixture(scope="session")
def maxcompute(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MaxComputeServer]:
    """A local MaxCompute server that refuses rows in another bucket than their key's."""
    with maxcompute_server(tmp_path_factory.mktemp("maxcompute"), arguments=["--strict-buckets"]) as server:
        yield server
