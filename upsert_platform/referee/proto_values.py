"""Protobuf messages behind a schema's number: fields by their numbers, from the bytes alone."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from upsert_platform.referee.errors import RefereeError, UndecodableError, UnjudgedError
from upsert_platform.referee.kinds import BINARIES, TEXTS, Kind
from upsert_platform.referee.proto_text import Field, Message, ProtoFile, read_proto
from upsert_platform.referee.registries import number_of, registry

_VARINTS = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool")
_FIXED = {"double": "<d", "fixed64": "<q", "sfixed64": "<q", "float": "<f", "fixed32": "<i", "sfixed32": "<i"}
_ROOTS = {
    "INT": ("int32", "uint32", "sint32", "fixed32", "sfixed32"),
    "BIGINT": ("int64", "uint64", "sint64", "fixed64", "sfixed64"),
    "BOOLEAN": ("bool",),
    "FLOAT": ("float",),
    "DOUBLE": ("double",),
    **dict.fromkeys(TEXTS, ("string",)),
    **dict.fromkeys(BINARIES, ("bytes",)),
}
_WIRES = {
    **dict.fromkeys(_VARINTS, 0),
    **{name: 1 if struct.calcsize(form) == 8 else 5 for name, form in _FIXED.items()},
    "string": 2,
    "bytes": 2,
}
_DEEPEST = 90
Raw = tuple[int, Any]
"""How a value stands in the bytes (wire type), and the number or bytes that stand there."""


def proto_registry_decoder(columns: Mapping[str, Kind], options: Mapping[str, str]) -> Callable[[bytes], list[Any]]:
    """A function from a message behind a schema's number and the message's place, to the values of the columns.

    Raises:
        RefereeError: an option is set that the referee does not follow.
    """
    if options.get("proto-registry.read-default-values", "").strip().lower() == "true":
        raise RefereeError("option 'proto-registry.read-default-values' is beyond the referee")
    schema_of = registry(options, "proto-registry", own=("read-default-values", "write-null-string-literal"))
    files: dict[int, ProtoFile] = {}

    def decode(message: bytes) -> list[Any]:
        number = number_of(message)
        path, start = _path(message)
        if number not in files:
            found = schema_of(number)
            if found.kind != "PROTOBUF":
                raise UndecodableError(f"schema {number} is not of Protobuf")
            files[number] = read_proto(found.text, found.imports)
        file = files[number]
        within, chosen = file.roots, None
        for place in path:
            if not 0 <= place < len(within):
                raise UndecodableError(f"no message at the place {path}")
            chosen = within[place]
            within = chosen.nested
        assert chosen is not None
        _check(file, chosen, message[start:], 0)
        return _row(file, chosen, message[start:], columns)

    return decode


def _path(message: bytes) -> tuple[list[int], int]:
    """Return the path of the message in the file, and the start of its bytes."""
    count, at = _signed(message, 5)
    if not 0 <= count <= 100:
        raise UndecodableError("the place of the message is broken")
    path = []
    for _ in range(count):
        place, at = _signed(message, at)
        path.append(place)
    return path or [0], at


def _signed(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return (number >> 1) ^ -(number & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place in range(10):
        if at >= len(data):
            raise UndecodableError("the message ends too early")
        number |= (data[at] & 0x7F) << (7 * place)
        at += 1
        if data[at - 1] < 0x80:
            if number >> 64:
                raise UnjudgedError("a number of more bits than readers look at")
            return number, at
    raise UndecodableError("a number of more than ten bytes")


def _parts(data: bytes) -> Iterator[tuple[int, Raw]]:
    """Numbers of fields with what stands behind them."""
    at = 0
    while at < len(data):
        begin = at
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if at - begin > 5 or tag >> 32:
            raise UnjudgedError("a tag of more bits than readers look at")
        if not 0 < number < 1 << 29 or wire in (6, 7):
            raise UndecodableError(f"no field has the tag {tag}")
        if wire == 0:
            value, at = _varint(data, at)
            yield number, (wire, value)
            continue
        if wire in (3, 4):
            raise UnjudgedError("a group")
        size = {1: 8, 5: 4}.get(wire, 0)
        if wire == 2:
            size, at = _varint(data, at)
        if at + size > len(data):
            raise UndecodableError("the message ends too early")
        yield number, (wire, data[at : at + size])
        at += size


def _check(file: ProtoFile, message: Message, data: bytes, depth: int) -> None:
    """Goes through all of a message: what no column asks for has to be readable, too."""
    if depth > _DEEPEST:
        raise UnjudgedError("messages nested too deeply for the referee")
    for number, raw in _parts(data):
        field = message.fields.get(number)
        if field is None or raw[0] != 2:
            continue
        inner = [(field.type, raw)]
        if field.key:
            entry = _entry(raw)
            inner = [(type_, entry[at]) for at, type_ in ((1, field.key), (2, field.type)) if at in entry]
        for type_, (wire, value) in inner:
            full = file.resolve(type_, message.name)
            if type_ == "string" and wire == 2:
                _text(value)
            elif full in file.messages and wire == 2:
                _check(file, file.messages[full], value, depth + 1)
            elif not full and type_ not in _WIRES and wire == 2:
                _check_unknown(value)
            elif field.repeated and not field.key:
                list(_unpacked(type_, (wire, value), full in file.enums))


def _check_unknown(data: bytes) -> None:
    """A message of a file that the registry does not keep, such as Google's own: nothing is known of its fields."""
    try:
        for wire, value in (raw for _, raw in _parts(data)):
            if wire == 2:
                _text(value)
    except UndecodableError as error:
        raise UnjudgedError(str(error)) from None


