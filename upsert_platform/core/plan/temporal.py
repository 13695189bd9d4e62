"""The temporal join: rows with the version that a table had of their key at their time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from upsert_platform.core.plan.columns import Field
from upsert_platform.core.plan.over_one import OverOne

if TYPE_CHECKING:
    from upsert_platform.core.plan.operators import Node


@dataclass(frozen=True, slots=True)
class Temporal(OverOne):
    """Each row with the last version of its key that is not later than the row: ``FOR SYSTEM_TIME AS OF`` event time.

    Attributes:
        versions: every record of an upsert topic, as a row.
        on: columns of the input, each equal to the column of `key` at its place; nulls match nothing.
        time: of the rows, and `since` that of the versions.
        columns: those of `versions` that the result shows.
        put: of the versions, a BOOLEAN column: false for a delete.
        record: of the versions, the columns with batch, time, topic, partition, offset and row number of the record.
        of_record: a delete takes the time of its record; otherwise that of the version before it.
        padded: whether a row without a version stays, with nulls.
    """

    input: Node
    versions: Node
    on: tuple[str, ...]
    key: tuple[str, ...]
    time: str
    since: str
    columns: tuple[str, ...]
    put: str
    record: tuple[str, ...]
    of_record: bool
    padded: bool

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input, self.versions)

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self.input.fields, *self.found)

    @property
    def found(self) -> tuple[Field, ...]:
        """The columns of a version."""
        fields = {item.name: item for item in self.versions.fields}
        # A delete has none of the columns that are declared NOT NULL; it is never shown.
        return tuple(
            replace(fields[name], type=replace(fields[name].type, nullable=fields[name].type.nullable or self.padded))
            for name in self.columns
        )

    @property
    def appends(self) -> bool:
        return False
