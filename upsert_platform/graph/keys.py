"""Names of assets, and what is known of them before a run."""

from __future__ import annotations

import re
import zlib

import dagster as dg

from upsert_platform.model import Column, Table
from upsert_platform.types import LogicalType

CHANGELOG_IO = "changelog_io"
DESTINATION_IO = "destination_io"
TABLE_METADATA = "upsert/table"
CHECK_LAST_VALUE = "last_value_per_key"
CHECK_ACCOUNTED = "offsets_accounted"
COMPLETE_TAG = "upsert/complete"
"""Run tag; ``true`` makes checks compare every row."""
_KINDS = {"upsert-kafka": "kafka", "tablestore-connect": "tablestore"}


def topic_names(table: Table) -> tuple[str, ...]:
    """The topics that a table reads; a pattern stands for the topics that it will match."""
    pattern = table.options.get("topic-pattern")
    if pattern:
        return (f"pattern {pattern}",)
    return tuple(item.strip() for item in table.options.get("topic", "").split(";") if item.strip())


def _part(name: str) -> str:
    """A text that Dagster takes as a part of an asset key."""
    return "".join(char if char.isalnum() or char in "_-." else "_" for char in name)


def op_name(kind: str, table: str) -> str:
    """A name that Dagster takes for an op, one per table: other characters become ``_``, with a checksum at the end."""
    name = re.sub(r"\W", "_", table, flags=re.ASCII)
    return f"{kind}_{name}" if name == table else f"{kind}_{name}_{zlib.crc32(table.encode()):08x}"


def topic_key(topic: str) -> dg.AssetKey:
    """Key of a topic's asset."""
    return dg.AssetKey(["topics", _part(topic)])


def changelog_key(table: str) -> dg.AssetKey:
    """Key of the changelog asset of a declared table."""
    return dg.AssetKey(["changelogs", _part(table)])


def destination_key(table: str) -> dg.AssetKey:
    """Key of the asset of a destination table."""
    return dg.AssetKey(["tables", _part(table)])


def kind_of(table: Table) -> str:
    """The kind shown on an asset of a connector."""
    return _KINDS.get(table.connector, table.connector or "table")


def stored_as(table: Table) -> str:
    """Where a table is stored, as Dagster's ``table_name``: assets of the same one are shown as linked.

    So the name of the table alone will not do: tables of that name in two systems are two tables.
    """
    options = table.options
    scope = options.get("tablestore.instance.name", options.get("odps.project.name", ""))
    name = options.get("table.name", options.get("topic", table.name))
    return ".".join(part for part in (kind_of(table), scope, name) if part)


def column_schema(columns: tuple[Column, ...], primary_key: tuple[str, ...]) -> dg.TableSchema:
    """Dagster's form of declared columns."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                column.name,
                _shown(column.type),
                description=column.comment,
                constraints=dg.TableColumnConstraints(
                    nullable=column.name not in primary_key and (column.type is None or column.type.nullable)
                ),
            )
            for column in columns
        ],
        constraints=dg.TableConstraints(other=[f"PRIMARY KEY ({', '.join(primary_key)})"] if primary_key else []),
    )


def _shown(kind: LogicalType | None) -> str:
    return "computed" if kind is None else str(kind)
