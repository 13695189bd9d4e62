"""Values of a MaxCompute table's options: one of a few words, or a number without its unit."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Final

from pydantic import BeforeValidator


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


ANY_CASE: Final = BeforeValidator(_lower)
"""Marks a field whose word may be written in upper case, or with blanks around it."""


def _whole(unit: str) -> BeforeValidator:
    """A number without unit; the documentation gives the unit."""

    def read(value: object) -> object:
        if isinstance(value, str):
            text = value.strip()
            if not re.fullmatch(r"[+-]?\d+", text):
                raise ValueError(f"takes a whole number{unit}, in digits alone")
            return int(text)
        return value

    return BeforeValidator(read)


Count = Annotated[int, _whole("")]
Seconds = Annotated[int, _whole(" of seconds")]
Milliseconds = Annotated[int, _whole(" of milliseconds")]


class SinkOperation(StrEnum):
    """The operation of a change row on the table."""

    INSERT = "insert"
    UPSERT = "upsert"


class OnError(StrEnum):
    """The handling of a row that the table rejects."""

    QUARANTINE = "quarantine"
    FAIL = "fail"


class WriteApi(StrEnum):
    """Through which interface rows go in and come back."""

    MAXSTORAGE = "maxstorage"
    TUNNEL = "tunnel"


class SchemaChange(StrEnum):
    """The handling of declared columns that the table lacks or has narrower."""

    EXCEPTION = "exception"
    EVOLVE = "evolve"


class Compression(StrEnum):
    """Codec inside the Arrow bodies that are sent."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"
