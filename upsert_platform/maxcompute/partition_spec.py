"""Partition specs: text such as ``ds=20240101,hh=01``, and which partition columns a declaration leaves dynamic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from upsert_platform.core.types import LogicalType, TypeName

MAX_LEVELS = 6
MAX_VALUE_BYTES = 255
_ALLOWED_VALUE = re.compile(r"[^\x00-\x1f\x7f/\\'\",=]+")

_WHOLE_NUMBERS: Final = {TypeName.TINYINT: 7, TypeName.SMALLINT: 15, TypeName.INT: 31, TypeName.BIGINT: 63}
"""Types of partition columns that hold numbers, with their bits."""

Spec = tuple[tuple[str, str], ...]


def parse_spec(text: str) -> Spec:
    """Reads ``k=v,k2='v2'`` (quotes and spaces around names and values are dropped; ``/`` separates as ``,`` does).

    Raises:
        ValueError: not of that form, a name twice, or a value that no partition can have.
    """
    pairs: list[tuple[str, str]] = []
    for part in re.split(r"[,/]", text):
        name, separator, value = part.partition("=")
        name, value = name.strip().strip("`").lower(), value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        if not separator or not name or not value:
            raise ValueError(f"takes 'name=value[,name=value]', not '{text}'")
        if name in dict(pairs):
            raise ValueError(f"names '{name}' twice")
        reason = refuse_value(value)
        if reason:
            raise ValueError(f"gives '{name}' a value that {reason}")
        pairs.append((name, value))
    return tuple(pairs)


def spec_text(spec: Spec) -> str:
    """The form that the tunnel takes: ``k=v,k2=v2``, without quotes."""
    return ",".join(f"{name}={value}" for name, value in spec)


def refuse_value(value: str) -> str | None:
    """Return why a text cannot be a partition value, or None if it can."""
    if not value.strip():
        return "is blank"
    if value != value.strip():
        return "begins or ends with a blank, which names of partitions lose on their way"
    if len(value.encode("utf-8")) > MAX_VALUE_BYTES:
        return f"has more than {MAX_VALUE_BYTES} bytes"
    if not _ALLOWED_VALUE.fullmatch(value):
        return "contains a control character or one of / \\ ' \" , ="
    return None


def partition_holds(text: str, declared: LogicalType, *, strict: bool = False) -> bool:
    """Return whether a partition column of a declared type can have a text as its value.

    Numbers are those that are written as MaxCompute writes them: ``7``, not ``07``.

    Args:
        strict: a DATE, which is kept as text, is one of the form yyyy-MM-dd; otherwise any text, read back as null.
    """
    if strict and declared.name is TypeName.DATE:
        return bool(re.fullmatch(r"\d{4}-\d\d-\d\d", text)) and _is_day(text)
    bits = _WHOLE_NUMBERS.get(declared.name)
    if bits is None:
        return True
    return bool(re.fullmatch(r"0|-?[1-9]\d*", text)) and -(1 << bits) <= int(text) < 1 << bits


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The assignment of rows to partitions.

    Attributes:
        static: leading partition columns with a fixed value, lower-case names, in the table's order.
        dynamic: partition columns that each row fills, lower-case names, after the static ones.
        default: value for a null or blank dynamic column.
        limit: most distinct partitions of one batch.
        assigner: ``package.module:function`` that computes the dynamic columns, or None when rows carry them.
        time_format: pattern of the time of the batch, which is the dynamic column's value, or None.
    """

    static: Spec = ()
    dynamic: tuple[str, ...] = ()
    default: str = "__DEFAULT_PARTITION__"
    limit: int = 100
    assigner: str | None = None
    time_format: str | None = None
    time_zone: str = "UTC"

    @property
    def computed(self) -> bool:
        """Return whether dynamic columns are computed, so that rows need not carry them."""
        return bool(self.assigner or self.time_format)

    @property
    def columns(self) -> tuple[str, ...]:
        """All partition columns of the table, in order."""
        return (*(name for name, _ in self.static), *self.dynamic)

    @property
    def static_text(self) -> str:
        """The static part for a session; empty without one."""
        return spec_text(self.static)


def plan_partitions(static: Spec, declared: Sequence[str]) -> tuple[Spec, tuple[str, ...]]:
    """Splits the partition columns into static and dynamic ones.

    Args:
        static: of ``sink.partition``.
        declared: lower-case names of PARTITIONED BY; may be empty when all are static.

    Returns:
        The static spec and the names of the dynamic columns.

    Raises:
        ValueError: a static column is unknown, or stands behind a dynamic one.
    """
    if not declared:
        return static, ()
    unknown = [name for name, _ in static if name not in declared]
    if unknown:
        raise ValueError(f"names '{unknown[0]}', which is not a column of PARTITIONED BY ({', '.join(declared)})")
    leading = tuple(declared[: len(static)])
    if {name for name, _ in static} != set(leading):
        raise ValueError(
            f"must fix the leading partition columns: static columns precede dynamic ones ({', '.join(declared)})"
        )
    fixed = dict(static)
    return tuple((name, fixed[name]) for name in leading), tuple(declared[len(static) :])
