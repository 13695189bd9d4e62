"""Text in rows: bytes in the character set of the column, carried as UTF-8."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog.charsets import CODECS, UTF8, decoded
from upsert_platform.mysql.binlog.gather import Cells, binary

_WIDE: Final = frozenset(("ucs2", "utf16", "utf16le", "utf32"))
"""Character sets in which the bytes of ASCII are not ASCII's."""


def is_known(charset: str) -> bool:
    """Return whether texts of a character set can be read."""
    return charset in UTF8 or charset in CODECS


def texts(cells: Cells, charset: str, *, column: str) -> pa.Array:
    """Text of a known character set.

    Raises:
        ReplicationError: bytes that the character set does not have.
    """
    found = binary(cells)
    if charset in UTF8 or (charset not in _WIDE and _is_ascii(found)):
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            raise ReplicationError(f"{column}: a value is not UTF-8, as its character set {charset} says") from None
    # Columns of few distinct values are read once per value.
    encoded = found.dictionary_encode()
    words = pa.array([decode(value, charset, column=column) for value in encoded.dictionary.to_pylist()], pa.string())
    return words.take(encoded.indices)


def decode(value: bytes, charset: str, *, column: str) -> str:
    """One text.

    Raises:
        ReplicationError: bytes that the character set does not have.
    """
    try:
        return decoded(value, charset)
    except UnicodeDecodeError as error:
        told = f"{column}: a value has the byte {error.object[error.start]:#04x}, which the character set {charset}"
        raise ReplicationError(f"{told} does not have here") from None


def _is_ascii(found: pa.Array) -> bool:
    data = found.buffers()[2]
    return data is None or len(data) == 0 or int(np.frombuffer(data, np.uint8).max()) < 0x80
