"""Values that stand in for variables that nobody sets, where they reach nothing: `explain`, and tests in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from upsert_platform.core.model import Options, Project, Table
from upsert_platform.sync.endpoints import ENDPOINT_VALUES

UNSET: Final = "unset-"
"""Beginning of the value of a variable that nobody sets."""
PLACES: Final = {name: {item.field: item.stand_in for item in items} for name, items in ENDPOINT_VALUES.items()}
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
