"""Names of assets, and what is known of them before a run."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import dagster as dg
import sqlglot

from upsert_platform.core import check_names
from upsert_platform.core.model import Column, Insert, Table, asset_part
from upsert_platform.core.plan import Query
from upsert_platform.core.types import LogicalType
from upsert_platform.engine.lineage import lineage
from upsert_platform.graph.parameters import rename_parameters
from upsert_platform.sync.connectors import connector_of, stream_group

F = TypeVar("F", bound=Callable[..., Any])
PLATFORM = "platform"
SPARK = "spark"
ENDPOINTS = ("kafka", "tablestore", "maxcompute", "postgres", "mysql")
LAKE = "lake"
CHANGELOG_IO = "changelog_io"
DESTINATION_IO = "destination_io"
QUERY_IO = "query_io"
TABLE_METADATA = "upsert/table"
AS_OF_METADATA = "upsert/as_of"
"""Name of an input's metadata: the batch, offsets or time as of which it is read."""
PLAN_METADATA = "upsert/plan"
"""Name of a query's metadata: its operators as a tree, what each remembers, and with what that grows."""
CHECK_LAST_VALUE = check_names.LAST_VALUE
CHECK_ACCOUNTED = check_names.ACCOUNTED
CHECK_QUARANTINE = check_names.QUARANTINE
CHECK_LOSS = "no_unread_loss"
CHECK_SCHEMA = "schema_matches"
CHECK_TOPIC = "equals_topic"
CHECK_SOURCE = "equals_source"
CHECK_PLAN = "unchanged"
CHECK_FRESHNESS = check_names.FRESHNESS
COMPLETE_TAG = "upsert/complete"
"""Run tag; ``true`` makes checks compare every row."""


def op_name(kind: str, table: str) -> str:
    """A name that Dagster takes for an op, one per table: other characters become ``_``, with a checksum at the end."""
    name = re.sub(r"\W", "_", table, flags=re.ASCII)
    return f"{kind}_{name}" if name == table else f"{kind}_{name}_{zlib.crc32(table.encode()):08x}"


def stream_key(table: Table, stream: str) -> dg.AssetKey:
    """Key of the asset of what a declared table reads: a topic, or a table of a database."""
    return dg.AssetKey([stream_group(table), asset_part(stream)])


def changelog_key(table: str) -> dg.AssetKey:
    """Key of the changelog asset of a declared table."""
    return dg.AssetKey(["changelogs", asset_part(table)])


def query_key(query: str) -> dg.AssetKey:
    """Key of the asset of a query."""
    return dg.AssetKey(["queries", asset_part(query.removesuffix("$query"))])


def destination_key(table: str) -> dg.AssetKey:
    """Key of the asset of a destination table."""
    return dg.AssetKey(["tables", asset_part(table)])


def source_key(table: str) -> dg.AssetKey:
    """Key of the source asset of a declared Delta table that others write."""
    return dg.AssetKey(["sources", asset_part(table)])


def told_apart(given: Iterable[dg.AssetKey]) -> dict[dg.AssetKey, dg.AssetKey]:
    """Return other keys for those from which Dagster derives the name of a step that another one has: ``c-1``, ``c_1``.

    The one that is written as the name stays; the others have a checksum at the end.
    """
    found: dict[str, list[dg.AssetKey]] = {}
    for key in dict.fromkeys(given):
        found.setdefault(key.to_python_identifier(), []).append(key)
    return {
        key: dg.AssetKey([*key.path[:-1], f"{key.path[-1]}_{zlib.crc32(key.path[-1].encode()):08x}"])
        for name, same in found.items()
        for key in same
        if len(same) > 1 and name != "__".join(key.path)
    }


