"""Bearer tokens of a schema registry, which an identity provider gives for client credentials (RFC 6749, 4.4)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.errors import EndpointError

if TYPE_CHECKING:
    import requests

    from upsert_platform.formats.registered.options import RegistrySettings

_PART: Final = 0.8
"""The part of its lifetime for which a token is used."""
_LIFETIME: Final = 300.0
"""Seconds, where the provider tells none."""


class ClientCredentials:
    """Gives every request of a session a token, and gets another before it ends: an ``auth`` of requests.

    Args:
        settings: with the credentials source OAUTHBEARER.
        session: of the registry; the provider is reached with its certificates and proxy.
    """

    def __init__(self, settings: RegistrySettings, session: requests.Session) -> None:
        self._settings = settings
        self._session = session
        self._token = ""
        self._until = 0.0
        self._uses = 0

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Adds the token.

        Raises:
            EndpointError: the provider did not answer, refused, or gave none.
        """
        if time.monotonic() >= self._until:
            self._token, lifetime = self._ask()
            self._until = time.monotonic() + lifetime * _PART
            self._uses = 0
        self._uses += 1
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request

    def renew(self) -> bool:
        """Gives up a token that the registry does not take any more; whether another may help."""
        self._until = 0.0
        return self._uses > 1

    def _ask(self) -> tuple[str, float]:
        import requests

        settings = self._settings
        assert settings.issuer is not None
        assert settings.client_secret is not None
        form = {"grant_type": "client_credentials"} | ({"scope": settings.scope} if settings.scope else {})
        trouble = ""
        for tried in range(settings.max_retries + 1):
            if tried:
                time.sleep(min(settings.retries_wait * 2 ** (tried - 1), settings.retries_max_wait) / 1000)
            try:
                answer = self._session.post(
                    settings.issuer,
                    data=form,
                    auth=(settings.client_id or "", settings.client_secret.get_secret_value()),
                    headers={"Accept": "application/json"},
                    timeout=(settings.connect_timeout / 1000, settings.read_timeout / 1000),
                    allow_redirects=False,
                )
            except requests.RequestException as error:
                trouble = type(error).__name__
                continue
            if answer.status_code >= 500 or answer.status_code == 429:
                trouble = f"status {answer.status_code}"
                continue
            return self._read(answer)
        raise EndpointError(f"{self._what} does not answer ({trouble}); check the address")

    def _read(self, answer: requests.Response) -> tuple[str, float]:
        try:
            found: Any = answer.json()
        except ValueError:
            found = None
        found = found if isinstance(found, dict) else {}
        if answer.status_code != 200:
            told = f", {str(found['error'])[:100]}" if found.get("error") else ""
            raise EndpointError(
                f"{self._what} gives no token: status {answer.status_code}{told}; check client and scope"
            )
        token, lifetime = found.get("access_token"), found.get("expires_in", _LIFETIME)
        if not isinstance(token, str) or not token:
            raise EndpointError(f"{self._what} answers without 'access_token'; is it the address for tokens?")
        try:
            return token, max(0.0, float(lifetime))
        except (TypeError, ValueError):
            return token, _LIFETIME

    @property
    def _what(self) -> str:
        return f"'{self._settings.prefix}.properties.bearer.auth.issuer.endpoint.url'"
