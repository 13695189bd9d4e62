"""Schema registries, Tablestore and MaxCompute: whether they answer, take the credentials, and have the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from upsert_platform.core.connector import Inspectable, KeyReader
from upsert_platform.core.options import read_settings
from upsert_platform.core.redaction import without_credentials
from upsert_platform.formats import FORMATS
from upsert_platform.formats.registered.options import RegistrySettings
from upsert_platform.formats.registered.registry import HttpSchemaRegistry, SchemaNotFoundError
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.kafka.table import KafkaTable
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.sync.binding import Binding
from upsert_platform.sync.checkups.finding import Check, Finding, State
from upsert_platform.sync.connect_connector import ConnectTarget
from upsert_platform.sync.connectors import connector_of
from upsert_platform.tablestore.client import Client, is_missing
from upsert_platform.tablestore.failures import ServiceError
from upsert_platform.tablestore.options import TablestoreSettings
from upsert_platform.tablestore.table import TablestoreTable

_ANSWER_SECONDS: Final = 10.0
_NO_SCHEMA: Final = 2**31 - 1
"""An id that a registry has not given yet: asking for it shows that it answers and takes the login."""


def store_checks(binding: Binding) -> list[Check]:
    """One check per registry, and one per table of Tablestore and MaxCompute that is written, or only looked up."""
    checks = []
    for url, registry in _registries(binding).items():
        remedy = "check the format's 'url' and its credentials"
        checks.append(Check("registry", url, partial(_registry, url, registry), remedy))
    for name, target in binding.targets.items():
        match target.checked:
            case TablestoreTable(settings=settings, table_name=table):
                checks.append(_tablestore_check(name, settings, table))
            case ConnectTarget(sink=sink):
                checks.append(_tablestore_check(name, sink.settings, sink.table_name))
            case MaxComputeTable():
                remedy = "check 'odps.end.point', 'odps.project.name', 'odps.access.id' and 'odps.access.key'"
                look = partial(_maxcompute, name, target.checked)
                checks.append(Check("maxcompute", f"table {name}", look, remedy))
            case _ if isinstance(connector := connector_of(target.table), Inspectable):
                remedy = "check its address, user and password, and what the user may do"
                look = partial(_written, name, target.checked, connector)
                checks.append(Check(connector.kind, f"table {name}", look, remedy))
    for name, reader in binding.key_readers.items():
        if name not in binding.targets:
            remedy = "create it, or correct its declaration: nobody writes a table that queries only look up"
            checks.append(Check("lookup", f"table {name}", partial(_looked_up, name, reader), remedy))
    return checks


def endpoints(binding: Binding) -> dict[str, str]:
    """Addresses that speak HTTP, and what they belong to."""
    found = dict.fromkeys(_registries(binding), "registry")
    for target in binding.targets.values():
        match target.checked:
            case TablestoreTable(settings=settings):
                found[settings.endpoint] = "tablestore"
            case ConnectTarget(sink=sink):
                found[sink.settings.endpoint] = "tablestore"
            case MaxComputeTable(settings=settings):
                found[settings.endpoint] = "maxcompute"
    return found


def _registries(binding: Binding) -> Mapping[str, RegistrySettings]:

    tables = [source.kafka for source in binding.sources.values() if isinstance(source, TopicSource)]
    tables += [target.checked for target in binding.targets.values() if isinstance(target.checked, KafkaTable)]
    found: dict[str, RegistrySettings] = {}
    for table in tables:
        for side in (table.key, table.value):
            if side is None or not issubclass(FORMATS[side.format].settings, RegistrySettings):
                continue
            settings, _ = read_settings(
                FORMATS[side.format].settings, side.options, subject=table.name, location=table.table.location
            )
            if isinstance(settings, RegistrySettings):
                found.setdefault(without_credentials(settings.url.split(",")[0].strip()), settings)
    return found


def _registry(url: str, settings: RegistrySettings) -> Iterator[Finding]:

    with closing(HttpSchemaRegistry(settings)) as registry, suppress(SchemaNotFoundError):
        registry.schema(_NO_SCHEMA)
    yield Finding("registry", url, State.OK, "answers and takes the login")


def _tablestore_check(name: str, settings: TablestoreSettings, table: str) -> Check:
    remedy = (
        "check 'tablestore.endpoint', 'tablestore.instance.name', 'tablestore.access.key.id' and"
        " 'tablestore.access.key.secret', and that the user may describe, read and write the table"
    )
    return Check("tablestore", f"table {name}", partial(_tablestore, name, settings, table), remedy)


def _tablestore(name: str, settings: TablestoreSettings, table: str) -> Iterator[Finding]:

    with closing(Client.of(settings)) as client:
        try:
            client.once("describe_table", table)
        except ServiceError as error:
            if not is_missing(error):
                raise
            yield _no_table("tablestore", name, settings, f"Tablestore table '{table}' in {client.endpoint}")
            return
        yield Finding("tablestore", f"table {name}", State.OK, f"{client.endpoint} answers; '{table}' is there")


def _written(name: str, checked: Any, connector: Inspectable[Any]) -> Iterator[Finding]:
    found = connector.status(checked)
    if found.exists and found.differences:
        remedy = "alter the table, or its declaration"
        message = f"{found.what} differs: {found.differences}"
        yield Finding(connector.kind, f"table {name}", State.FAULT, message, remedy)
    elif found.exists:
        yield Finding(connector.kind, f"table {name}", State.OK, f"{found.what} is as it is declared")
    else:
        yield _no_table(connector.kind, name, checked.settings, found.what)


def _maxcompute(name: str, table: MaxComputeTable) -> Iterator[Finding]:
    from upsert_platform.maxcompute.client import Client
    from upsert_platform.maxcompute.connection import Connection

    connection = replace(Connection.of(table.settings), retries=0, timeout=_ANSWER_SECONDS)
    with closing(Client(connection)) as client:
        actual = client.table(table.target)
    told = f"project {connection.project} at {connection.endpoint}"
    if actual is None:
        yield _no_table("maxcompute", name, table.settings, f"MaxCompute table '{table.target}' of {told}")
    else:
        yield Finding("maxcompute", f"table {name}", State.OK, f"{told} answers; '{table.target}' is there")


def _looked_up(name: str, reader: KeyReader) -> Iterator[Finding]:
    with reader.open():
        yield Finding("lookup", f"table {name}", State.OK, "is there as it is declared; queries find rows in it")


def _no_table(area: str, name: str, settings: Any, told: str) -> Finding:
    if settings.auto_create:
        return Finding(
            area, f"table {name}", State.OK, f"{told} does not exist yet; the first run creates it ('auto.create')"
        )
    remedy = "create it, or set 'auto.create' = 'true'"
    return Finding(area, f"table {name}", State.FAULT, f"{told} does not exist", remedy)
