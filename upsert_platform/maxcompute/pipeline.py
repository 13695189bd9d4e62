"""Writes Spark frames to a MaxCompute table from Python, without a project: the equal of the connector's OdpsPipeline.

pipeline = OdpsPipeline(
    project_name="p", table_name="ledger", odps_conf=OdpsConf(access_id, access_key, endpoint, "p"),
    configuration={"sink.operation": "upsert"},
)
pipeline.sink(frame)
stream.writeStream.foreachBatch(lambda frame, batch: pipeline.sink(frame, batch=batch)).start()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from upsert_platform.core.destination import OPERATION, OPERATION_UPSERT, SEQUENCE, BatchSpan, WriteReport
from upsert_platform.core.errors import DeclarationError, DestinationError, SourceLocation
from upsert_platform.core.model import Column, Options, Table
from upsert_platform.core.types import parse_type
from upsert_platform.maxcompute.client import Client, TableState
from upsert_platform.maxcompute.connection import Connection
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.frame_rows import check_controls, last_per_key
from upsert_platform.maxcompute.names import quote
from upsert_platform.maxcompute.partition_spec import parse_spec
from upsert_platform.maxcompute.stream_batches import StreamBatches
from upsert_platform.maxcompute.table import MaxComputeTable, read_maxcompute_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

LEASE: Final = timedelta(seconds=60)
_QUERY_ID: Final = "sql.streaming.queryId"
"""Local property in which Spark keeps the id of the streaming query whose batch it runs."""
_REACH: Final = ("connector", "odps.", "table.name", "request.")
_NAMES: Final = {
    "boolean": "BOOLEAN", "tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INT", "bigint": "BIGINT",
    "float": "FLOAT", "double": "DOUBLE", "string": "STRING", "binary": "BYTES", "date": "DATE",
    "timestamp": "TIMESTAMP_LTZ(6)", "timestamp_ntz": "TIMESTAMP(6)",
}  # fmt: skip


@dataclass(frozen=True)
class OdpsConf:
    """The connection options of a project, in the order of the connector's class of that name."""

    access_id: str = field(repr=False)
    access_key: str = field(repr=False)
    endpoint: str
    project: str
    tunnel_endpoint: str | None = None


