"""Configuration of the connector's time-series mode (specification sections 1.2 and 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Options
from upsert_platform.core.options import nearest, parse_boolean
from upsert_platform.tablestore.connect.record import JSON_SIDE, SideFormat
from upsert_platform.tablestore.connect.transforms.chain import NO_TRANSFORMS, Chain

TOPIC: Final = "<topic>"
"""Value of ``measurement`` that takes the topic's name instead of a field."""
UNITS: Final = ("SECONDS", "MILLISECONDS", "MICROSECONDS", "NANOSECONDS")
_PREFIX = "tablestore.timeseries."
_PER_TABLE = ("measurement", "dataSource", "tags", "time", "time.unit", "field.name", "field.type")
_COMMON = ("mapAll", "toLowerCase", "rowsPerBatch")
_FIELD_TYPES = ("double", "integer", "string", "binary", "boolean")
_MAX_ROWS = 200


@dataclass(frozen=True, slots=True)
class TimeseriesTable:
    """The mapping of a topic's records to rows of a time-series table.

    Attributes:
        measurement: name of the field with the metric's name, or `TOPIC`.
        source: name of the field with the data source; None for none.
        time: name of the field with the time, in `unit`.
        fields: data fields with a type of their own.
        map_all: every other field is a data field too, numbers as doubles.
        lower_case: names of data fields are written in lower case, as Tablestore wants them.
    """

    name: str
    measurement: str
    time: str
    unit: str
    source: str | None = None
    tags: tuple[str, ...] = ()
    fields: tuple[tuple[str, str], ...] = ()
    map_all: bool = True
    lower_case: bool = True
    rows_per_batch: int = _MAX_ROWS
    value_side: SideFormat = JSON_SIDE
    key_side: SideFormat = JSON_SIDE
    transforms: Chain = NO_TRANSFORMS


def read_timeseries_table(
    options: Options,
    table: str,
    *,
    subject: str,
    location: SourceLocation,
    value_side: SideFormat = JSON_SIDE,
    key_side: SideFormat = JSON_SIDE,
    transforms: Chain = NO_TRANSFORMS,
) -> tuple[TimeseriesTable | None, list[Problem]]:
    """Reads the options ``tablestore.timeseries.*`` of one table.

    Args:
        value_side: how values are read; they are JSON.
        key_side: how keys are read, where a transform works on them.
        transforms: what records go through before.

    Returns:
        The table, or None when something is wrong, and every problem.
    """
    problems: list[Problem] = []

    def tell(message: str, name: str) -> None:
        problems.append(Problem(f"{subject}: {message}", options.location(name) or location))

    def text(name: str) -> str:
        return options.get(f"{_PREFIX}{table}.{name}", "").strip()

    def flag(name: str) -> bool:
        try:
            return bool(parse_boolean(options.get(_PREFIX + name, "true")))
        except ValueError as error:
            tell(f"option '{_PREFIX}{name}' {error}", _PREFIX + name)
            return True

    known = {f"{_PREFIX}{table}.{name}" for name in _PER_TABLE} | {_PREFIX + name for name in _COMMON}
    for name in options:
        if name.startswith(_PREFIX) and name not in known:
            tell(f"unknown option '{name}'{nearest(name, known)}", name)
    for name in ("measurement", "time", "time.unit"):
        if not text(name):
            tell(f"option '{_PREFIX}{table}.{name}' is missing", f"{_PREFIX}{table}.{name}")
    unit = text("time.unit").upper()
    if unit and unit not in UNITS:
        tell(f"option '{_PREFIX}{table}.time.unit' takes {', '.join(UNITS)}", f"{_PREFIX}{table}.time.unit")
    names = [item.strip() for item in text("field.name").split(",")] if text("field.name") else []
    types = [item.strip().lower() for item in text("field.type").split(",")] if text("field.type") else []
    if len(names) != len(types):
        place = f"{_PREFIX}{table}.field.name"
        tell(f"'{place}' has {len(names)} items and '{_PREFIX}{table}.field.type' {len(types)}", place)
    for kind in types:
        if kind not in _FIELD_TYPES:
            place = f"{_PREFIX}{table}.field.type"
            tell(f"option '{place}' takes {', '.join(_FIELD_TYPES)}, not '{kind}'", place)
    map_all = flag("mapAll")
    if not map_all and not names:
        tell(f"'{_PREFIX}mapAll' = 'false' needs '{_PREFIX}{table}.field.name' and '.type'", _PREFIX + "mapAll")
    rows = options.get(_PREFIX + "rowsPerBatch", str(_MAX_ROWS)).strip()
    if not rows.isdigit() or not 1 <= int(rows) <= _MAX_ROWS:
        tell(f"option '{_PREFIX}rowsPerBatch' takes 1 to {_MAX_ROWS}", _PREFIX + "rowsPerBatch")
    lower_case = flag("toLowerCase")
    if problems:
        return None, problems
    measurement = text("measurement")
    made = TimeseriesTable(
        name=table,
        measurement=TOPIC if measurement.lower() == TOPIC else measurement,
        time=text("time"),
        unit=unit,
        source=text("dataSource") or None,
        tags=tuple(item.strip() for item in text("tags").split(",") if item.strip()),
        fields=tuple(zip(names, types, strict=True)),
        map_all=map_all,
        lower_case=lower_case,
        rows_per_batch=int(rows),
        value_side=value_side,
        key_side=key_side,
        transforms=transforms,
    )
    return made, problems
