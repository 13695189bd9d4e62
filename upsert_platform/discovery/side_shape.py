"""One side of a sample, keys or values: the format that reads it, and its columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.discovery.avro_shape import NoTypeError, avro_columns
from upsert_platform.discovery.change_shape import change_side
from upsert_platform.discovery.json_shape import columns_of, texts_in
from upsert_platform.discovery.shape import BIGINT, BYTES, STRING, FoundColumn, Side
from upsert_platform.discovery.texts import SQL, is_integer, standard_of, type_of_texts
from upsert_platform.formats.factory import build_decoder
from upsert_platform.formats.json.tree import JsonSyntaxError, Tree, parse_tree
from upsert_platform.formats.registered.registry import RegisteredSchema, SchemaNotFoundError

if TYPE_CHECKING:
    from upsert_platform.formats.registered.registry import Kind, SchemaRegistry

WhichSide = Literal["key", "value"]
_FRAME: Final = 5
_MOSTLY: Final = 0.9
"""Share of a sample from which on the rest counts as broken, and not as another kind of record."""
_DELIMITERS: Final = (",", ";", "\t", "|")
_KINDS: Final[tuple[Kind, ...]] = ("AVRO", "JSON", "PROTOBUF")
_REGISTERED: Final = {"AVRO": "avro-confluent", "JSON": "json-registry", "PROTOBUF": "proto-registry"}
_WIDTHS: Final = {8: TypeName.BIGINT, 4: TypeName.INT}
NO_REGISTRY: Final = "begins as records of a schema registry do; name it with --registry"


def side_of(messages: Sequence[bytes], *, side: WhichSide, registry: SchemaRegistry | None = None) -> Side:
    """Return the format and columns that read messages.

    Args:
        messages: keys or values of a sample, without nulls; none give a side without a format.
        registry: that has the schemas of messages which name one.

    Raises:
        EndpointError: the registry does not answer.
    """
    if not messages:
        return Side("")
    if all(len(message) > _FRAME and message[0] == 0 for message in messages) and not _is_number(messages):
        found = _registered(messages, side=side, registry=registry)
    else:
        found = _of_text(messages, side=side) or _binary(messages, side=side)
    return _readable(found, messages, registry=registry)


def _is_number(messages: Sequence[bytes]) -> bool:
    return {len(message) for message in messages} == {8}


def _of_text(messages: Sequence[bytes], *, side: WhichSide) -> Side | None:
    """JSON, lines of fields, or plain text; None where messages are no text."""
    texts = [_text(message) for message in messages]
    if any(text is None for text in texts):
        return None
    lines = [text for text in texts if text is not None]
    trees = [tree for message in messages if (tree := _object(message)) is not None]
    if len(trees) >= _MOSTLY * len(messages):
        found = _json(trees, side=side)
        left = len(messages) - len(trees)
        return found.doubting(f"{left} of {len(messages)} {side}s are no JSON objects: quarantine") if left else found
    mixed = f"{len(trees)} of {len(messages)} {side}s are JSON objects" if trees else ""
    found = _fields(lines, side=side) or _single(lines, side=side)
    return found.doubting(mixed) if mixed else found


def _text(message: bytes) -> str | None:
    try:
        text = message.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if all(char.isprintable() or char in "\t\r\n" for char in text) else None


def _object(message: bytes) -> Tree | None:
    try:
        tree = parse_tree(message)
    except JsonSyntaxError:
        return None
    items = tree if isinstance(tree, list) else [tree]
    return tree if items and all(isinstance(item, tuple) for item in items) else None


def _json(trees: Sequence[Tree], *, side: WhichSide, name: str = "json") -> Side:
    changes = change_side(trees) if side == "value" and name == "json" else None
    if changes is not None:
        return changes
    objects = [item for tree in trees for item in (tree if isinstance(tree, list) else [tree])]
    if side == "key":
        objects = [_payload(tree) for tree in objects]
    spelled = standard_of(text for tree in objects for text in texts_in(tree))
    columns, doubts = columns_of(objects, standard=spelled)
    if not columns:
        return Side("raw", (FoundColumn(side, STRING),), doubts=(*doubts, "objects without a member"))
    options = {} if spelled == SQL else {f"{name}.timestamp-format.standard": spelled}
    return Side(name, columns, options, tuple(doubts))


def _payload(tree: Tree) -> Tree:
    """The members of a key that Kafka Connect wrote with its schema."""
    members = dict(tree)
    inner = members.get("payload")
    return inner if set(members) == {"schema", "payload"} and isinstance(inner, tuple) else tree


def _fields(lines: Sequence[str], *, side: WhichSide) -> Side | None:
    """Lines of several fields with one delimiter; None where they are none."""
    lines = [line.rstrip("\r\n") for line in lines]
    if any("\r" in line or "\n" in line for line in lines):
        return None  # a record ends there
    for delimiter in _DELIMITERS:
        rows = [line.split(delimiter) for line in lines]
        count = len(rows[0])
        if count < 2 or any(len(row) != count for row in rows) or any('"' in line for line in lines):
            continue
        if side == "value" and any(" " in cell.strip() for row in rows for cell in row) and delimiter == ",":
            continue  # a sentence with commas
        columns = tuple(
            FoundColumn(f"{side}_{place}", _cell_type([row[place - 1] for row in rows]), "without a name in the topic")
            for place in range(1, count + 1)
        )
        options = {} if delimiter == "," else {"csv.field-delimiter": "\\t" if delimiter == "\t" else delimiter}
        return Side("csv", columns, options)
    return None


def _cell_type(cells: Sequence[str]) -> LogicalType:
    if all(is_integer(cell) for cell in cells) and all(len(cell) < 19 for cell in cells):
        return BIGINT
    return type_of_texts(cells, standard=SQL, timestamps=False).type


def _single(lines: Sequence[str], *, side: WhichSide) -> Side:
    if side == "key" and all(is_integer(line) and len(line) < 19 for line in lines):
        return Side("csv", (FoundColumn(side, BIGINT),))
    return Side("raw", (FoundColumn(side, STRING),))


def _binary(messages: Sequence[bytes], *, side: WhichSide) -> Side:
    widths = {len(message) for message in messages}
    if len(widths) == 1 and (width := next(iter(widths))) in _WIDTHS:
        doubt = f"{width} bytes each: taken for a number, the highest byte first"
        return Side("raw", (FoundColumn(side, LogicalType(_WIDTHS[width]), doubt),))
    return Side("raw", (FoundColumn(side, BYTES, "bytes of a format that is not known"),))


def _registered(messages: Sequence[bytes], *, side: WhichSide, registry: SchemaRegistry | None) -> Side:
    if registry is None:
        return Side("raw", (FoundColumn(side, BYTES, NO_REGISTRY),))
    ids = sorted({int.from_bytes(message[1:_FRAME], "big") for message in messages}, reverse=True)
    known = [found for schema_id in ids if (found := _schema(registry, schema_id)) is not None]
    if not known:
        return Side("raw", (FoundColumn(side, BYTES, f"the registry has no schema {', '.join(map(str, ids[:5]))}"),))
    kind = known[0][0]
    schemas = [schema for other, schema in known if other == kind]
    doubts = [] if len(schemas) == len(ids) else ["records of further schemas, which are not of one kind or not known"]
    try:
        if kind == "JSON":
            trees = [tree for message in messages if (tree := _object(message[_FRAME:])) is not None]
            return _json(trees, side=side, name=_REGISTERED[kind]).doubting(*doubts)
        if kind == "AVRO":
            return _avro(schemas, doubts)
        return _proto(schemas, messages, doubts)
    except (NoTypeError, ValueError) as error:
        return Side("raw", (FoundColumn(side, BYTES, f"a registered schema that gives no columns: {error}"),))


def _schema(registry: SchemaRegistry, schema_id: int) -> tuple[Kind, RegisteredSchema] | None:
    for kind in _KINDS:
        try:
            return kind, registry.schema(schema_id, kind=kind)
        except SchemaNotFoundError:
            continue
    return None


def _avro(schemas: Sequence[RegisteredSchema], doubts: Sequence[str]) -> Side:
    image = "after" if _is_change(schemas[0]) else ""
    columns, told = _united([avro_columns(schema, image=image) for schema in schemas])
    name = "debezium-avro-confluent" if image else "avro-confluent"
    return Side(name, columns, doubts=(*doubts, *told))


def _is_change(schema: RegisteredSchema) -> bool:
    try:
        return {"before", "after", "op"} <= set(names_of(schema))
    except NoTypeError:
        return False


def names_of(schema: RegisteredSchema) -> list[str]:
    """Return the names of the fields of a record's schema."""
    import json

    root = json.loads(schema.text)
    return [item["name"] for item in root.get("fields", ())] if isinstance(root, dict) else []


