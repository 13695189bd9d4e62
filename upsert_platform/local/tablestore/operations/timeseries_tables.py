"""Create, List, Describe, Update and DeleteTimeseriesTable."""

from __future__ import annotations

import re

from upsert_platform.local.tablestore.errors import ServiceError, invalid
from upsert_platform.local.tablestore.instance import Instance
from upsert_platform.local.tablestore.messages import parse, pb
from upsert_platform.local.tablestore.messages import timeseries as messages

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_DAY = 86_400
_MONTH = 2_592_000


def create(instance: Instance, body: bytes) -> bytes:
    request = parse(messages.CreateTimeseriesTableRequest, body)
    meta = request.table_meta
    if _NAME.fullmatch(meta.table_name) is None:
        raise invalid(f"Invalid table name: '{meta.table_name}'.")
    if instance.series.exists(meta.table_name) or meta.table_name in instance.engine.tables:
        raise ServiceError("OTSObjectAlreadyExist", "Requested timeseries table already exists.")
    # A timeseries table counts as two tables: its rows and its timelines.
    if len(instance.engine.tables) + 2 * (len(instance.series.tables()) + 1) > instance.max_tables:
        raise ServiceError("OTSQuotaExhausted", "Number of tables exceeded the quota.")
    if len(meta.timeseries_key_schema) > 6:
        raise invalid("The number of timeseries key columns must be in range: [1, 6].")
    if len(meta.field_primary_key_schema) > 4:
        raise invalid("The number of field primary key columns must be in range: [0, 4].")
    if len(set(meta.timeseries_key_schema)) != len(meta.timeseries_key_schema):
        raise invalid("Duplicated timeseries key column.")
    for column in meta.field_primary_key_schema:
        if column.type not in (pb.INTEGER, pb.STRING, pb.BINARY):
            raise invalid("Invalid column type, only STRING,INTEGER,BINARY is allowed.")
    _check_ttl(meta.table_options.time_to_live if meta.HasField("table_options") else -1, least=_DAY)
    for store in request.analytical_stores:
        _check_ttl(store.time_to_live if store.HasField("time_to_live") else -1, least=_MONTH)
    described = messages.DescribeTimeseriesTableResponse()
    described.table_meta.CopyFrom(meta)
    described.table_meta.status = "CREATED"
    if not described.table_meta.table_options.HasField("time_to_live"):
        described.table_meta.table_options.time_to_live = -1
    described.analytical_stores.extend(request.analytical_stores)
    for index in request.lastpoint_index_metas:
        described.lastpoint_indexes.add(index_table_name=index.index_table_name)
    instance.series.create(described)
    return bytes(messages.CreateTimeseriesTableResponse().SerializeToString())


def _check_ttl(seconds: int, *, least: int) -> None:
    if seconds != -1 and seconds < least:
        raise invalid(f"TimeToLive must be -1 or at least {least}.")


def list_tables(instance: Instance, body: bytes) -> bytes:
    parse(messages.ListTimeseriesTableRequest, body)
    metas = [table.description.table_meta for table in instance.series.tables()]
    return bytes(messages.ListTimeseriesTableResponse(table_metas=metas).SerializeToString())


def describe(instance: Instance, body: bytes) -> bytes:
    request = parse(messages.DescribeTimeseriesTableRequest, body)
    return bytes(instance.series.table(request.table_name).description.SerializeToString())


def update(instance: Instance, body: bytes) -> bytes:
    request = parse(messages.UpdateTimeseriesTableRequest, body)
    table = instance.series.table(request.table_name)
    meta = table.description.table_meta
    if request.HasField("table_options"):
        _check_ttl(request.table_options.time_to_live, least=_DAY)
        meta.table_options.MergeFrom(request.table_options)
    if request.HasField("meta_options"):
        meta.meta_options.MergeFrom(request.meta_options)
    instance.series.save(table)
    return bytes(messages.UpdateTimeseriesTableResponse().SerializeToString())


def delete(instance: Instance, body: bytes) -> bytes:
    request = parse(messages.DeleteTimeseriesTableRequest, body)
    instance.series.drop(instance.series.table(request.table_name))
    return bytes(messages.DeleteTimeseriesTableResponse().SerializeToString())
