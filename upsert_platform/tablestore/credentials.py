"""Credentials of requests: a key that was given, a role that is assumed, or what the environment has; kept fresh.

Roles are assumed, and the environment is asked, by Alibaba Cloud's own library (`alibabacloud-credentials`). Every
process that sends requests has credentials of its own, shared by its clients.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pydantic import SecretStr

from upsert_platform.tablestore.failures import NoAnswerError, ServiceError

_EARLIEST_SECONDS: Final = 300.0
_RETRY_SECONDS: Final = 5.0
_SESSION_SECONDS: Final = 3600
_CHAIN_SECONDS: Final = 60.0
_CONNECTOR_VARIABLES: Final = ("ACCESS_ID", "ACCESS_KEY")
"""Environment variables in which the connector finds the key that assumes the role."""


@dataclass(frozen=True, slots=True)
class Role:
    """A RAM role that is assumed.

    Attributes:
        sts_endpoint: host of the STS API; empty for the region's, or the central one.
        longest: age after which the role is assumed anew, however long its credentials would be valid.
    """

    arn: str
    session: str
    sts_endpoint: str = ""
    region: str | None = None
    longest: timedelta = timedelta(hours=1)


class Key(NamedTuple):
    """An access key.

    Attributes:
        expires: seconds since 1970; None when it is not known to end.
    """

    id: str
    secret: SecretStr
    token: SecretStr | None
    expires: float | None = None


class FreshKey:
    """A temporary key that is fetched anew before it ends. Used by several threads.

    Args:
        fetch: raises NoAnswerError or ServiceError.
        longest: age in seconds after which it is fetched anew in any case.
    """

    def __init__(self, fetch: Callable[[], Key], *, longest: float, now: Callable[[], float] = time.time) -> None:
        self._fetch = fetch
        self._longest = longest
        self._now = now
        self._lock = threading.Lock()
        self._key: Key | None = None
        self._due = 0.0

    def get(self) -> Key:
        """The key. While the present one is valid, a failure to renew it is passed over and tried again later."""
        with self._lock:
            now = self._now()
            if self._key is None or now >= self._due:
                try:
                    self._key = self._fetch()
                    self._due = now + self._lifetime(self._key, now)
                except (NoAnswerError, ServiceError):
                    if self._key is None or self._key.expires is None or now >= self._key.expires:
                        raise
                    self._due = now + _RETRY_SECONDS
            return self._key

    def _lifetime(self, key: Key, now: float) -> float:
        if key.expires is None:
            return self._longest
        remaining = max(0.0, key.expires - now)
        return min(self._longest, remaining - min(_EARLIEST_SECONDS, remaining / 4))


def assumed_key(role: Role, given: Key | None) -> Callable[[], Key]:
    """Fetches a key by assuming a role: with a given key, else the connector's variables, else the environment's."""
    source = given or _from_connector_variables(os.environ)

    def fetch() -> Key:
        from alibabacloud_credentials.provider import RamRoleArnCredentialsProvider

        base = source or environment_key()
        provider = RamRoleArnCredentialsProvider(
            access_key_id=base.id,
            access_key_secret=base.secret.get_secret_value(),
            security_token=base.token.get_secret_value() if base.token else None,
            role_arn=role.arn,
            role_session_name=role.session,
            duration_seconds=_SESSION_SECONDS,
            sts_region_id=role.region,
            sts_endpoint=role.sts_endpoint,
        )
        return _in_words(f"role '{role.arn}'", provider.get_credentials)

    return fetch


def environment_key() -> Key:
    """The key of the environment: variables, OIDC, profiles, the role of the machine, a URI."""
    return _in_words("the environment", lambda: _chain().get_credentials())


@lru_cache(maxsize=1)
def _chain() -> Any:
    """Return the credentials chain of the environment; it has a thread of its own, so there is one per process."""
    from alibabacloud_credentials.provider import DefaultCredentialsProvider

    return DefaultCredentialsProvider()


@dataclass(frozen=True, slots=True)
class KeySource:
    """The origin of an endpoint's key: given, fetched for a role, or from the environment. Picklable."""

    given: Key | None
    role: Role | None = None

    def get(self) -> Key:
        """The key that is valid now."""
        if self.role is None and self.given is not None:
            return self.given
        return _fresh(self.given, self.role).get()


@lru_cache(maxsize=32)
def _fresh(given: Key | None, role: Role | None) -> FreshKey:
    if role is not None:
        return FreshKey(assumed_key(role, given), longest=role.longest.total_seconds())
    # The library renews what it finds by itself; it does not tell when that ends.
    return FreshKey(environment_key, longest=_CHAIN_SECONDS)


def sdk_provider(source: KeySource) -> Any:
    """The credentials provider that the SDK's clients take."""
    from tablestore.credentials import Credentials, CredentialsProvider

    class Provider(CredentialsProvider):
        def get_credentials(self) -> Any:
            key = source.get()
            return Credentials(
                key.id, key.secret.get_secret_value(), key.token.get_secret_value() if key.token else None
            )

    return Provider()


def _from_connector_variables(environment: Mapping[str, str]) -> Key | None:
    key_id, secret = (environment.get(name, "") for name in _CONNECTOR_VARIABLES)
    return Key(key_id, SecretStr(secret), None) if key_id and secret else None


def _in_words(what: str, get: Callable[[], Any]) -> Key:
    """Calls the library; its errors can quote the signed request, so only status and code are passed on."""
    from alibabacloud_credentials.exceptions import CredentialException
    from Tea.exceptions import RetryError

    logging.getLogger("credentials").setLevel(logging.CRITICAL + 1)
    try:
        found = get()
    except (RetryError, OSError) as error:
        raise NoAnswerError(f"no credentials for {what}: no answer from the STS API ({type(error).__name__})") from None
    except CredentialException as error:
        raise _failure(what, str(error)) from None
    token = found.get_security_token()
    expires = getattr(found, "get_expiration", lambda: None)()
    return Key(
        found.get_access_key_id(),
        SecretStr(found.get_access_key_secret()),
        SecretStr(token) if token else None,
        float(expires) if expires else None,
    )


def _failure(what: str, text: str) -> NoAnswerError | ServiceError:
    status = re.search(r"http_code: (\d+)", text)
    if status is None:
        advice = (
            "give 'tablestore.access.key.id' and '.secret', set ALIBABA_CLOUD_ACCESS_KEY_ID and"
            " ALIBABA_CLOUD_ACCESS_KEY_SECRET, or run on a machine with a RAM role"
        )
        message = f"no credentials for {what} were found; {advice}"
        return ServiceError(api="AssumeRole", status=403, code="NoCredentials", message=message)
    number = int(status[1])
    _, _, body = text.partition("result: ")
    try:
        code = str(json.loads(body).get("Code", ""))
    except (ValueError, AttributeError):
        code = ""
    if number >= 500 or code.startswith("Throttling"):
        return NoAnswerError(f"no credentials for {what}: the STS API answered {number} {code}")
    message = f"the STS API gave no credentials for {what}; see that the key may assume the role"
    return ServiceError(api="AssumeRole", status=number, code=code or "Unknown", message=message)