def _row(file: ProtoFile, message: Message, data: bytes, columns: Mapping[str, Kind]) -> list[Any]:
    held: dict[int, list[Raw]] = {}
    for number, raw in _parts(data):
        field = message.fields.get(number)
        if field is None:
            continue
        if field.oneof:
            for other, beside in message.fields.items():
                if beside.oneof == field.oneof and other != number:
                    held.pop(other, None)
        held.setdefault(number, []).append(raw)
    numbers = {field.name: number for number, field in message.fields.items()}
    row: list[Any] = []
    for name, kind in columns.items():
        if name in numbers:
            number = numbers[name]
            row.append(_column(file, message, message.fields[number], held.get(number, []), kind))
        elif kind.nullable:
            row.append(None)
        else:
            raise UnjudgedError(f"no field '{name}', which may not be null")
    return row


def _column(file: ProtoFile, message: Message, field: Field, raws: list[Raw], kind: Kind) -> Any:
    full = file.resolve(field.type, message.name)

    def one(type_: str, raw: Raw | None, inner: Kind) -> Any:
        return _single(file, message, type_, raw, inner)

    if field.key:
        if kind.root != "MAP":
            raise UnjudgedError(f"a map for a {kind.root}")
        (_, key), (_, item) = kind.parts
        pairs: dict[Any, Any] = {}
        for raw in raws:
            entry = _entry(raw)
            pairs[one(field.key, entry.get(1), key)] = one(field.type, entry.get(2), item)
        return list(pairs.items()) or None
    if field.repeated:
        if kind.root != "ARRAY":
            raise UnjudgedError(f"a repeated field for a {kind.root}")
        element = kind.parts[0][1]
        items = [
            one(field.type, raw, element) for whole in raws for raw in _unpacked(field.type, whole, full in file.enums)
        ]
        return items or None
    is_message = full in file.messages
    if len(raws) > 1 and is_message:
        raise UnjudgedError("a message that stands twice, and is merged")
    if not raws and (field.presence or is_message):
        return None
    return one(field.type, raws[-1] if raws else None, kind)


def _unpacked(type_: str, raw: Raw, is_enum: bool) -> Iterator[Raw]:
    """The items of a field with any number of values, which may stand in one piece."""
    wire, data = raw
    if wire != 2 or type_ in ("string", "bytes"):
        yield raw
    elif type_ in _FIXED:
        size = struct.calcsize(_FIXED[type_])
        if len(data) % size:
            raise UndecodableError("numbers that end too early")
        yield from ((1 if size == 8 else 5, data[at : at + size]) for at in range(0, len(data), size))
    elif type_ in _VARINTS or is_enum:
        at = 0
        while at < len(data):
            value, at = _varint(data, at)
            yield 0, value
    else:
        yield raw


def _single(file: ProtoFile, message: Message, type_: str, raw: Raw | None, kind: Kind) -> Any:
    """A value of a field, of its default where there are no bytes."""
    if type_ in _VARINTS or type_ in _FIXED or type_ in ("string", "bytes"):
        if type_ not in _ROOTS.get(kind.root, ()):
            raise UnjudgedError(f"{type_} for a {kind.root}")
        return _scalar(type_, raw)
    full = file.resolve(type_, message.name)
    if full in file.messages and kind.root == "ROW":
        return _row(file, file.messages[full], b"" if raw is None else _bytes(raw), dict(kind.parts))
    if full in file.enums and (kind.root in TEXTS or kind.root == "INT"):
        number = 0 if raw is None else _scalar("int32", raw)
        if number not in file.enums[full]:
            raise UnjudgedError(f"{number} is not a number of enum {full}")
        return number if kind.root == "INT" else file.enums[full][number]
    raise UnjudgedError(f"{type_} for a {kind.root}")


def _scalar(type_: str, raw: Raw | None) -> Any:
    if raw is None:
        empty: dict[str, Any] = {"string": "", "bytes": b"", "bool": False, "float": 0.0, "double": 0.0}
        return empty.get(type_, 0)
    wire, value = raw
    if wire != _WIRES[type_]:
        raise UnjudgedError(f"{type_} in another form")
    if type_ == "string":
        return _text(value)
    if type_ == "bytes":
        return value
    if type_ in _FIXED:
        return struct.unpack(_FIXED[type_], value)[0]
    if type_ == "bool":
        return value != 0
    bits = 32 if type_.endswith("32") else 64
    value &= (1 << bits) - 1
    if type_.startswith("sint"):
        return (value >> 1) ^ -(value & 1)
    return value - (1 << bits) if value >> (bits - 1) else value


def _entry(raw: Raw) -> dict[int, Raw]:
    """Key and value of a map's entry, by 1 and 2."""
    entry = dict(_parts(_bytes(raw)))
    if not entry.keys() <= {1, 2}:
        raise UnjudgedError("an entry of a map with more than key and value, which not every reader takes")
    return entry


def _bytes(raw: Raw) -> bytes:
    wire, value = raw
    if wire != 2:
        raise UnjudgedError("a message in another form")
    return bytes(value)


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise UnjudgedError("a text that is not UTF-8") from None
