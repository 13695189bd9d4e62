"""CreateTable, ListTable, DescribeTable, UpdateTable, DeleteTable."""

from __future__ import annotations

import re
from typing import Any

from upsert_platform.local.tablestore import limits
from upsert_platform.local.tablestore.changes import check_name
from upsert_platform.local.tablestore.errors import ServiceError, invalid, no_such_table
from upsert_platform.local.tablestore.instance import Instance
from upsert_platform.local.tablestore.messages import parse, pb
from upsert_platform.local.tablestore.operations.indexes import add_indexes

_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


def check_table_name(name: str) -> None:
    """Refuses what is not a table name: a letter or underscore, then letters, digits, underscores; 255 at most."""
    if _TABLE_NAME.fullmatch(name) is None:
        raise invalid(f"Invalid table name: '{name}'.")


def create_table(instance: Instance, body: bytes) -> bytes:
    request = parse(pb.CreateTableRequest, body)
    meta = request.table_meta
    check_table_name(meta.table_name)
    _check_primary_key(meta)
    _check_defined_columns(meta)
    if meta.table_name in instance.engine.tables or instance.series.exists(meta.table_name):
        raise ServiceError("OTSObjectAlreadyExist", "Requested table already exists.")
    if len(instance.engine.tables) + 2 * len(instance.series.tables()) >= instance.max_tables:
        raise ServiceError("OTSQuotaExhausted", "Number of tables exceeded the quota.")
    now = instance.clock.now()
    described = pb.DescribeTableResponse()
    described.table_meta.CopyFrom(meta)
    units = request.reserved_throughput.capacity_unit
    _check_units(units)
    described.reserved_throughput_details.capacity_unit.CopyFrom(pb.CapacityUnit(read=units.read, write=units.write))
    described.reserved_throughput_details.last_increase_time = now // 1000
    options = described.table_options
    options.time_to_live = -1
    options.max_versions = 1
    options.deviation_cell_version_in_sec = limits.DEFAULT_DEVIATION_SECONDS
    options.allow_update = True
    _change_options(options, request.table_options)
    table = instance.engine.create_table(described, now)
    add_indexes(instance, table, list(request.index_metas), with_rows=False)
    return pb.CreateTableResponse().SerializeToString()


def _check_primary_key(meta: Any) -> None:
    if not 1 <= len(meta.primary_key) <= limits.KEY_COLUMNS:
        raise invalid(f"The number of primary key columns must be in range: [1, {limits.KEY_COLUMNS}].")
    seen: set[str] = set()
    generated = 0
    for index, column in enumerate(meta.primary_key):
        check_name(column.name.encode())
        if column.name in seen:
            raise invalid(f"Duplicated primary key name: '{column.name}'.")
        seen.add(column.name)
        if column.type not in (pb.INTEGER, pb.STRING, pb.BINARY):
            raise invalid("Invalid column type, only STRING,INTEGER,BINARY is allowed.")
        if column.HasField("option"):
            generated += 1
            if column.type != pb.INTEGER:
                raise invalid("AUTO_INCREMENT primary key must be integer.")
            if index == 0:
                raise invalid(f"First primary key can't be auto increment, table: {meta.table_name}.")
    if generated > 1:
        raise invalid("AUTO_INCREMENT primary key count must <= 1.")


def _check_defined_columns(meta: Any) -> None:
    if len(meta.defined_column) > limits.DEFINED_COLUMNS:
        raise invalid("The number of defined columns must be in range: [0, 32].")
    seen = {column.name for column in meta.primary_key}
    for column in meta.defined_column:
        check_name(column.name.encode())
        if column.name in seen:
            raise invalid(f"Duplicated attribute column name with primary key column: '{column.name}'.")
        seen.add(column.name)


def _check_units(units: Any) -> None:
    for value in (units.read, units.write):
        if not 0 <= value <= 100_000:
            raise invalid(f"Invalid Capacity Unit:{value} . Capacity Unit must be nonnegative.")


def _change_options(options: Any, changes: Any) -> None:
    """Takes over the options that a request sets."""
    if changes.HasField("time_to_live"):
        ttl = changes.time_to_live
        if ttl == 0 or ttl < -1:
            raise invalid("TimeToLive cannot be 0 or less than -1.")
        if 0 < ttl < limits.MIN_TTL_SECONDS:
            raise invalid(f"TimeToLive must be -1 or at least {limits.MIN_TTL_SECONDS}.")
        options.time_to_live = ttl
    if changes.HasField("max_versions"):
        if changes.max_versions <= 0:
            raise invalid("The maximum versions cannot be less than or equal to 0.")
        options.max_versions = changes.max_versions
    if changes.HasField("deviation_cell_version_in_sec"):
        if not 0 < changes.deviation_cell_version_in_sec <= (2**63 - 1) // 1_000_000:
            raise invalid("The maximum deviation must be in range [0, INT64_MAX/1000000].")
        options.deviation_cell_version_in_sec = changes.deviation_cell_version_in_sec
    if changes.HasField("allow_update"):
        options.allow_update = changes.allow_update


def list_table(instance: Instance, body: bytes) -> bytes:
    parse(pb.ListTableRequest, body)
    return pb.ListTableResponse(table_names=_listed(instance)).SerializeToString()


def _listed(instance: Instance) -> list[str]:
    """Names of tables; indexes are told by the description of their table."""
    return sorted(table.name for table in instance.engine.tables.values() if table.main is None)


def describe_table(instance: Instance, body: bytes) -> bytes:
    request = parse(pb.DescribeTableRequest, body)
    table = instance.engine.tables.get(request.table_name)
    if table is None:
        raise no_such_table()
    # Field 9, creation_time in microseconds, is known to newer messages than the SDK's.
    return bytes(table.description.SerializeToString()) + b"\x48" + _varint(table.created * 1000)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def update_table(instance: Instance, body: bytes) -> bytes:
    request = parse(pb.UpdateTableRequest, body)
    table = instance.table(request.table_name)
    if table.main is not None:
        raise invalid(f"Disallow update index table: '{table.name}'.")
    described = pb.DescribeTableResponse()
    described.CopyFrom(table.description)
    if not any(map(request.HasField, ("reserved_throughput", "table_options", "stream_spec"))):
        raise invalid("No parameter is specified in table options.")
    if request.HasField("reserved_throughput"):
        units = request.reserved_throughput.capacity_unit
        _check_units(units)
        details = described.reserved_throughput_details
        for name in ("read", "write"):
            if units.HasField(name):
                setattr(details.capacity_unit, name, getattr(units, name))
        details.last_increase_time = instance.clock.now() // 1000
    if request.HasField("table_options"):
        _change_options(described.table_options, request.table_options)
        if table.indexes and described.table_options.max_versions != 1:
            raise invalid("A table with an index must have a max versions of 1.")
    if request.HasField("stream_spec"):
        described.stream_details.enable_stream = request.stream_spec.enable_stream
    table.description = described
    instance.engine.save_table(table)
    response = pb.UpdateTableResponse()
    response.reserved_throughput_details.CopyFrom(described.reserved_throughput_details)
    response.table_options.CopyFrom(described.table_options)
    return response.SerializeToString()


def delete_table(instance: Instance, body: bytes) -> bytes:
    request = parse(pb.DeleteTableRequest, body)
    table = instance.engine.tables.get(request.table_name)
    if table is None:
        raise no_such_table()
    if table.main is not None:
        raise invalid(f"'{table.name}' is an index of table '{table.main.name}': drop the index.")
    instance.engine.drop_table(table)
    return pb.DeleteTableResponse().SerializeToString()
