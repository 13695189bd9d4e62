"""CAST of texts to DOUBLE and FLOAT, as Spark reads them: as Java does, and names of what is no number in any case."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any, Final

import pyarrow as pa

from upsert_platform.core.types import LogicalType, arrow_type
from upsert_platform.engine.text_readings import BLANKS, cast_plain, one_array, signs_of, with_others

_SIGNS: Final = signs_of(b"0123456789.-+eE")
_PLAIN: Final = r"\A-?[0-9]{1,19}(?:\.[0-9]{1,19})?(?:[eE]-?[0-9]{1,3})?\z"
_NUMBER: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEX: Final = re.compile(r"([+-]?)0[xX](?:([0-9a-fA-F]+)\.?|([0-9a-fA-F]*)\.([0-9a-fA-F]+))[pP]([+-]?[0-9]+)[fFdD]?")
_JAVA_NAMES: Final = re.compile(r"([+-]?)(NaN|Infinity)")
_SPARK_NAMES: Final = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf),
    **dict.fromkeys(("-inf", "-infinity"), -math.inf),
    "nan": math.nan,
}
_BITS: Final = 30
"""More than a FLOAT has, and fewer than a DOUBLE."""
_LONGEST_POWER: Final = 10
"""Digits of an exponent; no text has so many others that they make up for one that is longer."""


def reals_of(texts: Any, kind: LogicalType) -> Any:
    """Texts as the nearest DOUBLE or FLOAT."""
    array, wanted = one_array(texts), arrow_type(kind)
    values, others = cast_plain(array, _SIGNS, _PLAIN, wanted)
    return pa.chunked_array([with_others(values, array, others, partial(_real, wanted=wanted))])


def _real(text: str, wanted: pa.DataType) -> float | None:
    trimmed = text.strip(BLANKS)
    if found := _NUMBER.fullmatch(trimmed):
        number = float(found[1])
        # Arrow rounds to a FLOAT once.
        return number if wanted == pa.float64() else pa.array([found[1]]).cast(wanted)[0].as_py()
    if found := _HEX.fullmatch(trimmed):
        return _of_hex(found, wanted)
    if found := _JAVA_NAMES.fullmatch(trimmed):
        return math.nan if found[2] == "NaN" else float(f"{found[1]}inf")
    return _SPARK_NAMES.get(trimmed.lower())


def _of_hex(found: re.Match[str], wanted: pa.DataType) -> float:
    sign, whole, before, behind, power = found.groups()
    mantissa = int(whole or before + behind, 16)
    digits = power.lstrip("+-").lstrip("0")[: _LONGEST_POWER + 1] or "0"
    exponent = int(digits) * (-1 if power[0] == "-" else 1) - 4 * len(behind or "")
    lost = mantissa.bit_length() - _BITS
    if wanted != pa.float64() and lost > 0:
        # What is cut off stays as one bit, so that the number is rounded once.
        rest = mantissa & ((1 << lost) - 1)
        mantissa, exponent = mantissa >> lost | bool(rest), exponent + lost
    try:
        number = float.fromhex(f"{sign}0x{mantissa:x}p{exponent}")
    except OverflowError:
        number = float(f"{sign}inf")
    return number if wanted == pa.float64() else pa.array([number]).cast(wanted, safe=False)[0].as_py()
