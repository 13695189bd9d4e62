"""What a plan says of changed declarations has no secret of either side."""

from __future__ import annotations

from pathlib import Path

import pytest

from upsert_platform.core.model import shown_statement
from upsert_platform.proofs.declared_changes import declared_changes
from upsert_platform.sync.binding import bind, load

PROJECT = """
CREATE TABLE orders (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'kafka:9092',
  'properties.client.id' = 'client-SIDE', {options}
  'key.format' = 'raw', 'value.format' = 'avro-confluent',
  'value.fields-include' = 'EXCEPT_KEY'
);
CREATE TABLE copied (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'tablestore.endpoint' = 'http://t', 'tablestore.instance.name' = 'i',
  'tablestore.access.key.id' = 'id-SIDE-hidden', 'tablestore.access.key.secret' = 'secret-SIDE-hidden'
);
INSERT INTO copied SELECT id, name FROM orders{hint};
"""
SECRETS = {
    "properties.security.protocol": "SASL_SSL",
    "properties.sasl.mechanism": "PLAIN",
    "properties.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="user-SIDE-hidden" password="word-SIDE-hidden";',
    "properties.ssl.keystore.type": "PEM",
    "properties.ssl.keystore.key": "key-SIDE-hidden",
    "properties.ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----",
    "value.avro-confluent.url": "https://reader:login-SIDE-hidden@registry:8081",
    "value.avro-confluent.basic-auth.credentials-source": "USER_INFO",
    "value.avro-confluent.basic-auth.user-info": "reader:info-SIDE-hidden",
}


def test_changed_options_are_named_without_their_secrets(tmp_path: Path) -> None:
    def project(side: str) -> Path:
        options = "".join(f"'{name}' = '{value}', " for name, value in SECRETS.items())
        text = PROJECT.format(options=options, hint="").replace("SIDE", side)
        folder = tmp_path / side
        folder.mkdir()
        (folder / "orders.sql").write_text(text, "utf-8")
        return folder

    binding = bind(*load(project("new")))
    lines = list(declared_changes(load(project("old"))[0], binding, binding.targets["copied"]))
    told = "\n".join(lines)
    assert "hidden" not in told, told
    assert "option 'properties.client.id' is 'client-new', and was 'client-old'" in told
    named = {name for name, value in SECRETS.items() if "SIDE" in value}
    named |= {"tablestore.access.key.id", "tablestore.access.key.secret"}
    assert {name for name in named if f"option '{name}' is" in told} == named
    assert "@registry:8081" in told, "of an address only the login is hidden"


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        (
            "INSERT INTO t SELECT * FROM s /*+ OPTIONS('properties.sasl.jaas.config' = 'x ''y'';', 'a' = 'b') */",
            "INSERT INTO t SELECT * FROM s /*+ OPTIONS('properties.sasl.jaas.config' = '***', 'a' = 'b') */",
        ),
        (
            "SELECT * FROM s /*+ OPTIONS('value.avro-confluent.url'='http://u:w@r:1') */ WHERE a = 'b'",
            "SELECT * FROM s /*+ OPTIONS('value.avro-confluent.url'='http://***@r:1') */ WHERE a = 'b'",
        ),
    ],
)
def test_a_statement_is_shown_without_the_secrets_of_its_hints(statement: str, shown: str) -> None:
    assert shown_statement(statement) == shown
