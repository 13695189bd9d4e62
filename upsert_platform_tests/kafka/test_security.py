"""Logging in to real listeners, declared as for a Java client, and what a refused login says."""

from __future__ import annotations

import base64
import json
import logging
import pickle
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka.admin import AclOperation, NewTopic, ResourceType

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.errors import DestinationError, EndpointError, UpsertPlatformError
from upsert_platform.kafka.destination import KafkaDestination
from upsert_platform.kafka.fetch import close_consumers, fetch_range
from upsert_platform.kafka.offsets import discover
from upsert_platform.kafka.read_range import RangeReader
from upsert_platform.kafka.source import read_changes
from upsert_platform.kafka.table import KafkaTable
from upsert_platform_tests.kafka.answering import Asked, answering
from upsert_platform_tests.kafka.tables import declare, read
from upsert_platform_tests.kafka.writing import frame, write
from upsert_platform_tests.secure_kafka import PASSWORDS, STORE_PASSWORD, SecureBroker

# Some of these do not hold yet with every broker set-up, so they run with the long tests, where they are seen.
pytestmark = pytest.mark.soak

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE: Final = 15.0
"""Seconds within which a login that is refused has to be told."""
MODULE: Final = "org.apache.kafka.common.security"
ALICE: Final = PASSWORDS["alice"]


def login(module: str, user: str, password: str) -> dict[str, str]:
    return {"sasl.jaas.config": f'{MODULE}.{module} required username="{user}" password="{password}";'}


