"""NOT NULL rules of declared columns, applied to rows before any system receives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from upsert_platform.core.masking import NO_MASK, Mask
from upsert_platform.core.model import Column
from upsert_platform.core.types import LogicalType

NotNull = tuple[tuple[str, LogicalType], ...]


@dataclass(frozen=True, slots=True)
class Judge:
    """The rows of a change frame that no system receives: nulls in columns declared NOT NULL, as in Flink.

    Attributes:
        columns: of the rows that are kept.
        key: names of the primary key columns, whose nulls a system refuses by itself, unless `keys_too`.
        not_null: names and types of the columns that hold, or have within them, what may not be null.
        fails: whether such a row ends the write (``on-error`` = ``fail``).
        keeps: whether ``on-error`` = ``quarantine`` would keep it aside.
        mask: what a message does not show of it.
        keys_too: rows with a null in their key are no row of the system either, which does not look at them itself.
    """

    columns: tuple[str, ...]
    key: tuple[str, ...]
    not_null: NotNull
    fails: bool
    keeps: bool = True
    mask: Mask = NO_MASK
    keys_too: bool = False

    @property
    def refuses(self) -> bool:
        """Return whether there may be rows that do not pass."""
        return bool(self.not_null) or (self.keys_too and bool(self.key))

    @classmethod
    def of(
        cls,
        columns: Sequence[Column],
        key: Sequence[str],
        *,
        fails: bool,
        keeps: bool = True,
        mask: Mask,
        beside: Sequence[Column] = (),
        keys_too: bool = False,
    ) -> Self:
        """The judge of a destination's rows.

        Args:
            columns: declared, physical.
            beside: columns that are written and not part of the row (metadata).
        """
        names = tuple(column.name for column in columns)
        return cls(names, tuple(key), not_null_columns((*columns, *beside), key), fails, keeps, mask, keys_too)


def not_null_columns(columns: Sequence[Column], key: Sequence[str]) -> NotNull:
    """Names and types of the columns, beside the key, that hold, or have within them, what may not be null."""
    return tuple(
        (column.name, column.type)
        for column in columns
        if column.type is not None and column.name not in key and refuses_nulls(column.type)
    )


def refuses_nulls(declared: LogicalType) -> bool:
    """Return whether the type, or one within it, says NOT NULL."""
    inner = (declared.element, *(field.type for field in declared.fields))
    return not declared.nullable or any(kind is not None and refuses_nulls(kind) for kind in inner)
