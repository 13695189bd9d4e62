"""The project's service: SQL, tables as they are, the tunnel's address. Driver only; PyODPS behind guards."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlparse

from upsert_platform.core.errors import EndpointError
from upsert_platform.maxcompute.connection import (
    Connection,
    ServiceError,
    explain,
    guarded_rest,
    is_foreign,
    to_service_error,
    with_retries,
)
from upsert_platform.maxcompute.instances import RunningStatement
from upsert_platform.maxcompute.names import TableName
from upsert_platform.maxcompute.sdk import load_sdk
from upsert_platform.maxcompute.types import MaxComputeType, parse_maxcompute_type

if TYPE_CHECKING:
    import pyarrow as pa
    from odps import ODPS

T = TypeVar("T")
_FIRST_POLL_SECONDS = 0.02
_LONGEST_POLL_SECONDS = 2.0
_NULL = "\\N"
_ADDRESS = re.compile(r"[\w.-]+(:\d+)?(/[\w./-]*)?")
_QUERY_SECONDS = 3600.0
_STATEMENT_SECONDS = 600.0
_SPLIT_ROWS = 200_000
PARTIAL_UPDATES: Final = "acid.partial.fields.update.enable"
"""Table property of a Delta table in which rows may set some of their columns."""
NO_INSTANCE: Final = "ODPS-0410021"
"""Code of an error about a statement that the service no longer knows: it may have run, and says nothing of tables."""
_MISSING_TABLE = ("NoSuchTable", "NoSuchObject", "ODPS-0130131")


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table as it is."""

    name: str
    type: MaxComputeType
    nullable: bool


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as it is in MaxCompute.

    Attributes:
        columns: data columns in order, names in lower case.
        partition_columns: in order, names in lower case.
        primary_key: lower-case names; empty for tables that append.
        transactional: whether it is a Delta table or another transactional table.
        buckets: None when the service does not tell.
        table_id: identity; a table that was dropped and made anew has another one. Empty when it is not told.
        version: of a Delta table, raised by every commit; None when the service does not tell.
        history_hours: how long a Delta table keeps versions; None when the service does not tell.
        lifecycle: days after which what nobody has written is dropped: partitions, or the whole of a table without
            them. None where nothing is.
        made: when the table was made, seconds since 1970; 0 when the service does not tell.
    """

    columns: tuple[TableColumn, ...]
    partition_columns: tuple[TableColumn, ...]
    primary_key: tuple[str, ...]
    transactional: bool
    buckets: int | None
    properties: dict[str, str] = field(default_factory=dict)
    table_id: str = ""
    version: int | None = None
    history_hours: int | None = None
    lifecycle: int | None = None
    made: float = 0.0

    @property
    def partial_updates(self) -> bool:
        """Return whether a row may set some of its columns, the others keeping their value."""
        return self.properties.get(PARTIAL_UPDATES, "").lower() == "true"

    @property
    def keeps_changes(self) -> bool:
        """Return whether it keeps a log of changes that others read on from."""
        return self.properties.get("acid.cdc.mode.enable", "").lower() == "true"

    def column(self, name: str) -> TableColumn | None:
        """The data or partition column of that name, case ignored."""
        for column in (*self.columns, *self.partition_columns):
            if column.name == name.lower():
                return column
        return None


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The result of a query, read in `splits` parts."""

    instance_id: str
    rows: int
    splits: int


