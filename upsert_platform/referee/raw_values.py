"""Raw messages: the bytes of one column; and bytes as texts hold them."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Mapping
from typing import Any

from upsert_platform.referee.errors import RefereeError, UndecodableError, UnjudgedError
from upsert_platform.referee.kinds import BINARIES, TEXTS, Kind

_FORMS = {"TINYINT": "b", "SMALLINT": "h", "INT": "i", "BIGINT": "q", "FLOAT": "f", "DOUBLE": "d"}


def raw_decoder(columns: Mapping[str, Kind], options: Mapping[str, str]) -> Callable[[bytes], list[Any]]:
    """A function from a message to the value of the one column.

    Raises:
        RefereeError: more than one column, or a type or option that the referee does not follow.
    """
    if len(columns) != 1:
        raise RefereeError(f"format 'raw' holds one column, not {len(columns)}")
    (kind,) = columns.values()
    charset = options.get("raw.charset", "UTF-8").upper()
    if charset != "UTF-8" and kind.root in TEXTS:
        raise RefereeError(f"'raw.charset' = '{charset}' is beyond the referee")
    if kind.root in TEXTS:
        return _text
    if kind.root in BINARIES:
        return lambda message: [message]
    if kind.root == "BOOLEAN":
        return lambda message: [_sized(message, 1) != b"\0"]
    if kind.root not in _FORMS:
        raise RefereeError(f"format 'raw' has no {kind.root}")
    order = "<" if options.get("raw.endianness", "big-endian") == "little-endian" else ">"
    form = order + _FORMS[kind.root]
    return lambda message: [struct.unpack(form, _sized(message, struct.calcsize(form)))[0]]


def _text(message: bytes) -> list[Any]:
    try:
        return [message.decode("utf-8")]
    except UnicodeDecodeError:
        raise UnjudgedError("a text that is not UTF-8") from None


def _sized(message: bytes, size: int) -> bytes:
    if len(message) != size:
        raise UndecodableError(f"{len(message)} bytes, not {size}")
    return message


def from_base64(text: str) -> bytes:
    """Bytes of their text, with its padding."""
    try:
        if len(text) % 4 == 0:
            return base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        pass
    raise UnjudgedError("base64 that some readers take")
