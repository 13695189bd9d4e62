"""CreateIndex, DropIndex, and ListSearchIndex: there are no search indexes to list."""

from __future__ import annotations

from typing import Any

from upsert_platform.local.tablestore import limits, plainbuffer
from upsert_platform.local.tablestore.changes import check_name
from upsert_platform.local.tablestore.errors import ServiceError, invalid
from upsert_platform.local.tablestore.instance import Instance
from upsert_platform.local.tablestore.messages import parse, pb
from upsert_platform.local.tablestore.table import DEFINED_KINDS, Table, description_of


def create(instance: Instance, body: bytes) -> bytes:
    request = parse(pb.CreateIndexRequest, body)
    table = instance.table(request.main_table_name)
    add_indexes(instance, table, [request.index_meta], with_rows=request.include_base_data)
    return bytes(pb.CreateIndexResponse().SerializeToString())


def drop(instance: Instance, body: bytes) -> bytes:
    request = parse(pb.DropIndexRequest, body)
    table = instance.table(request.main_table_name)
    if not any(index.name == request.index_name for index in table.indexes):
        raise ServiceError("OTSObjectNotExist", "Requested index does not exist.")
    instance.engine.drop_index(table, request.index_name)
    return bytes(pb.DropIndexResponse().SerializeToString())


def list_search(instance: Instance, body: bytes) -> bytes:
    """An empty ListSearchIndexResponse, so that clients that look for indexes before they drop a table find none."""
    del instance, body
    return b""


def add_indexes(instance: Instance, table: Table, metas: list[Any], *, with_rows: bool) -> None:
    """Checks indexes and adds them to a table.

    Args:
        with_rows: rows that are there get entries, not only those that are written from now on.
    """
    if len(table.indexes) + len(metas) > limits.INDEXES:
        raise invalid(f"The number of indexes exceeds the limit, limit count: {limits.INDEXES}.")
    for meta in metas:
        _check(instance, table, meta)
        instance.engine.create_index(
            table, meta, description_of(table, meta), instance.clock.now(), with_rows=with_rows
        )


def _check(instance: Instance, table: Table, meta: Any) -> None:
    check_name(meta.name.encode())
    if meta.name in instance.engine.tables or instance.series.exists(meta.name):
        raise ServiceError("OTSObjectAlreadyExist", f"Index or table '{meta.name}' already exists.")
    if table.main is not None:
        raise invalid("An index table cannot have an index.")
    if table.max_versions != 1:
        raise invalid("A table with an index must have a max versions of 1.")
    if table.ttl_ms is not None and table.allow_update:
        raise invalid("A table with an index and a time to live must not allow updates.")
    described = table.description.table_meta
    own = {column.name: column for column in described.primary_key}
    defined = {column.name: DEFINED_KINDS[column.type] for column in described.defined_column}
    if not 1 <= len(meta.primary_key) <= limits.KEY_COLUMNS:
        raise invalid(f"The number of index columns must be in range: [1, {limits.KEY_COLUMNS}].")
    if len({*meta.primary_key, *meta.defined_column}) < len(meta.primary_key) + len(meta.defined_column):
        raise invalid(f"Duplicated column in index '{meta.name}'.")
    for name in (*meta.primary_key, *meta.defined_column):
        if name not in own and name not in defined:
            raise invalid(f"Column '{name}' of index '{meta.name}' is neither a primary key nor a defined column.")
    for name in meta.primary_key:
        if name in defined and defined[name] not in (plainbuffer.INTEGER, plainbuffer.STRING, plainbuffer.BLOB):
            raise invalid(f"Column '{name}' cannot be an index column: only STRING, INTEGER and BINARY are allowed.")
    first = meta.primary_key[0]
    if first in own and own[first].HasField("option"):
        raise invalid("The first column of an index cannot be auto increment.")
    if meta.index_type == pb.IT_LOCAL_INDEX and first != described.primary_key[0].name:
        raise invalid("The first column of a local index must be the first primary key column of its table.")