class Client:
    """One project. Closing it drops connections; requests in flight end on their own."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._odps: ODPS | None = None
        self._tunnel: str | None = connection.tunnel_endpoint

    def close(self) -> None:
        """Releases the connections. Idempotent."""
        if self._odps is not None:
            self._odps.rest.session.close()
            self._odps = None

    @property
    def odps(self) -> ODPS:
        """PyODPS, opened when first needed."""
        if self._odps is None:
            load_sdk()
            from odps import ODPS

            connection = self.connection
            self._odps = ODPS(
                connection.account(),
                project=connection.project,
                endpoint=connection.endpoint,
                tunnel_endpoint=connection.tunnel_endpoint,
                logview_host=connection.endpoint,
                overwrite_global=False,
                rest_client_cls=_rest_factory(connection),
            )
        return self._odps

    def tunnel_endpoint(self) -> str:
        """Return the address to which rows are sent: the declared one, or the one that the project reports.

        Raises:
            EndpointError: the project does not answer.
        """
        if self._tunnel is None:
            rest = self.odps.rest
            url = f"{rest.endpoint}/projects/{self.connection.project}/tunnel"
            params = {"quotaName": self.connection.quota} if self.connection.quota else {}
            doing = f"asking project '{self.connection.project}' for its tunnel"
            answer = self._run(lambda: rest.get(url, action="service", params=params), doing)
            found = answer.text.strip()
            if not _ADDRESS.fullmatch(found):
                raise EndpointError(
                    f"{doing}: {found[:100]!r} is not a host with a port. Check 'odps.end.point'"
                    f" ({self.connection.endpoint}), or set 'odps.tunnel.end.point'"
                )
            scheme = urlparse(rest.endpoint).scheme
            self._tunnel = f"{scheme}://{found}"
        return self._tunnel

    def run_sql(
        self, statement: str, *, hints: dict[str, str] | None = None, timeout: float = _STATEMENT_SECONDS
    ) -> str:
        """Runs one statement to its end and returns the text of its result (CSV for a query).

        Raises:
            ServiceError: the statement failed; `code` is the service's.
            EndpointError: no answer.
        """
        instance = self._finish(statement, hints or {}, timeout)
        results = self._about(lambda: with_retries(instance.get_task_results, self.connection), statement)
        return next(iter(results.values()), "")

    def execute_sql(self, statement: str) -> None:
        """Runs one statement to its end, without asking for a result.

        Raises:
            ServiceError: the statement failed; `code` is the service's.
            EndpointError: no answer.
        """
        self._finish(statement, {}, _STATEMENT_SECONDS)

    def open_query(self, statement: str) -> QueryResult:
        """Runs a SELECT whose result is read through the tunnel, in splits.

        Raises:
            ServiceError: the statement failed.
            EndpointError: no answer.
        """
        instance = self._finish(statement, {}, _QUERY_SECONDS)
        session = self._about(lambda: self._download(instance.id), statement)
        return QueryResult(instance.id, session.count, -(-session.count // _SPLIT_ROWS))

    def read_query(self, result: QueryResult, split: int) -> Iterator[pa.RecordBatch]:
        """Reads one split of a result.

        Raises:
            ServiceError: the result is no longer kept, or not all of its rows came.
            EndpointError: no answer.
        """
        session = self._about(lambda: self._download(result.instance_id), "reading a result")
        start = split * _SPLIT_ROWS
        wanted, found = min(_SPLIT_ROWS, result.rows - start), 0
        with session.open_arrow_reader(start, wanted) as reader:
            for rows in reader:
                found += rows.num_rows
                yield rows
        if found != wanted:
            text = f"rows {start} to {start + wanted} of the result of {result.instance_id}: {found} came"
            raise ServiceError(text, status=None, code="BodyCut", sure=False)

    def _download(self, instance_id: str) -> Any:
        from odps.tunnel import InstanceTunnel

        tunnel = InstanceTunnel(self.odps, endpoint=self.tunnel_endpoint(), quota_name=self.connection.quota)
        return tunnel.create_download_session(self.odps.get_instance(instance_id), limit=False)

    def _finish(self, statement: str, hints: dict[str, str], timeout: float) -> Any:
        """Runs a statement to its end.

        Raises:
            ServiceError: the statement failed; `code` is the service's.
            EndpointError: no answer.
        """
        settings = {
            "odps.sql.type.system.odps2": "true",
            "odps.sql.decimal.odps2": "true",
            "odps.namespace.schema": str(self.connection.namespace_schema).lower(),
            **hints,
        }

        def run() -> Any:
            instance = with_retries(
                lambda: self.odps.run_sql(statement, hints=settings), self.connection, only_sure=True
            )
            started = time.monotonic()
            running = RunningStatement(instance, self.connection, shown=_shown(statement), started=started)
            wait = _FIRST_POLL_SECONDS
            while not with_retries(lambda: instance.is_terminated(retry=False), self.connection):
                if time.monotonic() > started + timeout:
                    text = f"'{_shown(statement)}' is not done after {timeout:.0f} s ({running.where})"
                    raise ServiceError(text, status=None, code="Timeout", sure=False)
                running.look(time.monotonic())
                time.sleep(wait)
                wait = min(wait * 1.5, _LONGEST_POLL_SECONDS)
            try:
                with_retries(lambda: instance.wait_for_success(interval=_FIRST_POLL_SECONDS), self.connection)
            except ServiceError as error:
                raise ServiceError(
                    f"{error} ({running.where})", status=error.status, code=error.code, sure=error.sure
                ) from None
            return instance

        return self._about(run, statement)

    def _about(self, request: Callable[[], T], statement: str) -> T:
        """Runs requests about a statement; a failure without an answer is the endpoint's."""
        try:
            return request()
        except Exception as error:
            if not is_foreign(error):
                raise
            failure = to_service_error(error, self.connection)
            if failure.status is None and not failure.code:
                explain(failure, self.connection, f"'{_shown(statement)}'")
            if NO_INSTANCE in str(failure):  # the code of the answer, NoSuchObject, is that of a missing table too
                raise ServiceError(str(failure), status=failure.status, code=NO_INSTANCE, sure=False) from None
            raise failure from None

    def query(self, statement: str) -> list[dict[str, str | None]]:
        """Runs a SELECT with a small result; values are text, null is None.

        Raises:
            ServiceError: the statement failed.
            EndpointError: no answer.
        """
        rows = csv.DictReader(io.StringIO(self.run_sql(statement)))
        return [{name: None if value == _NULL else value for name, value in row.items()} for row in rows]

    def table(self, name: TableName) -> TableState | None:
        """Reads a table, or gives None when there is none.

        Raises:
            EndpointError: no answer, or no right to see it.
            DestinationError: any other refusal.
        """
        try:
            found = self.odps.get_table(name.table, project=name.project, schema=name.schema)
            with_retries(found.reload, self.connection)
            with_retries(found.reload_extend_info, self.connection)
        except Exception as error:
            if not is_foreign(error):
                raise
            failure = to_service_error(error, self.connection)
            if failure.told and failure.code in _MISSING_TABLE:
                return None
            explain(failure, self.connection, f"reading table '{name}'")
        return _state(found)

    def partitions(self, name: TableName) -> dict[str, float]:
        """The partitions of a table as ``k=v,k2=v2``, each with the time at which it was made, seconds since 1970.

        Raises:
            EndpointError: no answer, or no right to see it.
            DestinationError: any other refusal.
        """
        table = self.odps.get_table(name.table, project=name.project, schema=name.schema)

        def told() -> dict[str, float]:  # the client may ask once more for the time of a partition
            return {_partition_text(item): item.creation_time.timestamp() for item in table.partitions}

        found: dict[str, float] = self._run(told, f"listing the partitions of '{name}'")
        return found

    def _run(self, request: Any, doing: str) -> Any:
        try:
            return with_retries(request, self.connection)
        except Exception as error:
            if not is_foreign(error):
                raise
            explain(error, self.connection, doing)


