"""Schema registries with the Confluent API: schemas by id, and registering schemas under a subject."""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol
from urllib.parse import quote

from upsert_platform.core.errors import EndpointError
from upsert_platform.core.redaction import redact, without_credentials
from upsert_platform.formats.registered.options import RegistrySettings
from upsert_platform.formats.registered.tokens import ClientCredentials

_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
Kind = Literal["AVRO", "JSON", "PROTOBUF"]
"""What language a schema is written in."""
_MOST_REFERENCES: Final = 200
"""Schemas that one schema may refer to, and that schemas may refer to each other in a row."""
_MOST_BYTES: Final = 16 << 20
"""Of an answer."""
_SHOWN: Final = 200
_VERSION: Final = re.compile(r"\d{1,10}")
_NOT_FOUND: Final = (40401, 40402, 40403)
"""The registry's own codes for a subject, a version and a schema that it does not have. Any other 404 is of an address
that is not a registry's, and says nothing of the schema."""


class SchemaNotFoundError(ValueError):
    """The registry does not have the schema: the message cannot be read."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema with the schemas that it refers to by name, those first that others need.

    Attributes:
        text: Avro schema or JSON Schema as JSON, a proto file as text or as the base64 of its compiled form.
        references: texts of the schemas referred to.
        names: what they are referred to by, in the same order.
    """

    text: str
    references: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class BrokenSchemaError(ValueError):
    """The registry has the schema, and it is none that can be read: the message cannot be read."""


class SchemaRegistry(Protocol):
    """The registry operations that formats use."""

    def schema(self, schema_id: int, *, kind: Kind = "AVRO") -> RegisteredSchema:
        """The schema of an id.

        Raises:
            SchemaNotFoundError: the registry has none, or one of another kind.
            BrokenSchemaError: what the registry has is not a schema, or refers to others in a way that has no end.
            EndpointError: the registry did not answer, or refused; nothing is known of the message then.
        """

    def register(self, subject: str, schema: str, *, kind: Kind = "AVRO") -> int:
        """Registers a schema under a subject, and gives its id; that of the same schema if it is there already.

        Raises:
            EndpointError: the registry did not answer, or refused (an incompatible schema, missing rights).
        """

    def lookup(self, subject: str, schema: str, *, kind: Kind = "AVRO") -> int:
        """The id that a schema has under a subject.

        Raises:
            SchemaNotFoundError: it has none there.
            EndpointError: the registry did not answer, or refused.
        """

    def latest(self, subject: str, *, kind: Kind = "AVRO") -> tuple[int, RegisteredSchema]:
        """The newest schema of a subject, with its id.

        Raises:
            SchemaNotFoundError: the subject has none, or one of another kind.
            EndpointError: the registry did not answer, or refused.
        """


