"""Creates destination tables, waits until they can be used, and compares existing ones with their declaration."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from upsert_platform.core.errors import DestinationError
from upsert_platform.tablestore.client import Client, is_missing
from upsert_platform.tablestore.failures import ServiceError
from upsert_platform.tablestore.pace import pause_before_attempt
from upsert_platform.tablestore.table import TablestoreTable
from upsert_platform.tablestore.types import StoredType

_CREATION_TIME: Final = 9
"""Number of the field of DescribeTableResponse."""


def prepare_table(
    client: Client, table: TablestoreTable, *, before_create: Callable[[], None] = lambda: None
) -> Described | None:
    """Creates the table when it is missing and ``auto.create`` is on, compares it otherwise.

    Args:
        before_create: is called where the table is about to be created.

    Returns:
        What was there; None where the table was created.

    Raises:
        DestinationError: missing, or different; every difference is named.
    """
    there = told_of(client, table.table_name)
    if there is not None:
        _compare(there.description, table)
        return there
    settings = table.settings
    if not settings.auto_create:
        raise DestinationError(
            f"table '{table.name}': Tablestore table '{table.table_name}' does not exist in {client.endpoint}; create"
            " it, or set 'auto.create' = 'true'"
        )
    keys = [(column.name, str(column.stored)) for column in table.primary_key]
    before_create()
    create_table(
        client,
        table.table_name,
        keys,
        time_to_live=settings.time_to_live,
        max_versions=settings.max_versions,
        read_units=settings.reserved_read,
        write_units=settings.reserved_write,
    )
    probe = [(column.name, _lowest(column.stored)) for column in table.primary_key]
    wait_until_ready(client, table.table_name, probe=probe, seconds=settings.retry_deadline.total_seconds())
    return None


def check_table(client: Client, table: TablestoreTable) -> None:
    """Compares a table that is only read with its declaration.

    Raises:
        DestinationError: missing, or different; every difference is named.
    """
    described = describe(client, table.table_name)
    if described is None:
        raise DestinationError(
            f"table '{table.name}', in which a query finds rows: Tablestore table '{table.table_name}' does not exist"
            f" in {client.endpoint}"
        )
    _compare(described, table)


def schema_difference(client: Client, table: TablestoreTable) -> str | None:
    """Return the difference between an existing table and its declaration, or None if they agree or the table does not
    exist.
    """
    described = describe(client, table.table_name)
    return None if described is None else difference_of(described, table)


class Described(NamedTuple):
    """A table as the service describes it.

    Attributes:
        description: as the SDK reads it.
        created: in microseconds since 1970; 0 when the service does not tell.
    """

    description: Any
    created: int


def told_of(client: Client, table_name: str) -> Described | None:
    """Return what the service tells of a table, by one request; None when it does not exist."""
    from google.protobuf.unknown_fields import UnknownFieldSet
    from tablestore.decoder import OTSProtoBufferDecoder
    from tablestore.protobuf.table_store_pb2 import DescribeTableRequest

    try:
        answer = client.post("DescribeTable", DescribeTableRequest(table_name=table_name).SerializeToString())
    except ServiceError as error:
        if is_missing(error):
            return None
        raise
    description, response = OTSProtoBufferDecoder("utf8").decode_response("DescribeTable", answer, None)
    # The SDK's messages do not know the field; those of other languages do.
    unknown: Any = UnknownFieldSet(response)
    found = [item.data for item in unknown if item.field_number == _CREATION_TIME]
    return Described(description, int(found[0]) if found else 0)


def describe(client: Client, table_name: str) -> Any | None:
    """The SDK's description of a table; None when it does not exist."""
    told = told_of(client, table_name)
    return None if told is None else told.description


def created_at(client: Client, table_name: str) -> int | None:
    """Return the creation time of a table in microseconds since 1970.

    Returns:
        None when it does not exist; 0 when the service does not tell.
    """
    told = told_of(client, table_name)
    return None if told is None else told.created


def create_table(
    client: Client,
    table_name: str,
    keys: Sequence[tuple[str, str]],
    *,
    time_to_live: int = -1,
    max_versions: int = 1,
    read_units: int = 0,
    write_units: int = 0,
) -> None:
    """Creates a table; one that someone else created meanwhile is as good."""
    from tablestore.metadata import CapacityUnit, ReservedThroughput, TableMeta, TableOptions

    meta = TableMeta(table_name, list(keys))
    options = TableOptions(time_to_live, max_versions)
    throughput = ReservedThroughput(CapacityUnit(read_units, write_units))
    try:
        client.repeat("create_table", meta, options, throughput)
    except ServiceError as error:
        if error.code != "OTSObjectAlreadyExist":
            raise


def wait_until_ready(client: Client, table_name: str, *, probe: Sequence[tuple[str, Any]], seconds: float) -> None:
    """Reads a row until the table answers: a new one is described before its partitions are loaded."""
    deadline = time.monotonic() + seconds
    attempt = 0
    while True:
        try:
            client.once("get_row", table_name, list(probe), max_version=1)
            return
        except ServiceError as error:
            attempt += 1
            pause = pause_before_attempt(attempt)
            if error.code not in ("OTSTableNotReady", "OTSObjectNotExist", "OTSPartitionUnavailable"):
                raise
            if time.monotonic() + pause > deadline:
                raise DestinationError(
                    f"Tablestore table '{table_name}' was created and is not ready after {seconds:g} s"
                    f" ('retry.deadline'): {error}"
                ) from error
            time.sleep(pause)


def _lowest(stored: StoredType) -> Any:
    return {StoredType.INTEGER: 0, StoredType.BINARY: bytearray()}.get(stored, "")


def _compare(described: Any, table: TablestoreTable) -> None:
    difference = difference_of(described, table)
    if difference is not None:
        raise DestinationError(difference)


def difference_of(described: Any, table: TablestoreTable) -> str | None:
    """Return the difference between a described table and its declaration, or None if they agree."""
    found = [(key[0], str(key[1]), *key[2:]) for key in described.table_meta.schema_of_primary_key]
    expected = [(column.name, str(column.stored)) for column in table.primary_key]
    differences = []
    if len(found) != len(expected):
        differences.append(
            f"it has {len(found)} primary key columns ({_names(found)}), declared are {len(expected)}"
            f" ({_names(expected)})"
        )
    for position, (key, wanted) in enumerate(zip(found, expected, strict=False), start=1):
        if key[0] != wanted[0]:
            differences.append(f"primary key column {position} is '{key[0]}', declared is '{wanted[0]}'")
        if key[1] != wanted[1]:
            differences.append(f"primary key column '{key[0]}' is {key[1]}, declared is {wanted[1]}")
        if len(key) > 2:
            differences.append(
                f"primary key column '{key[0]}' is generated by Tablestore (auto-increment), so an upsert cannot name"
                " its row"
            )
    for name, kind in described.table_meta.defined_columns:
        declared = next((column for column in table.attributes if column.name == name), None)
        if declared is not None and _defined(kind) != declared.stored:
            differences.append(f"predefined column '{name}' is {kind}, declared is {declared.stored}")
    if not differences:
        return None
    return (
        f"table '{table.name}': Tablestore table '{table.table_name}' differs from its declaration:"
        f" {'; '.join(differences)}. Keys are fixed when a table is created: change the declaration, or write to"
        " another table"
    )


def _defined(kind: str) -> str:
    return "BINARY" if kind == "BLOB" else kind


def _names(keys: Sequence[tuple[Any, ...]]) -> str:
    return ", ".join(f"{key[0]} {key[1]}" for key in keys)
