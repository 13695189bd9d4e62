"""Values that stand in for variables that nobody sets, where they reach nothing: `explain`, and tests in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from upsert_platform.hops.endpoints import ENDPOINT_VALUES
from upsert_platform.model import Options, Project, Table

UNSET: Final = "unset-"
"""Beginning of the value of a variable that nobody sets."""
_NO_KEY: Final = "no-key-in-tests"
"""For credentials: whatever looks like one is taken out of messages, wherever it stands."""
PLACES: Final = {
    "kafka": {"bootstrap_servers": "memory:9092"},
    "tablestore": {
        "endpoint": "http://memory",
        "instance": "memory",
        "access_key_id": _NO_KEY,
        "access_key_secret": _NO_KEY,
    },
    "maxcompute": {"endpoint": "http://memory", "project": "memory", "access_id": _NO_KEY, "access_key": _NO_KEY},
    "postgres": {"url": "postgresql://memory/memory", "username": _NO_KEY, "password": _NO_KEY},
    "mysql": {"hostname": "memory", "port": "3306", "username": _NO_KEY, "password": _NO_KEY},
}
"""Values of the endpoints' resources: nothing is reached at them."""


def unset_value(name: str) -> str:
    """The value of a variable that nobody sets: nothing is reached by it."""
    return UNSET + name.lower()


def without_places(project: Project) -> Project:
    """The project whose options name no endpoint by a variable that nobody sets."""
    return replace(project, tables={name: _placed(table) for name, table in project.tables.items()})


def _placed(table: Table) -> Table:
    known = {item.option: PLACES[name][item.field] for name, items in ENDPOINT_VALUES.items() for item in items}
    values = {
        name: known.get(name, value) if UNSET in value else value
        for name, value in table.options.items()
        # Properties of a client that is never made, such as its login.
        if name in known or not (name.startswith("properties.") and UNSET in value)
    }
    places = {name: place for name in values if (place := table.options.location(name)) is not None}
    return replace(table, options=Options(values, places))
