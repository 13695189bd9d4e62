"""The shape of one side of a topic's records: columns with types, the format that reads them, and doubts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from upsert_platform.core.types import LogicalType, TypeName

STRING = LogicalType(TypeName.STRING)
BYTES = LogicalType(TypeName.BYTES)
BIGINT = LogicalType(TypeName.BIGINT)
BOOLEAN = LogicalType(TypeName.BOOLEAN)
DOUBLE = LogicalType(TypeName.DOUBLE)
MOST_DIGITS = 38
"""Of a DECIMAL."""


@dataclass(frozen=True, slots=True)
class Found:
    """A type, and why it may be another one than the producer means; empty where nothing speaks against it."""

    type: LogicalType
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column with its type; see `Found`."""

    name: str
    type: LogicalType
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Side:
    """Keys, or values, of a topic.

    Attributes:
        format: a format id; empty where the side is absent in every record.
        columns: in the order in which the format reads them.
        options: of the format, with its name and without the side.
        doubts: of the side as a whole.
        primary_key: columns that identify a row, where the values say so themselves (change data).
    """

    format: str
    columns: tuple[FoundColumn, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    def doubting(self, *doubts: str) -> Side:
        """Return this side with further doubts."""
        return replace(self, doubts=(*self.doubts, *doubts))


def apart(columns: list[FoundColumn]) -> tuple[tuple[FoundColumn, ...], list[str]]:
    """Return the columns whose names a changelog keeps apart, and doubts that name the others."""
    kept: dict[str, FoundColumn] = {}
    doubts = []
    for column in columns:
        other = kept.get(column.name.lower())
        if other is not None:
            doubts.append(f"field '{column.name}' is left out: its name differs from '{other.name}' in case alone")
        elif not column.name.strip() or column.name.startswith("__upsert_"):
            doubts.append(f"field '{column.name}' is left out: no column can have that name")
        else:
            kept[column.name.lower()] = column
    return tuple(kept.values()), doubts
