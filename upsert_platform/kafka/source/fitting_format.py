"""The format that reads records which the declared one refuses: the remedy where none of a batch can be read."""

from __future__ import annotations

from typing import Final, Literal

from upsert_platform.core.errors import DeclarationError, SourceLocation
from upsert_platform.core.types import TEXTS
from upsert_platform.formats import build_decoder, validate_format
from upsert_platform.formats.messages import Messages
from upsert_platform.kafka.table import FormatSide

SAMPLE: Final = 50
_TEXT: Final = ("json", "raw", "csv")
_OTHER: Final = ("json", "csv", "raw")
"""In this order: any text is raw, and eight digits are eight bytes too."""
_REGISTRY_BYTES: Final = 5
"""A zero and the id of a schema, before records that a schema registry knows."""


def fitting_format(side: Literal["key", "value"], declared: FormatSide, sample: Messages) -> str:
    """Return the option that would read a sample of records, as a part of a sentence; empty where none is known.

    Args:
        sample: records that the declared format refuses, all of them.
    """
    texts = list(sample)
    if all(len(text) > _REGISTRY_BYTES and text[0] == 0 for text in texts):
        if "registry" in declared.format or "confluent" in declared.format:
            return ""
        return (
            f"the {side}s begin as records of a schema registry do: try '{side}.format' = 'avro-confluent',"
            " 'json-registry' or 'proto-registry'"
        )
    columns = declared.format_columns
    order = _TEXT if all(kind.name in TEXTS for _, kind in columns) else _OTHER
    for format_id in order:
        if format_id == declared.format:
            continue
        problems = validate_format(
            format_id, {}, columns, side=side, direction="source", subject="", location=SourceLocation("")
        )
        if any(problem.severity == "error" for problem in problems):
            continue
        try:
            decoded = build_decoder(format_id, columns, {}).decode(sample)
        except DeclarationError:
            continue
        if not decoded.errors and decoded.rows.num_rows:
            return f"the {side}s are not {declared.format}; '{side}.format' = '{format_id}' reads them"
    return ""
