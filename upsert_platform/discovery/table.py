"""A topic as a declared table: what its keys and values together are."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.errors import DeclarationError, Problem
from upsert_platform.core.types import quote_name
from upsert_platform.core.wording import counted
from upsert_platform.discovery.sample import Sample
from upsert_platform.discovery.shape import FoundColumn, Side
from upsert_platform.discovery.side_shape import side_of
from upsert_platform.formats.factory import FORMATS, build_decoder

if TYPE_CHECKING:
    from upsert_platform.formats.registered.registry import SchemaRegistry

SERVERS: Final = "properties.bootstrap.servers"
_PREFIX: Final = "key_"
PARTITION, OFFSET = "kafka_partition", "kafka_offset"
"""Metadata columns that identify a record of a topic without keys."""


@dataclass(frozen=True, slots=True)
class DiscoveredTable:
    """A declaration of a topic.

    Attributes:
        name: of the table.
        options: of its WITH clause, in order.
        primary_key: empty for a topic without keys.
        doubts: of the topic as a whole.
        decoded: how many records of the sample the declaration decodes.
    """

    name: str
    sample: Sample
    columns: tuple[FoundColumn, ...]
    primary_key: tuple[str, ...]
    options: Mapping[str, str]
    key: Side
    value: Side
    doubts: tuple[str, ...] = ()
    decoded: int | None = None

    @property
    def appends(self) -> bool:
        """Return whether records are events, none of which replaces another."""
        return not self.primary_key


@dataclass(frozen=True, slots=True)
class Cluster:
    """The addresses of the cluster and of the registry in declarations.

    Attributes:
        servers: value of the option, such as a variable.
        properties: client properties as declared, without ``properties.``.
        registry: value of the formats' ``url``; empty without a registry.
    """

    servers: str
    properties: Mapping[str, str] = field(default_factory=dict)
    registry: str = ""


def table_name(topic: str) -> str:
    """Return the name of a table for a topic."""
    return re.sub(r"\W+", "_", topic).strip("_") or "topic"


def check_names(topics: Sequence[str]) -> None:
    """Refuse topics that would be declared as one table.

    Raises:
        DeclarationError: names them.
    """
    named: dict[str, list[str]] = {}
    for topic in topics:
        named.setdefault(table_name(topic), []).append(topic)
    problems = [
        Problem(
            f"topics {', '.join(map(repr, found))} would all be table '{name}': declare all but one of them by hand,"
            " under other names, and discover the others without these"
        )
        for name, found in named.items()
        if len(set(found)) > 1
    ]
    if problems:
        raise DeclarationError(problems)


def discovered(sample: Sample, cluster: Cluster, *, registry: SchemaRegistry | None = None) -> DiscoveredTable:
    """Return the declaration of a topic, of which a sample was taken.

    Args:
        registry: that has the schemas of records which name one.

    Raises:
        EndpointError: the registry does not answer.
    """
    value = side_of(sample.values, side="value", registry=registry)
    key = side_of(sample.keys, side="key", registry=registry)
    name = table_name(sample.topic)
    base = {"topic": sample.topic, SERVERS: cluster.servers}
    base |= {f"properties.{item}": text for item, text in cluster.properties.items()}
    doubts = [*value.doubts]
    if not value.format:
        doubts.append("no record with a value in the sample" if sample.records else "the topic is empty")
        value = Side("raw", (FoundColumn("value", _text()),))
    if FORMATS[value.format].changes:
        return _of_changes(name, sample, base, key, value, cluster, doubts)
    keyless = sum(record.key is None for record in sample.records)
    if not key.format or keyless:
        if keyless and key.format:
            doubts.append(f"{keyless} of {len(sample.records)} records have no key: the topic is read as events")
        return _of_events(name, sample, base, key, value, cluster, doubts)
    return _of_upserts(name, sample, base, key, value, cluster, doubts, registry)


def _text() -> Any:
    from upsert_platform.discovery.shape import STRING

    return STRING


def _of_events(
    name: str, sample: Sample, base: Mapping[str, str], key: Side, value: Side, cluster: Cluster, doubts: list[str]
) -> DiscoveredTable:
    options = {"connector": "kafka", **base, "scan.startup.mode": "earliest-offset", "format": value.format}
    options |= _options(value, cluster, "")
    return DiscoveredTable(name, sample, value.columns, (), options, key, value, tuple(doubts))


def _of_changes(
    name: str,
    sample: Sample,
    base: Mapping[str, str],
    key: Side,
    value: Side,
    cluster: Cluster,
    doubts: list[str],
) -> DiscoveredTable:
    # A key that is one text has a name of ours; fields that a row lacks tell apart what its other fields do not.
    primary = value.primary_key or (() if key.format in ("raw", "csv") else key.names)
    lacking = [item for item in primary if item not in value.names]
    if not primary or lacking:
        primary = ()
        told = f", for no column has {', '.join(map(repr, lacking))} of the key" if lacking else ""
        doubts.append(f"the primary key of the rows is not known{told}: declare PRIMARY KEY (...) NOT ENFORCED")
    options = {"connector": "kafka", **base, "scan.startup.mode": "earliest-offset", "format": value.format}
    options |= _options(value, cluster, "")
    return DiscoveredTable(name, sample, value.columns, primary, options, key, value, tuple(doubts))


def _of_upserts(
    name: str,
    sample: Sample,
    base: Mapping[str, str],
    key: Side,
    value: Side,
    cluster: Cluster,
    doubts: list[str],
    registry: SchemaRegistry | None,
) -> DiscoveredTable:
    if not sample.compacted and not sample.tombstones:
        doubts.append("the topic is not compacted: if each record is an event, declare 'connector' = 'kafka'")
    key = _named(key, value, sample)
    doubts += key.doubts
    shared = [column for column in key.columns if column.name in value.names]
    options = {"connector": "upsert-kafka", **base, "key.format": key.format, "value.format": value.format}
    keyed = key.columns
    if len(shared) == len(key.columns) and _agree(sample, key, value, cluster, registry):
        kinds = {column.name: column for column in keyed}
        columns = tuple(kinds.get(column.name, column) for column in value.columns)
    else:
        if shared:
            keyed = tuple(replace(column, name=f"{_PREFIX}{column.name}") for column in keyed)
            options["key.fields-prefix"] = _PREFIX
            doubts.append("keys and values have fields of one name that differ: those of the key begin with 'key_'")
        options["value.fields-include"] = "EXCEPT_KEY"
        columns = (*keyed, *(column for column in value.columns))
        if len({column.name for column in columns}) < len(columns):
            columns = tuple({column.name: column for column in reversed(columns)}.values())[::-1]
    options |= _options(key, cluster, "key.") | _options(value, cluster, "value.")
    primary = tuple(column.name for column in keyed)
    return DiscoveredTable(name, sample, columns, primary, options, key, value, tuple(doubts))


def _options(side: Side, cluster: Cluster, prefix: str) -> dict[str, str]:
    found = {f"{prefix}{name}": text for name, text in side.options.items()}
    if re.search("registry|confluent", side.format):
        found[f"{prefix}{side.format}.url"] = cluster.registry
    return found


def _named(key: Side, value: Side, sample: Sample) -> Side:
    """A key that is one value without a name has that of the field that always has the same value."""
    if key.format not in ("raw", "csv") or len(key.columns) != 1 or value.format != "json":
        return key
    own = key.columns[0]
    equal: set[str] | None = None
    for record in sample.records:
        if record.key is None or record.value is None:
            continue
        try:
            fields = json.loads(record.value)
            text = record.key.decode("utf-8")
        except ValueError:
            continue
        if isinstance(fields, dict):
            found = {name for name, field in fields.items() if not isinstance(field, bool) and str(field) == text}
            equal = found if equal is None else equal & found
    of_type = {column.name for column in value.columns if column.type == own.type}
    names = [name for name in value.names if name in (equal or set()) and name in of_type]
    if names:
        return replace(key, columns=(replace(own, name=names[0]),))
    taken = own.name in value.names
    return replace(key, columns=(replace(own, name="record_key"),)) if taken else key


def _agree(sample: Sample, key: Side, value: Side, cluster: Cluster, registry: SchemaRegistry | None) -> bool:
    """Return whether values repeat the keys, read as the types of the keys."""
    records = [item for item in sample.records if item.key is not None and item.value is not None]
    if not records or value.format in ("csv", "raw"):
        return False
    columns = [(column.name, column.type) for column in key.columns]
    read = []
    for side, messages in ((key, [item.key for item in records]), (value, [item.value for item in records])):
        options = _options(side, replace(cluster, registry="http://registry"), "")
        decoder = build_decoder(side.format, columns, options, registry=registry)
        decoded = decoder.decode([message for message in messages if message is not None])
        rows = zip(decoded.message.to_pylist(), decoded.rows.to_pylist(), strict=True)
        read.append(dict(rows))
    keys, values = read
    return all(keys[at] == values[at] for at in keys.keys() & values.keys())


def statement(table: DiscoveredTable) -> str:
    """Return the CREATE TABLE of a topic, with a comment per doubt."""
    sample = table.sample
    there = f"{counted(sample.offsets, 'record')} in {counted(sample.partitions, 'partition')}"
    looked = f"{len(sample.records)} of {there} were looked at"
    proven = "" if table.decoded is None else f", {table.decoded} of them decode"
    lines = [f"-- Topic {sample.topic}: {looked}{proven}."]
    lines += [f"-- Doubtful: {doubt}." for doubt in table.doubts]
    lines.append(f"CREATE TABLE {quote_name(table.name)} (")
    body: list[list[str]] = []
    for column in table.columns:
        told = [f"  -- Doubtful: {column.doubt}."] if column.doubt else []
        body.append([*told, f"  {quote_name(column.name)} {column.type}"])
    if table.appends:
        body.append([f"  {quote_name(PARTITION)} INT METADATA FROM 'partition' VIRTUAL"])
        body.append([f"  {quote_name(OFFSET)} BIGINT METADATA FROM 'offset' VIRTUAL"])
    else:
        body.append([f"  PRIMARY KEY ({', '.join(map(quote_name, table.primary_key))}) NOT ENFORCED"])
    lines += joined_lines(body)
    lines += with_clause(table.options)
    return "\n".join(_one_line(line) for line in lines) + "\n"


def with_clause(options: Mapping[str, str]) -> list[str]:
    """Return the lines of a WITH clause."""
    told = [f"  {_quoted(name)} = {_quoted(text)}" for name, text in options.items()]
    return [") WITH (", *(f"{line}," for line in told[:-1]), told[-1], ");"]


def joined_lines(body: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of items that commas part, each with comments before it."""
    lines: list[str] = []
    for place, part in enumerate(body):
        lines += [*part[:-1], part[-1] + ("," if place < len(body) - 1 else "")]
    return lines


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _one_line(line: str) -> str:
    """A line as it is; control characters of names do not end a comment."""
    return "".join(char if char.isprintable() else " " for char in line)
