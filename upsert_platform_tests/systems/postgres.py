"""A PostgreSQL server of Debian's package, in a folder of its own."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from upsert_platform.local.postgres import DATABASE, postgres_server
from upsert_platform.local.process import free_port, start, stop

USER = "dagster"


@contextmanager
def postgres(settings: Mapping[str, str] | None = None, files: Mapping[str, Path] | None = None) -> Iterator[str]:
    """A server with an empty database; gives its URL.

    Args:
        settings: of the server.
        files: settings to files, of which it gets copies of its own.
    """
    with tempfile.TemporaryDirectory(prefix="postgres-") as made:
        folder, port, password = Path(made), free_port(), secrets.token_hex(8)
        given = dict(settings or {})
        for name, path in (files or {}).items():
            own = folder / path.name
            own.write_bytes(path.read_bytes())
            own.chmod(0o600)
            given[name] = str(own)
        server = postgres_server(folder, port=port, password=password, user=USER, settings=given)
        for path in folder.glob("*.*"):
            if server.account is not None:
                shutil.chown(path, server.account)
        start(server)
        try:
            yield f"postgresql://{USER}:{password}@127.0.0.1:{port}/{DATABASE}"
        finally:
            stop(server, timeout=5)
