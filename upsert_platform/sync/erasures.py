"""The log of erasures: a Delta table of the lake with a hash of each key, never the key."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import secrets
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.tables import write_table

if TYPE_CHECKING:
    from upsert_platform.sync.erase import Erased


def record_erasure(lake: Lake, table: str, key: Mapping[str, Any], done: Erased, *, run: str) -> None:
    """Appends a row about an erasure that came to its end.

    Columns: ``at`` (UTC), ``by`` (user and machine), ``run``, ``table``, ``salt`` and ``key_hash`` (SHA-256 in
    hexadecimal of the salt and the key), ``rows``, ``refused``, ``tombstones``, ``tables`` and ``complete``.
    """
    import pyarrow as pa

    salt = secrets.token_hex(16)
    told = {
        "at": [datetime.now(UTC)],
        "by": [f"{_user()}@{socket.gethostname()}"],
        "run": [run],
        "table": [table],
        "salt": [salt],
        "key_hash": [key_hash(salt, key)],
        "rows": [done.rows],
        "refused": [done.refused],
        "tombstones": [done.tombstones],
        "tables": [", ".join(done.tables)],
        "complete": [not done.left],
    }
    write_table(lake.erasures(), pa.table(told), mode="append")


def key_hash(salt: str, key: Mapping[str, Any]) -> str:
    """SHA-256 of a salt and a key's JSON with sorted names, without blanks."""
    text = json.dumps({name: str(value) for name, value in key.items()}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{salt}{text}".encode()).hexdigest()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())
