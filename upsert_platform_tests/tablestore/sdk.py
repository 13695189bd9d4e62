"""What the official SDK makes of the same rows: the reference for bytes on the wire."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

logging.getLogger("tablestore").setLevel(logging.CRITICAL)

Row = tuple[str, list[tuple[str, Any]], list[tuple[str, Any]], list[str]]
"""Operation (PUT, UPDATE, DELETE), primary key, put cells, removed cells."""


def batch_write_bytes(table: str, rows: Sequence[Row], condition: Any = None) -> bytes:
    """The body of a BatchWriteRow request as the SDK serialises it."""
    from tablestore.encoder import OTSProtoBufferEncoder
    from tablestore.metadata import (
        BatchWriteRowRequest,
        DeleteRowItem,
        PutRowItem,
        TableInBatchWriteRowItem,
        UpdateRowItem,
    )
    from tablestore.metadata import Row as SdkRow

    items = []
    for operation, primary_key, cells, removed in rows:
        if operation == "PUT":
            items.append(PutRowItem(SdkRow(primary_key, cells), condition))
        elif operation == "DELETE":
            items.append(DeleteRowItem(SdkRow(primary_key), condition))
        else:
            columns: dict[str, list[Any]] = {}
            if removed:
                columns["DELETE_ALL"] = [(name, None) for name in removed]
            if cells:
                columns["PUT"] = cells
            items.append(UpdateRowItem(SdkRow(primary_key, columns), condition))
    request = BatchWriteRowRequest()
    request.add(TableInBatchWriteRowItem(table, items))
    return (
        OTSProtoBufferEncoder("utf8", enable_native=False).encode_request("BatchWriteRow", request).SerializeToString()
    )
