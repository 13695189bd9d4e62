"""CAST of texts to DECIMAL, as Spark reads them: by Java's BigDecimal, rounded half up, null where there is no room."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa

from upsert_platform.core.types import LogicalType, arrow_type
from upsert_platform.engine.decimal_values import FORMS as DECIMALS
from upsert_platform.engine.text_readings import BLANKS, LINE_END, cast_plain, one_array, signs_of, with_others

_MOST_DIGITS: Final = 38
_MORE_FRACTION: Final = 9
"""Digits behind the scale that are read by Arrow."""
_MOST_EXPONENT: Final = 1 << 31
_SIGNS: Final = signs_of(b"0123456789.-")
_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d+))?")
"""Digits are those of any script, as in Java, of which it takes those of 16 bits."""
_SHORT: Final = 18
_PASSED_OVER: Final = re.compile(rf"([ \n\t]*[+-]?[0-9]*\.?[0-9]*)(?:(?![0-9.eE])[\x00-\x7f][ \n\t]*|[eE]){LINE_END}")
_NO_NUMBER: Final = re.compile(rf"[ \n\t]*[+-]?{LINE_END}")


def decimals_of(texts: Any, kind: LogicalType) -> Any:
    """Texts as a DECIMAL."""
    return _read(texts, kind, partial(_decimal, kind=kind))


def short_decimals_of(texts: Any, kind: LogicalType) -> Any:
    """Texts as `casts` reads them for a DECIMAL of at most 18 digits: what ends a number may be passed over."""
    return _read(texts, kind, partial(_short_decimal, kind=kind))


def _read(texts: Any, kind: LogicalType, read: Callable[[str], Decimal | None]) -> Any:
    array, wanted = one_array(texts), arrow_type(kind)
    scale = kind.scale or 0
    plain = _pattern((kind.precision or 0) - scale, scale)
    values, others = cast_plain(array, _SIGNS, plain, wanted)
    if others is not None and others.any():
        # Those of more digits are rounded, or have no room: nothing is lost where a wider type has them all.
        behind = min(scale + _MORE_FRACTION, _MOST_DIGITS - 1)
        wide = pa.decimal128(_MOST_DIGITS, behind)
        exact, others = cast_plain(array, _SIGNS, _pattern(_MOST_DIGITS - behind, behind), wide)
        values = DECIMALS["fit"](pa.chunked_array([exact]), kind).combine_chunks()
    return pa.chunked_array([with_others(values, array, others, read)])


def _pattern(before: int, behind: int) -> str:
    return rf"\A-?[0-9]{{1,{before}}}(?:\.[0-9]{{0,{behind}}})?\z" if before else rf"\A-?\.[0-9]{{1,{behind}}}\z"


def _decimal(text: str, kind: LogicalType) -> Decimal | None:
    trimmed = text.strip(BLANKS)
    found = _NUMBER.fullmatch(trimmed)
    if found is None or any(ord(sign) > 0xFFFF for sign in trimmed):
        return None
    exponent = found[1] and found[1].lstrip("+-")
    if exponent and len(exponent) > 10:
        exponent = exponent[:-10].lstrip("".join(sign for sign in exponent if int(sign) == 0)) + exponent[-10:]
        if len(exponent) > 10:
            return None
    if exponent and int(exponent) >= _MOST_EXPONENT:
        return None
    number = Decimal(trimmed)
    _, digits, power = number.as_tuple()
    assert isinstance(power, int)
    if len(digits) + power > _MOST_DIGITS or not -_MOST_EXPONENT < power < _MOST_EXPONENT:
        return None
    context = Context(prec=len(digits) + 2 * _MOST_DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN)
    rounded = number.quantize(Decimal(1).scaleb(-(kind.scale or 0)), ROUND_HALF_UP, context)
    return rounded if len(rounded.as_tuple().digits) <= (kind.precision or 0) else None


def _short_decimal(text: str, kind: LogicalType) -> Decimal | None:
    found = _PASSED_OVER.match(text) if 1 <= len(text.encode()) <= _SHORT else None
    if found is None or _NO_NUMBER.match(text):
        return _decimal(text, kind)
    return _decimal(found[1] if re.search("[0-9]", found[1]) else "0", kind)
