"""JVMs with the vendors' clients, one per client and pytest session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from upsert_platform import jars
from upsert_platform_tests.interop.java import Java, java


@pytest.fixture(scope="session")
def kafka_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    """Apache Kafka's own clients, of the version of the broker."""
    log = tmp_path_factory.mktemp("java") / "kafka.log"
    with java(jars.kafka_broker_jars(), log=log, options=["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]) as started:
        yield started