@dataclass(frozen=True)
class AssetKeys:
    """Keys of the assets of a project, where some have other ones than by themselves, and names beside them.

    Attributes:
        translated: key by itself to the key that a translator gave, or that tells it from another one.
        instance: tells the project from others of the same code location: resources, IO managers, jobs, schedules,
            sensors and ops have it at the end of their names. Empty for the only one.
    """

    translated: Mapping[dg.AssetKey, dg.AssetKey] = field(default_factory=dict)
    instance: str = ""

    def named(self, name: str) -> str:
        """A name of a resource, a job, a schedule, a sensor or an op, in this code location."""
        return f"{name}_{self.instance}" if self.instance else name

    def command(self, job: str) -> str:
        """Return the command that runs a job, typed in the folder whose pyproject.toml names the code location."""
        return f"upsert-platform run {self.named(job)}"

    def op_name(self, kind: str, table: str) -> str:
        """A name that Dagster takes for an op, one per table."""
        return op_name(self.named(kind), table)

    def bound(self, function: F) -> F:
        """A function for a decorator of Dagster: its parameters `platform` and `spark` are this project's resources."""
        return rename_parameters(function, {name: self.named(name) for name in (PLATFORM, SPARK)})

    def of(self, key: dg.AssetKey) -> dg.AssetKey:
        """The key that an asset has instead of its own one."""
        return self.translated.get(key, key)

    def stream_key(self, table: Table, stream: str) -> dg.AssetKey:
        """Key of the asset of what a declared table reads."""
        return self.of(stream_key(table, stream))

    def changelog_key(self, table: str) -> dg.AssetKey:
        """Key of the changelog asset of a declared table."""
        return self.of(changelog_key(table))

    def query_key(self, query: str) -> dg.AssetKey:
        """Key of the asset of a query."""
        return self.of(query_key(query))

    def destination_key(self, table: str) -> dg.AssetKey:
        """Key of the asset of a destination table."""
        return self.of(destination_key(table))


AS_DECLARED = AssetKeys()
"""The keys of a project without a translator."""


def stored_as(table: Table) -> str:
    """Return the storage name of a table as Dagster's ``table_name``, which links assets of the same table.

    So the name of the table alone will not do: tables of that name in two systems are two tables.
    """
    connector = connector_of(table)
    return connector.stored_as(table) if connector else table.name


def column_schema(
    columns: tuple[Column, ...], primary_key: tuple[str, ...], made_of: dg.TableColumnLineage | None = None
) -> dg.TableSchema:
    """Dagster's form of declared columns.

    Args:
        made_of: is told with them, for Dagster draws the lineage of columns in its commercial edition alone.
    """
    deps = made_of.deps_by_column if made_of is not None else {}
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                column.name,
                _shown(column.type),
                description=_described(column, deps.get(column.name, ())),
                constraints=dg.TableColumnConstraints(
                    nullable=column.name not in primary_key and (column.type is None or column.type.nullable)
                ),
            )
            for column in columns
        ],
        constraints=dg.TableConstraints(other=[f"PRIMARY KEY ({', '.join(primary_key)})"] if primary_key else []),
    )


def column_lineage(query: Query, names: AssetKeys) -> dg.TableColumnLineage:
    """Return the columns of a query's inputs from which each column of its result is computed."""

    def key_of(table: str) -> dg.AssetKey:
        return names.changelog_key(table) if table in query.tables else names.destination_key(table)

    return dg.TableColumnLineage(
        {
            name: [dg.TableColumnDep(key_of(table), column) for table, column in found]
            for name, found in lineage(query.plan).items()
        }
    )


def insert_lineage(insert: Insert, target: Table, read: Collection[str], names: AssetKeys) -> dg.TableColumnLineage:
    """Return the columns of an insert's inputs from which each column of its table is computed.

    Args:
        read: names of the columns of what it reads.
    """
    source = names.query_key(insert.source) if insert.query else names.changelog_key(insert.source)
    found = {}
    for column, projection in zip(target.physical_columns, insert.projections, strict=True):
        # Names that are not columns are those of parameters of functions.
        meant = {item.name for item in sqlglot.parse_one(projection, dialect="spark").find_all(sqlglot.exp.Column)}
        found[column.name] = [dg.TableColumnDep(source, name) for name in read if name in meant]
    return dg.TableColumnLineage(found)


def _described(column: Column, deps: Sequence[dg.TableColumnDep]) -> str | None:
    """The comment of a column, and what it is made of."""
    origin = ", ".join(f"{item.asset_key.path[-1]}.{item.column_name}" for item in deps)
    told = [column.comment or "", f"from {origin}" if origin else ""]
    return "; ".join(text for text in told if text) or None


def _shown(kind: LogicalType | None) -> str:
    """A type without NOT NULL, which is shown as a constraint."""
    return "computed" if kind is None else str(replace(kind, nullable=True))
