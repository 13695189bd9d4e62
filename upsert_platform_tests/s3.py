"""An S3 server that keeps objects as files: S3Proxy. For lakes behind ``s3://``, without a cloud account."""

from __future__ import annotations

import http.client
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from upsert_platform.local.process import Server, free_port, start, stop
from upsert_platform.spark import jars

_HOST = "127.0.0.1"
_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
BUCKET = "lake"


@dataclass(frozen=True, slots=True)
class S3:
    """A running server; ends with the `with` block.

    Attributes:
        options: a file of storage options for delta-rs, for UPSERT_PLATFORM_LAKE_OPTIONS.
    """

    port: int
    server: Server
    options: Path
    access_key_id: str
    secret_access_key: str = field(repr=False)

    @property
    def uri(self) -> str:
        """Address of the bucket."""
        return f"s3://{BUCKET}"

    def stop(self) -> None:
        """Ends the server; its objects stay."""
        stop(self.server)

    def __enter__(self) -> S3:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def start_s3(data: Path, *, port: int | None = None, timeout: float = 60.0, die_with_parent: bool = False) -> S3:
    """Starts a server on a data directory, with an empty bucket `lake` when it is new, and returns when it answers.

    Args:
        port: of 127.0.0.1; a free one when left out.

    Raises:
        ServerError: the server ended, or did not answer in `timeout` seconds.
    """
    chosen = port or free_port()
    data = data.absolute()
    (data / "objects" / BUCKET).mkdir(parents=True, exist_ok=True)
    identity, secret = "local", secrets.token_hex(16)
    options = data / "lake.options"
    _write_secret(
        options,
        f"aws_endpoint_url=http://{_HOST}:{chosen}\naws_allow_http=true\naws_region=us-east-1\n"
        f"aws_access_key_id={identity}\naws_secret_access_key={secret}\n",
    )
    settings = data / "s3proxy.properties"
    _write_secret(
        settings,
        f"s3proxy.endpoint=http://{_HOST}:{chosen}\ns3proxy.authorization=aws-v2-or-v4\ns3proxy.identity={identity}\n"
        f"s3proxy.credential={secret}\njclouds.provider=filesystem-nio2\n"
        f"jclouds.filesystem.basedir={data / 'objects'}\njclouds.identity=local\njclouds.credential=local\n",
    )
    server = Server(
        name="the S3 server",
        command=(str(jars.java()), *_JVM, "-jar", str(jars.resolve("s3proxy-4.1.0")[0]), "--properties", str(settings)),
        home=data,
        port=chosen,
        answers=lambda: answers_s3(chosen),
    )
    start(server, timeout=timeout, die_with_parent=die_with_parent)
    return S3(chosen, server, options, identity, secret)


def answers_s3(port: int) -> bool:
    """Return whether an S3 server answers on the port of 127.0.0.1, which refuses an unsigned request."""
    connection = http.client.HTTPConnection(_HOST, port, timeout=10.0)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status in (200, 403)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _write_secret(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
