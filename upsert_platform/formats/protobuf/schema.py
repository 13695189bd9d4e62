"""The message that format ``protobuf`` reads and writes, and how columns fit its fields.

Types go together as on Flink's page of the format: an enum is text (its name) or a number, unsigned numbers have the
bits of Java's signed ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.types import BYTES, TEXTS, LogicalType, TypeName

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_FITS: Final = {
    "string": TEXTS,
    "bytes": BYTES,
    "bool": (TypeName.BOOLEAN,),
    "int32": (TypeName.INT,),
    "uint32": (TypeName.INT,),
    "int64": (TypeName.BIGINT,),
    "uint64": (TypeName.BIGINT,),
    "float": (TypeName.FLOAT,),
    "double": (TypeName.DOUBLE,),
    "enum": (*TEXTS, TypeName.INT),
    "message": (TypeName.ROW,),
}


class ProtobufSchemaError(ValueError):
    """The descriptor file, the message or a column does not go with the others."""


def message_class(path: str, name: str) -> Any:
    """The class of a message.

    Args:
        path: of a serialized FileDescriptorSet.
        name: full name in the proto file, or of the Java class.

    Raises:
        ProtobufSchemaError: the file cannot be read, or has no such message.
    """
    try:
        changed = Path(path).stat().st_mtime_ns
    except OSError as error:
        raise ProtobufSchemaError(f"'protobuf.descriptor-file' {path} cannot be read: {error.strerror}") from None
    return _message_class(path, changed, name)


@lru_cache(maxsize=32)
def _message_class(path: str, changed: int, name: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    found = FileDescriptorSet()
    pool = DescriptorPool()
    try:
        found.ParseFromString(Path(path).read_bytes())
        for file in found.file:
            pool.AddSerializedFile(file.SerializeToString())
    except (DecodeError, TypeError) as error:
        raise ProtobufSchemaError(
            f"'protobuf.descriptor-file' {path} is not a complete descriptor set ({error}); make it with `protoc"
            " --include_imports --descriptor_set_out`"
        ) from None
    known: dict[str, Descriptor] = {}
    for file in found.file:
        for message in _messages(pool.FindFileByName(file.name).message_types_by_name.values()):
            known[message.full_name] = message
            known.setdefault(_java_name(message), message)
    if name not in known:
        listed = ", ".join(sorted(message.full_name for message in set(known.values()))[:10])
        raise ProtobufSchemaError(f"'protobuf.message-class-name' {name} is not in {path}; there are: {listed}")
    return GetMessageClass(known[name])


def _messages(messages: Any) -> Iterator[Descriptor]:
    for message in messages:
        yield message
        yield from _messages(message.nested_types)


def _java_name(message: Descriptor) -> str:
    """Name of the class that protoc makes for Java."""
    file = message.file
    options = file.GetOptions()
    path = message.full_name.removeprefix(f"{file.package}.") if file.package else message.full_name
    package = options.java_package or file.package
    outer = options.java_outer_classname
    if not outer:
        stem = file.name.rsplit("/", 1)[-1].removesuffix(".proto")
        outer = "".join(part[:1].upper() + part[1:] for part in stem.replace("-", "_").split("_"))
        if outer in file.message_types_by_name or outer in file.enum_types_by_name:
            outer += "OuterClass"
    parts = path.split(".") if options.java_multiple_files else [outer, *path.split(".")]
    return f"{package}.{'$'.join(parts)}" if package else "$".join(parts)


def kind_of(field: FieldDescriptor) -> str:
    """The field's kind, encodings of the same numbers taken together."""
    return {
        field.CPPTYPE_STRING: "bytes" if field.type == field.TYPE_BYTES else "string",
        field.CPPTYPE_BOOL: "bool",
        field.CPPTYPE_INT32: "int32",
        field.CPPTYPE_UINT32: "uint32",
        field.CPPTYPE_INT64: "int64",
        field.CPPTYPE_UINT64: "uint64",
        field.CPPTYPE_FLOAT: "float",
        field.CPPTYPE_DOUBLE: "double",
        field.CPPTYPE_ENUM: "enum",
        field.CPPTYPE_MESSAGE: "message",
    }[field.cpp_type]


def is_map(field: FieldDescriptor) -> bool:
    """Return whether a repeated field is a map."""
    return bool(is_repeated(field) and field.message_type and inner(field).GetOptions().map_entry)


def is_repeated(field: FieldDescriptor) -> bool:
    """Return whether a field is an array or a map."""
    return bool(field.label == field.LABEL_REPEATED)  # type: ignore[attr-defined]


def inner(field: FieldDescriptor) -> Descriptor:
    """The message of a field that holds messages, or the entry of a map."""
    assert field.message_type is not None
    return field.message_type


def enum_of(field: FieldDescriptor) -> dict[str, int]:
    """Names and numbers of an enum."""
    assert field.enum_type is not None
    return {item.name: item.number for item in field.enum_type.values}


def misfits(message: Descriptor, columns: Any, *, may_lack: bool = False) -> Iterator[str]:
    """Yield one text per mismatch between a message and columns, given as names and types.

    Args:
        may_lack: the message may lack fields of columns that may be null.
    """
    for name, logical in columns:
        field = message.fields_by_name.get(name)
        if field is None:
            if not (may_lack and logical.nullable):
                listed = ", ".join(message.fields_by_name)
                yield f"column '{name}' is not a field of message {message.full_name}: {listed}"
        else:
            yield from (f"column '{name}' {text}" for text in _misfits(field, logical, may_lack))


def _misfits(field: FieldDescriptor, logical: LogicalType, may_lack: bool) -> Iterator[str]:
    if is_map(field):
        entry = inner(field).fields_by_name
        if logical.name is not TypeName.MAP or logical.key is None or logical.element is None:
            yield f"is {logical}, but the field is a map: declare a MAP"
            return
        yield from _element(entry["key"], logical.key, may_lack)
        yield from _element(entry["value"], logical.element, may_lack)
    elif is_repeated(field):
        if logical.name is not TypeName.ARRAY or logical.element is None:
            yield f"is {logical}, but the field is repeated: declare an ARRAY"
            return
        yield from _element(field, logical.element, may_lack)
    else:
        yield from _element(field, logical, may_lack)


def _element(field: FieldDescriptor, logical: LogicalType, may_lack: bool) -> Iterator[str]:
    fits = _FITS[kind_of(field)]
    if logical.name not in fits:
        yield f"is {logical}, but field '{field.full_name}' is {kind_of(field)}: declare {fits[0]}"
    elif logical.name is TypeName.ROW:
        yield from misfits(inner(field), [(item.name, item.type) for item in logical.fields], may_lack=may_lack)
