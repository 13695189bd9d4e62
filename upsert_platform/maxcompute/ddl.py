"""CREATE TABLE from a declaration, and the differences between a declaration and a table that exists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from upsert_platform.core.errors import DestinationError
from upsert_platform.maxcompute.choices import SchemaChange, WriteApi
from upsert_platform.maxcompute.client import PARTIAL_UPDATES, Client, TableColumn, TableState
from upsert_platform.maxcompute.compaction import CUTS_CHANGES
from upsert_platform.maxcompute.connection import ServiceError, explain
from upsert_platform.maxcompute.names import quote, sql_text
from upsert_platform.maxcompute.options import DEFAULT_BUCKETS
from upsert_platform.maxcompute.partition_spec import Spec
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.maxcompute.types import stores, stores_partition, widens

_PARTITIONS_PER_STATEMENT = 200


def create_statement(table: MaxComputeTable) -> str:
    """The CREATE TABLE statement of a declared table.

    Key columns are NOT NULL, as a Delta table needs them. Other columns stay nullable although declared NOT NULL:
    a delete carries the key alone.
    """
    partition = set(table.partitions.columns)
    key = [name for name in table.primary_key if name.lower() not in partition] if table.upserts else []
    lines = []
    for column, kind in table.data_columns:
        not_null = " NOT NULL" if column.name in key else ""
        comment = f" COMMENT {sql_text(column.comment)}" if column.comment else ""
        lines.append(f"  {quote(column.name)} {kind}{not_null}{comment}")
    if key:
        lines.append(f"  PRIMARY KEY ({', '.join(quote(name) for name in key)})")
    parts = [f"CREATE TABLE IF NOT EXISTS {table.target.sql} (\n" + ",\n".join(lines) + "\n)"]
    if table.comment:
        parts.append(f"COMMENT {sql_text(table.comment)}")
    if partition:
        types = {c.name.lower(): str(kind) for c, kind in zip(table.columns, table.types, strict=True)}
        names = ", ".join(f"{quote(name)} {types.get(name, 'STRING')}" for name in table.partitions.columns)
        parts.append(f"PARTITIONED BY ({names})")
    if key:
        properties = {"transactional": "true", "write.bucket.num": str(table.settings.buckets or DEFAULT_BUCKETS)}
        if table.settings.retain_hours is not None:
            properties["acid.data.retain.hours"] = str(table.settings.retain_hours)
        listed = ", ".join(f'"{name}"="{value}"' for name, value in properties.items())
        parts.append(f"TBLPROPERTIES ({listed})")
    if table.settings.lifecycle is not None:
        parts.append(f"LIFECYCLE {table.settings.lifecycle}")
    return "\n".join(parts)


def compare(table: MaxComputeTable, actual: TableState) -> list[str]:
    """Says every difference that stops the table from holding what is declared; empty when it fits."""
    differences = []
    declared = {column.name.lower(): (column, kind) for column, kind in table.data_columns}
    present = {column.name: column for column in actual.columns}
    for name, (column, kind) in declared.items():
        found = present.get(name)
        assert column.type is not None
        if found is None:
            differences.append(f"column '{column.name}' {kind} is missing in the table")
        elif not stores(found.type, kind, column.type):
            differences.append(f"column '{column.name}' is {found.type} in the table, {column.type} needs {kind}")
    for name, found in present.items():
        if name not in declared and not found.nullable:
            differences.append(f"column '{name}' {found.type} NOT NULL of the table is not declared")
    differences.extend(_compare_undeclared(table, actual))
    differences.extend(_compare_partitions(table, actual))
    if table.upserts or (actual.primary_key and table.primary_key):
        differences.extend(_compare_key(table, actual))
    elif actual.primary_key:
        differences.append(
            f"the table has the primary key ({', '.join(actual.primary_key)}), by which it replaces rows, and none is"
            " declared: the order of a batch's rows would not be sure. Declare PRIMARY KEY"
            f" ({', '.join(actual.primary_key)}) NOT ENFORCED, or name a table without a primary key"
        )
    elif table.settings.api is WriteApi.TUNNEL:
        differences.append("the table has no primary key, so its rows cannot go through 'write.api' = 'tunnel'")
    if actual.primary_key and table.partitions.computed:
        differences.append(
            f"the table has the primary key ({', '.join(actual.primary_key)}), and 'sink.partition.assigner.class' is"
            " for tables without one"
        )
    if table.session_per_task and actual.transactional:
        differences.append(
            "the table is a Delta table, in which only one of several open sessions can be committed: leave"
            " 'sink.coordinator.enable' out"
        )
    if table.settings.compaction and actual.keeps_changes:
        differences.append(f"'upsert.major-compact.enable' = 'true': {CUTS_CHANGES}")
    return differences


def _compare_undeclared(table: MaxComputeTable, actual: TableState) -> list[str]:
    """Columns of the table that are not declared: appended rows have null there, rows that are put must not."""
    found = undeclared_columns(table, actual)
    if not table.puts_by_key(actual.primary_key) or not found:
        return []
    shown = ", ".join(f"'{name}'" for name in found)
    if not actual.partial_updates:
        return [
            f"the columns {shown} of the table are not declared, and a row that is put would set them to null: declare"
            f" them, or make the table with the property '{PARTIAL_UPDATES}' = 'true', with which only declared columns"
            " are written"
        ]
    if table.upserts and not table.partitions_follow_key and table.settings.move_rows:
        return [
            f"the columns {shown} of the table are not declared, and a row that moves to another partition would leave"
            " their values behind: declare them, or leave 'sink.partition.move-rows' out"
        ]
    return []


def undeclared_columns(table: MaxComputeTable, actual: TableState) -> tuple[str, ...]:
    """Data columns that only the table has, in its order."""
    declared = {column.name.lower() for column, _ in table.data_columns}
    return tuple(column.name for column in actual.columns if column.name not in declared)


def _compare_partitions(table: MaxComputeTable, actual: TableState) -> list[str]:
    wanted = list(table.partitions.columns)
    found = [column.name for column in actual.partition_columns]
    if wanted == found:
        return _compare_partition_types(table, actual)
    if not wanted:
        return [
            f"the table is partitioned by ({', '.join(found)}): name the columns in PARTITIONED BY, or fix them with"
            " 'sink.partition'"
        ]
    if not found:
        return [f"the table has no partitions, the declaration has ({', '.join(wanted)})"]
    return [f"the table is partitioned by ({', '.join(found)}), the declaration by ({', '.join(wanted)})"]


def _compare_partition_types(table: MaxComputeTable, actual: TableState) -> list[str]:
    differences = []
    for column, kind in zip(table.columns, table.types, strict=True):
        found = next((item for item in actual.partition_columns if item.name == column.name.lower()), None)
        assert column.type is not None
        if found is not None and not stores_partition(found.type, kind, column.type):
            differences.append(
                f"partition column '{column.name}' is {found.type} in the table, {column.type} needs {kind}"
            )
    return differences


def _compare_key(table: MaxComputeTable, actual: TableState) -> list[str]:
    if not actual.transactional or not actual.primary_key:
        return ["the table is not a Delta table with a primary key, which 'sink.operation' = 'upsert' needs"]
    differences = []
    partition = set(table.partitions.columns)
    key = [name.lower() for name in table.primary_key if name.lower() not in partition]
    if sorted(key) != sorted(actual.primary_key):
        differences.append(
            f"the primary key is ({', '.join(actual.primary_key)}) in the table, ({', '.join(key)}) as declared"
            " (partition columns left out)"
        )
    wanted = table.settings.buckets
    if wanted is not None and actual.buckets is not None and wanted != actual.buckets:
        differences.append(f"'upsert.write.bucket.num' is {wanted}, the table has {actual.buckets} buckets")
    return differences


def prepare_table(client: Client, table: MaxComputeTable) -> TableState:
    """Gives the table as it is, created when it is missing and ``auto.create`` is on.

    Raises:
        DestinationError: it is missing, or differs; every difference is named.
        EndpointError: not reachable, or credentials refused.
    """
    actual = client.table(table.target)
    if actual is None:
        statement = create_statement(table)
        if not table.settings.auto_create:
            raise DestinationError(
                f"table '{table.name}': {table.target} does not exist. Set 'auto.create' = 'true', or create it:\n"
                f"{statement};"
            )
        try:
            client.run_sql(statement)
        except ServiceError as error:
            explain(error, client.connection, f"creating table '{table.target}'")
        actual = client.table(table.target)
        if actual is None:
            raise DestinationError(f"table '{table.name}': {table.target} is not there after CREATE TABLE succeeded")
    if table.settings.schema_change is SchemaChange.EVOLVE:
        actual = _evolve(client, table, actual)
    difference = _told(table, actual)
    if difference is not None:
        raise DestinationError(difference)
    return actual


def schema_difference(client: Client, table: MaxComputeTable) -> str | None:
    """Return the difference between an existing table and its declaration, or None if they agree or the table does not
    exist.

    What the next write changes by itself (``schema.change.behavior``) is a difference until then.
    """
    actual = client.table(table.target)
    return None if actual is None else _told(table, actual)


def unprepared_table(client: Client, table: MaxComputeTable) -> str:
    """Return how a table is not what a write needs: missing, or its difference; empty if it is."""
    actual = client.table(table.target)
    return f"table '{table.name}': {table.target} does not exist" if actual is None else _told(table, actual) or ""


def _told(table: MaxComputeTable, actual: TableState) -> str | None:
    differences = compare(table, actual)
    if differences:
        listed = "\n".join(f"  - {difference}" for difference in differences)
        hint = ""
        if table.settings.schema_change is SchemaChange.EXCEPTION and evolve_statements(table, actual):
            hint = "\n'schema.change.behavior' = 'evolve' adds columns and widens types"
        return f"table '{table.name}': {table.target} does not fit its declaration:\n{listed}{hint}"
    return None


def evolve_statements(table: MaxComputeTable, actual: TableState) -> list[str]:
    """Statements that give the table the declared columns that it lacks, and wider types; rows stay as they are."""
    statements = []
    present = {column.name: column for column in actual.columns}
    key = {name.lower() for name in table.primary_key} | set(actual.primary_key)
    for column, kind in table.data_columns:
        assert column.type is not None
        name = column.name.lower()
        found = present.get(name)
        comment = f" COMMENT {sql_text(column.comment)}" if column.comment else ""
        if name in key:
            continue
        if found is None:
            statements.append(f"ALTER TABLE {table.target.sql} ADD COLUMNS ({quote(column.name)} {kind}{comment})")
        elif not stores(found.type, kind, column.type) and widens(found.type, kind):
            shown = quote(column.name)
            statements.append(f"ALTER TABLE {table.target.sql} CHANGE COLUMN {shown} {shown} {kind}{comment}")
    return statements


def with_added(table: MaxComputeTable, actual: TableState) -> TableState:
    """Return a table with the columns that the next write adds, where ``schema.change.behavior`` says so."""
    if table.settings.schema_change is not SchemaChange.EVOLVE:
        return actual
    present = {column.name for column in actual.columns}
    key = {name.lower() for name in table.primary_key} | set(actual.primary_key)
    added = [
        TableColumn(column.name.lower(), kind, nullable=True)
        for column, kind in table.data_columns
        if column.name.lower() not in present | key
    ]
    return replace(actual, columns=(*actual.columns, *added))


def _evolve(client: Client, table: MaxComputeTable, actual: TableState) -> TableState:
    statements = evolve_statements(table, actual)
    for statement in statements:
        try:
            client.run_sql(statement, hints={"odps.sql.allow.schema.evolution": "true"})
        except ServiceError as error:
            explain(error, client.connection, f"changing table '{table.target}' as declared ({statement})")
    changed = client.table(table.target) if statements else actual
    if changed is None:
        raise DestinationError(f"table '{table.name}': {table.target} is gone")
    return changed


def truncate_statements(table: MaxComputeTable) -> tuple[str, ...]:
    """Statements that empty what rows without any partition of their own replace: the table, or its static partition.

    With dynamic partitions there is nothing to empty: rows replace the partitions that they are in.
    """
    if table.partitions.dynamic:
        return ()
    spec = table.partitions.static
    if not spec:
        return (f"TRUNCATE TABLE {table.target.sql}",)
    return (
        *add_partitions_statements(table, [spec]),
        f"TRUNCATE TABLE {table.target.sql} PARTITION ({_listed(spec)})",
    )


def add_partitions_statements(table: MaxComputeTable, specs: Sequence[Spec]) -> list[str]:
    """Statements that create partitions unless they are there: one for many of them, since each takes seconds."""
    statements = []
    for start in range(0, len(specs), _PARTITIONS_PER_STATEMENT):
        listed = " ".join(f"PARTITION ({_listed(spec)})" for spec in specs[start : start + _PARTITIONS_PER_STATEMENT])
        statements.append(f"ALTER TABLE {table.target.sql} ADD IF NOT EXISTS {listed}")
    return statements


def _listed(spec: Spec) -> str:
    return ", ".join(f"{quote(name)}={sql_text(value)}" for name, value in spec)