def plain(user: str = "alice", password: str = ALICE, protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
    found = login("plain.PlainLoginModule", user, password)
    return {**found, "security.protocol": protocol, "sasl.mechanism": "PLAIN"}


def scram(bits: int, password: str = ALICE, protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
    found = login("scram.ScramLoginModule", "alice", password)
    return {**found, "security.protocol": protocol, "sasl.mechanism": f"SCRAM-SHA-{bits}"}


class Files:
    """Certificates in the forms in which Java clients are given them."""

    def __init__(self, broker: SecureBroker, folder: Path) -> None:
        self._certificates = broker.certificates
        self._folder = folder

    def path(self, name: str) -> str:
        return self._certificates.path(name)

    def text(self, name: str) -> str:
        return Path(self.path(name)).read_text()

    def trust(self, name: str = "ca.pem") -> dict[str, str]:
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.path(name)}

    def both(self) -> str:
        """Key and certificate in one file, as Java wants a PEM key store."""
        path = self._folder / "alice-both.pem"
        path.write_text(self.text("alice.key") + self.text("alice.pem"))
        return str(path)

    def java_trust(self, kind: str) -> str:
        path = self._folder / f"trust.{kind.lower()}"
        self._keytool("-importcert", "-alias", "ca", "-file", self.path("ca.pem"), "-keystore", path, kind)
        return str(path)

    def java_key(self, kind: str) -> str:
        path = self._folder / f"alice.{kind.lower()}"
        source = ("-importkeystore", "-srckeystore", self.path("alice.p12"), "-srcstorepass", STORE_PASSWORD)
        self._keytool(*source, "-destkeystore", path, kind)
        return str(path)

    def _keytool(self, *arguments: Any) -> None:
        *arguments, path, kind = arguments
        password = ["-deststoretype", kind, "-deststorepass", STORE_PASSWORD]
        if arguments[0] == "-importcert":
            password = ["-storetype", kind, "-storepass", STORE_PASSWORD]
        command = ["keytool", "-noprompt", *arguments, str(path), *password]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def files(secure_broker: SecureBroker, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(secure_broker, tmp_path_factory.mktemp("stores"))


def declared(broker: SecureBroker, listener: str, topic: str, properties: dict[str, str], **options: str) -> KafkaTable:
    given = {f"properties.{name}": value for name, value in properties.items()}
    servers = {"properties.bootstrap.servers": broker.address(listener), "topic": topic}
    return read(declare(**servers, **given, **options), writes="sink.control-topic" in options)


@pytest.fixture(scope="module")
def topic(secure_broker: SecureBroker) -> str:
    """A topic that alice may use and bob may only see; with one record."""
    name = f"secure-{uuid.uuid4().hex[:8]}"
    admin = secure_broker.admin()
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS):
        secure_broker.grant("alice", operation, ResourceType.TOPIC, "secure-*")
    secure_broker.grant("alice", AclOperation.CREATE, ResourceType.TOPIC, "secure-*")
    secure_broker.grant("alice", AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "secure-*")
    secure_broker.grant("alice", AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "upsert-platform.secure-*")
    secure_broker.grant("bob", AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    table = declared(secure_broker, "PLAINTEXT", name, {})
    producer = table.endpoint.open_producer()
    producer.produce(name, '{"id":1,"name":"a"}', '{"id":1}')
    assert producer.flush(20) == 0
    return name


@pytest.fixture(autouse=True)
def no_consumer_outlives_its_login() -> Iterator[None]:
    yield
    close_consumers()


def names_in(table: KafkaTable) -> list[str]:
    (found,) = discover(table)
    (part,) = found.partitions
    wanted = OffsetRange(found.name, 0, part.low, part.end)
    rows = [row for batch in RangeReader(table, reduces=True).read(wanted) for row in batch.to_pylist()]
    return [row["name"] for row in rows if row["_kind"] == "+U"]


@contextmanager
def told(caplog: pytest.LogCaptureFixture, table: KafkaTable, kind: type[Exception], *texts: str) -> Iterator[None]:
    """An error in bounded time that says all of `texts`, while no secret of a table shows anywhere."""
    started = time.monotonic()
    with caplog.at_level(logging.DEBUG), pytest.raises(kind) as caught:
        yield
    assert time.monotonic() - started < PATIENCE
    message = str(caught.value)
    assert isinstance(caught.value, UpsertPlatformError)
    assert all(text in message for text in texts), message
    assert len(message.splitlines()) == 1
    shown = "\n".join((message, repr(caught.value), caplog.text, repr(table), repr(table.endpoint)))
    secrets = list(table.properties.secrets())
    assert secrets or table.properties.common.get("security.protocol") in (None, "ssl")
    assert not [secret for secret in secrets if secret in shown]


LOGINS: Final[dict[str, tuple[str, Callable[[Files], dict[str, str]]]]] = {
    "plain": ("SASL", lambda files: plain()),
    "scram-256": ("SASL", lambda files: scram(256)),
    "scram-512": ("SASL", lambda files: scram(512)),
    "plain-tls": ("SASLTLS", lambda files: plain(protocol="SASL_SSL") | files.trust()),
    "scram-tls": ("SASLTLS", lambda files: scram(512, protocol="SASL_SSL") | files.trust()),
    "trust-inline": (
        "SASLTLS",
        lambda files: (
            plain(protocol="SASL_SSL")
            | {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": files.text("ca.pem").replace("\n", " ")}
        ),
    ),
    "trust-jks": (
        "SASLTLS",
        lambda files: (
            plain(protocol="SASL_SSL")
            | {"ssl.truststore.location": files.java_trust("JKS"), "ssl.truststore.password": STORE_PASSWORD}
        ),
    ),
    "trust-pkcs12": (
        "SASLTLS",
        lambda files: (
            plain(protocol="SASL_SSL")
            | {
                "ssl.truststore.type": "PKCS12",
                "ssl.truststore.location": files.java_trust("PKCS12"),
                "ssl.truststore.password": STORE_PASSWORD,
            }
        ),
    ),
    "certificate-pem": (
        "TLS",
        lambda files: (
            {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.location": files.both()}
            | files.trust()
        ),
    ),
    "certificate-inline": (
        "TLS",
        lambda files: (
            {
                "security.protocol": "SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": files.text("alice.pem").replace("\n", " "),
                "ssl.keystore.key": files.text("alice.key").replace("\n", " "),
            }
            | files.trust()
        ),
    ),
    "certificate-jks": (
        "TLS",
        lambda files: (
            {
                "security.protocol": "SSL",
                "ssl.keystore.location": files.java_key("JKS"),
                "ssl.keystore.password": STORE_PASSWORD,
                "ssl.key.password": STORE_PASSWORD,
            }
            | files.trust()
        ),
    ),
    "certificate-pkcs12": (
        "TLS",
        lambda files: (
            {
                "security.protocol": "SSL",
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": files.path("alice.p12"),
                "ssl.keystore.password": STORE_PASSWORD,
            }
            | files.trust()
        ),
    ),
}


@pytest.mark.parametrize("way", LOGINS)
def test_a_topic_is_found_and_read(secure_broker: SecureBroker, files: Files, topic: str, way: str) -> None:
    listener, properties = LOGINS[way]
    table = declared(secure_broker, listener, topic, properties(files))
    carried = pickle.loads(pickle.dumps(table))  # as to a worker
    assert names_in(carried) == ["a"]
    assert not [secret for secret in table.properties.secrets() if secret in repr(table)]


def test_a_key_with_a_password_of_its_own(
    secure_broker: SecureBroker, files: Files, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.jks"
    command = ["keytool", "-noprompt", "-importkeystore", "-srckeystore", files.path("alice.p12"), "-srcstorepass"]
    command += [STORE_PASSWORD, "-srcalias", "1", "-destkeystore", str(path), "-deststoretype", "JKS"]
    command += ["-deststorepass", STORE_PASSWORD, "-destkeypass", "own-key-secret"]
    subprocess.run(command, capture_output=True, check=True)
    properties = {
        "security.protocol": "SSL",
        "ssl.keystore.location": str(path),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": "own-key-secret",
        **files.trust(),
    }
    assert names_in(declared(secure_broker, "TLS", topic, properties)) == ["a"]


REFUSED: Final[dict[str, tuple[str, Callable[[Files], dict[str, str]], str]]] = {
    "wrong-password": ("SASL", lambda files: plain(password="not-alices"), "refuse the login"),
    "wrong-password-scram": ("SASL", lambda files: scram(512, password="not-alices"), "refuse the login"),
    "unknown-user": ("SASL", lambda files: plain("carol", "carols"), "refuse the login"),
    "wrong-authority": (
        "SASLTLS",
        lambda files: plain(protocol="SASL_SSL") | files.trust("stranger-ca.pem"),
        "properties.ssl.truststore",
    ),
    "no-certificate": ("TLS", lambda files: {"security.protocol": "SSL"} | files.trust(), "properties.ssl.keystore"),
    "store-password": (
        "SASLTLS",
        lambda files: (
            plain(protocol="SASL_SSL")
            | {"ssl.truststore.location": files.java_trust("JKS"), "ssl.truststore.password": "wrong-secret"}
        ),
        "check its password",
    ),
    "store-missing": (
        "SASLTLS",
        lambda files: plain(protocol="SASL_SSL") | {"ssl.truststore.location": "/no/such/store.jks"},
        "'ssl.truststore.location': the store /no/such/store.jks cannot be read",
    ),
    "protocol-of-another-listener": ("SASLTLS", lambda files: plain(), "properties.security.protocol"),
}


@pytest.mark.parametrize("way", REFUSED)
def test_a_refused_login_is_told(
    secure_broker: SecureBroker, files: Files, topic: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    listener, properties, text = REFUSED[way]
    table = declared(secure_broker, listener, topic, properties(files))
    with told(caplog, table, EndpointError, text):
        discover(table)


def test_a_refused_login_is_told_by_workers_too(
    secure_broker: SecureBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = declared(secure_broker, "SASL", topic, plain(password="not-alices"))
    with told(caplog, table, EndpointError, f"reading {topic}-0 failed"):
        list(fetch_range(table.endpoint, OffsetRange(topic, 0, 0, 1)))


def test_a_topic_that_the_user_may_not_see(
    secure_broker: SecureBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = f"hidden-{topic}"
    secure_broker.admin().create_topics([NewTopic(other, 1, 1)])[other].result(30)
    bob = plain("bob", PASSWORDS["bob"])
    table = declared(secure_broker, "SASL", other, bob)
    with told(caplog, table, EndpointError, f"topic '{other}' cannot be used", "give the user the right"):
        discover(table)
    destination = KafkaDestination(declared(secure_broker, "SASL", other, bob, **{"sink.control-topic": "secure-c"}))
    with told(caplog, table, EndpointError, f"topic '{other}' cannot be used"):
        destination.prepare()


def test_a_topic_that_the_user_may_see_but_not_read(
    secure_broker: SecureBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = declared(secure_broker, "SASL", topic, plain("bob", PASSWORDS["bob"]))
    (found,) = discover(table)
    assert found.partitions[0].end >= 1
    with told(caplog, table, EndpointError, f"reading {topic}-0 failed", "authorization", "give the user the right"):
        list(fetch_range(table.endpoint, OffsetRange(topic, 0, 0, 1)))


def test_end_to_end_over_tls(spark: SparkSession, secure_broker: SecureBroker, files: Files, topic: str) -> None:
    """Written in transactions by a user with rights on a prefix, and read by Spark with the same login."""
    properties = scram(512, protocol="SASL_SSL") | {
        "ssl.truststore.location": files.java_trust("PKCS12"),
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": STORE_PASSWORD,
    }
    name = f"{topic}-written"
    options = {
        "sink.control-topic": f"{topic}-control",
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": name,
        "sink.parallelism": "2",
    }
    destination = KafkaDestination(declared(secure_broker, "SASLTLS", name, properties, **options))
    report = write(destination, frame(spark, [(key, f"n{key}", "U", 1) for key in range(20)]), 1)
    assert report.upserts == 20
    assert destination.state().applied_batch == 1
    table = declared(secure_broker, "SASLTLS", name, properties)
    ranges = [OffsetRange(found.name, p.partition, p.low, p.end) for found in discover(table) for p in found.partitions]
    rows = read_changes(spark, table, ranges, batch=1, mode="upsert").where("_kind = '+U'").collect()
    assert sorted((row.id, row.name) for row in rows) == [(key, f"n{key}") for key in range(20)]


def test_a_topic_that_the_user_may_not_write(
    spark: SparkSession, secure_broker: SecureBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"readable-{topic}"
    secure_broker.admin().create_topics([NewTopic(name, 1, 1)])[name].result(30)
    for operation in (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS):
        secure_broker.grant("alice", operation, ResourceType.TOPIC, name)
    table = declared(secure_broker, "SASL", name, plain(), **{"sink.control-topic": f"{topic}-control"})
    destination = KafkaDestination(table)
    with told(caplog, table, DestinationError, "was not written", "give the user the right to write"):
        write(destination, frame(spark, [(1, "a", "U", 1)]), 1)


def unsigned_token(user: str) -> str:
    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': user, 'iat': now, 'exp': now + 600, 'scope': 'kafka'})}."


def bearer(url: str, secret: str) -> dict[str, str]:
    jaas = f'{MODULE}.oauthbearer.OAuthBearerLoginModule required clientId="platform" clientSecret="{secret}"'
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{jaas} scope="kafka";',
        "sasl.oauthbearer.token.endpoint.url": f"{url}/token",
        "sasl.login.callback.handler.class": f"{MODULE}.oauthbearer.OAuthBearerLoginCallbackHandler",
    }


def issue(asked: Asked) -> tuple[int, bytes]:
    """A token endpoint that knows one client."""
    expected = base64.b64encode(b"platform:client-secret").decode()
    if asked.headers.get("authorization") != f"Basic {expected}":
        return 401, b'{"error":"invalid_client"}'
    return 200, json.dumps(
        {"access_token": unsigned_token("alice"), "token_type": "bearer", "expires_in": 600}
    ).encode()


def test_a_token_of_an_endpoint(secure_broker: SecureBroker, topic: str) -> None:
    with answering(issue) as endpoint:
        table = declared(secure_broker, "SASL", topic, bearer(endpoint.url, "client-secret"))
        assert names_in(table) == ["a"]
        asked = endpoint.asked[0]
        assert (asked.method, asked.path) == ("POST", "/token")
        assert sorted(asked.body.decode().split("&")) == ["grant_type=client_credentials", "scope=kafka"]
        close_consumers()


def test_a_token_endpoint_that_refuses(
    secure_broker: SecureBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with answering(issue) as endpoint:
        table = declared(secure_broker, "SASL", topic, bearer(endpoint.url, "another-secret"))
        with told(caplog, table, EndpointError, "refuse the login"):
            discover(table)
