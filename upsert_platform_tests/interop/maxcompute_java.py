"""Writes and reads tables with the official MaxCompute SDK for Java."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from upsert_platform_tests.interop.java import Java, each
from upsert_platform_tests.local.maxcompute.server import ServerHandle

_POLL_MILLIS = 50


class MaxComputeJava:
    """One client, as a program in Java has it. Moments without a zone are of UTC."""

    def __init__(self, java: Java, server: ServerHandle) -> None:
        self.java = java
        self.sdk = java.classes.com.aliyun.odps
        self.project = server.project
        self.odps = self.sdk.Odps(self.sdk.account.AliyunAccount(server.access_id, server.access_key))
        self.odps.setEndpoint(server.endpoint)
        self.odps.setDefaultProject(server.project)
        self.tunnel = self.sdk.tunnel.TableTunnel(self.odps)

    def sql(self, query: str) -> list[list[str | None]]:
        """Runs a statement to its end; rows of a result as texts."""
        task = self.sdk.task.SQLTask
        instance = task.run(self.odps, query + ";")
        instance.waitForSuccess(_POLL_MILLIS)
        if not query.lstrip().upper().startswith("SELECT"):
            return []
        return [
            [row.getString(index) for index in range(row.getColumnCount())] for row in each(task.getResult(instance))
        ]

    def write(self, way: str, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Writes rows.

        Args:
            way: ``UpsertSession``, ``UploadSession`` (in two blocks) or ``StreamUploadSession``.
            rows: values in the order of the table's columns, None for null.
        """
        match way:
            case "UpsertSession":
                with self.upsert_session(table) as session:
                    stream = session.buildUpsertStream().build()
                    for row in rows:
                        stream.upsert(self.filled(session.newRecord(), row))
                    stream.flush()
                    stream.close()
                    session.commit(False)
            case "UploadSession":
                session = self.tunnel.createUploadSession(self.project, table)
                for block in range(2):
                    writer = session.openRecordWriter(block)
                    for row in rows[block::2]:
                        writer.write(self.filled(session.newRecord(), row))
                    writer.close()
                session.commit(session.getBlockList())
            case "StreamUploadSession":
                session = self.tunnel.buildStreamUploadSession(self.project, table).build()
                pack = session.newRecordPack()
                for row in rows:
                    pack.append(self.filled(session.newRecord(), row))
                assert pack.flush()

    @contextmanager
    def upsert_session(self, table: str) -> Iterator[Any]:
        """An open session, closed at the end; the block commits or aborts it."""
        session = self.tunnel.buildUpsertSession(self.project, table).build()
        try:
            yield session
        finally:
            session.close()

    def read(self, table: str) -> list[str]:
        """All rows as the SDK's values print themselves, sorted."""
        session = self.tunnel.createDownloadSession(self.project, table)
        if session.getRecordCount() == 0:
            return []
        reader = session.openRecordReader(0, session.getRecordCount())
        try:
            return sorted(self._printed(reader))
        finally:
            reader.close()

    def _printed(self, reader: Any) -> Iterator[str]:
        while (record := reader.read()) is not None:
            yield "; ".join(self._texts(record))

    def _texts(self, record: Any) -> list[str]:
        as_text = self.java.classes.java.lang.String.valueOf
        found = []
        for index, column in enumerate(record.getColumns()):
            value = record.get(index)
            printed = as_text(value) if value is not None and not isinstance(value, bytes) else repr(value)
            found.append(f"{column.getTypeInfo().getTypeName()} {printed}")
        return found

    def filled(self, record: Any, row: Sequence[Any]) -> Any:
        """The record, with these values."""
        for index, (column, value) in enumerate(zip(record.getColumns(), row, strict=True)):
            if value is not None:
                self._set(record, index, column.getTypeInfo(), value)
        return record

    def _set(self, record: Any, index: int, kind: Any, value: Any) -> None:
        name = kind.getOdpsType().toString()
        made = self.value(kind, value)
        setters = {
            "TINYINT": record.setTinyint, "SMALLINT": record.setSmallint, "INT": record.setInt,
            "BIGINT": record.setBigint, "FLOAT": record.setFloat, "DOUBLE": record.setDouble,
            "DATE": record.setDateAsLocalDate, "DATETIME": record.setDatetimeAsZonedDateTime,
            "TIMESTAMP": record.setTimestampAsInstant, "STRUCT": record.setStruct,
        }  # fmt: skip
        setters.get(name, record.set)(index, made)

    def value(self, kind: Any, value: Any) -> Any:
        """A Python value as an object of the SDK, for a column of a type (a ``TypeInfo``)."""
        if value is None:
            return None
        classes, data = self.java.classes, self.sdk.data
        match kind.getOdpsType().toString():
            case "DECIMAL":
                return classes.java.math.BigDecimal(format(value, "f"))
            case "CHAR":
                return data.Char(value)
            case "VARCHAR":
                return data.Varchar(value)
            case "BINARY":
                return data.Binary(bytes(value))
            case "DATE":
                return classes.java.time.LocalDate.parse(value.isoformat())
            case "DATETIME":
                return classes.java.time.ZonedDateTime.parse(_instant(value))
            case "TIMESTAMP":
                return classes.java.time.Instant.parse(_instant(value))
            case "ARRAY":
                element = kind.getElementTypeInfo()
                return self.java.list_of(self.value(element, item) for item in value)
            case "MAP":
                keys, values = kind.getKeyTypeInfo(), kind.getValueTypeInfo()
                return self.java.map_of({self.value(keys, k): self.value(values, v) for k, v in value.items()})
            case "STRUCT":
                kinds = kind.getFieldTypeInfos()
                return data.SimpleStruct(kind, self.java.list_of(map(self.value, kinds, value)))
        return value


def _instant(value: dt.datetime) -> str:
    return value.replace(tzinfo=None).isoformat() + "Z"
