"""Compiled proto files for the tests of format protobuf, made without protoc."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

KINDS = {name.removeprefix("TYPE_").lower(): number for name, number in FieldDescriptorProto.Type.items()}


def add_field(
    message: DescriptorProto, name: str, kind: str, *, repeated: bool = False, optional: bool = False
) -> None:
    """Adds a field of a scalar kind, or of a message or enum (``.shop.Item``, ``enum .shop.State``)."""
    field = message.field.add(name=name, number=len(message.field) + 1)
    field.label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    if kind.startswith("enum "):
        field.type, field.type_name = FieldDescriptorProto.TYPE_ENUM, kind.removeprefix("enum ")
    elif kind.startswith("."):
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, kind
    else:
        field.type = KINDS[kind]
    if optional:
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


def add_map(message: DescriptorProto, name: str, key: str, value: str, *, within: str) -> None:
    """Adds a map field; `within` is the full name of the message."""
    entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
    entry.options.map_entry = True
    add_field(entry, "key", key)
    add_field(entry, "value", value)
    add_field(message, name, f"{within}.{entry.name}", repeated=True)


def shop(*, syntax: str = "proto3") -> FileDescriptorProto:
    """``shop.Order`` with a field of every kind, ``shop.Key`` and ``shop.Value`` of one number each."""
    file = FileDescriptorProto(name="shop/orders.proto", package="shop", syntax=syntax)
    file.options.java_package = "com.example.shop"
    state = file.enum_type.add(name="State")
    for number, name in enumerate(("NEW", "PAID")):
        state.value.add(name=name, number=number)
    item = file.message_type.add(name="Item")
    add_field(item, "sku", "string")
    add_field(item, "count", "int32")
    order = file.message_type.add(name="Order")
    for name, kind in {
        "id": "int64", "small": "sint32", "wide": "uint64", "narrow": "uint32", "fixed": "sfixed64", "ok": "bool",
        "text": "string", "data": "bytes", "ratio": "float", "amount": "double", "state": "enum .shop.State",
        "state_number": "enum .shop.State", "item": ".shop.Item",
    }.items():  # fmt: skip
        add_field(order, name, kind)
    add_field(order, "words", "string", repeated=True)
    add_field(order, "items", ".shop.Item", repeated=True)
    add_map(order, "scores", "string", "int32", within=".shop.Order")
    add_map(order, "by_sku", "int32", ".shop.Item", within=".shop.Order")
    if syntax == "proto3":
        add_field(order, "note", "string", optional=True)
    for name, field in {"Key": "id", "Value": "number"}.items():
        add_field(file.message_type.add(name=name), field, "int32")
    return file


def write_set(path: Path, *files: FileDescriptorProto) -> str:
    """Writes a descriptor set; its path."""
    path.write_bytes(FileDescriptorSet(file=files).SerializeToString())
    return str(path)
