"""Resolution of an Avro writer's schema against the declared columns.

Follows the schema resolution of the Avro specification, with two liberties that keep values right where Flink's reader
would take the number alone: the writer's unit of a time or timestamp counts, and so does its scale of a decimal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from upsert_platform.core.types import BYTES, TEXTS, LogicalType, RowField, TypeName
from upsert_platform.formats.avro.schema import key_and_value
from upsert_platform.formats.base import Columns

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_STAMPS: Final = (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ)
_ACCEPTED: Final[Mapping[TypeName, tuple[str, ...]]] = {
    TypeName.BOOLEAN: ("boolean",),
    TypeName.TINYINT: ("int",),
    TypeName.SMALLINT: ("int",),
    TypeName.INT: ("int",),
    TypeName.BIGINT: ("int", "long"),
    TypeName.FLOAT: ("int", "long", "float"),
    TypeName.DOUBLE: ("int", "long", "float", "double"),
    TypeName.DECIMAL: ("bytes", "fixed"),
    TypeName.DATE: ("int",),
    TypeName.TIME: ("int", "long"),
    TypeName.TIMESTAMP: ("long",),
    TypeName.TIMESTAMP_LTZ: ("long",),
    TypeName.ARRAY: ("array",),
    TypeName.MAP: ("map",),
    TypeName.MULTISET: ("map",),
    TypeName.ROW: ("record",),
    **dict.fromkeys(TEXTS, ("string", "bytes", "enum")),
    **dict.fromkeys(BYTES, ("bytes", "string", "fixed")),
}


_CONNECT_MICROS: Final = ("io.debezium.time.MicroTimestamp", "io.debezium.time.MicroTime")
_CONNECT_NANOS: Final = ("io.debezium.time.NanoTimestamp", "io.debezium.time.NanoTime")


MOST_DIGITS: Final = 1_000
"""Fraction digits of a writer's decimal, at most; a declared column has 38."""
_MOST_NODES: Final = 100_000
_DEEPEST: Final = 100
_SHOWN: Final = 200
"""Characters of a schema that a message repeats."""


class ResolutionError(ValueError):
    """Data of the writer's schema cannot be read as the declared columns."""


class SchemaBoundError(ResolutionError):
    """The writer's schema is larger than any that is read; no part of it is."""


@dataclass(frozen=True, slots=True)
class Node:
    """One value in the writer's order of bytes.

    Attributes:
        kind: the writer's Avro type.
        target: the declared type, or None when the value is passed over.
        children: fields of a record, branches of a union, the items of an array or map.
        places: of a record, for each field the place of its column, or None.
        size: of a fixed.
        symbols: of an enum.
        scale: of a decimal, the writer's.
        unit: nanoseconds that one count of a time or timestamp stands for.
        name: full name of a record, fixed or enum.
        problem: why a union branch cannot be read as the target; raised when it is met.
    """

    kind: str
    target: LogicalType | None = None
    children: tuple[Node, ...] = ()
    places: tuple[int | None, ...] = ()
    size: int = 0
    symbols: tuple[str, ...] = ()
    scale: int = 0
    unit: int = 1_000_000
    name: str = ""
    problem: str = ""


