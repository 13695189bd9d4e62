"""CAST of texts to numbers and truth values, as Spark reads them when it is not in ANSI mode: null for what is none."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import LogicalType, arrow_type
from upsert_platform.engine.decimal_readings import decimals_of, short_decimals_of
from upsert_platform.engine.real_readings import reals_of
from upsert_platform.engine.text_readings import CONTROLS, cast_plain, one_array, signs_of, with_others

_LONG_DIGITS: Final = 19
_SIGNS: Final = signs_of(b"0123456789-")
_PLAIN: Final = r"\A-?[0-9]{1,18}\z"
_WHOLE: Final = re.compile(r"([+-]?)0*([0-9]*)(\.[0-9]*)?")
_TRUE: Final = pa.array(["t", "true", "y", "yes", "1"])
_FALSE: Final = pa.array(["f", "false", "n", "no", "0"])


def _wholes_of(texts: Any, kind: LogicalType) -> Any:
    """Whole numbers, of which a fraction is cut off; null where the type has no room."""
    array = one_array(texts)
    values, others = cast_plain(array, _SIGNS, _PLAIN, pa.int64())
    values = with_others(values, array, others, _whole)
    wanted = arrow_type(kind)
    if wanted != values.type:
        most = 1 << (wanted.bit_width - 1)
        fits = pc.and_(pc.greater_equal(values, -most), pc.less(values, most))
        values = pc.if_else(fits, values, pa.scalar(None, values.type)).cast(wanted)
    return pa.chunked_array([values])


def _whole(text: str) -> int | None:
    """The number of 64 bits in a text; a point needs no digits, before it or behind."""
    trimmed = text.strip(CONTROLS)
    found = _WHOLE.fullmatch(trimmed)
    if found is None or trimmed in ("", "+", "-"):
        return None
    sign, digits, _ = found.groups()
    if len(digits) > _LONG_DIGITS:
        return None
    value = int(digits or "0") * (-1 if sign == "-" else 1)
    return value if -(1 << 63) <= value < 1 << 63 else None


def _truths_of(texts: Any) -> Any:
    words = pc.ascii_lower(pc.ascii_trim(one_array(texts), characters=CONTROLS))
    yes, no = pc.is_in(words, value_set=_TRUE), pc.is_in(words, value_set=_FALSE)
    return pa.chunked_array([pc.if_else(pc.or_(yes, no), yes, pa.scalar(None, pa.bool_()))])


FORMS: Final[Mapping[str, Callable[..., Any]]] = {
    "text to whole": _wholes_of,
    "text to truth": _truths_of,
    "text to decimal": decimals_of,
    "text to short decimal": short_decimals_of,
    "text to real": reals_of,
}
"""Operators of forms: what they take, then what else stands in the form."""
