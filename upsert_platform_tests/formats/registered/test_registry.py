"""The schema registry over HTTP: what is asked, what is sent, and what its troubles mean."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from upsert_platform.core.errors import EndpointError
from upsert_platform.formats import build_decoder
from upsert_platform.formats.avro.options import AvroConfluentSettings
from upsert_platform.formats.registered.registry import HttpSchemaRegistry, RegisteredSchema, SchemaNotFoundError
from upsert_platform_tests.formats.support import columns_of

URL = {"avro-confluent.url": "http://127.0.0.1:1"}


class Fake(ThreadingHTTPServer):
    """Answers by path; `answers` maps a path to the answers of successive requests, the last repeated."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, list[tuple[int, Any]]] = {}
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # or every answer waits 40 ms for an acknowledgement
    server: Fake

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = json.loads(body) if body else None
        self.server.requests.append((self.command, self.path, dict(self.headers), content))
        queue = self.server.answers.get(self.path, [(404, {"error_code": 40403, "message": "Schema not found"})])
        status, data = queue.pop(0) if len(queue) > 1 else queue[0]
        text = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def fake() -> Iterator[Fake]:
    with Fake() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def client(url: str, **options: str) -> HttpSchemaRegistry:
    return HttpSchemaRegistry(AvroConfluentSettings.model_validate({"avro-confluent.url": url, **options}))


def test_schemas_come_with_what_they_refer_to(fake: Fake) -> None:
    fake.answers["/schemas/ids/7"] = [
        (200, {"schema": "{}", "references": [{"name": "P", "subject": "a/b", "version": 2}]})
    ]
    fake.answers["/subjects/a%2Fb/versions/2"] = [(200, {"schema": '"int"'})]
    assert client(fake.url).schema(7) == RegisteredSchema("{}", ('"int"',), ("P",))
    with pytest.raises(SchemaNotFoundError, match="id 8"):
        client(fake.url).schema(8)


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (404, b"<html>no such page</html>"),
        (404, {"error_code": 404, "message": "HTTP 404 Not Found"}),
        (404, {"detail": "Not Found"}),
        (200, b"<html>please log in</html>"),
        (200, {"id": 7}),
        (200, ["schema"]),
        (200, {"schema": None}),
        (400, ["bad"]),
    ],
)
def test_an_address_that_is_no_registry_says_nothing_of_a_message(fake: Fake, status: int, answer: Any) -> None:
    """A wrong path or a proxy's page: the run ends, and no record goes to quarantine."""
    fake.answers["/schemas/ids/7"] = [(status, answer)]
    with pytest.raises(EndpointError, match="/schemas"):
        client(fake.url).schema(7)
    columns, message = columns_of("v INT"), b"\x00\x00\x00\x00\x07\x02"
    with pytest.raises(EndpointError):
        build_decoder("avro-confluent", columns, {"avro-confluent.url": fake.url}).decode([message])


@pytest.mark.parametrize("answer", [b"<html>please log in</html>", {"version": 1}])
def test_an_address_that_is_no_registry_registers_nothing(fake: Fake, answer: Any) -> None:
    fake.answers["/subjects/users-value/versions"] = [(200, answer)]
    with pytest.raises(EndpointError, match="as a schema registry does"):
        client(fake.url).register("users-value", '"int"')


