"""Errors that no retry cures, reported at once: rejected logins, broken certificates, unknown hosts.

The client library reports these as events and tries again for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from upsert_platform.core.errors import EndpointError, hide

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_TLS_ALERT: Final = "tls alert"
"""In the reason of a broken connection: the broker ended the TLS handshake, as it does for want of a certificate."""


def redact(text: str, secrets: tuple[str, ...]) -> str:
    """The text with every secret value replaced by ``***``."""
    return hide(text, secrets)


NO_LEADER: Final = frozenset(
    {"LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "REPLICA_NOT_AVAILABLE", "UNKNOWN_LEADER_EPOCH"}
)
"""Errors about a partition that was just made, or moves to another broker: worth asking again a moment later."""


def remedy(code: str) -> str:
    """Return the remedy for an error code of the brokers, as the end of a message; empty if it depends."""
    return "; give the user the right to do so" if code.endswith("AUTHORIZATION_FAILED") else ""


def raise_if_refused(
    errors: Iterable[KafkaError], *, servers: str, secrets: tuple[str, ...], connected: bool = False
) -> None:
    """Looks through the events of a client.

    Args:
        connected: the hosts were known before, so one that is not known now may be known again soon.

    Raises:
        EndpointError: the brokers refuse the login or the certificate, or the host is not known.
    """
    for error in errors:
        name, text = error.name(), redact(f"{error.name()}: {error.str()}", secrets)
        if name == "_SSL" or (name == "_TRANSPORT" and _TLS_ALERT in error.str().lower()):
            raise EndpointError(
                f"Kafka {servers}: no TLS connection: {text}; check that 'properties.security.protocol' is the"
                " listener's, that 'properties.ssl.truststore.*' has the authority that signed the brokers'"
                " certificate, and 'properties.ssl.keystore.*' if they ask for one"
            )
        if name in ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED"):
            raise EndpointError(
                f"Kafka {servers}: the brokers refuse the login: {text}; check 'properties.security.protocol',"
                " 'properties.sasl.mechanism' and 'properties.sasl.jaas.config'"
            )
        if name == "_RESOLVE" and "," not in servers and not connected:
            raise EndpointError(f"Kafka {servers}: the host is not known: {text}; check 'properties.bootstrap.servers'")
