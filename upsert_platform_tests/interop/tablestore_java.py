"""Writes and reads a table of three key columns with the official Tablestore SDK for Java."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from upsert_platform_tests.interop.java import Java, each
from upsert_platform_tests.local.tablestore.server import ServerHandle

KEY = ("name", "number", "raw")
"""Key columns, of type STRING, INTEGER and BINARY."""
WAYS = (
    "PutRow",
    "UpdateRow",
    "BatchWriteRow",
    "TableStoreWriter with BatchWriteRow",
    "TableStoreWriter with BulkImport",
)
Row = dict[str, Any]


def cell_value(java: Java, value: Any) -> Any:
    """A Python value as the SDK's ``ColumnValue``."""
    values = java.classes.com.alicloud.openservices.tablestore.model.ColumnValue
    match value:
        case bool():
            return values.fromBoolean(value)
        case int():
            return values.fromLong(value)
        case float():
            return values.fromDouble(value)
        case str():
            return values.fromString(value)
    return values.fromBinary(value)


def plain(value: Any) -> Any:
    """What the Python SDK reads, with binary values as bytes."""
    return bytes(value) if isinstance(value, bytearray) else value


class TablestoreJava:
    """Writes rows as a program in Java does."""

    def __init__(self, java: Java, server: ServerHandle, table: str) -> None:
        self._java = java
        self._sdk = java.classes.com.alicloud.openservices.tablestore
        self.model = self._sdk.model
        self._server = server
        self.name = table
        address = (server.endpoint, server.access_key_id, server.access_key_secret, server.instance)
        self.client = self._sdk.SyncClient(*address)

    def create(self) -> None:
        types = self.model.PrimaryKeyType
        meta = self.model.TableMeta(self.name)
        for name, kind in zip(KEY, (types.STRING, types.INTEGER, types.BINARY), strict=True):
            meta.addPrimaryKeyColumn(name, kind)
        self.client.createTable(self.model.CreateTableRequest(meta, self.model.TableOptions(-1, 1)))

    def put(self, row: Row) -> Any:
        change = self.model.RowPutChange(self.name, self.key(row))
        for name, value in self.cells(row).items():
            change.addColumn(name, value)
        return change

    def update(self, row: Row) -> Any:
        """Nulls that are named remove their column."""
        change = self.model.RowUpdateChange(self.name, self.key(row))
        for name, value in self.cells(row).items():
            change.put(name, value)
        for name in row:
            if row[name] is None:
                change.deleteColumns(name)
        return change

    def delete(self, row: Row) -> Any:
        return self.model.RowDeleteChange(self.name, self.key(row))

    def one_by_one(self, changes: Sequence[Any], operation: str) -> None:
        for change in changes:
            request = getattr(self.model, f"{operation}Request")(change)
            getattr(self.client, operation[0].lower() + operation[1:])(request)

    def in_batches(self, changes: Sequence[Any]) -> None:
        for start in range(0, len(changes), 100):
            request = self.model.BatchWriteRowRequest()
            for change in changes[start : start + 100]:
                request.addRowChange(change)
            assert self.client.batchWriteRow(request).isAllSucceed()

    def by_writer(self, changes: Sequence[Any], kind: str) -> None:
        settings = self._sdk.writer.WriterConfig()
        settings.setBatchRequestType(getattr(self._sdk.writer.enums.BatchRequestType, kind))
        server = self._server
        credentials = self._sdk.core.auth.DefaultCredentials(server.access_key_id, server.access_key_secret)
        writer = self._sdk.DefaultTableStoreWriter(
            server.endpoint, credentials, server.instance, self.name, settings, None
        )
        try:
            results = [writer.addRowChangeWithFuture(change) for change in changes]
            writer.flush()
            assert all(result.get().isAllSucceed() for result in results)
            assert writer.getWriterStatistics().getTotalSucceedRowsCount() == len(changes)
        finally:
            writer.close()

    def apply(self, way: str, operation: str, rows: Sequence[Row]) -> None:
        """Writes rows.

        Args:
            way: one of `WAYS`; those that are one request per row take the request of the operation.
            operation: ``put``, ``update`` or ``delete``.
        """
        changes = [getattr(self, operation)(row) for row in rows]
        match way:
            case "BatchWriteRow":
                self.in_batches(changes)
            case "TableStoreWriter with BatchWriteRow":
                self.by_writer(changes, "BATCH_WRITE_ROW")
            case "TableStoreWriter with BulkImport":
                self.by_writer(changes, "BULK_IMPORT")
            case _:
                self.one_by_one(changes, f"{operation.capitalize()}Row")

    def read(self) -> list[str]:
        """All rows as the Java SDK prints them, without the times of cells."""
        criteria = self.range_of(self.model.RangeRowQueryCriteria)
        answer = self.client.getRange(self.model.GetRangeRequest(criteria))
        assert answer.getNextStartPrimaryKey() is None
        found = []
        for row in each(answer.getRows()):
            cells = [f"{cell.getName()}={cell.getValue().toString()}" for cell in row.getColumns()]
            found.append(f"{row.getPrimaryKey().toString()}: {', '.join(cells)}")
        return found

    def range_of(self, kind: Any) -> Any:
        """Parameters of a read of all rows: an object of a class that has them."""
        found = kind(self.name)
        found.setMaxVersions(1)
        for bound, place in (
            ("INF_MIN", found.setInclusiveStartPrimaryKey),
            ("INF_MAX", found.setExclusiveEndPrimaryKey),
        ):
            key = self.model.PrimaryKeyBuilder.createPrimaryKeyBuilder()
            for name in KEY:
                key.addPrimaryKeyColumn(name, getattr(self.model.PrimaryKeyValue, bound))
            place(key.build())
        return found

    def cells(self, row: Row) -> dict[str, Any]:
        return {name: cell_value(self._java, row[name]) for name in row if name not in KEY and row[name] is not None}

    def key(self, row: Row) -> Any:
        """The primary key of a row."""
        values = self.model.PrimaryKeyValue
        key = self.model.PrimaryKeyBuilder.createPrimaryKeyBuilder()
        key.addPrimaryKeyColumn("name", values.fromString(row["name"]))
        key.addPrimaryKeyColumn("number", values.fromLong(row["number"]))
        key.addPrimaryKeyColumn("raw", values.fromBinary(row["raw"]))
        return key.build()
