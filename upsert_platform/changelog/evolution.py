"""Columns of a changelog against those that are declared: new ones are added, other types are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from upsert_platform.changelog import rows
from upsert_platform.errors import ChangelogError
from upsert_platform.model import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable


def missing_columns(delta: DeltaTable, table: Table) -> list[pa.Field]:
    """Declared columns that the lake does not have yet.

    Raises:
        ChangelogError: a column has another type there.
    """
    import pyarrow as pa

    stored = {item.name: item.type for item in pa.schema(delta.schema().to_arrow())}
    declared = rows.arrow_schema(table)
    differences = [
        f"column '{item.name}' is declared as {item.type}, stored as {stored[item.name]}"
        for item in declared
        if item.name in stored and _shape(item.type) != _shape(stored[item.name])
    ]
    if differences:
        raise ChangelogError(
            f"the changelog of '{table.name}' at {delta.table_uri} does not fit its declaration: "
            + "; ".join(differences)
            + ". Declare the old types, or move it away to have it built anew from the topic"
        )
    return [item for item in declared if item.name not in stored]


def add_columns(delta: DeltaTable, columns: list[pa.Field], *, metadata: str) -> None:
    """Adds columns, null in the rows that are there, and the table feature that a TIMESTAMP needs, in one commit.

    Args:
        metadata: the commit's userMetadata.

    Raises:
        deltalake.exceptions.DeltaError: another commit came first.
    """
    import pyarrow as pa
    from deltalake import CommitProperties, Schema

    delta.alter.add_columns(
        Schema.from_arrow(pa.schema(columns)).fields,
        commit_properties=CommitProperties(custom_metadata={"userMetadata": metadata}, max_commit_retries=0),
    )


def _shape(kind: Any) -> str:
    """A type without the names and nullability of inner fields, in which two libraries differ."""
    import pyarrow as pa

    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_shape(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_shape(kind.key_type)},{_shape(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return "struct<" + ",".join(f"{item.name}:{_shape(item.type)}" for item in kind) + ">"
    return str(kind).replace("large_", "").replace("_view", "")
