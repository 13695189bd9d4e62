"""The JSON schema of declarations in YAML, for editors: they complete names and show what options mean.

A schema tells what a document may hold; whether it fits together, `upsert-platform validate` says.
"""

from __future__ import annotations

from typing import Any, Final

from upsert_platform.declarations.declared_yaml import COLUMN_ENTRIES, INSERT_ENTRIES, SECTIONS, TABLE_ENTRIES
from upsert_platform.formats import FORMATS
from upsert_platform.reference.markdown import sections
from upsert_platform.sync.connectors import readable, writable

_SCALAR: Final = {"type": ["string", "number", "boolean"]}
_TEXT: Final = {"type": "string"}
_NAMES: Final = {"type": "array", "items": _TEXT}
_ANY_TABLE: Final = "platform"
"""Section of the options that every table has; its other rows are no options."""
_MEANINGS: Final = {
    "tables": "Declared tables: what is read, and what is written.",
    "inserts": "What is written into tables, and from where.",
    "name": "Unique in the project.",
    "type": "A type of SQL: BIGINT, DECIMAL(12, 2), STRING NOT NULL, ROW<a INT>.",
    "metadata": "Key of the metadata that the column holds: timestamp, partition, offset, headers.",
    "virtual": "Whether a metadata column is only read.",
    "expression": "SQL that gives the column its value.",
    "comment": "Is shown with the column or table.",
    "columns": "Columns, in their order.",
    "primary_key": "Names of the key's columns.",
    "partitioned_by": "Names of the columns that a table is partitioned by.",
    "options": "As in the WITH clause.",
    "into": "Name of the table that is written.",
    "select": "Columns and expressions, as SQL or as a list; all columns if left out.",
    "from": "Name of the table that is read.",
    "where": "A condition in SQL.",
    "overwrite": "Whether the rows take the place of all that the table holds.",
}


def json_schema() -> dict[str, Any]:
    """The schema, of draft 7, which editors know best."""
    special = {
        "columns": {"type": "array", "minItems": 1, "items": _object(COLUMN_ENTRIES, ("name",), {})},
        "options": _options(),
        "primary_key": _NAMES,
        "partitioned_by": _NAMES,
    }
    tables = _object(TABLE_ENTRIES, ("name", "columns", "options"), special)
    chosen = {"select": {"type": ["string", "array"], "items": _TEXT}, "columns": _NAMES}
    inserts = _object(INSERT_ENTRIES, ("into", "from"), chosen)
    lists = {"tables": {"type": "array", "items": tables}, "inserts": {"type": "array", "items": inserts}}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Declarations of upsert_platform",
        **_object(SECTIONS, (), lists),
    }


def _object(names: tuple[str, ...], required: tuple[str, ...], special: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": {
            name: {
                **special.get(name, _SCALAR if name in ("virtual", "overwrite") else _TEXT),
                "description": _MEANINGS[name],
            }
            for name in names
        },
    }


def _options() -> dict[str, Any]:
    names = sorted({*readable(), *writable()})
    return {
        "type": "object",
        "required": ["connector"],
        "additionalProperties": _SCALAR,
        "properties": {"connector": {"enum": names, "description": "The system that holds the table."}},
        "allOf": [
            {"if": {"properties": {"connector": {"const": name}}}, "then": {"properties": _of_connector(name)}}
            for name in names
            if name in sections()
        ],
    }


def _of_connector(name: str) -> dict[str, Any]:
    rows = [row for row in sections()[name].rows if row.status != "refused"]
    found = {row.name: _option(row.second, row.text) for row in rows}
    if "value.format" in found:
        for kind in FORMATS:
            for row in sections()[kind].rows:
                for side in ("key", "value"):
                    found[f"{side}.{row.name}"] = _option(row.second, row.text)
    own = [row for row in sections()[_ANY_TABLE].rows if row.third == "platform" and row.name.islower()]
    return {**found, **{row.name: _option(row.second, row.text) for row in own}}


def _option(default: str, text: str) -> dict[str, Any]:
    told = f"{text} Default: {default}." if default and not default.startswith("(") else text
    return {**_SCALAR, "description": told.replace("`", "")}
