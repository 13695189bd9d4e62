"""Cases of letters, words, order and padding of texts in Arrow, as Spark computes them.

Spark takes its letters from ICU, of Unicode 17, and Python from its own version, which is older or newer: what the two
have apart stands here, so that each Python gives the same. Texts of ASCII need none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_PAIRS: Final = [
    (0x1C89, 0x1C8A, 1), (0xA7CB, 0x264, 1), (0xA7CC, 0xA7CD, 1), (0xA7CE, 0xA7CF, 1), (0xA7D2, 0xA7D3, 1),
    (0xA7D4, 0xA7D5, 1), (0xA7DA, 0xA7DB, 1), (0xA7DC, 0x19B, 1), (0x10D50, 0x10D70, 22), (0x16EA0, 0x16EBB, 25),
]  # fmt: skip
"""Capital and small letters that came with Unicode 15 to 17: the first of each, and how many there are in a row."""
_CAPITALS: Final = {small + at: chr(capital + at) for capital, small, count in _PAIRS for at in range(count)}
_SMALLS: Final = {capital + at: chr(small + at) for capital, small, count in _PAIRS for at in range(count)}
_LETTERS: Final = [
    (0x1C89, 0x1C8A), (0xA7CB, 0xA7CF), (0xA7D2, 0xA7D2), (0xA7D4, 0xA7D4), (0xA7DA, 0xA7DC), (0x10D50, 0x10D65),
    (0x10D70, 0x10D85), (0x16EA0, 0x16EB8), (0x16EBB, 0x16ED3), (0x1DF25, 0x1DF2A),
]  # fmt: skip
_MARKS: Final = [
    (0x897, 0x897), (0xECE, 0xECE), (0x1ACF, 0x1ADD), (0x1AE0, 0x1AEB), (0xA7F1, 0xA7F1), (0x10D4E, 0x10D4E),
    (0x10D69, 0x10D6D), (0x10D6F, 0x10D6F), (0x10EC5, 0x10EC5), (0x10EFA, 0x10EFF), (0x11241, 0x11241),
    (0x113BB, 0x113C0), (0x113CE, 0x113CE), (0x113D0, 0x113D0), (0x113D2, 0x113D2), (0x113E1, 0x113E2),
    (0x11B60, 0x11B60), (0x11B62, 0x11B64), (0x11B66, 0x11B66), (0x11DD9, 0x11DD9), (0x11F00, 0x11F01),
    (0x11F36, 0x11F3A), (0x11F40, 0x11F40), (0x11F42, 0x11F42), (0x11F5A, 0x11F5A), (0x13439, 0x13440),
    (0x13447, 0x13455), (0x1611E, 0x16129), (0x1612D, 0x1612F), (0x16D40, 0x16D42), (0x16D6B, 0x16D6C),
    (0x16FF2, 0x16FF3), (0x1E030, 0x1E06D), (0x1E08F, 0x1E08F), (0x1E4EB, 0x1E4EF), (0x1E5EE, 0x1E5EF),
    (0x1E6E3, 0x1E6E3), (0x1E6E6, 0x1E6E6), (0x1E6EE, 0x1E6EF), (0x1E6F5, 0x1E6F5), (0x1E6FF, 0x1E6FF),
]  # fmt: skip
_STAND_INS: Final = {
    **{code: "a" for first, last in _LETTERS for code in range(first, last + 1)},
    **{code: "\u0301" for first, last in _MARKS for code in range(first, last + 1)},
    0x295: " ", 0x1171E: " ", 0x130: "A",
}  # fmt: skip
"""Characters as which others count where it is asked whether a sigma ends a word: letters, marks, and neither.

