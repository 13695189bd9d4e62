"""Tables and partitions as the catalogue holds them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from upsert_platform.local.maxcompute.errors import invalid_argument, semantic_error
from upsert_platform.local.maxcompute.types import DataType, parse_type

OPERATION = "__operation"
VALUE_COLUMNS = "__value_cols"
UPSERT, DELETE = 85, 68
# Storage names of the two system columns: their ids in a segment's list of columns.
OPERATION_ID, VALUE_COLUMNS_ID, IGNORED_ID = -1, -2, -3
DEFAULT_BUCKETS = 16
# Row level authorization: who sees which rows is not modelled, only that upsert sessions are refused.
ROW_POLICY = "local.row.access.policy"


@dataclass(frozen=True)
class Column:
    """A column; ``column_id`` stays with it through renames."""

    name: str
    type: DataType
    nullable: bool = True
    comment: str = ""
    column_id: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": str(self.type),
            "isNullable": self.nullable,
            "comment": self.comment,
            "column_id": self.column_id,
        }

    @staticmethod
    def from_json(raw: dict[str, Any]) -> Column:
        return Column(raw["name"], parse_type(raw["type"]), raw["isNullable"], raw["comment"], raw["column_id"])


@dataclass(frozen=True)
class Table:
    """A table of the catalogue; times are seconds since the epoch.

    Attributes:
        query: of a view, which has no rows of its own; empty for a table.
    """

    table_id: str
    schema: str
    name: str
    columns: tuple[Column, ...]
    partition_keys: tuple[Column, ...] = ()
    primary_key: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    lifecycle: int = -1
    comment: str = ""
    owner: str = ""
    created: float = 0.0
    last_ddl: float = 0.0
    last_modified: float = 0.0
    version: int = 1
    schema_version: int = 0
    query: str = ""

    @property
    def transactional(self) -> bool:
        return self.properties.get("transactional", "").lower() == "true" or bool(self.primary_key)

    @property
    def buckets(self) -> int:
        return int(self.properties.get("write.bucket.num", DEFAULT_BUCKETS))

    @property
    def retain_hours(self) -> int:
        return int(self.properties.get("acid.data.retain.hours", 24))

    @property
    def partial_update(self) -> bool:
        return self.properties.get("acid.partial.fields.update.enable", "").lower() == "true"

    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.type.arrow) for c in self.columns])

    def column(self, name: str) -> Column:
        """The data column of that name, whatever its case.

        Raises:
            ServiceError: there is none.
        """
        for candidate in self.columns:
            if candidate.name == name.lower():
                return candidate
        raise semantic_error(f"column '{name}' cannot be resolved in table {self.name}")

    def with_columns(self, columns: tuple[Column, ...], *, now: float) -> Table:
        return replace(self, columns=columns, schema_version=self.schema_version + 1, last_ddl=now)


@dataclass(frozen=True)
class Partition:
    """A leaf partition; ``spec`` is ``ds=1,hh=2``, empty for a table without partitions.

    Attributes:
        first_version: the oldest version at which it can still be read.
    """

    partition_id: int
    table_id: str
    spec: str
    created: float = 0.0
    modified: float = 0.0
    first_version: int = 0

    @property
    def values(self) -> dict[str, str]:
        return parse_spec(self.spec)


_SPEC_ITEM = re.compile(r"""\s*`?(\w+)`?\s*=\s*("(?:[^"]*)"|'(?:[^']*)'|[^,]*?)\s*(?:,|$)""")


def parse_spec(text: str) -> dict[str, str]:
    """Reads ``ds='1',hh=2`` into names and values, quotes removed."""
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _SPEC_ITEM.match(text, position)
        if match is None or match.end() == position:
            raise invalid_argument(f"invalid partition spec '{text}': write name=value, separated by commas")
        value = match[2]
        value = value[1:-1] if value[:1] in ("'", '"') else value
        if "," in value:
            raise invalid_argument(f"partition value '{value}' must not contain a comma: no spec could name it")
        found[match[1].lower()] = value
        position = match.end()
    return found


def format_spec(values: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items())


def full_spec(table: Table, text: str) -> str:
    """The canonical text of a complete leaf spec.

    Raises:
        ServiceError: the spec names other columns than the table's partition keys, or not all of them.
    """
    values = parse_spec(text)
    names = [key.name for key in table.partition_keys]
    if sorted(values) != sorted(names):
        wanted = ",".join(f"{name}=..." for name in names) or "no partition"
        raise invalid_argument(f"partition spec '{text}' does not fit table {table.name}: it takes {wanted}")
    return format_spec({name: values[name] for name in names})


def dump_columns(columns: tuple[Column, ...]) -> str:
    return json.dumps([column.as_json() for column in columns])


def load_columns(text: str) -> tuple[Column, ...]:
    return tuple(Column.from_json(raw) for raw in json.loads(text))