class HttpSchemaRegistry:
    """A registry reached over HTTP; asks each address in turn until one answers."""

    def __init__(self, settings: RegistrySettings) -> None:
        import requests

        self._prefix = settings.prefix
        self._normalize = settings.normalize
        self._attempts = settings.max_retries + 1
        self._waits = (settings.retries_wait / 1000, settings.retries_max_wait / 1000)
        self._bases = [part.strip().rstrip("/") for part in settings.url.split(",") if part.strip()]
        self._session = requests.Session()
        self._session.headers["Accept"] = _ACCEPT
        if settings.user_info is not None:
            user, _, password = settings.user_info.get_secret_value().partition(":")
            self._session.auth = (user, password)
        elif settings.bearer_token is not None:
            self._session.headers["Authorization"] = f"Bearer {settings.bearer_token.get_secret_value()}"
            self._session.trust_env = False  # a .netrc would take the token's place
        self._tokens: ClientCredentials | None = None
        if settings.bearer_source == "OAUTHBEARER":
            self._tokens = self._session.auth = ClientCredentials(settings, self._session)
        if settings.logical_cluster is not None:
            self._session.headers["target-sr-cluster"] = settings.logical_cluster
        if settings.identity_pool is not None:
            self._session.headers["Confluent-Identity-Pool-Id"] = settings.identity_pool
        self._timeout = (settings.connect_timeout / 1000, settings.read_timeout / 1000)
        if settings.proxy_host is not None:
            proxy = f"http://{settings.proxy_host}:{settings.proxy_port}"
            self._session.proxies = {"http": proxy, "https": proxy}
            self._session.trust_env = False  # its proxies would take the declared one's place
        context = _tls_context(settings)
        if context is not None:
            self._session.mount("https://", _adapter(context))

    def schema(self, schema_id: int, *, kind: Kind = "AVRO") -> RegisteredSchema:
        """See `SchemaRegistry.schema`."""
        path = f"/schemas/ids/{schema_id}"
        found = self._call("GET", path, missing=f"schema id {schema_id} is not in the registry")
        return self._registered(found, kind, f"schema id {schema_id}")

    def _registered(self, found: dict[str, Any], kind: Kind, what: str) -> RegisteredSchema:
        given = found.get("schemaType") or "AVRO"
        if given != kind:
            raise SchemaNotFoundError(f"{what} is {str(given)[:_SHOWN]}, not {kind}")
        text = self._text(found)
        texts: dict[str, str] = {}
        self._collect(found.get("references"), texts, ())
        return RegisteredSchema(text, tuple(texts.values()), tuple(texts))

    def _collect(self, references: Any, texts: dict[str, str], above: tuple[str, ...]) -> None:
        """Adds the schemas that a schema refers to, those first that others need.

        Args:
            above: names of the schemas that refer to it.

        Raises:
            BrokenSchemaError: the references cannot be followed.
        """
        for name, path in _references(references):
            if name in above:
                raise BrokenSchemaError(f"schemas refer to each other in a circle: {' -> '.join((*above, name))}")
            if name in texts:
                continue
            if len(texts) + len(above) >= _MOST_REFERENCES:
                raise BrokenSchemaError(f"the schema refers to more than {_MOST_REFERENCES} others")
            found = self._call("GET", path, missing=f"the schema '{name}' referred to is not in the registry")
            self._collect(found.get("references"), texts, (*above, name))
            texts[name] = self._text(found)

    def register(self, subject: str, schema: str, *, kind: Kind = "AVRO") -> int:
        """See `SchemaRegistry.register`."""
        return self._id_of(f"/subjects/{quote(subject, safe='')}/versions", schema, kind)

    def lookup(self, subject: str, schema: str, *, kind: Kind = "AVRO") -> int:
        """See `SchemaRegistry.lookup`."""
        path = f"/subjects/{quote(subject, safe='')}"
        return self._id_of(path, schema, kind, missing="the schema to write is not registered there")

    def _id_of(self, path: str, schema: str, kind: Kind, *, missing: str | None = None) -> int:
        body = {"schema": schema} if kind == "AVRO" else {"schema": schema, "schemaType": kind}
        query = "?normalize=true" if self._normalize else ""
        found = self._call("POST", path + query, body=body, missing=missing).get("id")
        if not isinstance(found, int):
            raise self._no_registry(self._bases[0], "POST", path, "an answer without 'id'")
        return found

    def latest(self, subject: str, *, kind: Kind = "AVRO") -> tuple[int, RegisteredSchema]:
        """See `SchemaRegistry.latest`."""
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        found = self._call("GET", path, missing="it has no schema")
        if not isinstance(found.get("id"), int):
            raise self._no_registry(self._bases[0], "GET", path, "an answer without 'id'")
        return found["id"], self._registered(found, kind, "its newest schema")

    def close(self) -> None:
        """Closes connections. Idempotent."""
        self._session.close()

    def _call(
        self, method: str, path: str, *, body: dict[str, str] | None = None, missing: str | None = None
    ) -> dict[str, Any]:
        import requests

        trouble = ""
        for attempt in range(self._attempts * len(self._bases)):
            tried = attempt // len(self._bases)
            if tried and attempt % len(self._bases) == 0:
                time.sleep(min(self._waits[0] * 2 ** (tried - 1), self._waits[1]))
            base = self._bases[attempt % len(self._bases)]
            try:
                answer = self._ask(method, base + path, body)
                if answer.status_code == 401 and self._tokens is not None and self._tokens.renew():
                    answer = self._ask(method, base + path, body)
            except requests.RequestException as error:
                trouble = f"{type(error).__name__} at {without_credentials(base)}"
                continue
            if answer.status_code == 404 and missing is not None and _error_code(answer) in _NOT_FOUND:
                raise SchemaNotFoundError(missing)
            if answer.status_code == 404 and _error_code(answer) is None:
                raise self._no_registry(base, method, path, "status 404")
            if answer.status_code >= 500 or answer.status_code == 429:
                trouble = f"status {answer.status_code} at {without_credentials(base)}"
                continue
            if answer.status_code >= 400:
                raise EndpointError(
                    f"the schema registry {without_credentials(base)} refused {method} {path}: {_reason(answer)}"
                )
            found = _json(answer)
            if found is None:
                kind = answer.headers.get("Content-Type", "no content type")
                raise self._no_registry(base, method, path, f"an answer that is not a JSON object ({kind})")
            return found
        raise EndpointError(
            f"the schema registry does not answer {method} {path} ({trouble}); check '{self._prefix}.url'"
        )

    def _ask(self, method: str, url: str, body: dict[str, str] | None) -> Any:
        """Sends a request and reads its answer whole, in bounds of time and size.

        Raises:
            BrokenSchemaError: the answer is larger than any schema.
            requests.RequestException: no answer, or one that does not come to an end.
        """
        import requests

        answer = self._session.request(method, url, json=body, timeout=self._timeout, stream=True)
        try:
            content, deadline = bytearray(), time.monotonic() + sum(self._timeout)
            for part in answer.iter_content(1 << 16):
                content += part
                if len(content) > _MOST_BYTES:
                    raise BrokenSchemaError(f"the registry's answer is larger than {_MOST_BYTES >> 20} MiB")
                if time.monotonic() > deadline:
                    raise requests.Timeout("the answer does not come to an end")
        finally:
            answer.close()
        answer._content = bytes(content)  # noqa: SLF001 - what reading the answer whole would have kept
        return answer

    def _text(self, found: Mapping[str, Any]) -> str:
        text = found.get("schema")
        if text is None:
            raise self._no_registry(self._bases[0], "GET", "/schemas", "an answer without 'schema'")
        if not isinstance(text, str):
            raise BrokenSchemaError(
                f"the registry's answer has {str(text)[:_SHOWN]!r} where the schema's text is expected"
            )
        return text

    def _no_registry(self, base: str, method: str, path: str, what: str) -> EndpointError:
        return EndpointError(
            f"{without_credentials(base)} does not answer {method} {path} as a schema registry does: {what}; check"
            f" the address and path of '{self._prefix}.url'"
        )