def _partition_text(partition: Any) -> str:
    return ",".join(f"{key}={value}" for key, value in partition.partition_spec.kv.items())


def _shown(statement: str) -> str:
    return f"{' '.join(statement.split()[:4])} ..."


def _rest_factory(connection: Connection) -> Any:
    def build(account: Any, endpoint: str, project: str, schema: str | None = None, **options: Any) -> Any:
        tag, region = options.get("tag") or "ODPS", options.get("region_name")
        return guarded_rest(connection, endpoint, tag=tag, region=region)

    return build


def _state(table: Any) -> TableState:
    reserved = table.reserved if isinstance(table.reserved, dict) else {}
    properties = {str(key): str(value) for key, value in (table.table_properties or {}).items()}
    buckets = reserved.get("BucketNum") or properties.get("write.bucket.num") or reserved.get("write.bucket.num")
    key = reserved.get("PrimaryKey") or []
    key = [key] if isinstance(key, str) else key
    schema = table.table_schema
    return TableState(
        columns=tuple(_column(column) for column in schema.simple_columns),
        partition_columns=tuple(_column(column) for column in schema.partitions),
        primary_key=tuple(str(name).lower() for name in key),
        transactional=str(reserved.get("Transactional", "")).lower() == "true",
        buckets=int(buckets) if buckets else None,
        properties=properties,
        table_id=str(table.table_id or ""),
        version=_number(reserved.get("cdc_latest_version")),
        history_hours=_number(reserved.get("acid.data.retain.hours", properties.get("acid.data.retain.hours"))),
        lifecycle=_number(table.lifecycle) or None,
        made=table.creation_time.timestamp() if table.creation_time is not None else 0.0,
    )


def _number(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError):
        return None
    return number if number >= 0 else None


def _column(column: Any) -> TableColumn:
    nullable = column.nullable is None or str(column.nullable).lower() != "false"
    return TableColumn(column.name.lower(), parse_maxcompute_type(column.type.name), nullable)
