"""A declared MaxCompute table, checked: settings, target, columns, partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from upsert_platform.core.errors import Problem
from upsert_platform.core.masking import NO_MASK, Mask
from upsert_platform.core.model import Column, Table
from upsert_platform.core.options import read_settings
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.maxcompute.assigners import BY_COLUMNS, BY_TIME
from upsert_platform.maxcompute.choices import OnError, SinkOperation, WriteApi
from upsert_platform.maxcompute.names import TableName, parse_table_name
from upsert_platform.maxcompute.options import DEFAULT_PARTITION_LIMIT, MaxComputeSettings
from upsert_platform.maxcompute.partition_spec import (
    MAX_LEVELS,
    PartitionPlan,
    Spec,
    parse_spec,
    partition_holds,
    plan_partitions,
)
from upsert_platform.maxcompute.replaced import warn_of_replaced
from upsert_platform.maxcompute.types import MaxComputeType, UnsupportedTypeError, maxcompute_type, partition_type

TUNNEL_KEY_TYPES = frozenset(
    {"TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "CHAR", "VARCHAR", "STRING", "DATE"}
    | {"DATETIME", "TIMESTAMP", "DECIMAL"}
)
"""Key types whose bucket is known; see `upsert_platform.maxcompute.hashing`."""
_KEY_TYPES = TUNNEL_KEY_TYPES | {"BINARY"}


@dataclass(frozen=True, slots=True)
class MaxComputeTable:
    """A checked declaration, as `read_maxcompute_table` returns it.

    Attributes:
        name: as declared.
        columns: physical columns, in declared order; partition columns are among them when they are declared so.
        primary_key: declared names; empty in `insert` mode without a PRIMARY KEY clause.
        target: the table in MaxCompute.
        types: MaxCompute type of each column of `columns`.
        mask: what messages do not show.
        notices: warnings of options that have no effect, which a run repeats.
    """

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    settings: MaxComputeSettings
    target: TableName
    partitions: PartitionPlan
    types: tuple[MaxComputeType, ...]
    comment: str | None = None
    mask: Mask = NO_MASK
    notices: tuple[str, ...] = ()

    @property
    def data_columns(self) -> tuple[tuple[Column, MaxComputeType], ...]:
        """Columns that are stored as columns, with their types: all but the partition columns."""
        partition = set(self.partitions.columns)
        pairs = zip(self.columns, self.types, strict=True)
        return tuple((column, kind) for column, kind in pairs if column.name.lower() not in partition)

    @property
    def fails(self) -> bool:
        """Return whether a row that cannot be written ends the write (else it is kept aside)."""
        return self.settings.on_error is OnError.FAIL

    @property
    def upserts(self) -> bool:
        """Return whether the table is kept equal to the last value per key (else rows are appended)."""
        return self.settings.operation is SinkOperation.UPSERT

    def puts_by_key(self, actual_key: Sequence[str]) -> bool:
        """Return whether a row takes the place of the row with its key: so it is in every table that has a primary key.

        Args:
            actual_key: of the table as it is.
        """
        return self.upserts or bool(actual_key)

    def places_of(self, actual_key: Sequence[str]) -> tuple[str, ...]:
        """Declared partition columns that, beside the primary key, tell rows apart: older rows of a key stay where they
        are. Empty where a key has one row."""
        if not self.puts_by_key(actual_key) or self.partitions_follow_key or (self.upserts and self.settings.move_rows):
            return ()
        key = {name.lower() for name in self.primary_key}
        dynamic = [name for name in self.partitions.dynamic if name not in key]
        return tuple(column.name for column in self.columns if column.name.lower() in dynamic)

    @property
    def session_per_task(self) -> bool:
        """Return whether every task has a write session of its own, committed on its own."""
        return not self.upserts and not self.settings.coordinator

    @property
    def partitions_follow_key(self) -> bool:
        """Return whether a delete's key tells its partition; otherwise deletes need the row as it was before."""
        key = {name.lower() for name in self.primary_key}
        return not self.partitions.computed and all(name in key for name in self.partitions.dynamic)

    @property
    def undeclared_moves(self) -> str | None:
        """Return the handling of older rows of a key if the declaration leaves it open."""
        if not self.upserts or self.partitions_follow_key or "move_rows" in self.settings.model_fields_set:
            return None
        key = {name.lower() for name in self.primary_key}
        return _describe_moves([name for name in self.partitions.dynamic if name not in key])

    @property
    def places(self) -> tuple[str, ...]:
        """`places_of` where rows are put because that is declared."""
        return self.places_of(()) if self.upserts else ()