def _references(given: Any) -> Iterator[tuple[str, str]]:
    """Names of the schemas that a schema refers to, and the paths that they are asked for by.

    Raises:
        BrokenSchemaError: they are not told as a registry tells them.
    """
    if given is None:
        return
    if not isinstance(given, list):
        raise BrokenSchemaError(f"the schema's references are no list, but {str(given)[:_SHOWN]!r}")
    for one in given:
        fields = one if isinstance(one, dict) else {}
        name, subject, version = fields.get("name"), fields.get("subject"), fields.get("version")
        if not isinstance(name, str) or not isinstance(subject, str) or not _VERSION.fullmatch(str(version)):
            shown = str(one)[:_SHOWN]
            raise BrokenSchemaError(
                f"a reference of the schema is {shown!r}, not a name, a subject and a version's number"
            )
        yield name, f"/subjects/{quote(subject, safe='')}/versions/{version}"


def _json(answer: Any) -> dict[str, Any] | None:
    try:
        found = answer.json()
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _error_code(answer: Any) -> int | None:
    found = (_json(answer) or {}).get("error_code")
    return found if isinstance(found, int) else None


def _reason(answer: Any) -> str:
    hints = {401: "check the credentials", 403: "the credentials lack the right", 409: "the schema is incompatible"}
    text = redact(str((_json(answer) or {}).get("message", "")))[:300]
    hint = hints.get(answer.status_code, "")
    return "; ".join(part for part in (f"status {answer.status_code}", text, hint) if part)


def _tls_context(settings: RegistrySettings) -> ssl.SSLContext | None:
    if settings.truststore is None and settings.keystore is None:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.truststore)
        if settings.keystore is not None:
            secret = settings.keystore_password
            context.load_cert_chain(settings.keystore, password=secret.get_secret_value() if secret else None)
    except (OSError, ssl.SSLError) as error:
        raise EndpointError(
            f"the files of '{settings.prefix}.ssl.*' cannot be used ({type(error).__name__});"
            " check path, form, password"
        ) from None
    return context


def _adapter(context: ssl.SSLContext) -> Any:
    from requests.adapters import HTTPAdapter

    class TlsAdapter(HTTPAdapter):
        def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
            super().init_poolmanager(*args, **kwargs, ssl_context=context)

    return TlsAdapter()
