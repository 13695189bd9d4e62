"""Secrets leave no process in a text: neither as they are, nor as headers and addresses repeat them."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import dagster as dg
import pytest

from upsert_platform.core import redaction
from upsert_platform.core.errors import EndpointError
from upsert_platform.core.redaction import redact, remember_secret, without_credentials
from upsert_platform.formats.avro.options import AvroConfluentSettings
from upsert_platform.formats.registered.registry import HttpSchemaRegistry
from upsert_platform.graph.failures import told_plainly
from upsert_platform_tests.formats.registered.test_registry import Fake, fake

__all__ = ["fake"]

SECRET = 'p4ss/wörd+of "many"\\ signs'


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(redaction, "_known", set())
    redaction._pattern.cache_clear()
    yield
    redaction._pattern.cache_clear()


@pytest.mark.parametrize("user", ["", "a:", "ab:", "abc:", "somebody:"])
def test_a_secret_is_taken_out_in_every_form(user: str) -> None:
    remember_secret(SECRET)
    whole = f"{user}{SECRET}"
    for form in (
        whole,
        quote(whole, safe=""),
        json.dumps(whole, ensure_ascii=False),
        base64.b64encode(whole.encode()).decode(),
        base64.urlsafe_b64encode(whole.encode()).decode(),
        base64.b64encode(f"{whole} and more".encode()).decode(),
    ):
        shown = redact(f"before {form} behind")
        assert "***" in shown
        assert shown.startswith("before ")
        assert shown.endswith(" behind")
        assert SECRET not in shown
        for part in shown.replace("***", " ").split():
            try:
                assert "wörd" not in base64.b64decode(part + "===").decode("utf-8", "ignore")
            except ValueError:
                continue


def test_logins_and_headers_are_taken_out_though_nobody_registered_them() -> None:
    assert redact("at http://user:pa55@host:8081/x, ftp://h/y") == "at http://***@host:8081/x, ftp://h/y"
    assert redact("to postgresql://h/d?user=u&password=pa55&ssl=1") == "to postgresql://h/d?user=u&password=***&ssl=1"
    assert redact("Authorization: Bearer eyJhbGciOi.x-y_z=, more") == "Authorization: Bearer ***, more"
    assert redact("{'authorization': 'Basic dXNlcjpwYXNz'}") == "{'authorization': 'Basic ***'}"
    assert redact("basic information and bearer certificates") == "basic information and bearer certificates"
    assert without_credentials("http://user:pa55@host:8081/x") == "http://host:8081/x"


def test_short_words_stay() -> None:
    remember_secret("local")
    assert redact("the local server") == "the local server"


@pytest.mark.parametrize(
    ("options", "header"),
    [
        (
            {"basic-auth.credentials-source": "USER_INFO", "basic-auth.user-info": "somebody:p4ssword-7"},
            "Authorization",
        ),
        ({"bearer-auth.credentials-source": "STATIC_TOKEN", "bearer-auth.token": "t0ken-of-mine-8"}, "Authorization"),
    ],
    ids=["basic", "bearer"],
)
def test_an_answer_that_repeats_headers_shows_no_secret_anywhere(
    fake: Fake, options: dict[str, str], header: str
) -> None:
    given = {f"avro-confluent.{name}": value for name, value in options.items()}
    settings = AvroConfluentSettings.model_validate({"avro-confluent.url": fake.url, **given})
    registry = HttpSchemaRegistry(settings)
    fake.answers["/schemas/ids/1"] = [(404, {"error_code": 40403})]
    with pytest.raises(ValueError, match="schema id 1"):
        registry.schema(1)
    sent = fake.requests[0][2][header]
    secret = next(iter(options.values())) and list(options.values())[1].rpartition(":")[2]
    fake.answers["/schemas/ids/1"] = [(403, {"message": f"refused: {sent} {secret} " + "x" * 270 + sent})]

    @dg.asset
    def users() -> None:
        with told_plainly():
            registry.schema(1)

    @dg.asset
    def foreign() -> None:
        with told_plainly():
            try:
                raise KeyError(f"headers {sent}")
            except KeyError as error:
                raise RuntimeError(f"defect with {secret}") from error

    instance = dg.DagsterInstance.ephemeral()
    result: Any = dg.materialize([users, foreign], instance=instance, raise_on_error=False)
    assert not result.success
    stored = "".join(
        dg.serialize_value(entry.event_log_entry if hasattr(entry, "event_log_entry") else entry)
        for entry in instance.all_logs(result.run_id)
    )
    assert "the schema registry" in stored
    assert "defect with ***" in stored
    assert secret not in stored
    assert sent.partition(" ")[2] not in stored
    assert sent.partition(" ")[2][:12] not in stored


def test_errors_are_redacted_where_they_are_made() -> None:
    remember_secret(SECRET)
    error = EndpointError(f"the answer is {SECRET}")
    assert str(error) == "the answer is ***"
    assert str(pickle.loads(pickle.dumps(error))) == "the answer is ***"
