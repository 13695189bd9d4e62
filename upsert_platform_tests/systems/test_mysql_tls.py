"""What each TLS mode accepts of a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from upsert_platform.core.errors import EndpointError
from upsert_platform.local.database import Database
from upsert_platform.mysql.connection import Connection, Server, TlsMode
from upsert_platform_tests.secure_kafka import Certificates, make_certificates
from upsert_platform_tests.systems.servers import KINDS, Kind, server_of

pytestmark = pytest.mark.systems

OTHER_NAME = "127.1"
"""The server's address, by a name that its certificate does not have."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("mysql-tls") / "certificates")


@pytest.fixture(scope="module", params=list(KINDS.values()), ids=str)
def protected(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Server]:
    """A server whose certificate is for 127.0.0.1."""
    files = {"ssl-cert": certificates.path("broker.pem"), "ssl-key": certificates.path("broker.key")}
    kind: Kind = request.param
    with kind.start(tmp_path_factory.mktemp("mysql-tls"), variables=files, die_with_parent=True) as database:
        yield server_of(database)


def _cipher(server: Server) -> str:
    with Connection(server) as connection:
        return str(connection.query("SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0][1])


@pytest.mark.parametrize(
    ("mode", "host", "authority", "protects"),
    [
        (TlsMode.DISABLED, "127.0.0.1", None, False),
        (TlsMode.PREFERRED, "127.0.0.1", None, True),
        (TlsMode.REQUIRED, OTHER_NAME, None, True),
        (TlsMode.VERIFY_CA, OTHER_NAME, "ca.pem", True),
        (TlsMode.VERIFY_IDENTITY, "127.0.0.1", "ca.pem", True),
    ],
)
def test_what_is_accepted(
    mode: TlsMode, host: str, authority: str | None, protects: bool, protected: Server, certificates: Certificates
) -> None:
    file = None if authority is None else certificates.path(authority)
    assert bool(_cipher(replace(protected, tls=mode, host=host, authority=file))) is protects


@pytest.mark.parametrize(
    ("mode", "host", "authority"),
    [
        (TlsMode.VERIFY_CA, "127.0.0.1", "stranger-ca.pem"),
        (TlsMode.VERIFY_IDENTITY, "127.0.0.1", "stranger-ca.pem"),
        (TlsMode.VERIFY_IDENTITY, OTHER_NAME, "ca.pem"),
    ],
)
def test_what_is_refused(
    mode: TlsMode, host: str, authority: str, protected: Server, certificates: Certificates
) -> None:
    with pytest.raises(EndpointError, match=r"(?i)certificate.verify.failed"):
        _cipher(replace(protected, tls=mode, host=host, authority=certificates.path(authority)))


def test_the_name_counts_with_the_systems_authorities_too(
    protected: Server, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", certificates.path("ca.pem"))
    assert _cipher(replace(protected, tls=TlsMode.VERIFY_IDENTITY))
    with pytest.raises(EndpointError, match=r"(?i)certificate.verify.failed"):
        _cipher(replace(protected, tls=TlsMode.VERIFY_IDENTITY, host=OTHER_NAME))


def test_a_server_without_tls(start: Callable[..., Database], tmp_path: Path) -> None:
    """MySQL then takes the password under the server's public key (caching_sha2_password)."""
    with start(tmp_path / "server", variables={"ssl": "OFF"}) as database:
        server = server_of(database)
        assert _cipher(replace(server, tls=TlsMode.PREFERRED)) == ""
        for mode in (TlsMode.REQUIRED, TlsMode.VERIFY_CA, TlsMode.VERIFY_IDENTITY):
            with pytest.raises(EndpointError, match=r"SSL|TLS"):
                _cipher(replace(server, tls=mode))
