"""Creates the tables of a connector and compares existing ones with it (specification section 1.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from upsert_platform.core.errors import DestinationError
from upsert_platform.tablestore.client import Client, is_missing
from upsert_platform.tablestore.connect.table import ConnectSink
from upsert_platform.tablestore.connect.timeseries_writer import create_timeseries_table
from upsert_platform.tablestore.failures import ServiceError
from upsert_platform.tablestore.schema import create_table, created_at, describe, wait_until_ready

ERROR_KEYS: Final = (("topic_partition", "string"), ("offset", "integer"))
"""Primary key of an error table."""
Keys = Sequence[tuple[str, str]]


def sink_created_at(client: Client, sink: ConnectSink) -> int | None:
    """Return the creation time of a sink's table; None if it does not exist, 0 if it is unknown, as for time series."""
    if sink.points is None:
        return created_at(client, sink.table_name)
    try:
        client.repeat("describe_timeseries_table", sink.table_name)
    except ServiceError as error:
        if is_missing(error):
            return None
        raise
    return 0


def sink_time_to_live(client: Client, sink: ConnectSink) -> int | None:
    """Seconds that the table of a sink keeps what is written; None where it keeps it for good, or does not exist."""
    try:
        if sink.points is None:
            described = describe(client, sink.table_name)
            options = None if described is None else described.table_options
        else:
            options = client.repeat("describe_timeseries_table", sink.table_name).table_meta.timeseries_table_options
    except ServiceError as error:
        if is_missing(error):
            return None
        raise
    seconds = -1 if options is None else int(options.time_to_live)
    return seconds if seconds > 0 else None


def prepare_sink(client: Client, sink: ConnectSink) -> None:
    """Creates the sink's table, and its error table, where they are missing and ``auto.create`` is on.

    Raises:
        DestinationError: one is missing, or differs; every difference is named.
    """
    if sink.points is not None:
        create_timeseries_table(
            client,
            sink.table_name,
            auto_create=sink.settings.auto_create,
            time_to_live=sink.settings.time_to_live,
        )
    else:
        _prepare(client, sink, sink.table_name, sink.wide.primary_key, sink.wide.whitelist)
    if sink.failures.reports_to_table:
        assert sink.failures.table is not None
        _prepare(client, sink, sink.failures.table, ERROR_KEYS, ())


def unprepared_sink(client: Client, sink: ConnectSink) -> str:
    """Return how the sink's table, or its error table, is not what a write needs; empty if both are."""
    told = []
    if sink.points is not None:
        told += [] if sink_created_at(client, sink) is not None else [_missing(sink.table_name)]
    else:
        told += _unprepared(client, sink.table_name, sink.wide.primary_key, sink.wide.whitelist)
    if sink.failures.reports_to_table:
        assert sink.failures.table is not None
        told += _unprepared(client, sink.failures.table, ERROR_KEYS, ())
    return "; ".join(told)


def _unprepared(client: Client, name: str, keys: Keys, columns: Keys) -> list[str]:
    described = describe(client, name)
    if described is None:
        return [_missing(name)]
    return [f"Tablestore table '{name}': {text}" for text in _differences(described, keys, columns)]


def _missing(name: str) -> str:
    return f"Tablestore table '{name}' does not exist"


def _prepare(client: Client, sink: ConnectSink, name: str, keys: Keys, columns: Keys) -> None:
    described = describe(client, name)
    if described is not None:
        differences = list(_differences(described, keys, columns))
        if differences:
            raise DestinationError(
                f"connector '{sink.connector}': Tablestore table '{name}' differs from the configuration:"
                f" {'; '.join(differences)}. Keys are fixed when a table is created: change the configuration, or"
                " write to another table"
            )
        return
    settings = sink.settings
    if not settings.auto_create:
        raise DestinationError(
            f"connector '{sink.connector}': Tablestore table '{name}' does not exist in {client.endpoint}; create it,"
            " or set 'auto.create' = 'true'"
        )
    create_table(
        client,
        name,
        [_key_schema(column, kind) for column, kind in keys],
        time_to_live=settings.time_to_live,
        max_versions=settings.max_versions,
        read_units=settings.reserved_read,
        write_units=settings.reserved_write,
    )
    probe = [(column, _LOWEST[kind]) for column, kind in keys]
    wait_until_ready(client, name, probe=probe, seconds=settings.retry_deadline.total_seconds())


_LOWEST: Final[dict[str, Any]] = {"string": "", "integer": 0, "auto_increment": 0, "binary": bytearray()}


def _key_schema(name: str, kind: str) -> Any:
    from tablestore.metadata import PK_AUTO_INCR

    return (name, "INTEGER", PK_AUTO_INCR) if kind == "auto_increment" else (name, kind.upper())


def _differences(described: Any, keys: Keys, columns: Keys) -> Iterator[str]:
    found = [_plain(key) for key in described.table_meta.schema_of_primary_key]
    wanted = [_plain(_key_schema(name, kind)) for name, kind in keys]
    if len(found) != len(wanted):
        yield (
            f"it has {len(found)} primary key columns ({_shown(found)}), configured are {len(wanted)}"
            f" ({_shown(wanted)})"
        )
    for position, (there, here) in enumerate(zip(found, wanted, strict=False), start=1):
        if there != here:
            yield f"primary key column {position} is {_shown([there])}, configured is {_shown([here])}"
    kinds = dict(columns)
    for name, kind in described.table_meta.defined_columns:
        stored = "binary" if kind == "BLOB" else kind.lower()
        if name in kinds and kinds[name] != stored:
            yield f"predefined column '{name}' is {stored}, configured is {kinds[name]}"


def _plain(key: Sequence[Any]) -> tuple[str, ...]:
    return (key[0], str(key[1]), *("auto_increment" for _ in key[2:]))


def _shown(keys: Sequence[tuple[str, ...]]) -> str:
    return ", ".join(" ".join(key) for key in keys)
