"""Read sessions: splits by size, row offset or bucket, rows as Arrow (spec 3.11)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from upsert_platform.local.maxcompute.errors import ServiceError, invalid_argument
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.maxstorage.arrow import send
from upsert_platform.local.maxcompute.maxstorage.buckets import by_bucket
from upsert_platform.local.maxcompute.maxstorage.describe import (
    answer_json,
    body_json,
    number_of,
    parameter,
    read_columns,
    result_schema,
    session_not_found,
    target,
    target_instance,
)
from upsert_platform.local.maxcompute.maxstorage.incremental import incremental_view
from upsert_platform.local.maxcompute.schema import Column, Partition, Table, parse_spec
from upsert_platform.local.maxcompute.service import Service
from upsert_platform.local.maxcompute.sql.query import parse, scope
from upsert_platform.local.maxcompute.storage.compute import quoted
from upsert_platform.local.maxcompute.storage.readers import Reader, View, view
from upsert_platform.local.maxcompute.storage.snapshot import Rows

_LIFETIME_HOURS = 24
_FLOORS = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}
_UNITS = {"second": "s", "milli": "ms", "micro": "us", "nano": "ns"}
_DEFAULT_SPLIT_BYTES = 256 << 20


def create_session(service: Service, request: Request) -> Response:
    """``TableCreateReadSession``: ready at once."""
    return _answer(new_session(service, target(service, request), body_json(request)))


def new_session(service: Service, table: Table, body: dict[str, Any]) -> Reader:
    """A read session on a table as it is, or on its changes."""
    columns, keys = chosen_columns(table, body)
    if body.get("IncrementalRead") or body.get("IncrementalReadOptions"):
        found, described = incremental_view(
            service,
            table,
            chosen_partitions(service, table, body),
            columns,
            keys,
            body.get("IncrementalReadOptions") or {},
        )
        return _added(service, found, described, body)
    found = view(service.store, table, chosen_partitions(service, table, body), [*columns, *keys])
    predicate = body.get("FilterPredicate")
    if predicate:
        found = _filtered(service, table, found, predicate)
    wanted = frozenset(body.get("RequiredBucketIds") or ())
    if (body.get("SplitOptions") or {}).get("SplitMode") == "Bucket":
        found, splits = by_bucket(table, found, wanted, asked="SplitMode Bucket")
        described = _described(table, found, columns, keys, mode="Bucket", splits=splits)
        return _added(service, found, described, body)
    if wanted:
        found, _ = by_bucket(table, found, wanted, asked="RequiredBucketIds")
    described = describe_session(table, found, columns, keys, body.get("SplitOptions") or {})
    return _added(service, found, described, body)


def _added(service: Service, found: View, described: dict[str, Any], body: dict[str, Any]) -> Reader:
    splits: Any = described.pop("splits")
    described["units"] = time_units(body.get("ArrowOptions") or {})
    return service.readers.add(found, splits=splits, described=described)


def describe_session(
    table: Table, found: View, columns: Sequence[Column], keys: Sequence[Column], options: dict[str, Any]
) -> dict[str, Any]:
    """The session's description, and under ``splits`` its row ranges."""
    mode = options.get("SplitMode") or "Size"
    number = number_of(options.get("SplitNumber") or _DEFAULT_SPLIT_BYTES, "SplitNumber")
    if mode not in ("Size", "RowOffset", "Parallelism") or number < 1:
        raise invalid_argument(f"SplitMode '{mode}' with SplitNumber {number} is not supported by this server")
    total = found.count
    splits: list[tuple[int, int]] = []
    if mode != "RowOffset" and total:
        parts = number if mode == "Parallelism" else -(-found.size // number)
        parts = max(1, min(parts, total))
        edges = [total * part // parts for part in range(parts + 1)]
        splits = [(start, end - start) for start, end in itertools.pairwise(edges)]
    return _described(table, found, columns, keys, mode=mode, splits=splits)


def _described(
    table: Table,
    found: View,
    columns: Sequence[Column],
    keys: Sequence[Column],
    *,
    mode: str,
    splits: list[tuple[int, int]],
) -> dict[str, Any]:
    return {
        "splits": splits,
        "SessionType": "BATCH_READ",
        "SplitMode": mode,
        "SplitsCount": -1 if mode == "RowOffset" else len(splits),
        "RecordCount": found.count,
        "DataSchema": {
            "DataColumns": read_columns(columns),
            "PartitionColumns": read_columns(keys),
            "SystemColumns": [],
        },
        "SessionStats": {"EstimatedSize": found.size, "EstimatedRowCount": found.count},
        "LatestVersion": table.version,
    }


def chosen_columns(table: Table, body: dict[str, Any]) -> tuple[list[Column], list[Column]]:
    """Data and partition columns of a read: the required ones, or all when none is required."""
    data = [name.lower() for name in body.get("RequiredDataColumns") or ()]
    keys = [name.lower() for name in body.get("RequiredPartitionColumns") or ()]
    known = {key.name: key for key in table.partition_keys}
    unknown = [name for name in keys if name not in known]
    if unknown:
        raise invalid_argument(f"table {table.name} has no partition column {', '.join(unknown)}")
    columns = [table.column(name) for name in data] if data else list(table.columns)
    if not data and not keys:
        return columns, list(table.partition_keys)
    return columns if data or not keys else list(table.columns), [known[name] for name in keys]


def chosen_partitions(service: Service, table: Table, body: dict[str, Any]) -> list[Partition]:
    """Partitions that the required specs, which may be partial, match; all of them without a spec."""
    specs = [parse_spec(spec.replace("/", ",")) for spec in body.get("RequiredPartitions") or ()]
    partitions = service.catalogue.partitions(table.table_id)
    if not specs:
        return partitions
    return [
        partition
        for partition in partitions
        if any(all(partition.values.get(name) == value for name, value in spec.items()) for spec in specs)
    ]


def _filtered(service: Service, table: Table, found: View, predicate: str) -> View:
    """The view with only the rows that a predicate over any columns lets pass; they have all columns."""
    tree = parse(f"SELECT * FROM placeholder WHERE {predicate}")
    condition = tree.find(exp.Where)
    assert condition is not None
    whole = View((*table.columns, *table.partition_keys), found.parts)
    selected = ", ".join(quoted(column.name) for column in whole.columns)
    with scope(service.context()) as opened:
        opened.cursor.register("source", whole.table())
        rows = opened.run(f"SELECT {selected} FROM source {opened.bind(condition)}")
    return View(found.columns, (({}, Rows(rows.cast(whole.schema), None)),))


def time_units(options: dict[str, Any]) -> dict[str, str]:
    """Arrow units of TIMESTAMP and DATETIME columns."""
    units = {}
    for key, default in (("TimestampUnit", "nano"), ("DatetimeUnit", "milli")):
        unit = options.get(key) or default
        if unit not in _UNITS:
            raise invalid_argument(f"{key} takes {', '.join(_UNITS)}, not '{unit}'")
        units[key] = _UNITS[unit]
    return units


def get_session(service: Service, request: Request) -> Response:
    """``TableGetReadSession``."""
    return _answer(find_reader(service, request))


def find_reader(service: Service, request: Request) -> Reader:
    session_id = parameter(request, "SessionId")
    reader = service.readers.find(session_id)
    if reader is None:
        raise session_not_found(session_id)
    return reader


def _answer(reader: Reader) -> Response:
    return answer_json(description(reader), route=reader.session_id)


def description(reader: Reader) -> dict[str, Any]:
    """Return the description of a read session for clients."""
    expires = int((reader.created + _LIFETIME_HOURS * 3600) * 1000)
    described = {name: value for name, value in reader.described.items() if name != "units"}
    return {
        **described,
        "SessionId": reader.session_id,
        "SessionStatus": "NORMAL",
        "ExpirationTime": expires,
        "SupportedDataFormat": [{"Type": "Arrow", "Version": "V5"}],
        "EnableLargeString": False,
    }


def read(service: Service, request: Request) -> Response:
    """``TableRead``: one split by ``Index``, or rows by ``Offset`` and ``Count``."""
    reader = find_reader(service, request)
    if "Index" in request.query:
        start, count = split_of(reader, number_of(request.query["Index"], "Index"))
    else:
        start = number_of(parameter(request, "Offset"), "Offset")
        count = number_of(parameter(request, "Count"), "Count")
    body = body_json(request)
    skipped = number_of(body.get("SkipRowNum") or 0, "SkipRowNum")
    names = [name.lower() for name in body.get("DataColumns") or ()]
    units: Any = reader.described["units"]
    return send_view(request, reader.view, start + skipped, count - skipped, body, names=names, units=units)


def split_of(reader: Reader, index: int) -> tuple[int, int]:
    """First row and number of rows of a split."""
    if not 0 <= index < len(reader.splits):
        raise invalid_argument(f"split {index} does not exist: the session has {len(reader.splits)}")
    return reader.splits[index]


def send_view(
    request: Request,
    found: View,
    start: int,
    count: int,
    body: dict[str, Any],
    *,
    names: Sequence[str] = (),
    units: dict[str, str] | None = None,
) -> Response:
    """Rows of a view as an Arrow stream, in batches of ``MaxBatchRows``."""
    return send(request, *batches_of(found, start, count, body, names=names, units=units))


def batches_of(
    found: View,
    start: int,
    count: int,
    body: dict[str, Any],
    *,
    names: Sequence[str] = (),
    units: dict[str, str] | None = None,
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Rows of a view, in batches of ``MaxBatchRows``."""
    columns = found.columns
    if names:
        known = {column.name: column for column in columns}
        missing = [name for name in names if name not in known]
        if missing:
            raise invalid_argument(f"the session does not read column {', '.join(missing)}")
        columns = tuple(known[name] for name in names)
    schema = pa.schema([pa.field(column.name, _sent_type(column, units or {})) for column in columns])
    size = number_of(body.get("MaxBatchRows") or 4096, "MaxBatchRows")

    def batches() -> Iterator[pa.RecordBatch]:
        for rows in found.slices(start, count):
            sent = [_in_unit(rows.column(field.name), field.type) for field in schema]
            yield from pa.table(sent, schema=schema).to_batches(max_chunksize=size)

    return schema, batches()


def _in_unit(values: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Moments in the unit that was asked for, cut towards the past; other values as they are."""
    if values.type == wanted or not pa.types.is_timestamp(wanted):
        return values.cast(wanted)
    return pc.floor_temporal(values, unit=_FLOORS[wanted.unit]).cast(wanted)


def _sent_type(column: Column, units: dict[str, str]) -> pa.DataType:
    match column.type.name:
        case "timestamp" | "timestamp_ntz":
            return pa.timestamp(units.get("TimestampUnit", "ns"))
        case "datetime":
            return pa.timestamp(units.get("DatetimeUnit", "ms"))
    return column.type.arrow


def preview(service: Service, request: Request) -> Response:
    """``TablePreview``: the first rows, without a session."""
    table = target(service, request)
    body = body_json(request)
    limit = number_of(request.query.get("Limit") or 10_000, "Limit")
    spec = request.query.get("Partition")
    partitions = [service.store.leaf(table, spec)] if spec else service.catalogue.partitions(table.table_id)
    columns = [*table.columns, *table.partition_keys]
    names = [name.lower() for name in body.get("Columns") or ()]
    return send_view(request, view(service.store, table, partitions, columns), 0, limit, body, names=names)


def create_instance_session(service: Service, request: Request) -> Response:
    """``InstanceCreateReadSession`` and ``InstanceGetReadSession``: the session is the instance."""
    instance = service.runner.get(target_instance(service, request))
    instance.done.wait()
    if instance.result is None or instance.result.rows is None:
        raise ServiceError(400, "InstanceTypeNotSupported", f"instance {instance.instance_id} has no rows to read")
    return answer_json(
        {
            "DownloadID": instance.instance_id,
            "RecordCount": instance.result.rows.num_rows,
            "Status": "normal",
            "TableSchema": result_schema(instance.result.columns),
        }
    )


def read_instance(service: Service, request: Request) -> Response:
    """``InstanceRead``: rows of a query's result."""
    instance = service.runner.get(target_instance(service, request))
    if instance.result is None or instance.result.rows is None:
        raise ServiceError(400, "InstanceTypeNotSupported", f"instance {instance.instance_id} has no rows to read")
    rows = instance.result.rows
    columns = tuple(Column(name, data_type) for name, data_type in instance.result.columns)
    body = body_json(request)
    start = number_of(request.query.get("Offset") or 0, "Offset")
    count = number_of(request.query.get("Count") or rows.num_rows, "Count")
    names = [name.lower() for name in body.get("Columns") or ()]
    return send_view(request, View(columns, (({}, Rows(rows, None)),)), start, count, body, names=names)