def read_maxcompute_table(table: Table) -> tuple[MaxComputeTable | None, list[Problem]]:
    """Checks the declaration of a MaxCompute table.

    Returns:
        The table, or None when there are errors, and all problems; warnings name options that change nothing here.
    """
    subject = f"table '{table.name}'"
    settings, problems = read_settings(MaxComputeSettings, table.options, subject=subject, location=table.location)
    apart = settings is not None and settings.operation is SinkOperation.INSERT and not settings.coordinator
    replaced = warn_of_replaced(table, session_per_task=apart)
    problems.extend(replaced)
    types, type_problems = _types(table)
    problems.extend(type_problems)
    problems.extend(_check_names(table))
    if settings is None:
        return None, problems

    def add(message: str, option: str | None = None, severity: str = "error") -> None:
        place = (table.options.location(option) if option else None) or table.location
        problems.append(Problem(f"{subject}: {message}", place, severity))

    target = None
    try:
        target = parse_table_name(
            settings.table_name, project=settings.project, namespace_schema=settings.namespace_schema
        )
    except ValueError as error:
        add(f"option 'table.name' {error}", "table.name")
    plan = None
    try:
        plan = _plan(table, settings)
    except ValueError as error:
        add(f"option 'sink.partition' {error}", "sink.partition")
    if plan is not None:
        _check_mode(table, settings, plan, add)
    if target is None or plan is None or any(problem.severity == "error" for problem in problems):
        return None, problems
    checked = MaxComputeTable(
        name=table.name,
        columns=table.physical_columns,
        primary_key=table.primary_key,
        settings=settings,
        target=target,
        partitions=plan,
        types=tuple(types),
        comment=table.comment,
        mask=Mask.of(table),
        notices=tuple(problem.message for problem in replaced),
    )
    if not checked.data_columns:
        add("has partition columns only; a MaxCompute table needs another column")
        return None, problems
    return checked, problems


def _types(table: Table) -> tuple[list[MaxComputeType], list[Problem]]:
    types: list[MaxComputeType] = []
    problems = []
    partition = {name.lower() for name in table.partitioned_by}
    for column in table.physical_columns:
        assert column.type is not None
        try:
            convert = partition_type if column.name.lower() in partition else maxcompute_type
            types.append(convert(column.type))
        except UnsupportedTypeError as error:
            where = column.location or table.location
            problems.append(Problem(f"table '{table.name}': column '{column.name}': {error}", where))
    return types, problems


def _check_names(table: Table) -> list[Problem]:
    problems = []
    seen: dict[str, str] = {}
    for column in table.physical_columns:
        where = column.location or table.location
        lowered = column.name.lower()
        if lowered in seen:
            message = f"columns '{seen[lowered]}' and '{column.name}' are one name in MaxCompute, which ignores case"
            problems.append(Problem(f"table '{table.name}': {message}", where))
        seen[lowered] = column.name
        if len(column.name.encode()) > 128 or any(char in column.name for char in "`.\\'\"") or lowered[:2] == "__":
            message = f"column '{column.name}': a name has at most 128 bytes, no quotes or dots, no __ in front"
            problems.append(Problem(f"table '{table.name}': {message}", where))
    return problems


def _plan(table: Table, settings: MaxComputeSettings) -> PartitionPlan:
    static: Spec = parse_spec(settings.partition) if settings.partition else ()
    fixed, dynamic = plan_partitions(static, [name.lower() for name in table.partitioned_by])
    return PartitionPlan(
        static=fixed,
        dynamic=dynamic,
        default=settings.partition_default,
        limit=settings.partition_limit,
        assigner=settings.assigner if settings.assigner not in (None, BY_COLUMNS, BY_TIME) else None,
        time_format=settings.assigner_format if settings.assigner == BY_TIME else None,
        time_zone=settings.assigner_zone,
    )


def _check_mode(table: Table, settings: MaxComputeSettings, plan: PartitionPlan, add) -> None:  # type: ignore[no-untyped-def]
    physical = {column.name.lower(): column for column in table.physical_columns}
    if len(plan.columns) > MAX_LEVELS:
        add(f"has {len(plan.columns)} partition columns; MaxCompute allows {MAX_LEVELS}")
    for name in plan.dynamic:
        if name not in physical and not plan.computed:
            add(
                f"PARTITIONED BY names '{name}', which is not a column; declare it or set"
                " 'sink.partition.assigner.class'"
            )
    _check_partition_values(table, plan, add)
    if settings.assigner and not plan.dynamic:
        add("option 'sink.partition.assigner.class' needs dynamic partition columns in PARTITIONED BY",
            "sink.partition.assigner.class")  # fmt: skip
    if plan.time_format and len(plan.dynamic) > 1:
        add("the date-time assigner fills one partition column, the last; fix the others with 'sink.partition'",
            "sink.partition.assigner.class")  # fmt: skip
    if settings.partition_limit > DEFAULT_PARTITION_LIMIT:
        add(
            f"option 'sink.dynamic-partition.limit' is {settings.partition_limit}: many partitions per batch make many"
            " small files",
            "sink.dynamic-partition.limit",
            "warning",
        )
    if settings.api is WriteApi.TUNNEL and settings.operation is SinkOperation.INSERT and not table.primary_key:
        add("option 'write.api' = 'tunnel' needs a PRIMARY KEY; rows of tables without one go through MaxStorage",
            "write.api")  # fmt: skip
    if settings.api is WriteApi.TUNNEL:
        for column in table.physical_columns:
            if column.type is not None and _holds_whole_decimals(column.type):
                add(f"column '{column.name}': {column.type} is misread by the tunnel; give its DECIMAL a scale, or use"
                    " 'write.api' = 'maxstorage'", "write.api")  # fmt: skip
    if settings.operation is SinkOperation.UPSERT:
        _check_upsert(table, settings, plan, add)
    else:
        if settings.move_rows:
            add("option 'sink.partition.move-rows' = 'true' has no effect with 'sink.operation' = 'insert': rows that"
                " are appended never move; use 'sink.operation' = 'upsert'",
                "sink.partition.move-rows", "warning")  # fmt: skip
        if table.primary_key:
            add("has a PRIMARY KEY and 'sink.operation' = 'insert': deletes are refused; rows take the place of rows"
                " with their key in a Delta table that has this key, and are appended to any other table. Use"
                " 'sink.operation' = 'upsert' to keep the last value per key", "sink.operation", "warning")  # fmt: skip


