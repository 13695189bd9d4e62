"""Options of a MaxCompute table that take one of a few words."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import BeforeValidator


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


ANY_CASE: Final = BeforeValidator(_lower)
"""Of a field: the word may be written in upper case, or with blanks around it."""


class SinkOperation(StrEnum):
    """What a row of a change frame does to the table."""

    INSERT = "insert"
    UPSERT = "upsert"


class OnError(StrEnum):
    """What happens to a row that the table will not take."""

    QUARANTINE = "quarantine"
    FAIL = "fail"


class WriteApi(StrEnum):
    """Through which interface rows go in and come back."""

    MAXSTORAGE = "maxstorage"
    TUNNEL = "tunnel"


class SchemaChange(StrEnum):
    """What happens when a declaration has columns that the table has not, or wider ones."""

    EXCEPTION = "exception"
    EVOLVE = "evolve"


class Compression(StrEnum):
    """Codec inside the Arrow bodies that are sent."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"
