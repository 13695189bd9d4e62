"""Text in rows: bytes in the character set of the column, carried as UTF-8."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog.gather import Cells, binary

_UTF8: Final = frozenset(("utf8mb4", "utf8mb3", "utf8", "ascii"))
_CODECS: Final = {
    "latin1": "cp1252", "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13", "cp1250": "cp1250",
    "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257", "cp850": "cp850", "cp852": "cp852", "cp866": "cp866",
    "greek": "iso8859_7", "hebrew": "iso8859_8", "koi8r": "koi8_r", "koi8u": "koi8_u", "macroman": "mac_roman",
    "macce": "mac_latin2", "tis620": "tis_620", "gbk": "gbk", "gb2312": "gb2312", "gb18030": "gb18030", "big5": "big5",
    "sjis": "shift_jis", "cp932": "cp932", "ujis": "euc_jp", "eucjpms": "euc_jp", "euckr": "cp949", "ucs2": "utf_16_be",
    "utf16": "utf_16_be", "utf16le": "utf_16_le", "utf32": "utf_32_be",
}  # fmt: skip
"""Character sets of MySQL to Python's names for them."""
_WIDE: Final = frozenset(("ucs2", "utf16", "utf16le", "utf32"))
"""Those in which the bytes of ASCII are not ASCII's."""
_LATIN1: Final = tuple(
    chr(byte) if byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else bytes((byte,)).decode("cp1252") for byte in range(256)
)


def is_known(charset: str) -> bool:
    """Return whether texts of a character set can be read."""
    return charset in _UTF8 or charset in _CODECS


def texts(cells: Cells, charset: str, *, column: str) -> pa.Array:
    """Text of a known character set.

    Raises:
        ReplicationError: bytes that the character set does not have.
    """
    found = binary(cells)
    if charset in _UTF8 or (charset not in _WIDE and _is_ascii(found)):
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
        if charset in _UTF8:
            return value.decode("utf-8")
        # The server's latin1 is Windows' 1252, with the five bytes that Windows leaves out as control characters.
        if charset == "latin1":
            return "".join(_LATIN1[byte] for byte in value)
        return value.decode(_CODECS[charset])
    except UnicodeDecodeError as error:
        told = f"{column}: a value has the byte {value[error.start]:#04x}, which the character set {charset} does not"
        raise ReplicationError(f"{told} have here") from None


def _is_ascii(found: pa.Array) -> bool:
    data = found.buffers()[2]
    return data is None or len(data) == 0 or int(np.frombuffer(data, np.uint8).max()) < 0x80
