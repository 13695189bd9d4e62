"""Ways to log in to the secure broker, declared as for a Java client, and what has to be told of a refused one."""

from __future__ import annotations

import base64
import json
import logging
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import NewTopic

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.kafka.source.offsets import discover
from upsert_platform.kafka.source.read_range import RangeReader
from upsert_platform.kafka.table import KafkaTable
from upsert_platform_tests.kafka.answering import Asked
from upsert_platform_tests.kafka.tables import declare, read
from upsert_platform_tests.secure_kafka import PASSWORDS, STORE_PASSWORD, SecureBroker

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
        if not path.exists():
            self._keytool("-importcert", "-alias", "ca", "-file", self.path("ca.pem"), "-keystore", path, kind)
        return str(path)

    def java_key(self, kind: str) -> str:
        path = self._folder / f"alice.{kind.lower()}"
        if not path.exists():
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


def declared(broker: SecureBroker, listener: str, topic: str, properties: dict[str, str], **options: str) -> KafkaTable:
    given = {f"properties.{name}": value for name, value in properties.items()}
    servers = {"properties.bootstrap.servers": broker.address(listener), "topic": topic}
    return read(declare(**servers, **given, **options), writes="sink.control-topic" in options)


def create(broker: SecureBroker, topic: str) -> None:
    admin = broker.admin()
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


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