def test_a_declared_proxy_is_on_the_way(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy is asked for the whole address; that of the registry is nowhere."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    fake.answers["http://registry.invalid:8081/schemas/ids/7"] = [(200, {"schema": '"int"'})]
    way = {"proxy.host": "127.0.0.1", "proxy.port": str(fake.server_port)}
    options = {f"avro-confluent.properties.{name}": value for name, value in way.items()}
    assert client("http://registry.invalid:8081", **options).schema(7).text == '"int"'
    with pytest.raises(ValueError, match=r"proxy\.port"):
        client(fake.url, **{"avro-confluent.properties.proxy.host": "127.0.0.1"})


def test_declared_timeouts_count(fake: Fake) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        started = time.monotonic()
        with pytest.raises(EndpointError, match="Timeout"):
            options = {"avro-confluent.properties.http.read.timeout.ms": "100"}
            client(f"http://127.0.0.1:{silent.getsockname()[1]}", **options).schema(7)
        assert time.monotonic() - started < 5


def test_a_protobuf_schema_is_refused(fake: Fake) -> None:
    fake.answers["/schemas/ids/7"] = [(200, {"schema": "", "schemaType": "PROTOBUF"})]
    with pytest.raises(SchemaNotFoundError, match="PROTOBUF"):
        client(fake.url).schema(7)


def test_credentials_are_sent_and_never_shown(fake: Fake) -> None:
    fake.answers["/schemas/ids/7"] = [(200, {"schema": "{}"})]
    client(fake.url, **{"avro-confluent.basic-auth.user-info": "me:hunter2"}).schema(7)
    client(fake.url, **{"avro-confluent.bearer-auth.token": "hunter2"}).schema(7)
    sent = [headers["Authorization"] for _, _, headers, _ in fake.requests]
    assert sent == ["Basic bWU6aHVudGVyMg==", "Bearer hunter2"]
    assert "hunter2" not in repr(
        AvroConfluentSettings.model_validate({**URL, "avro-confluent.basic-auth.user-info": "me:hunter2"})
    )


def test_passing_troubles_are_tried_again(fake: Fake) -> None:
    fake.answers["/schemas/ids/7"] = [(503, {}), (429, {}), (200, {"schema": "{}"})]
    assert client(fake.url).schema(7).text == "{}"
    other = client(f"http://127.0.0.1:1,{fake.url}")
    assert other.schema(7).text == "{}"


def test_declared_retries_and_waits_count(fake: Fake) -> None:
    fake.answers["/schemas/ids/7"] = [(503, {})]
    for given, requests in (({"max.retries": "0"}, 1), ({"max.retries": "3", "retries.wait.ms": "0"}, 4)):
        fake.requests.clear()
        with pytest.raises(EndpointError, match="503"):
            client(fake.url, **{f"avro-confluent.properties.{name}": value for name, value in given.items()}).schema(7)
        assert len(fake.requests) == requests
    waits = {"max.retries": "2", "retries.wait.ms": "200", "retries.max.wait.ms": "250"}
    started = time.monotonic()
    with pytest.raises(EndpointError):
        client(fake.url, **{f"avro-confluent.properties.{name}": value for name, value in waits.items()}).schema(7)
    assert 0.45 <= time.monotonic() - started < 5


def test_schemas_are_compared_in_normal_form_where_that_is_asked(fake: Fake) -> None:
    fake.answers["/subjects/s/versions?normalize=true"] = [(200, {"id": 3})]
    fake.answers["/subjects/s?normalize=true"] = [(200, {"id": 4})]
    asked = client(fake.url, **{"avro-confluent.properties.normalize.schemas": "true"})
    assert (asked.register("s", "{}", kind="JSON"), asked.lookup("s", "{}", kind="JSON")) == (3, 4)
    assert [body for _, _, _, body in fake.requests] == [{"schema": "{}", "schemaType": "JSON"}] * 2


def test_a_registry_that_does_not_answer_refuses_no_message(fake: Fake) -> None:
    fake.answers["/schemas/ids/7"] = [(500, {})]
    options = {"avro-confluent.url": fake.url.replace("//", "//me:hunter2@")}
    decoder = build_decoder("avro-confluent", columns_of("a INT"), options)
    with pytest.raises(EndpointError, match="does not answer") as raised:
        decoder.decode([b"\0\0\0\0\7\2"])
    assert "hunter2" not in str(raised.value)


def test_a_refusal_names_its_cause(fake: Fake) -> None:
    fake.answers["/subjects/s/versions"] = [(409, {"message": "incompatible with an earlier schema"})]
    with pytest.raises(EndpointError, match=r"409.*incompatible"):
        client(fake.url).register("s", "{}")
    fake.answers["/subjects/s/versions"] = [(401, {})]
    with pytest.raises(EndpointError, match="credentials"):
        client(fake.url).register("s", "{}")
