"""INTERVAL literals: which texts are values of a qualifier, and how long they are.

``INTERVAL '1 02:03' DAY TO MINUTE`` has a first field of any length, or of as many digits as ``DAY(3)`` says, and
further fields within their ranges. A length is a number of months, or of milliseconds: what stands behind these is cut,
as Flink does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

_FIELDS: Final = ("DAY", "HOUR", "MINUTE", "SECOND")
"""Fields of intervals of fixed length, each part of the one before it."""
_MILLIS: Final = {
    "MILLISECOND": 1, "SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000, "WEEK": 604_800_000,
}  # fmt: skip
_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
UNITS: Final = frozenset((*_MILLIS, *_MONTHS))
"""Fields of intervals, in the singular."""
_BELOW: Final = {"MONTH": 12, "HOUR": 24, "MINUTE": 60, "SECOND": 60}
_MOST_DIGITS: Final = 10
_MOST_FRACTION: Final = 9
_LONGEST: Final = 10_000 * 366 * _MILLIS["DAY"]
_QUALIFIERS: Final = (
    "YEAR, YEAR TO MONTH, QUARTER, MONTH, WEEK, DAY, HOUR, MINUTE, SECOND, and DAY TO HOUR, DAY TO MINUTE and the like"
)
QUALIFIER_KEY: Final = "flink_interval"
"""Key in the meta of an INTERVAL: its qualifier as it is written, with precisions."""


class IntervalFault(Exception):  # noqa: N818 - the reader adds the line and makes it a problem
    """A text is no value of its qualifier, with the reason."""


@dataclass(frozen=True)
class Qualifier:
    """The qualifier of an INTERVAL, which stands behind its text.

    Attributes:
        last: the field after TO; the first one if there is none.
        digits: of the first field, where they are declared.
        fraction: digits behind the point of SECOND, where they are declared.
    """

    first: str
    last: str
    digits: int | None = None
    fraction: int | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the fields of a value, the longest first.

        Raises:
            IntervalFault: there is no such qualifier.
        """
        if self.first == self.last and self.first in (*_MILLIS, *_MONTHS):
            return (self.first,)
        if (self.first, self.last) == ("YEAR", "MONTH"):
            return ("YEAR", "MONTH")
        if self.first in _FIELDS and self.last in _FIELDS[_FIELDS.index(self.first) + 1 :]:
            return _FIELDS[_FIELDS.index(self.first) : _FIELDS.index(self.last) + 1]
        raise IntervalFault(f"after INTERVAL and its text stands {_QUALIFIERS}")

    @property
    def text(self) -> str:
        """Return it as SQL."""
        return self.first if self.first == self.last else f"{self.first} TO {self.last}"


@dataclass(frozen=True)
class Length:
    """The length of an interval: of its two numbers one is 0."""

    months: int = 0
    millis: int = 0


def qualifier_of(node: exp.Interval) -> Qualifier:
    """Return the qualifier of an INTERVAL.

    Raises:
        IntervalFault: it has none.
    """
    unit = node.args.get("unit")
    if unit is None:
        raise IntervalFault("an interval is written INTERVAL '1' DAY")
    declared = node.meta.get(QUALIFIER_KEY)
    if isinstance(declared, Qualifier):
        return declared
    first, last = (unit.this, unit.expression) if isinstance(unit, exp.IntervalSpan) else (unit, unit)
    return Qualifier(*(word.name.upper().removesuffix("S") for word in (first, last)))


def length_of(node: exp.Interval) -> Length | None:
    """Return the length of an INTERVAL; None for one that is no literal.

    Raises:
        IntervalFault: its text is no value of its qualifier.
    """
    return read_length(node.this.name, qualifier_of(node)) if isinstance(node.this, exp.Literal) else None


def read_length(text: str, qualifier: Qualifier) -> Length:
    """Return the length that a text stands for.

    Raises:
        IntervalFault: it is no value of the qualifier.
    """
    fields = qualifier.fields
    _check_precisions(qualifier)
    match = re.fullmatch(_pattern(fields), text.strip(), re.ASCII)
    if match is None:
        raise IntervalFault(
            f"the text of an INTERVAL {qualifier.text} is written '{_example(fields)}', or '-{_example(fields)}'"
        )
    sign, *numbers = match.groups()
    fraction = numbers.pop() if fields[-1] == "SECOND" else None
    if qualifier.digits is not None and len(numbers[0].lstrip("0")) > qualifier.digits:
        raise IntervalFault(
            f"the {fields[0]} of an INTERVAL {fields[0]}({qualifier.digits}) has more digits: write"
            f" {fields[0]}({len(numbers[0])})"
        )
    most = 6 if qualifier.fraction is None else qualifier.fraction
    if fraction is not None and len(fraction) > most:
        raise IntervalFault(f"the SECOND of this INTERVAL has {most} digits behind the point at most")
    for field, number in zip(fields[1:], numbers[1:], strict=True):
        if int(number) >= _BELOW[field]:
            raise IntervalFault(f"the {field} of an INTERVAL {qualifier.text} is below {_BELOW[field]}")
    factor = -1 if sign == "-" else 1
    if fields[0] in _MONTHS:
        months = sum(int(number) * _MONTHS[field] for field, number in zip(fields, numbers, strict=True))
        found = Length(months=factor * months)
    else:
        millis = sum(int(number) * _MILLIS[field] for field, number in zip(fields, numbers, strict=True))
        found = Length(millis=factor * (millis + int(((fraction or "") + "000")[:3])))
    if abs(found.months) > 120_000 or abs(found.millis) > _LONGEST:
        raise IntervalFault("an INTERVAL is at most 10,000 years long")
    return found


def _check_precisions(qualifier: Qualifier) -> None:
    if qualifier.digits is not None and not 1 <= qualifier.digits <= _MOST_DIGITS:
        raise IntervalFault(f"an INTERVAL has 1 to {_MOST_DIGITS} digits, {qualifier.first}({_MOST_DIGITS}) at most")
    if qualifier.fraction is None:
        return
    if qualifier.last != "SECOND" or qualifier.fraction > _MOST_FRACTION:
        raise IntervalFault(f"of an INTERVAL, SECOND alone has digits behind the point, {_MOST_FRACTION} at most")


def _pattern(fields: tuple[str, ...]) -> str:
    """Return the form of a value: a sign, numbers, and digits behind the point of seconds."""
    between = {"MONTH": "-", "HOUR": " ", "MINUTE": ":", "SECOND": ":"}
    rest = "".join(rf"{between[field]}(\d{{1,2}})" for field in fields[1:])
    return rf"([+-]?)(\d{{1,{_MOST_DIGITS}}}){rest}" + (r"(?:\.(\d+))?" if fields[-1] == "SECOND" else "")


def _example(fields: tuple[str, ...]) -> str:
    shown = {"MONTH": "-6", "HOUR": " 02", "MINUTE": ":03", "SECOND": ":04"}
    fraction = ".5" if fields[-1] == "SECOND" else ""
    return "1" + "".join(shown[field] for field in fields[1:]) + fraction


def spark_interval(length: Length) -> str:
    """Return an interval of fixed length as a literal of Spark SQL."""
    rest, millis = divmod(abs(length.millis), 1_000)
    rest, seconds = divmod(rest, 60)
    rest, minutes = divmod(rest, 60)
    days, hours = divmod(rest, 24)
    sign = "-" if length.millis < 0 else ""
    return f"INTERVAL '{sign}{days} {hours:02}:{minutes:02}:{seconds:02}.{millis:03}' DAY TO SECOND"
