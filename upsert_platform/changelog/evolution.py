"""Columns of a changelog against those that are declared: new ones are added, other types are refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from upsert_platform.changelog import rows
from upsert_platform.changelog.head import KEY_PROPERTY
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.model import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable


def build_anew(table: str) -> str:
    """Return what to do where a declaration is to stay: the end of a sentence."""
    return (
        f"have it built anew from the topic, with the tables that are written from it: 'upsert-platform reset {table}"
        " --drop-target'"
    )


def key_text(table: Table) -> str:
    """Return the value of `KEY_PROPERTY` for a declared table."""
    return json.dumps(list(table.primary_key))


def check_key(delta: DeltaTable, table: Table) -> bool:
    """Return whether a changelog keeps its primary key; those of earlier versions do not.

    Columns and their order count: formats such as CSV read a key by the place of its columns, Tablestore sorts by it.
    The format of the key may change, since a changelog holds keys as values.

    Raises:
        ChangelogError: the table is declared with another primary key.
    """
    kept = delta.metadata().configuration.get(KEY_PROPERTY)
    if kept is not None and json.loads(kept) != list(table.primary_key):
        raise ChangelogError(
            f"the changelog of '{table.name}' at {delta.table_uri} has {_shown(json.loads(kept))}, and the table is"
            f" declared with {_shown(table.primary_key)}: rows of one key would be taken for those of others. Declare"
            f" the old key, or {build_anew(table.name)}"
        )
    return kept is not None


def _shown(key: Sequence[str]) -> str:
    return f"PRIMARY KEY ({', '.join(key)})" if key else "no primary key"


def keep_key(delta: DeltaTable, table: Table, *, metadata: str) -> None:
    """Add the primary key to the properties of a changelog of an earlier version, in one commit.

    Args:
        metadata: the commit's userMetadata.

    Raises:
        deltalake.exceptions.CommitFailedError: another commit came first.
    """
    from deltalake import CommitProperties

    delta.alter.set_table_properties(
        {KEY_PROPERTY: key_text(table)},
        raise_if_not_exists=False,
        commit_properties=CommitProperties(custom_metadata={"userMetadata": metadata}, max_commit_retries=0),
    )


def missing_columns(delta: DeltaTable, table: Table) -> list[pa.Field]:
    """Declared columns that the lake does not have yet.

    Raises:
        ChangelogError: a column has another type there, or a name that differs in case alone.
    """
    import pyarrow as pa

    stored = {item.name: item.type for item in pa.schema(delta.schema().to_arrow())}
    declared = rows.arrow_schema(table)
    folded = {name.lower(): name for name in stored}
    for item in declared:
        other = folded.get(item.name.lower())
        if other is not None and item.name not in stored:
            raise ChangelogError(
                f"the changelog of '{table.name}' at {delta.table_uri} has a column '{other}', and the table is"
                f" declared with '{item.name}': a changelog does not keep names apart that differ in case alone."
                f" Declare '{other}' again, and rename it in the SELECT of the insert, or {build_anew(table.name)}"
            )
    differences = [
        f"column '{item.name}' is declared as {item.type}, stored as {stored[item.name]}"
        for item in declared
        if item.name in stored and _shape(item.type) != _shape(stored[item.name])
    ]
    if differences:
        raise ChangelogError(
            f"the changelog of '{table.name}' at {delta.table_uri} does not fit its declaration: "
            + "; ".join(differences)
            + f". Declare the old types, or {build_anew(table.name)}"
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
