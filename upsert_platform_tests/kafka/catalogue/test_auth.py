"""Authentication: behaviours 130 to 134. Against real listeners: `test_security.py`."""

from __future__ import annotations

from typing import Final

import pytest
from pydantic import SecretStr

from upsert_platform.core.errors import EndpointError
from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform.kafka.properties import read_properties
from upsert_platform_tests.kafka.catalogue.cases import behaviour, case
from upsert_platform_tests.kafka.tables import declare, read

PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def consumer_config(properties: dict[str, str]) -> dict[str, object]:
    client, problems = read_properties(properties)
    assert [problem for problem in problems if problem[1] == "error"] == []
    return KafkaEndpoint("127.0.0.1:1", client).consumer_config()


@pytest.mark.parametrize(
    ("jaas", "username", "password"),
    [
        case(130, "quoted", f'{PLAIN} username="ckafka-x#u" password="a;b=c d";', "ckafka-x#u", "a;b=c d"),
        case(130, "escaped", f'{PLAIN} username="ckafka-x#u" password="a\\"b\\\\;";', "ckafka-x#u", 'a"b\\;'),
        case(
            131, "relocated", f'org.apache.flink.kafka.shaded.{PLAIN} username="u" password="hunter2";', "u", "hunter2"
        ),
    ],
)
def test_jaas(jaas: str, username: str, password: str) -> None:
    table = read(declare(**{"properties.sasl.jaas.config": jaas}))
    config = table.endpoint.consumer_config()
    assert (config["sasl.username"], config["sasl.password"]) == (username, password)
    assert isinstance(table.properties.common["sasl.password"], SecretStr)
    assert password not in repr(table)


@behaviour(132, "java-names-are-not-forwarded")
def test_what_the_client_would_refuse() -> None:
    config = consumer_config(
        {
            "sasl.jaas.config": f'{PLAIN} username="u" password="p";',
            "ssl.truststore.location": "/trust.jks",
            "ssl.truststore.password": "p",
            "ssl.keystore.location": "/key.jks",
            "ssl.keystore.password": "p",
        }
    )
    assert not {name for name in config if name.startswith("ssl.") or "jaas" in name}


@behaviour(133, "no-kerberos-in-the-client")
def test_kerberos_without_support() -> None:
    client, _ = read_properties({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"})
    with pytest.raises(EndpointError, match=r"no Kerberos.*libsasl2.*--no-binary confluent-kafka"):
        KafkaEndpoint("127.0.0.1:1", client).open_consumer()


@behaviour(133, "mechanism-forgotten")
def test_a_mechanism_that_is_not_declared() -> None:
    client, _ = read_properties({"security.protocol": "SASL_SSL"})
    with pytest.raises(EndpointError, match=r"'properties\.sasl\.mechanism' is not set.*PLAIN"):
        KafkaEndpoint("127.0.0.1:1", client).open_consumer()


@behaviour(134, "empty-algorithm")
def test_no_host_name_check() -> None:
    assert (
        consumer_config({"ssl.endpoint.identification.algorithm": ""})["ssl.endpoint.identification.algorithm"]
        == "none"
    )
    assert "ssl.endpoint.identification.algorithm" not in consumer_config({})
