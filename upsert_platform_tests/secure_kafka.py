"""A broker that asks who one is: SASL (PLAIN, SCRAM, OAUTHBEARER), TLS with client certificates, and access rules."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from upsert_platform.local.kafka import Broker, Listener, start_broker
from upsert_platform.local.process import free_port

PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret"}
STORE_PASSWORD = "store-secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_LISTENERS = {"PLAINTEXT": "PLAINTEXT", "SASL": "SASL_PLAINTEXT", "SASLTLS": "SASL_SSL", "TLS": "SSL"}


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files of an authority of our own, in one directory.

    ``ca.pem`` signs ``broker.pem`` (127.0.0.1 and localhost) and one per user, each with its ``.key``;
    ``<user>.p12`` holds the same as PKCS#12 under `STORE_PASSWORD`; ``stranger-ca.pem`` signed none of them.
    """

    directory: Path

    def path(self, name: str) -> str:
        """Absolute path of a file."""
        return str(self.directory / name)


@dataclass(frozen=True, slots=True)
class SecureBroker:
    """The running broker.

    On the plaintext listener everybody may do everything. On the others one is the user that one proves to be, and may
    do only what was granted; nothing is granted to ``bob``.
    """

    broker: Broker
    certificates: Certificates

    def address(self, listener: str) -> str:
        """``bootstrap.servers`` of PLAINTEXT, SASL, SASLTLS or TLS."""
        return f"127.0.0.1:{next(item.port for item in self.broker.listeners if item.name == listener)}"

    def admin(self) -> AdminClient:
        """A client that may do everything."""
        return AdminClient({"bootstrap.servers": self.address("PLAINTEXT")})

    def sasl(self, user: str, mechanism: str = "PLAIN", *, tls: bool = False) -> dict[str, str]:
        """librdkafka properties of a user who logs in with a password."""
        properties = {
            "bootstrap.servers": self.address("SASLTLS" if tls else "SASL"),
            "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
        }
        return properties | ({"ssl.ca.location": self.certificates.path("ca.pem")} if tls else {})

    def tls(self, user: str) -> dict[str, str]:
        """librdkafka properties of a user who shows a certificate."""
        return {
            "bootstrap.servers": self.address("TLS"),
            "security.protocol": "SSL",
            "ssl.ca.location": self.certificates.path("ca.pem"),
            "ssl.certificate.location": self.certificates.path(f"{user}.pem"),
            "ssl.key.location": self.certificates.path(f"{user}.key"),
        }

    def grant(self, user: str, operation: AclOperation, kind: ResourceType, name: str) -> None:
        """Allows a user one operation on a topic, group or transactional id (a prefix when it ends with ``*``)."""
        pattern = ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL
        rule = AclBinding(kind, name.rstrip("*"), pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        admin = self.admin()
        admin.create_acls([rule])[rule].result(20)


def start_secure_broker(directory: Path) -> SecureBroker:
    """Makes the certificates and starts the broker; the caller ends it."""
    certificates = make_certificates(directory / "certificates")
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    plain = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    # Takes unsigned tokens, whose subject is the user.
    bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # plaintext clients and the broker itself
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates.path("broker-chain.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.path("ca.pem"),
        "listener.name.tls.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
    }
    for listener in ("sasl", "sasltls"):
        properties[f"listener.name.{listener}.sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
        properties[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
        properties[f"listener.name.{listener}.scram-sha-256.sasl.jaas.config"] = scram
        properties[f"listener.name.{listener}.scram-sha-512.sasl.jaas.config"] = scram
        properties[f"listener.name.{listener}.oauthbearer.sasl.jaas.config"] = (
            f'{bearer} unsecuredLoginStringClaim_sub="broker";'
        )
    broker = start_broker(
        directory / "data",
        listeners=[Listener(free_port(), protocol, name) for name, protocol in _LISTENERS.items()],
        properties=properties,
        format_arguments=[
            argument
            for user, password in PASSWORDS.items()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for argument in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
        ],
        die_with_parent=True,
    )
    return SecureBroker(broker, certificates)


def make_certificates(directory: Path) -> Certificates:
    """Makes the files that `Certificates` names, with the openssl command."""
    assert shutil.which("openssl"), "the tests of TLS need the openssl command (Debian: apt install openssl)"
    directory.mkdir(parents=True)
    for authority in ("ca", "stranger-ca"):
        _openssl(
            directory,
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", f"/CN={authority}"),
            *("-keyout", f"{authority}.key", "-out", f"{authority}.pem"),
        )
    (directory / "broker.ext").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name in ("broker", *PASSWORDS):
        _openssl(
            directory,
            *("req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
            *("-keyout", f"{name}.key", "-out", f"{name}.csr"),
        )
        extension = ("-extfile", "broker.ext") if name == "broker" else ()
        _openssl(
            directory,
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-days", "30", "-out", f"{name}.pem", *extension),
        )
        _openssl(
            directory,
            *("pkcs12", "-export", "-in", f"{name}.pem", "-inkey", f"{name}.key", "-certfile", "ca.pem"),
            *("-out", f"{name}.p12", "-passout", f"pass:{STORE_PASSWORD}"),
        )
    chain = [(directory / name).read_text() for name in ("broker.key", "broker.pem")]
    (directory / "broker-chain.pem").write_text("".join(chain))
    return Certificates(directory)


def _openssl(directory: Path, *arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