def _proto(schemas: Sequence[RegisteredSchema], messages: Sequence[bytes], doubts: Sequence[str]) -> Side:
    from upsert_platform.discovery.proto_shape import proto_columns
    from upsert_platform.formats.registered.framing import HEADER
    from upsert_platform.formats.registered.proto import path_of_message
    from upsert_platform.formats.registered.proto_schema import ProtoFile

    path = path_of_message(messages[-1][HEADER:])
    columns, told = _united([proto_columns(ProtoFile(schema).at(path).DESCRIPTOR) for schema in schemas])
    return Side("proto-registry", columns, doubts=(*doubts, *told))


def _united(found: Sequence[tuple[tuple[FoundColumn, ...], list[str]]]) -> tuple[tuple[FoundColumn, ...], list[str]]:
    """Columns of the newest schema, and those that only earlier ones have."""
    columns: dict[str, FoundColumn] = {}
    for some, _ in found:
        for column in some:
            columns.setdefault(column.name, column)
    return tuple(columns.values()), found[0][1]


def _readable(found: Side, messages: Sequence[bytes], *, registry: SchemaRegistry | None) -> Side:
    """The side with a wider type for each column that does not read every message."""
    if found.format in ("raw", "csv") or not _refused(found, found.columns, messages, registry):
        return found
    columns = []
    least = _refused(found, (FoundColumn(_UNUSED, STRING),), messages, registry)

    def reads(column: FoundColumn) -> bool:
        return _refused(found, (column,), messages, registry) <= least

    doubts = list(found.doubts)
    for column in found.columns:
        if reads(column):
            columns.append(column)
        elif reads(wider := FoundColumn(column.name, STRING, f"not every value is read as {column.type}")):
            columns.append(wider)
        else:
            doubts.append(
                f"field '{column.name}' is left out: its values are read neither as {column.type} nor as text"
            )
    return Side(found.format, tuple(columns), found.options, tuple(doubts), found.primary_key)


_UNUSED: Final = "__discover_no_such_field"


def _refused(
    found: Side, columns: Sequence[FoundColumn], messages: Sequence[bytes], registry: SchemaRegistry | None
) -> int:
    """Return the number of messages that some columns do not read."""
    declared = [(column.name, column.type) for column in columns]
    options = dict(found.options)
    if registry is not None and re.search("registry|confluent", found.format):
        options[f"{found.format}.url"] = "http://registry"  # the registry that is given is asked
    return len(build_decoder(found.format, declared, options, registry=registry).decode(messages).errors)