@dataclass
class _Resolver:
    """Makes nodes of a schema. A named type is resolved once per target, however often the schema refers to it."""

    millis_always: bool
    named: dict[str, Any] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    resolved: dict[tuple[str, int], tuple[Node, LogicalType | None]] = field(default_factory=dict)
    depth: int = 0
    visited: int = 0

    def node(self, schema: Any, target: LogicalType | None, space: str) -> Node:
        self.visited += 1
        if self.visited > _MOST_NODES:
            raise SchemaBoundError(f"the writer's schema has more than {_MOST_NODES} types")
        self.depth += 1
        try:
            if self.depth > _DEEPEST:
                raise SchemaBoundError(f"the writer's schema nests types deeper than {_DEEPEST} levels")
            return self._node(schema, target, space)
        finally:
            self.depth -= 1

    def _node(self, schema: Any, target: LogicalType | None, space: str) -> Node:
        if isinstance(schema, str) and schema not in PRIMITIVES:
            name = _full_name(schema, space)
            if name not in self.named:
                raise ResolutionError(f"the writer's schema refers to an unknown name '{shortened(schema)}'")
            key = (name, id(target))
            if key not in self.resolved:
                defined, space = self.named[name]
                self.resolved[key] = (self.node(defined, target, space), target)  # kept, so that its id stays its own
            return self.resolved[key][0]
        if isinstance(schema, list):
            return Node("union", target, children=tuple(self._branch(branch, target, space) for branch in schema))
        described: Mapping[str, Any] = schema if isinstance(schema, dict) else {"type": schema}
        kind = described["type"]
        if isinstance(kind, (dict, list)):
            return self.node(kind, target, space)
        if not isinstance(kind, str):
            raise ResolutionError(f"the writer's schema has {shortened(repr(kind))} where a type is expected")
        if kind not in (*PRIMITIVES, "record", "error", "array", "map", "fixed", "enum"):
            return self.node(kind, target, space)
        kind = "record" if kind == "error" else kind
        named = ""
        if "name" in described and kind in ("record", "fixed", "enum"):
            space = described.get("namespace", space) if "." not in described["name"] else _space(described["name"])
            named = _full_name(described["name"], space)
            self.named[named] = (schema, space)
        if target is not None and kind != "null" and kind not in _ACCEPTED[target.name]:
            raise ResolutionError(f"the writer's {kind} cannot be read as {target}")
        match kind:
            case "record":
                return self._record(described, target, space)
            case "array":
                return Node(kind, target, children=(self.node(described["items"], target and target.element, space),))
            case "map":
                value = key_and_value(target)[1] if target is not None else None
                return Node(kind, target, children=(self.node(described["values"], value, space),))
            case "fixed":
                size = described["size"]
                if not isinstance(size, int) or not 0 <= size < 1 << 31:
                    raise ResolutionError(f"the writer's fixed '{shortened(named)}' has no size from 0 to 2147483647")
                return Node(kind, target, size=size, scale=_scale(described, target), name=named)
            case "enum":
                symbols = described["symbols"]
                if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
                    raise ResolutionError(f"the writer's enum '{shortened(named)}' has no list of symbols")
                return Node(kind, target, symbols=tuple(symbols), name=named)
        return Node(kind, target, scale=_scale(described, target), unit=self._unit(described, kind))

    def _branch(self, schema: Any, target: LogicalType | None, space: str) -> Node:
        try:
            return self.node(schema, target, space)
        except SchemaBoundError:
            raise
        except ResolutionError as error:
            return Node(self.node(schema, None, space).kind, problem=str(error))

    def _record(self, described: Mapping[str, Any], target: LogicalType | None, space: str) -> Node:
        name = _full_name(described.get("name", ""), space)
        if name in self.open:
            raise ResolutionError(f"the writer's record '{shortened(name)}' contains itself")
        self.open.add(name)
        try:
            return self._fields(described, target, space, name)
        finally:
            self.open.discard(name)

    def _fields(self, described: Mapping[str, Any], target: LogicalType | None, space: str, name: str) -> Node:
        wanted = {item.name: place for place, item in enumerate(target.fields)} if target is not None else {}
        children: list[Node] = []
        places: list[int | None] = []
        for item in described["fields"]:
            place = wanted.pop(item["name"], None)
            assert target is None or place is None or target.fields[place]
            kind = target.fields[place].type if target is not None and place is not None else None
            try:
                children.append(self.node(item["type"], kind, space))
            except SchemaBoundError:
                raise
            except ResolutionError as error:
                raise ResolutionError(f"field {shortened(str(item['name']))}: {error}") from None
            places.append(place)
        missing = [
            one for one, place in wanted.items() if target is not None and not target.fields[place].type.nullable
        ]
        if missing:
            raise ResolutionError(f"the writer has no field {', '.join(missing)}, which is NOT NULL")
        return Node("record", target, children=tuple(children), places=tuple(places), name=name)

    def _unit(self, described: Mapping[str, Any], kind: str) -> int:
        if self.millis_always:
            return 1_000_000
        logical = str(described.get("logicalType", ""))
        semantic = str(described.get("connect.name", ""))  # Debezium marks plain longs so
        if logical.endswith("-micros") or semantic in _CONNECT_MICROS:
            return 1000
        return 1 if kind == "long" and (logical.endswith("-nanos") or semantic in _CONNECT_NANOS) else 1_000_000


def resolve(schema: Any, columns: Columns, *, known: Sequence[Any] = (), millis_always: bool = False) -> Node:
    """Resolves a writer's schema against declared columns.

    Args:
        schema: the writer's schema as JSON data; a record.
        known: schemas whose names it refers to, those first that others need.
        millis_always: read every time and timestamp as milliseconds, whatever the schema says: format ``avro`` of
            Flink writes so.

    Raises:
        ResolutionError: they do not fit; the message names the field.
    """
    target = LogicalType(TypeName.ROW, fields=tuple(RowField(name, logical) for name, logical in columns))
    resolver = _Resolver(millis_always)
    try:
        for one in known:
            resolver.node(one, None, "")
        node = resolver.node(schema, target, "")
    except (KeyError, TypeError, AttributeError) as error:
        raise ResolutionError(f"the writer's schema is not an Avro schema ({shortened(str(error))})") from None
    if node.kind != "record":
        raise ResolutionError(f"the writer's schema is a {node.kind}, not a record")
    return node


def read_schema(text: str) -> Any:
    """Return the schema that a text holds, as JSON data.

    Raises:
        ResolutionError: the text is not JSON, or nested too deep to be a schema.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise SchemaBoundError("the writer's schema nests types too deep") from None
    except ValueError as error:
        raise ResolutionError(f"the writer's schema is not JSON ({shortened(str(error))})") from None


def shortened(text: str) -> str:
    """Return the beginning of what a schema says, for messages: each record that is set aside keeps one."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _scale(described: Mapping[str, Any], target: LogicalType | None) -> int:
    if described.get("logicalType") == "decimal":
        scale = described.get("scale", 0)
        if not isinstance(scale, int) or not 0 <= scale <= MOST_DIGITS:
            raise ResolutionError(
                f"the writer's decimal has a scale of {shortened(repr(scale))}, not 0 to {MOST_DIGITS}"
            )
        return scale
    return target.scale or 0 if target is not None else 0


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _space(name: str) -> str:
    return name.rpartition(".")[0]


def target_names(node: Node) -> Sequence[str]:
    """Names of the fields of a record's target."""
    assert node.target is not None
    return [item.name for item in node.target.fields]
