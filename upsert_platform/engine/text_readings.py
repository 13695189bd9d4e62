"""Texts as values, as Spark's casts read them: texts of the plain shape all at once, and each other one by a model.

Spark trims texts before it reads them, in two ways: blanks and control characters of ASCII, or what Java's `trim` takes
for blanks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BLANKS: Final = "".join(map(chr, range(0x21)))
"""What Java's `trim` cuts off."""
CONTROLS: Final = f"{BLANKS}\x7f"
"""What Spark's own trim cuts off."""
LINE_END: Final = r"(?:\Z|(?=\r\n\Z)|(?=(?<!\r)\n\Z)|(?=[\r\x85\u2028\u2029]\Z))"
"""Java's ``$`` as a pattern of Python: the end of a text, or where nothing but the end of a line stands behind."""


def one_array(texts: Any) -> pa.StringArray:
    """Texts in one piece."""
    return texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts


def places_of(array: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of texts, and where each begins, with the end of the last one behind them."""
    _, offsets, data = array.buffers()
    if offsets is None or len(array) == 0:
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    places = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8), places


def is_valid(array: pa.Array) -> np.ndarray:
    """Return which values are not null."""
    return pc.is_valid(array).to_numpy(zero_copy_only=False)


def cast_plain(array: pa.StringArray, signs: np.ndarray, pattern: str, kind: pa.DataType) -> tuple[pa.Array, Any]:
    """Texts of the plain shape, read by Arrow, and which others there are; None: none.

    Args:
        signs: the bytes of which Arrow reads texts as Spark does, or not at all: true at their numbers.
        pattern: of RE2: the texts that Arrow reads in any case.
    """
    data, places = places_of(array)
    if signs[data[places[0] : places[-1]]].all():
        try:
            return array.cast(kind), None
        except pa.ArrowInvalid:
            pass
    plain = pc.match_substring_regex(array, pattern=pattern)
    values = pc.if_else(plain, array, pa.scalar(None, array.type)).cast(kind)
    return values, ~pc.fill_null(plain, True).to_numpy(zero_copy_only=False)


def signs_of(text: bytes) -> np.ndarray:
    """The `signs` of `cast_plain`."""
    found = np.zeros(256, np.bool_)
    found[np.frombuffer(text, np.uint8)] = True
    return found


def with_others(
    values: pa.Array, texts: pa.StringArray, others: np.ndarray | None, read: Callable[[str], Any]
) -> pa.Array:
    """Values, with what a function reads in some of the texts; each distinct one is read once.

    Args:
        others: which texts they are; None: none.
    """
    if others is None or not others.any():
        return values
    mask = pa.array(others)
    coded = texts.filter(mask).dictionary_encode()
    found = pa.array([read(text) for text in coded.dictionary.to_pylist()], values.type)
    return pc.replace_with_mask(values, mask, found.take(coded.indices))
