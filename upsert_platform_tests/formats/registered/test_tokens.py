"""Bearer tokens for client credentials: the question, how long a token serves, what troubles mean."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import parse_qs

import pytest

from upsert_platform.core.errors import EndpointError
from upsert_platform.formats.avro.options import AvroConfluentSettings
from upsert_platform.formats.registered.registry import HttpSchemaRegistry
from upsert_platform_tests.kafka.answering import Answering, Asked, answering

SECRET = "hunter2"


@dataclass
class Services:
    """An identity provider and a registry, in one server.

    Attributes:
        tokens: that the provider has given, the last one of which the registry takes.
        answers: of the provider instead of a token, the first ones.
    """

    server: Answering
    tokens: list[str] = field(default_factory=list)
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    lifetime: object = 600

    def asked(self, path: str) -> list[Asked]:
        return [one for one in self.server.asked if one.path == path]

    def open(self, **options: str) -> HttpSchemaRegistry:
        given = {
            "url": self.server.url,
            "bearer-auth.credentials-source": "OAUTHBEARER",
            "properties.bearer.auth.issuer.endpoint.url": f"{self.server.url}/token",
            "properties.bearer.auth.client.id": "platform",
            "properties.bearer.auth.client.secret": SECRET,
            "properties.retries.wait.ms": "0",
            **{f"properties.bearer.auth.{name.replace('_', '.')}": value for name, value in options.items()},
        }
        return HttpSchemaRegistry(
            AvroConfluentSettings.model_validate({f"avro-confluent.{name}": value for name, value in given.items()})
        )


@pytest.fixture
def services() -> Iterator[Services]:
    def answer(asked: Asked) -> tuple[int, bytes]:
        if asked.path == "/token":
            if found.answers:
                return found.answers.pop(0)
            found.tokens.append(f"token-{len(found.tokens)}")
            body = {"access_token": found.tokens[-1], "token_type": "Bearer", "expires_in": found.lifetime}
            return 200, json.dumps(body).encode()
        if not found.tokens or asked.headers.get("authorization") != f"Bearer {found.tokens[-1]}":
            return 401, b'{"error_code": 401, "message": "Unauthorized"}'
        return 200, b'{"schema": "{}"}'

    with answering(answer) as server:
        found = Services(server)
        yield found


def test_a_token_is_asked_for_once_and_sent_with_every_request(services: Services) -> None:
    registry = services.open(scope="registry read", logical_cluster="lsrc-1", identity_pool_id="pool-2")
    for number in (1, 2, 3):
        registry.schema(number)
    (question,) = services.asked("/token")
    assert question.method == "POST"
    assert parse_qs(question.body.decode()) == {"grant_type": ["client_credentials"], "scope": ["registry read"]}
    assert question.headers["authorization"] == f"Basic {base64.b64encode(f'platform:{SECRET}'.encode()).decode()}"
    sent = services.asked("/schemas/ids/2")[0].headers
    assert (sent["authorization"], sent["target-sr-cluster"], sent["confluent-identity-pool-id"]) == (
        "Bearer token-0", "lsrc-1", "pool-2",
    )  # fmt: skip


def test_another_token_is_asked_for_before_the_first_one_ends(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = services.open()
    registry.schema(1)
    now = time.monotonic
    monkeypatch.setattr("upsert_platform.formats.registered.tokens.time.monotonic", lambda: now() + 500)
    registry.schema(2)
    assert services.tokens == ["token-0", "token-1"]


def test_a_token_that_is_not_taken_any_more_is_asked_for_again_once(services: Services) -> None:
    registry = services.open()
    registry.schema(1)
    services.tokens.append("of somebody else")
    registry.schema(2)
    assert services.tokens[-1] == "token-2"
    other = services.open()
    services.answers.append((200, b'{"access_token": "wrong"}'))
    with pytest.raises(EndpointError, match="refused GET /schemas/ids/3: status 401"):
        other.schema(3)
    assert len(services.asked("/schemas/ids/3")) == 1  # a new token would be refused, too


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([(401, b'{"error": "invalid_client"}')], "gives no token: status 401, invalid_client; check client"),
        ([(302, b"")], "gives no token: status 302"),
        ([(200, b"<html>")], "answers without 'access_token'"),
        ([(200, b'{"access_token": 5}')], "answers without 'access_token'"),
        ([(503, b"")] * 3, "does not answer .status 503."),
    ],
)
def test_troubles_of_the_provider_are_told_without_the_secret(
    services: Services, answers: list[tuple[int, bytes]], message: str
) -> None:
    services.answers = list(answers)
    with pytest.raises(EndpointError, match=message) as raised:
        services.open().schema(1)
    assert "avro-confluent.properties.bearer.auth.issuer.endpoint.url" in str(raised.value)
    assert SECRET not in str(raised.value)
    assert not services.asked("/schemas/ids/1")


def test_passing_troubles_of_the_provider_are_tried_again(services: Services) -> None:
    services.answers = [(503, b""), (429, b"")]
    services.lifetime = "soon"
    services.open().schema(1)
    assert services.tokens == ["token-0"]
