"""Topics that a component discovers: which, where they are written, and their declarations as Dagster keeps them."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import dagster as dg
from pydantic import Field

from upsert_platform.changelog.lake import local_variables

_TABLES: Final = "tables"
_LOG: Final = logging.getLogger(__name__)
_REGISTRY: Final = "UPSERT_SCHEMA_REGISTRY_URL"


class TopicSettings(dg.Model, dg.Resolvable):
    """Settings of the topics that a component declares by what their records are."""

    match: str = Field(description="Topics whose names this pattern with `*` and `?` matches: `shop.*`.")
    to: list[Literal["tablestore", "maxcompute", "upsert-kafka"]] = Field(
        default_factory=list, description="Destinations that get a table per topic, and the INSERT INTO that fills it."
    )
    registry: str | None = Field(
        default=None, description=f"Address of the schema registry; {_REGISTRY}, if it is set, if left out."
    )


def discover_declarations(settings: TopicSettings, options: Mapping[str, str], *, root: str) -> str:
    """Return the declarations of the topics that match, as `read_discovered` takes them.

    Args:
        options: of Kafka tables: servers and login.
        root: of the lake, beside which the local servers' variables lie.

    Raises:
        DeclarationError: no servers are given, or an option is wrong.
        EndpointError: the brokers or the registry do not answer, or refuse the login.
    """
    from upsert_platform.discovery.declare_matching import declare_matching

    variables = {**local_variables(root), **os.environ}
    registry = settings.registry or (f"${{{_REGISTRY}}}" if _REGISTRY in variables else None)
    found = declare_matching(settings.match, options, to=settings.to, registry=registry, variables=variables)
    if not found:
        _LOG.warning("no topic matches '%s'", settings.match)
    return json.dumps({_TABLES: found}, ensure_ascii=False, indent=1)


def read_discovered(text: str) -> dict[str, str]:
    """Return the name of each discovered table to the text that declares it."""
    found: dict[str, str] = json.loads(text)[_TABLES]
    return found


def state_text(path: Path | None, pattern: str) -> str:
    """Return the declarations of a state, those of no topic where there is none yet."""
    if path is not None:
        return path.read_text("utf-8")
    _LOG.warning("topics that match '%s' were not discovered yet: 'dg utils refresh-defs-state' does it", pattern)
    return json.dumps({_TABLES: {}})


def write_state(text: str, path: Path) -> None:
    """Replace a state as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f"{path.name}.{os.getpid()}")
    written.write_text(text, "utf-8")
    written.replace(path)