def _check_partition_values(table: Table, plan: PartitionPlan, add) -> None:  # type: ignore[no-untyped-def]
    """Fixed and default values that the type of their column cannot have would make the table unreadable."""
    kinds = {column.name.lower(): column.type for column in table.physical_columns if column.type is not None}
    for name, value in plan.static:
        if name in kinds and not partition_holds(value, kinds[name], strict=True):
            add(f"option 'sink.partition' fixes '{name}' to '{value}', which is not a {kinds[name]}", "sink.partition")
    if "sink.partition.default-value" not in table.options:
        return
    for name in plan.dynamic:
        if name in kinds and not partition_holds(plan.default, kinds[name]):
            add(f"option 'sink.partition.default-value' = '{plan.default}' is not a {kinds[name]}, the type of"
                f" partition column '{name}'", "sink.partition.default-value")  # fmt: skip


def _describe_moves(outside: Sequence[str]) -> str:
    return (
        f"PARTITIONED BY ({', '.join(outside)}) is outside the PRIMARY KEY: a key has one row per partition, as with"
        " the connector for Flink, and a row that arrives with another partition leaves the older one in place."
        " 'sink.partition.move-rows' = 'true' keeps one row per key, which moves when its partition changes"
    )


def _holds_whole_decimals(kind: LogicalType, *, nested: bool = False) -> bool:
    """Return whether a DECIMAL without scale is inside a nested type: PyODPS takes its scale for 18 when it reads
    Arrow.
    """
    inner = [item for item in (kind.element, kind.key, *(part.type for part in kind.fields)) if item is not None]
    here = nested and kind.name is TypeName.DECIMAL and not kind.scale
    return here or any(_holds_whole_decimals(item, nested=True) for item in inner)


def _check_upsert(table: Table, settings: MaxComputeSettings, plan: PartitionPlan, add) -> None:  # type: ignore[no-untyped-def]
    if not settings.coordinator:
        add("option 'sink.coordinator.enable' = 'false' cannot be used with 'sink.operation' = 'upsert': sessions of"
            " single tasks are not committed together", "sink.coordinator.enable")  # fmt: skip
    if not table.primary_key:
        add("'sink.operation' = 'upsert' needs PRIMARY KEY (...) NOT ENFORCED", "sink.operation")
    if plan.computed:
        add("option 'sink.partition.assigner.class' needs 'sink.operation' = 'insert': a delete carries the key only,"
            " so its partition cannot be computed", "sink.partition.assigner.class")  # fmt: skip
    partition = set(plan.columns)
    key = [name for name in table.primary_key if name.lower() not in partition]
    if table.primary_key and not key:
        add("the PRIMARY KEY has partition columns only; MaxCompute needs a key column beside them")
    for name in key:
        kind = table.column(name).type
        assert kind is not None
        try:
            root = maxcompute_type(kind).root
        except UnsupportedTypeError:
            continue  # reported with the column
        if root not in _KEY_TYPES:
            add(f"column '{name}': {root} cannot be in a PRIMARY KEY of MaxCompute")
        elif settings.api is WriteApi.TUNNEL and root not in TUNNEL_KEY_TYPES:
            add(
                f"column '{name}': the tunnel has no sure bucket for {root} keys; use 'write.api' = 'maxstorage'",
                "write.api",
            )
    dynamic = [name for name in plan.dynamic if name not in {key.lower() for key in table.primary_key}]
    if dynamic and table.primary_key and "sink.partition.move-rows" not in table.options:
        add(f"{_describe_moves(dynamic)}. Set the option to 'true' or 'false' to confirm which is meant",
            severity="warning")  # fmt: skip
    if settings.move_rows and not dynamic:
        add("option 'sink.partition.move-rows' = 'true' has no effect: the partition of a row follows from its PRIMARY"
            " KEY, so no row moves", "sink.partition.move-rows", "warning")  # fmt: skip
    parallelism, buckets = settings.parallelism, settings.buckets
    if parallelism and buckets and buckets % parallelism:
        add(f"'upsert.write.bucket.num' = {buckets} is not a multiple of 'sink.parallelism' = {parallelism}: buckets"
            " are then spread unevenly over tasks", "sink.parallelism", "warning")  # fmt: skip
