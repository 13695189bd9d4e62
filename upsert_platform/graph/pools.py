"""Names of concurrency pools: a name may stand for a pool of each endpoint."""

from __future__ import annotations

import re
import zlib
from typing import Final
from urllib.parse import urlsplit

from upsert_platform.core.model import Table
from upsert_platform.sync.connectors import connector_of
from upsert_platform.sync.endpoints import ENDPOINT_VALUES

ENDPOINT: Final = "{endpoint}"
"""Part of a pool's name that each endpoint replaces by its own name."""
LAKE: Final = "lake"
"""The endpoint of queries, whose rows are in the lake."""
_LEGAL: Final = re.compile(r"[\w.\-/]+", re.ASCII)
_LONGEST: Final = 60
_SCHEME: Final = re.compile(r"^(jdbc:)?[a-z][a-z0-9+.\-]*://")
_DEFAULTS: Final = {"port": "3306"}
"""Values of options of an address that a declaration may leave out."""


def is_legal(name: str) -> bool:
    """Return whether a pool can have a name, which may hold `ENDPOINT`."""
    return _LEGAL.fullmatch(name.replace(ENDPOINT, "x")) is not None


def pool_of(name: str | None, table: Table | None) -> str | None:
    """Return the pool of a step.

    Args:
        name: as settings give it, with `ENDPOINT` or without; None for no pool.
        table: declaration behind the step, with the options of its endpoint; None for a query.
    """
    if name is None or ENDPOINT not in name:
        return name
    return name.replace(ENDPOINT, LAKE if table is None else endpoint_name(table))


def endpoint_name(table: Table) -> str:
    """Return a name for the system that holds a table: its kind, and its address without logins and parameters.

    Tables of one address have one name, wherever they are declared; the letter case of an address does not count.
    """
    connector = connector_of(table)
    if connector is None:
        return table.connector or "table"
    values = ENDPOINT_VALUES.get(connector.endpoint, ())
    options = [value.option for value in values if not value.credential] or [*connector.scope_options]
    told = [table.options.get(option, _DEFAULTS.get(option, "")) for option in options]
    return "_".join((connector.kind, *filter(None, map(_name, told))))


def _name(address: str) -> str:
    """Return an address as part of a name; what a name cannot say is in a checksum at its end."""
    text = address.strip().lower()
    if _SCHEME.match(text):
        parts = urlsplit(text.removeprefix("jdbc:"))
        text = parts.netloc.rpartition("@")[2] + parts.path.rstrip("/")
    # Servers of a cluster, in whatever order they are declared.
    text = ",".join(sorted(filter(None, map(str.strip, text.rpartition("@")[2].partition("?")[0].split(",")))))
    name = re.sub(r"[^a-z0-9.\-]", "_", text)
    is_whole = name == text or re.fullmatch(r"[a-z0-9.\-]+:\d+", text) is not None
    return name if is_whole and len(name) <= _LONGEST else f"{name[:_LONGEST]}_{zlib.crc32(text.encode()):08x}"
