"""A stand-in of Alibaba Cloud's STS API (HTTPS, signatures checked) and of the metadata service of a machine."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

METADATA = "/latest/meta-data/ram/security-credentials/"


@dataclass
class StsServer:
    """What it answers, and what it was asked.

    Attributes:
        keys: access key id to secret of those who may assume roles.
        gives: id and secret of the temporary key that it gives.
        lifetime: seconds that such a key is valid.
        refusal: status and error code with which it refuses; None gives keys.
        asked: parameters of every request.
    """

    address: str
    keys: dict[str, str]
    gives: tuple[str, str]
    lifetime: float = 3600
    refusal: tuple[int, str] | None = None
    asked: list[dict[str, str]] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, Any]:
        """Status, and JSON or text, for a GET."""
        parts = urlsplit(path)
        if parts.path == METADATA:
            return 200, "machine-role"
        asked = dict(parse_qsl(parts.query))
        self.asked.append(asked or {"Path": parts.path})
        if parts.path == METADATA + "machine-role":
            return 200, {"Code": "Success", **self._key()}
        if self.refusal is not None:
            return self.refusal[0], {"Code": self.refusal[1], "Message": f"signed with {asked['AccessKeyId']}"}
        if asked["Signature"] != _signature(asked, self.keys.get(asked["AccessKeyId"], "")):
            return 400, {"Code": "SignatureDoesNotMatch", "Message": f"server string: {path}"}
        return 200, {"RequestId": "r", "Credentials": self._key()}

    def _key(self) -> dict[str, str]:
        expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.lifetime))
        token = f"token-{len(self.asked)}"
        key_id, secret = self.gives
        return {"AccessKeyId": key_id, "AccessKeySecret": secret, "SecurityToken": token, "Expiration": expires}


def _signature(asked: dict[str, str], secret: str) -> str:
    """Of the RPC form of Alibaba Cloud's APIs: HMAC-SHA1 over method, path and the sorted parameters."""
    query = "&".join(f"{_quote(name)}={_quote(value)}" for name, value in sorted(asked.items()) if name != "Signature")
    text = f"GET&{_quote('/')}&{_quote(query)}"
    return base64.b64encode(hmac.digest(f"{secret}&".encode(), text.encode(), hashlib.sha1)).decode()


def _quote(text: str) -> str:
    return quote(text, safe="~")


@contextmanager
def sts_server(folder: Path, *, keys: dict[str, str], gives: tuple[str, str], tls: bool = True) -> Iterator[StsServer]:
    """Runs the stand-in; ``folder / "ca.pem"`` is the certificate that clients must trust."""

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # or every answer waits 40 ms for an acknowledgement

        def _send(self, status: int, content: Any) -> None:
            body = (content if isinstance(content, str) else json.dumps(content)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self._send(*found.answer(self.path))

        def do_PUT(self) -> None:
            self._send(200, "metadata-token")

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*_certificate(folder))
        listener.socket = context.wrap_socket(listener.socket, server_side=True)
    found = StsServer(f"127.0.0.1:{listener.server_port}", keys, gives)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


def _certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "ca.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key