class OdpsPipeline:
    """A table to write frames to.

    Args:
        project_name: of the table.
        table_name: of the table, which exists; ``schema.table`` where the project has schemas.
        partition: as option ``sink.partition``: a static partition, or the leading part of a dynamic one.
        configuration: further options by their names in DDL, ``sink.operation`` among them.
    """

    def __init__(
        self,
        *,
        project_name: str,
        table_name: str,
        odps_conf: OdpsConf,
        partition: str = "",
        configuration: Mapping[str, str] | None = None,
    ) -> None:
        conf = odps_conf
        named = {
            "connector": "maxcompute",
            "odps.project.name": conf.project,
            "odps.access.id": conf.access_id,
            "odps.access.key": conf.access_key,
            "odps.end.point": conf.endpoint,
        }
        if conf.tunnel_endpoint:
            named["odps.tunnel.end.point"] = conf.tunnel_endpoint
        if partition.strip():
            named["sink.partition"] = partition
        self._options = {**named, **(configuration or {})}
        schemas = self._options.get("odps.namespace.schema", "").strip().lower() in ("true", "yes")
        inner = f"default.{table_name}" if schemas and "." not in table_name else table_name
        self._options["table.name"] = f"{project_name}.{inner}"
        self._partition = self._options.get("sink.partition", "")
        self._name = table_name

    def __repr__(self) -> str:
        return f"OdpsPipeline({self._options['table.name']!r})"

    def sink(
        self, frame: DataFrame, overwrite: bool = False, *, batch: int | None = None, query: str | None = None
    ) -> WriteReport:
        """Writes a frame in one commit.

        Args:
            frame: columns of the table by name. For ``upsert`` it may have ``_op`` (``U`` puts the row, ``D`` deletes
                the row of its key; nothing else) and ``_seq`` (a whole number, a moment or a date, never null: of rows
                with one key the highest counts).
            overwrite: the rows replace the table, its static partition, or the dynamic partitions that they are in.
            batch: number of the frame, from 0, growing, as `foreachBatch` gives it: the last one of a query that was
                written changes nothing when it comes again. Without it every call writes.
            query: id of the query that the number belongs to; inside `foreachBatch` it is Spark's own id of the query.

        Raises:
            DeclarationError: options or column types that the table cannot have.
            DestinationError: the table is missing or differs; a batch comes after a later one of its query; the write
                failed. Nothing was committed.
            RecordError: a key comes twice and ``_seq`` does not tell which row counts; ``_op`` or ``_seq`` is none; a
                row is refused.
            LeaseHeldError: another writer has the table.
            EndpointError: no answer.
        """
        if batch is not None and batch < 0:
            raise DestinationError(f"the number of a batch is 0 or more, not {batch}")
        destination = MaxComputeDestination(self._table(frame))
        with closing(destination):
            destination.prepare()
            with _kept(frame) as rows:
                check_controls(rows)
                if destination.primary_key:
                    rows = last_per_key(rows, destination)
                changes = _as_changes(rows, destination.table)
                with destination.lease(owner=repr(self), duration=LEASE) as lease:
                    state = destination.state()
                    written = StreamBatches.of(state.changelog_id)
                    if batch is not None:
                        name = query if query is not None else _running_query(frame)
                        if written.holds(name, batch):
                            return WriteReport(metrics={"already_applied": 1})
                        written = written.with_batch(name, batch)
                    applied = state.applied_batch
                    after = 0 if overwrite else applied
                    span = BatchSpan(after, applied + 1, written.to_text(), repr(self), overwrite)
                    return destination.write(changes, span=span, lease=lease)

    def _table(self, frame: DataFrame) -> MaxComputeTable:
        actual = self._actual()
        partitions = tuple(column.name for column in actual.partition_columns)
        upserts = self._options.get("sink.operation", "insert").strip().lower() == "upsert"
        static = _static_names(self._partition)
        keyed = upserts or actual.primary_key
        key = (*actual.primary_key, *(name for name in partitions if name not in static)) if keyed else ()
        columns = tuple(
            Column(item.name, parse_type(declared_type(item.dataType)))
            for item in frame.schema.fields
            if item.name not in (OPERATION, SEQUENCE)
        )
        names = {column.name.lower(): column.name for column in columns}
        lacking = [name for name in key if name not in names]
        if lacking:
            raise DestinationError(f"the frame has no column '{lacking[0]}', which is in the key of {self._name}")
        return self._declared(self._options, columns, tuple(names[name] for name in key), partitions)

    def _declared(
        self, options: Mapping[str, str], columns: tuple[Column, ...], key: tuple[str, ...], partitions: tuple[str, ...]
    ) -> MaxComputeTable:
        declared = Table(
            name=self._name,
            columns=columns,
            primary_key=key,
            options=Options(options),
            location=SourceLocation("OdpsPipeline", 1),
            partitioned_by=partitions,
        )
        table, problems = read_maxcompute_table(declared)
        if table is None:
            raise DeclarationError([problem for problem in problems if problem.severity == "error"])
        return table

    def _actual(self) -> TableState:
        """The table as it is."""
        reach = {name: self._options[name] for name in self._options if name.startswith(_REACH)}
        probe = self._declared(reach, (Column("any", parse_type("STRING")),), (), ())
        with closing(Client(Connection.of(probe.settings))) as client:
            actual = client.table(probe.target)
        if actual is None:
            raise DestinationError(f"table {probe.target} does not exist; create it first")
        return actual


def _static_names(partition: str) -> set[str]:
    """Partition columns with a fixed value; what is wrong with the text is told where all options are read."""
    try:
        return {name for name, _ in parse_spec(partition)} if partition else set()
    except ValueError:
        return set()


def declared_type(kind: DataType) -> str:
    """The type of a declaration for a type of Spark.

    Raises:
        DestinationError: MaxCompute has none for it.
    """
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    match kind:
        case DecimalType():
            return f"DECIMAL({kind.precision}, {kind.scale})"
        case ArrayType():
            return f"ARRAY<{declared_type(kind.elementType)}>"
        case MapType():
            return f"MAP<{declared_type(kind.keyType)}, {declared_type(kind.valueType)}>"
        case StructType():
            return f"ROW<{', '.join(f'{quote(item.name)} {declared_type(item.dataType)}' for item in kind.fields)}>"
    name = kind.simpleString()
    if name not in _NAMES:
        raise DestinationError(f"MaxCompute has no type for columns of type {name}; cast them")
    return _NAMES[name]


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    """The frame, computed once: what was checked is what is written."""
    level = frame.storageLevel
    if level.useMemory or level.useDisk:
        yield frame
        return
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def _running_query(frame: DataFrame) -> str:
    """Id of the streaming query that runs this code in `foreachBatch`; empty outside of one."""
    return frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID) or ""


def _as_changes(frame: DataFrame, table: MaxComputeTable) -> DataFrame:
    from pyspark.sql import functions as F

    operation = F.col(OPERATION) if OPERATION in frame.columns else F.lit(OPERATION_UPSERT)
    columns = [F.col(quote(column.name)) for column in table.columns]
    return frame.select(*columns, operation.alias(OPERATION), F.lit(0).cast("bigint").alias(SEQUENCE))
