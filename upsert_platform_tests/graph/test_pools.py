"""Pools of endpoints: names that Dagster takes, the same wherever a system is declared, and free of logins."""

from __future__ import annotations

import re
from pathlib import Path

import dagster as dg
import pytest

from upsert_platform.core.errors import DeclarationError, SourceLocation
from upsert_platform.core.model import Table
from upsert_platform.graph.pools import endpoint_name, pool_of
from upsert_platform_tests.graph.test_component_settings import definitions

LOGIN = re.compile("secret|admin|AKID", re.IGNORECASE)


def table(connector: str, **options: str) -> Table:
    named = {name.replace("__", "-").replace("_", "."): value for name, value in options.items()}
    return Table(
        name="t",
        columns=(),
        primary_key=(),
        options={"connector": connector, **named},
        location=SourceLocation("t.sql", 1),
    )


@pytest.mark.parametrize(
    ("connector", "options", "name"),
    [
        ("upsert-kafka", {"properties_bootstrap_servers": "Broker-1.eu:9092"}, "kafka_broker-1.eu_9092"),
        ("kafka", {"properties_bootstrap_servers": " broker-1.eu:9092 "}, "kafka_broker-1.eu_9092"),
        (
            "tablestore",
            {"tablestore_endpoint": "https://shop.eu.ots.aliyuncs.com/", "tablestore_instance_name": "shop",
             "tablestore_access_key_id": "AKID", "tablestore_access_key_secret": "secret"},
            "tablestore_shop.eu.ots.aliyuncs.com_shop",
        ),
        ("mysql-cdc", {"hostname": "db.eu", "username": "admin", "password": "secret"}, "mysql_db.eu_3306"),
        ("mysql-cdc", {"hostname": "db.eu", "port": "3306"}, "mysql_db.eu_3306"),
        ("mysql-cdc", {"hostname": "db.eu", "port": "3307"}, "mysql_db.eu_3307"),
        ("datagen", {}, "python"),
    ],
)  # fmt: skip
def test_an_endpoint_has_a_name(connector: str, options: dict[str, str], name: str) -> None:
    assert endpoint_name(table(connector, **options)) == name


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("b1:9092,b2:9092", "B2:9092, b1:9092", True),
        ("b1:9092,b2:9092", "b1:9092,b3:9092", False),
        ("b1:9092,b2:9092", "b1:9092", False),
        ("h" * 90 + "1:9092", "h" * 90 + "2:9092", False),
    ],
)
def test_endpoints_are_told_apart_by_their_addresses(one: str, other: str, same: bool) -> None:
    names = [endpoint_name(table("kafka", properties_bootstrap_servers=servers)) for servers in (one, other)]
    assert (names[0] == names[1]) is same
    assert all(re.fullmatch(r"[\w.\-]{1,100}", name) for name in names)


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:postgresql://admin:secret@db.eu:5432/shop",
        "postgresql://db.eu:5432/shop?password=secret&user=admin",
        "admin:secret@db.eu:5432/shop",
        "db.eu:5432/shop?password=secret",
    ],
)
def test_a_login_is_no_part_of_a_name(url: str) -> None:
    """Not even of its checksum: the name is that of the address alone."""
    named = endpoint_name(table("postgres", url=url, username="admin", password="secret"))
    assert named == endpoint_name(table("postgres", url="postgresql://db.eu:5432/shop"))
    assert not LOGIN.search(named)


def test_only_a_name_with_the_placeholder_depends_on_the_endpoint() -> None:
    kafka = table("kafka", properties_bootstrap_servers="b1:9092")
    assert [pool_of(name, kafka) for name in (None, "brokers", "{endpoint}", "eu-{endpoint}")] == [
        None, "brokers", "kafka_b1_9092", "eu-kafka_b1_9092",
    ]  # fmt: skip
    assert pool_of("{endpoint}", None) == "lake"


def test_tables_of_one_connector_on_two_endpoints_have_two_pools(tmp_path: Path) -> None:
    kafka = "'connector' = 'upsert-kafka', 'topic' = '{0}', 'properties.bootstrap.servers' = '127.0.0.1:{1}'"
    declared = (
        "CREATE TABLE {0} (id BIGINT, PRIMARY KEY (id) NOT ENFORCED)"
        " WITH ({2}, 'key.format' = 'json', 'value.format' = 'json');"
    )
    (tmp_path / "tables.sql").write_text(
        "\n".join(declared.format(name, port, kafka.format(name, port)) for name, port in (("users", 1), ("copy", 2)))
        + "\nINSERT INTO copy SELECT * FROM users;"
    )

    def pools(attributes: str) -> list[str | None]:
        found = definitions(tmp_path, attributes)
        keys = (["changelogs", "users"], ["tables", "copy"])
        return [found.resolve_assets_def(dg.AssetKey(key)).op.pool for key in keys]

    assert pools('op: {pool: "{endpoint}"}') == ["kafka_127.0.0.1_1", "kafka_127.0.0.1_2"]
    assert pools('op: {pools: {upsert-kafka: "eu-{endpoint}"}}') == ["eu-kafka_127.0.0.1_1", "eu-kafka_127.0.0.1_2"]
    assert pools("op: {pools: {upsert-kafka: brokers}}") == ["brokers", "brokers"]


@pytest.mark.parametrize(
    "attributes", ['op: {pool: "two words"}', 'op: {pools: {kafka: "{server}"}}', 'op: {pool: ""}']
)
def test_a_name_that_no_pool_can_have_is_refused(tmp_path: Path, attributes: str) -> None:
    (tmp_path / "tables.sql").write_text("")
    with pytest.raises(DeclarationError, match=r"op\.pool\S*: '.*' is no name of a pool: letters, digits"):
        definitions(tmp_path, attributes)
