"""SQL types as the referee reads them from their text, and values of them as texts that can be compared.

Decoders and readers of tables give values in these forms: bool, int, float, Decimal, str, bytes; DATE in days and
TIMESTAMP in nanoseconds since 1970, TIME in nanoseconds of the day; ARRAY a list, ROW a list in the order of its
fields, MAP and MULTISET a list of pairs.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

from upsert_platform.referee.errors import RefereeError

INTEGERS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
TEXTS = ("CHAR", "VARCHAR", "STRING")
BINARIES = ("BINARY", "VARBINARY", "BYTES")
_PLAIN = {*INTEGERS, *TEXTS, *BINARIES, "BOOLEAN", "FLOAT", "DOUBLE", "DECIMAL", "DATE", "TIME"}
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|\w+|[<>(),])")


@dataclass(frozen=True, slots=True)
class Kind:
    """A SQL type.

    Attributes:
        digits: of a DECIMAL in all; of the fraction of TIME and TIMESTAMP; length of texts and bytes.
        scale: digits of a DECIMAL behind the point.
        parts: name and type of what is inside: fields of a ROW, element of an ARRAY, key and value of a MAP.
    """

    root: str
    digits: int = 0
    scale: int = 0
    parts: tuple[tuple[str, Kind], ...] = ()
    nullable: bool = True


class Odd(str):
    """A table's value of an unexpected type, as text; it equals no value."""

    __slots__ = ()


def kind_of(text: str) -> Kind:
    """Reads a type such as ``DECIMAL(12, 2)`` or ``ROW<a INT, b ARRAY<STRING>> NOT NULL``.

    Raises:
        RefereeError: the referee does not know the type.
    """
    tokens = [*_TOKEN.findall(text), ""]
    kind = _read(tokens, text)
    if tokens != [""]:
        raise RefereeError(f"the type '{text}' is not one that the referee knows")
    return kind


def _read(tokens: list[str], text: str) -> Kind:
    root = tokens.pop(0).upper()
    numbers: list[int] = []
    parts: list[tuple[str, Kind]] = []
    if tokens[0] == "(":
        tokens.pop(0)
        while (token := tokens.pop(0)) != ")":
            if token.isdigit():
                numbers.append(int(token))
    elif tokens[0] == "<":
        tokens.pop(0)
        while tokens[0] not in (">", ""):
            name = tokens.pop(0).strip("`").replace("``", "`") if root == "ROW" else ""
            parts.append((name, _read(tokens, text)))
            if tokens[0] == ",":
                tokens.pop(0)
        tokens.pop(0)
    nullable = True
    if [token.upper() for token in tokens[:2]] == ["NOT", "NULL"]:
        nullable = False
        del tokens[:2]
    if root in ("TIMESTAMP", "TIMESTAMP_LTZ", "TIME"):
        default = 0 if root == "TIME" else 6
        return Kind(root, (numbers or [default])[0], nullable=nullable)
    if root == "MULTISET":
        return Kind("MAP", parts=(*parts, ("", Kind("INT"))), nullable=nullable)
    if (root in _PLAIN and not parts) or (root in ("ARRAY", "MAP", "ROW") and parts):
        digits, scale = [*numbers, 0, 0][:2]
        return Kind(root, digits, scale, tuple(parts), nullable)
    raise RefereeError(f"the type '{text}' is not one that the referee knows")


def text_of(value: Any, kind: Kind) -> str | None:
    """A value as text that is the same for equal values of the type, cut to the digits that the type has room for."""
    if value is None:
        return None
    if isinstance(value, Odd):
        return f"(not a {kind.root}) {value}"
    match kind.root:
        case "FLOAT" | "DOUBLE":
            return repr(single(value)) if kind.root == "FLOAT" else repr(float(value))
        case "DECIMAL":
            rounded = rounded_decimal(value, kind)
            return None if rounded is None else format(rounded, "f")
        case "CHAR":
            return str(value).rstrip(" ")
        case "DATE":
            return _date_text(value)
        case "TIME":
            return _clock_text(value, kind.digits)
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            days, nanos = divmod(value, 86_400_000_000_000)
            return f"{_date_text(days)} {_clock_text(nanos, kind.digits)}{'Z' if kind.root.endswith('LTZ') else ''}"
        case "ARRAY":
            return json.dumps([text_of(item, kind.parts[0][1]) for item in value], ensure_ascii=False)
        case "ROW":
            items = zip(value, kind.parts, strict=True)
            return json.dumps([text_of(item, part) for item, (_, part) in items], ensure_ascii=False)
        case "MAP":
            (_, key), (_, item) = kind.parts
            pairs = sorted([str(text_of(name, key)), text_of(found, item)] for name, found in value)
            return json.dumps(pairs, ensure_ascii=False)
    if isinstance(value, bytes):
        return "x" + value.hex()
    return str(value)


def texts_of(values: Sequence[Any], kinds: Sequence[Kind]) -> str:
    """A row, or a key, as one text."""
    texts = [text_of(value, kind) for value, kind in zip(values, kinds, strict=True)]
    return json.dumps(texts, ensure_ascii=False)


def single(value: float) -> float:
    """The nearest value of single precision."""
    if value != value or value in (float("inf"), float("-inf")):
        return value
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def rounded_decimal(value: Decimal, kind: Kind) -> Decimal | None:
    """A number rounded half up to the scale of its type; None where it has more digits than the type."""
    with localcontext() as context:
        context.prec = 400
        rounded = value.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
        if rounded and rounded.adjusted() >= kind.digits - kind.scale:
            return None
        return rounded if rounded else abs(rounded)


def _date_text(days: int) -> str:
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return f"day {days}"


def _clock_text(nanos: int, digits: int) -> str:
    seconds, fraction = divmod(nanos, 1_000_000_000)
    shown = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return shown + ("." + f"{fraction:09}"[:digits] if digits else "")
