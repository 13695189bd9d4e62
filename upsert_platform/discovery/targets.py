"""Tables that are written from a discovered topic, with the INSERT INTO that fills them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from upsert_platform.core.types import NESTED, LogicalType, TypeName, quote_name
from upsert_platform.discovery.shape import BIGINT, BYTES, STRING, FoundColumn
from upsert_platform.discovery.table import OFFSET, PARTITION, DiscoveredTable, joined_lines, with_clause
from upsert_platform.maxcompute.types import UnsupportedTypeError, maxcompute_type
from upsert_platform.sync.connectors import CONNECTORS
from upsert_platform.sync.endpoints import ENDPOINT_VALUES
from upsert_platform.tablestore.types import primary_key_type

Destination = Literal["tablestore", "maxcompute", "postgres", "upsert-kafka"]
DESTINATIONS: Final[tuple[Destination, ...]] = ("tablestore", "maxcompute", "postgres", "upsert-kafka")
_KEYS: Final[Mapping[str, LogicalType]] = {PARTITION: LogicalType(TypeName.INT), OFFSET: BIGINT}


@dataclass(frozen=True, slots=True)
class _Written:
    """A column that is written, and what the SELECT gives it."""

    column: FoundColumn
    expression: str


def target_name(table: DiscoveredTable, to: Destination) -> str:
    """Return the name of the table that is written."""
    return f"{table.name}_{to.replace('-', '_')}"


def topic_of_target(topic: str) -> str:
    """Return the name of the topic that is written from another one."""
    return f"{topic}.upserts"


def written_topics(topics: Sequence[str], to: Sequence[Destination]) -> set[str]:
    """Return the topics that tables of destinations are."""
    is_written = any(item not in ENDPOINT_VALUES for item in to)  # into the cluster that the topics are in
    return {topic_of_target(topic) for topic in topics} if is_written else set()


def target_statements(table: DiscoveredTable, to: Destination, *, endpoints: bool = True) -> str:
    """Return the CREATE TABLE of a destination and its INSERT INTO.

    A topic without keys is written with the place of each record as the primary key.

    Args:
        endpoints: whether options say where the destination is; a resource completes a table without them.
    """
    name = target_name(table, to)
    primary = table.primary_key or (PARTITION, OFFSET)
    columns = table.columns
    if not table.primary_key:
        columns = (*(FoundColumn(item, kind) for item, kind in _KEYS.items()), *columns)
    written = [_fitting(column, to, in_key=column.name in primary) for column in columns]
    body = [[f"  {quote_name(item.column.name)} {item.column.type}"] for item in written]
    body.append([f"  PRIMARY KEY ({', '.join(map(quote_name, primary))}) NOT ENFORCED"])
    lines = [
        f"CREATE TABLE {quote_name(name)} (",
        *joined_lines(body),
        *with_clause(_options(table, to, name, endpoints=endpoints)),
    ]
    selected = ", ".join(item.expression for item in written)
    lines += [f"INSERT INTO {quote_name(name)}", f"SELECT {selected}", f"FROM {quote_name(table.name)};"]
    return "\n".join(lines) + "\n"


def _fitting(column: FoundColumn, to: Destination, *, in_key: bool) -> _Written:
    """The column with a type that the destination has."""
    plain = _Written(replace(column, doubt=""), quote_name(column.name))
    if _FITS[to](column.type, in_key) or column.type.name in NESTED or column.type == BYTES:
        return plain
    return _Written(FoundColumn(column.name, STRING), f"CAST({quote_name(column.name)} AS STRING)")


def _fits_tablestore(logical: LogicalType, in_key: bool) -> bool:
    return not in_key or primary_key_type(logical) is not None


def _fits_maxcompute(logical: LogicalType, in_key: bool) -> bool:
    try:
        maxcompute_type(logical)
    except UnsupportedTypeError:
        return False
    return not in_key or logical.name not in (TypeName.FLOAT, TypeName.DOUBLE)


def _fits_all(logical: LogicalType, in_key: bool) -> bool:
    del logical, in_key
    return True


_FITS: Final[Mapping[Destination, Callable[[LogicalType, bool], bool]]] = {
    "tablestore": _fits_tablestore,
    "maxcompute": _fits_maxcompute,
    "postgres": _fits_all,
    "upsert-kafka": _fits_all,
}
"""Whether a destination has a type, in its primary key or outside of it."""


def _options(table: DiscoveredTable, to: Destination, name: str, *, endpoints: bool) -> dict[str, str]:
    if to not in ENDPOINT_VALUES:  # the cluster that the topic is in
        options = {"connector": to, "topic": topic_of_target(table.sample.topic)}
        options |= {key: text for key, text in table.options.items() if key.startswith("properties.")}
        return {**options, "key.format": "json", "value.format": "json"}
    values = {item.option: f"${{{item.variable}}}" for item in ENDPOINT_VALUES[to] if endpoints}
    return {"connector": to, **values, CONNECTORS[to].place_option: name, **_OWN.get(to, {}), "auto.create": "true"}


_OWN: Final[Mapping[Destination, Mapping[str, str]]] = {"maxcompute": {"sink.operation": "upsert"}}
"""Options that a destination needs beside its endpoint."""
