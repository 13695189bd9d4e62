"""Temporal joins: ``JOIN table FOR SYSTEM_TIME AS OF left.rowtime ON ...``, of an upsert topic with a WATERMARK."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from upsert_platform.core.internal_columns import internal
from upsert_platform.core.model import Table
from upsert_platform.core.plan import Field, Node, Project, Scan, Temporal, column
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.planning.arrivals import with_records
from upsert_platform.sql.planning.lookups import FindsRows
from upsert_platform.sql.planning.scope import Relation

PUT: Final = Field(internal("put"), LogicalType(TypeName.BOOLEAN, nullable=False))
"""Of a scan of versions: whether the record puts a row; false for a delete."""


@dataclass
class TemporalJoin(FindsRows):
    """Plans one temporal join.

    Args:
        time: column of the left side's event time.
        versions: the table as it is read, with its computed columns.
    """

    time: Field
    versions: Relation

    def __post_init__(self) -> None:
        project = self.versions.node
        assert isinstance(project, Project) and isinstance(project.input, Scan)
        scan = replace(project.input, key=(), appended=True, versions=True)
        self.put = self.names.fresh("put")
        shown = (*project.columns, (self.put, column(PUT)))
        every: Node = Project(replace(scan, columns=(*scan.columns, PUT)), shown)
        self.every, (self.record,) = with_records(every)
        super().__post_init__()

    def named_columns(self) -> list[tuple[str, Field]]:
        """Names in the statement, and the columns of the plan."""
        return list(self.versions.columns)

    def found(self, rows: Node, on: Sequence[tuple[str, str]], *, padded: bool) -> Node:
        """The rows with their versions."""
        shown = dict(self.versions.columns)
        watched = (self.right.watermark or "").removeprefix("WATERMARK FOR ").partition(" AS ")[0]
        declared = self.right.column(watched)
        return Temporal(
            rows,
            self.every,
            tuple(name for name, _ in on),
            tuple(shown[key].name for _, key in on),
            self.time.name,
            shown[watched].name,
            tuple(field.name for _, field in self.versions.columns),
            self.put,
            self.record,
            declared.metadata_key == "timestamp",
            padded,
        )


def is_versioned(table: Table) -> bool:
    """Return whether a table has versions: a primary key, and an event time."""
    return bool(table.primary_key) and bool(table.watermark)
