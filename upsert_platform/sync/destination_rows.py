"""The first rows of destination tables, read by this process with the systems' own clients. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.connector import Writable
from upsert_platform.core.errors import DestinationError, UpsertPlatformError
from upsert_platform.core.masking import MASKED
from upsert_platform.kafka.table import KafkaTable
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.sync.binding import Target
from upsert_platform.sync.connect_connector import ConnectTarget
from upsert_platform.sync.connectors import connector_of
from upsert_platform.tablestore.options import TablestoreSettings
from upsert_platform.tablestore.schema import describe
from upsert_platform.tablestore.table import TablestoreTable

if TYPE_CHECKING:
    import pyarrow as pa

    from upsert_platform.tablestore.client import Client

_PATIENCE: Final = timedelta(seconds=10)
"""How long a service that does not answer is asked again."""


def destination_rows(target: Target, limit: int) -> pa.Table:
    """Return the first rows of a table in declared columns.

    Raises:
        DestinationError: there is no such table yet.
        UpsertPlatformError: its rows cannot be read by this process, or a topic has more than `limit` offsets.
        EndpointError: no answer, or credentials refused.
    """
    import pyarrow as pa

    match target.checked:
        case KafkaTable():
            return _topic_rows(target.checked, limit)
        case TablestoreTable():
            return tablestore_rows(target.checked, limit)
        case ConnectTarget():
            return pa.Table.from_pylist(connect_cells(target.checked, limit))
        case MaxComputeTable():
            return maxcompute_rows(target.checked, limit)
    connector = connector_of(target.table)
    found = connector.first_rows(target.checked, limit) if isinstance(connector, Writable) else None
    if found is not None:
        return found[1]
    raise UpsertPlatformError(
        f"table '{target.table.name}': rows of connector '{target.table.connector}' cannot be read here"
    )


def _topic_rows(table: KafkaTable, limit: int) -> pa.Table:
    """The last values of a topic that is written."""
    from upsert_platform.kafka.sink.read_back import last_values_in_task, ranges_behind

    ranges = ranges_behind(table)
    offsets = sum(item.offsets for item in ranges)
    if offsets > limit:
        raise UpsertPlatformError(
            f"table '{table.name}': its topic has {offsets} offsets, and {limit} are read at most; raise --most"
        )
    return last_values_in_task(table, ranges)


def tablestore_rows(table: TablestoreTable, limit: int) -> pa.Table:
    """Return the first rows of a Tablestore table, by key."""
    import pyarrow as pa

    from upsert_platform.tablestore.ranges import WHOLE
    from upsert_platform.tablestore.reader import PAGE_ROWS, decode_rows, read_pages

    with closing(_client(table.settings)) as client:
        if describe(client, table.table_name) is None:
            raise _no_table(table.name, f"Tablestore table '{table.table_name}' in {client.endpoint}")
        names = [column.name for column in table.primary_key]
        pages = read_pages(client, table.table_name, names, WHOLE, page_rows=min(limit, PAGE_ROWS))
        found = list(islice(_flat(pages), limit))
    return pa.Table.from_batches([decode_rows(found, table)])


def connect_cells(target: ConnectTarget, limit: int) -> list[dict[str, Any]]:
    """Return the first rows of a table of a Kafka Connect configuration, cells by their names; masked where it is."""
    from upsert_platform.tablestore.ranges import WHOLE
    from upsert_platform.tablestore.reader import PAGE_ROWS, read_pages

    sink = target.sink
    if sink.points is not None:
        raise UpsertPlatformError(f"table '{sink.name}' is a time-series table, whose points cannot be shown")
    with closing(_client(sink.settings)) as client:
        described = describe(client, sink.table_name)
        if described is None:
            raise _no_table(sink.name, f"Tablestore table '{sink.table_name}' in {client.endpoint}")
        names = [name for name, *_ in described.table_meta.schema_of_primary_key]
        pages = read_pages(client, sink.table_name, names, WHOLE, page_rows=min(limit, PAGE_ROWS))
        found = [{**dict(key), **{cell[0]: cell[1] for cell in cells}} for key, cells in islice(_flat(pages), limit)]
    return [dict.fromkeys(row, MASKED) for row in found] if sink.mask else found


def maxcompute_rows(table: MaxComputeTable, limit: int) -> pa.Table:
    """Return some rows of a MaxCompute table."""
    from upsert_platform.maxcompute.clients import Clients
    from upsert_platform.maxcompute.read_back import first_rows

    with closing(Clients(table)) as clients:
        actual = clients.project.table(table.target)
        if actual is None:
            raise _no_table(table.name, f"MaxCompute table '{table.target}'")
        return first_rows(clients.reading(actual), limit)


def _client(settings: TablestoreSettings) -> Client:
    """A client that gives up while somebody still looks at the terminal."""
    from upsert_platform.tablestore.client import Client
    from upsert_platform.tablestore.transport import Endpoint

    deadline = min(settings.retry_deadline, _PATIENCE)
    return Client(Endpoint.of(settings), timeout=settings.request_timeout, retry_deadline=deadline)


def _flat(pages: Iterator[list[Any]]) -> Iterator[Any]:
    for page in pages:
        yield from page


def _no_table(name: str, told: str) -> DestinationError:
    return DestinationError(f"table '{name}': {told} does not exist; the first run of job 'sync' creates or needs it")
