"""Messages of proto files that a registry keeps, and the proto file of a table's columns."""

from __future__ import annotations

import base64
import binascii
import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.formats.base import Columns
from upsert_platform.formats.registered.proto_text import parse_proto
from upsert_platform.formats.registered.registry import RegisteredSchema

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

ROOT: Final = "registered.proto"
MESSAGE: Final = "Record"
"""Name of the message of derived proto files."""
_SHOWN: Final = 200
_GOOGLE: Final = (
    "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
    "wrappers",
)  # fmt: skip
_OPTIONS_ALONE: Final = ("confluent/meta.proto", "gogoproto/gogo.proto", "validate/validate.proto")
"""Files that declare options of fields, which change nothing here; registries do not keep them."""
_SCALARS: Final[Mapping[TypeName, str]] = {
    TypeName.CHAR: "string",
    TypeName.VARCHAR: "string",
    TypeName.STRING: "string",
    TypeName.BINARY: "bytes",
    TypeName.VARBINARY: "bytes",
    TypeName.BYTES: "bytes",
    TypeName.BOOLEAN: "bool",
    TypeName.INT: "int32",
    TypeName.BIGINT: "int64",
    TypeName.FLOAT: "float",
    TypeName.DOUBLE: "double",
}
_KEYS: Final = ("string", "bool", "int32", "int64")


class ProtoSchemaError(ValueError):
    """A proto file of the registry cannot be used, or columns have no proto file."""


class ProtoFile:
    """A proto file with all that it imports.

    Args:
        schema: text, or base64 of the compiled file; references by the path that they are imported by.

    Raises:
        ProtoSchemaError, ProtoTextError: it is not a proto file, or imports one that is not there.
    """

    def __init__(self, schema: RegisteredSchema) -> None:
        try:
            self._read(schema)
        except RecursionError:
            raise ProtoSchemaError("the proto file nests messages too deep") from None
        except (KeyError, TypeError, AttributeError) as error:
            raise ProtoSchemaError(f"the proto file cannot be compiled: {str(error)[:_SHOWN]}") from None

    def _read(self, schema: RegisteredSchema) -> None:
        from google.protobuf.descriptor_pool import DescriptorPool

        given = dict(zip(schema.names, schema.references, strict=True))
        self._pool = DescriptorPool()
        self._added: set[str] = set()
        self._given = {name: _compiled(text, name) for name, text in given.items()}
        root = _compiled(schema.text, ROOT)
        self._add(root)
        self._root = self._pool.FindFileByName(ROOT)

    def at(self, path: Sequence[int]) -> Any:
        """The class of a message, by its place among those of the file and, within one, among the nested ones.

        Raises:
            ProtoSchemaError: there is none at this place.
        """
        from google.protobuf.message_factory import GetMessageClass

        found: Any = None
        within: Any = list(self._root.message_types_by_name.values())
        for index in path:
            if not 0 <= index < len(within):
                raise ProtoSchemaError(f"the proto file has no message at the place {list(path)}")
            found = within[index]
            within = found.nested_types
        return GetMessageClass(found)

    def path_of(self, name: str | None) -> tuple[int, ...]:
        """The place of a message, by its full name; of the first message if None.

        Raises:
            ProtoSchemaError: there is no such message.
        """
        known = {message.full_name: path for message, path in self._messages()}
        if not known:
            raise ProtoSchemaError("the proto file has no message")
        if name is None:
            return (0,)
        if name not in known:
            raise ProtoSchemaError(f"the proto file has no message '{name}', but {', '.join(known)}")
        return known[name]

    def _messages(self) -> Iterator[tuple[Descriptor, tuple[int, ...]]]:
        def below(messages: Any, path: tuple[int, ...]) -> Iterator[tuple[Descriptor, tuple[int, ...]]]:
            for index, message in enumerate(messages):
                yield message, (*path, index)
                yield from below(message.nested_types, (*path, index))

        yield from below(self._root.message_types_by_name.values(), ())

    def _add(self, file: FileDescriptorProto) -> None:
        self._added.add(file.name)
        for name in file.dependency:
            if name not in self._added:
                self._add(self._imported(name))
        try:
            self._pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            raise ProtoSchemaError(f"the proto file cannot be compiled: {error}") from None

    def _imported(self, name: str) -> FileDescriptorProto:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        if name in self._given:
            return self._given[name]
        short = name.removeprefix("google/protobuf/").removesuffix(".proto")
        if name == f"google/protobuf/{short}.proto" and short in _GOOGLE:
            module = importlib.import_module(f"google.protobuf.{short}_pb2")
            return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        if name in _OPTIONS_ALONE:
            return FileDescriptorProto(name=name)
        raise ProtoSchemaError(f"the proto file imports '{name}', which it is not registered with as a reference")


def _compiled(text: str, name: str) -> FileDescriptorProto:
    """A file from its text, or from its compiled form in base64."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return parse_proto(text, name=name)
    file.name = name
    return file


def derive_proto(columns: Columns) -> str:
    """The proto file of a row: a field per column in their order, one that may be null `optional`.

    Raises:
        ProtoSchemaError: a column has no type in a proto file.
    """
    lines = ['syntax = "proto3";', ""]
    lines += _message(MESSAGE, [(name, logical) for name, logical in columns], "")
    return "\n".join(lines) + "\n"


def _message(name: str, fields: Sequence[tuple[str, LogicalType]], indent: str) -> Iterator[str]:
    yield f"{indent}message {name} {{"
    for number, (field, logical) in enumerate(fields, 1):
        row = _row_within(logical)
        inner = f"{name}_{field}"
        if row is not None:
            yield from _message(inner, [(item.name, item.type) for item in row.fields], indent + "  ")
        yield f"{indent}  {_declared(field, logical, inner)} {field} = {number};"
    yield f"{indent}}}"


def _row_within(logical: LogicalType) -> LogicalType | None:
    if logical.name in (TypeName.ARRAY, TypeName.MAP):
        return _row_within(logical.element) if logical.element is not None else None
    return logical if logical.name is TypeName.ROW else None


def _declared(field: str, logical: LogicalType, inner: str) -> str:
    match logical.name:
        case TypeName.ARRAY:
            assert logical.element is not None
            return f"repeated {_single(field, logical.element, inner)}"
        case TypeName.MAP:
            assert logical.key is not None
            assert logical.element is not None
            key = _single(field, logical.key, inner)
            if key not in _KEYS:
                raise ProtoSchemaError(f"column '{field}' is {logical}: the key of a map is text or a whole number")
            return f"map<{key}, {_single(field, logical.element, inner)}>"
    single = _single(field, logical, inner)
    return f"optional {single}" if logical.nullable and logical.name is not TypeName.ROW else single


def _single(field: str, logical: LogicalType, inner: str) -> str:
    if logical.name is TypeName.ROW:
        return inner
    if logical.name not in _SCALARS:
        listed = "STRING, BYTES, BOOLEAN, INT, BIGINT, FLOAT, DOUBLE, ARRAY, MAP and ROW"
        raise ProtoSchemaError(f"column '{field}' is {logical}: Protobuf holds {listed}")
    return _SCALARS[logical.name]