İ alone becomes two characters; a letter in its place keeps the places of the others.
"""
_SIGMA: Final = "\u03a3"


def upper_text(text: str) -> str:
    """Return a text in capital letters."""
    return text.upper().translate(_CAPITALS)


def lower_text(text: str) -> str:
    """Return a text in small letters; a sigma at the end of a word has a form of its own."""
    if _SIGMA not in text:
        return text.lower().translate(_SMALLS)
    sigmas = [known for known, sign in zip(text.translate(_STAND_INS).lower(), text, strict=True) if sign == _SIGMA]
    pieces = [piece.lower().translate(_SMALLS) for piece in text.split(_SIGMA)]
    return "".join(part for pair in zip(pieces, [*sigmas, ""], strict=True) for part in pair)


def with_case(texts: Any, *, upper: bool) -> Any:
    """Return the texts in lower or upper case. Python changes each distinct text that is not ASCII."""
    array = _whole(texts)
    found = pc.ascii_upper(array) if upper else pc.ascii_lower(array)
    others = pc.fill_null(pc.invert(pc.string_is_ascii(array)), False)
    if pc.any(others).as_py():
        change: Callable[[str], str] = upper_text if upper else lower_text
        coded = pc.dictionary_encode(array.filter(others))
        changed = pa.array([change(text) for text in coded.dictionary.to_pylist()], pa.string())
        found = pc.replace_with_mask(found, others, changed.take(coded.indices).cast(found.type))
    return pa.chunked_array([found])


def _whole(texts: Any) -> Any:
    return texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts


def _words(texts: Any) -> Any:
    """INITCAP: words are of ASCII letters and digits; they begin with a capital, and go on in small letters."""
    array = _whole(texts)
    array = pa.concat_arrays([array.slice(0, 0), array])  # its characters are its own, from the first to the last
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    signs = np.frombuffer(array.buffers()[2] or b"", np.uint8).copy()
    capital, small = (_between(signs, ends) for ends in ("AZ", "az"))
    of_word = capital | small | _between(signs, "09")
    follows = np.zeros(len(signs), np.bool_)
    follows[1:] = of_word[:-1]
    follows[offsets[offsets < len(signs)]] = False
    signs[capital & follows] += 32
    signs[small & ~follows] -= 32
    buffers = array.buffers()
    return pa.chunked_array(
        [pa.Array.from_buffers(array.type, len(array), [*buffers[:2], pa.py_buffer(signs)], offset=array.offset)]
    )


def _between(signs: np.ndarray, ends: str) -> np.ndarray:
    return (signs >= ord(ends[0])) & (signs <= ord(ends[1]))


def _padded(texts: Any, side: str, length: int, pad: str) -> Any:
    """LPAD and RPAD to a length, in which characters beyond the basic plane count as two."""
    array = _whole(texts)
    filling = (pad * length)[:length]
    pads = pa.array([filling[:count] for count in range(length + 1)], pa.string())
    missing = np.clip(length - pc.fill_null(pc.utf8_length(array), length).to_numpy(), 0, length)
    cut, pads_of = pc.utf8_slice_codeunits(array, 0, length), pads.take(pa.array(missing))
    found = pc.binary_join_element_wise(*((pads_of, cut) if side == "left" else (cut, pads_of)), "")
    beyond = pc.fill_null(pc.match_substring_regex(cut, pattern=r"[\x{10000}-\x{10FFFF}]"), False)
    if pc.any(beyond).as_py():
        some = [_pad_one(text, side, length, pad) for text in array.filter(beyond).to_pylist()]
        found = pc.replace_with_mask(found, beyond, pa.array(some, pa.string()).cast(found.type))
    return pa.chunked_array([found])


def _pad_one(text: str, side: str, length: int, pad: str) -> str:
    size = length - sum(sign > "\uffff" for sign in text[:length])
    filling = (pad * length)[: max(size - len(text), 0)]
    return filling + text[:size] if side == "left" else text[:size] + filling


FORMS: Final[Mapping[str, Callable[..., Any]]] = {
    "lower": lambda texts: with_case(texts, upper=False),
    "upper": lambda texts: with_case(texts, upper=True),
    "words": _words,
    "reverse": pc.utf8_reverse,
    "pad": _padded,
}
"""Operators of forms: what they take, then what else stands in the form."""
