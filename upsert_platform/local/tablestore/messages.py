"""Protocol messages: the official SDK's protobuf modules, and the few messages that they lack."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from tablestore.protobuf import table_store_filter_pb2 as filters
from tablestore.protobuf import table_store_pb2 as pb
from tablestore.protobuf import timeseries_pb2 as timeseries

from upsert_platform.local.tablestore.errors import invalid

__all__ = ["BulkImportRequest", "BulkImportResponse", "filters", "parse", "pb", "timeseries"]

_Field = descriptor_pb2.FieldDescriptorProto


def _bulk_import_messages() -> tuple[Any, Any]:
    """BulkImport, which the Java SDK alone has: rows of {type, row_change}, answered by {is_ok, error, consumed}."""
    file = descriptor_pb2.FileDescriptorProto(
        name="upsert_platform/local/bulk_import.proto", package="upsert_platform.local", syntax="proto2"
    )
    file.dependency.append(pb.DESCRIPTOR.name)
    service = f".{pb.DESCRIPTOR.package}."

    def message(name: str, *fields: tuple[str, int, int, int, str]) -> None:
        described = file.message_type.add(name=name)
        for field, number, label, kind, type_name in fields:
            described.field.add(name=field, number=number, label=label, type=kind, type_name=type_name or None)

    one, optional, many = _Field.LABEL_REQUIRED, _Field.LABEL_OPTIONAL, _Field.LABEL_REPEATED
    here = f".{file.package}."
    message(
        "RowInBulkImportRequest",
        ("type", 1, one, _Field.TYPE_ENUM, f"{service}OperationType"),
        ("row_change", 2, one, _Field.TYPE_BYTES, ""),
    )
    message(
        "BulkImportRequest",
        ("table_name", 1, one, _Field.TYPE_STRING, ""),
        ("rows", 2, many, _Field.TYPE_MESSAGE, f"{here}RowInBulkImportRequest"),
    )
    message(
        "RowInBulkImportResponse",
        ("is_ok", 1, one, _Field.TYPE_BOOL, ""),
        ("error", 2, optional, _Field.TYPE_MESSAGE, f"{service}Error"),
        ("consumed", 3, optional, _Field.TYPE_MESSAGE, f"{service}ConsumedCapacity"),
    )
    message(
        "BulkImportResponse",
        ("table_name", 1, one, _Field.TYPE_STRING, ""),
        ("rows", 2, many, _Field.TYPE_MESSAGE, f"{here}RowInBulkImportResponse"),
    )
    pool = descriptor_pool.Default()
    pool.Add(file)
    return (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.BulkImportRequest")),
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.BulkImportResponse")),
    )


BulkImportRequest, BulkImportResponse = _bulk_import_messages()


def parse(kind: Any, body: bytes) -> Any:
    """Reads a request; a body that is not such a message is refused as the service does."""
    message = kind()
    try:
        message.ParseFromString(body)
    except DecodeError:
        raise invalid("Parse PBMessage from RawString failed.") from None
    if not message.IsInitialized():
        raise invalid("Parse PBMessage from RawString failed.")
    return message
