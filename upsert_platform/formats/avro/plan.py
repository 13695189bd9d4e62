"""How to read what an Avro writer wrote into declared columns: the writer's schema resolved against their types.

Follows the schema resolution of the Avro specification, with two liberties that keep values right where Flink's reader
would take the number alone: the writer's unit of a time or timestamp counts, and so does its scale of a decimal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from upsert_platform.formats.avro.schema import CHARACTERS, key_and_value
from upsert_platform.formats.base import Columns
from upsert_platform.types import LogicalType, RowField, TypeName

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_BINARY: Final = (TypeName.BINARY, TypeName.VARBINARY, TypeName.BYTES)
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
    **dict.fromkeys(CHARACTERS, ("string", "bytes", "enum")),
    **dict.fromkeys(_BINARY, ("bytes", "string", "fixed")),
}


_CONNECT_MICROS: Final = ("io.debezium.time.MicroTimestamp", "io.debezium.time.MicroTime")
_CONNECT_NANOS: Final = ("io.debezium.time.NanoTimestamp", "io.debezium.time.NanoTime")


class ResolutionError(ValueError):
    """What the writer wrote cannot be read as the declared columns."""


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
    millis_always: bool
    named: dict[str, Any] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)

    def node(self, schema: Any, target: LogicalType | None, space: str) -> Node:
        if isinstance(schema, str) and schema not in PRIMITIVES:
            name = _full_name(schema, space)
            if name not in self.named:
                raise ResolutionError(f"the writer's schema refers to an unknown name '{schema}'")
            defined, space = self.named[name]
            return self.node(defined, target, space)
        if isinstance(schema, list):
            return Node("union", target, children=tuple(self._branch(branch, target, space) for branch in schema))
        described: Mapping[str, Any] = schema if isinstance(schema, dict) else {"type": schema}
        kind = described["type"]
        if isinstance(kind, (dict, list)):
            return self.node(kind, target, space)
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
                return Node(kind, target, size=int(described["size"]), scale=_scale(described, target), name=named)
            case "enum":
                return Node(kind, target, symbols=tuple(described["symbols"]), name=named)
        return Node(kind, target, scale=_scale(described, target), unit=self._unit(described, kind))

    def _branch(self, schema: Any, target: LogicalType | None, space: str) -> Node:
        try:
            return self.node(schema, target, space)
        except ResolutionError as error:
            return Node(self.node(schema, None, space).kind, problem=str(error))

    def _record(self, described: Mapping[str, Any], target: LogicalType | None, space: str) -> Node:
        name = _full_name(described.get("name", ""), space)
        if name in self.open:
            raise ResolutionError(f"the writer's record '{name}' contains itself")
        self.open.add(name)
        wanted = {item.name: place for place, item in enumerate(target.fields)} if target is not None else {}
        children: list[Node] = []
        places: list[int | None] = []
        for item in described["fields"]:
            place = wanted.pop(item["name"], None)
            assert target is None or place is None or target.fields[place]
            kind = target.fields[place].type if target is not None and place is not None else None
            try:
                children.append(self.node(item["type"], kind, space))
            except ResolutionError as error:
                raise ResolutionError(f"field {item['name']}: {error}") from None
            places.append(place)
        self.open.discard(name)
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
    except (KeyError, TypeError) as error:
        raise ResolutionError(f"the writer's schema is not an Avro schema ({error})") from None
    if node.kind != "record":
        raise ResolutionError(f"the writer's schema is a {node.kind}, not a record")
    return node


def _scale(described: Mapping[str, Any], target: LogicalType | None) -> int:
    if described.get("logicalType") == "decimal":
        return int(described.get("scale", 0))
    return target.scale or 0 if target is not None else 0


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _space(name: str) -> str:
    return name.rpartition(".")[0]


def target_names(node: Node) -> Sequence[str]:
    """Names of the fields of a record's target."""
    assert node.target is not None
    return [item.name for item in node.target.fields]
