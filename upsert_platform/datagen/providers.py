"""Expressions of `faker` tables: ``#{number.numberBetween '0','1000'}`` and other providers, with text around them.

Names and arguments are those of the Java library behind Flink's faker connector, its common providers. The words that
they choose from are this module's own.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from upsert_platform.core.options import nearest

_CALL: Final = re.compile(r"#\{\s*([A-Za-z_][\w.]*)\s*((?:'(?:[^']|'')*'\s*,?\s*)*)\}")
_ARGUMENT: Final = re.compile(r"'((?:[^']|'')*)'")
_UNITS: Final = {
    "MILLISECONDS": 0.001, "SECONDS": 1.0, "MINUTES": 60.0, "HOURS": 3600.0, "DAYS": 86400.0,
}  # fmt: skip
_FIRST: Final = ("Ada", "Bruno", "Chen", "Dilnoza", "Emil", "Fatima", "Goro", "Hana", "Ines", "Jun", "Kofi", "Lena")
_LAST: Final = (
    "Abara",
    "Berg",
    "Costa",
    "Dahl",
    "Egawa",
    "Farkas",
    "Grant",
    "Haddad",
    "Ivanova",
    "Jensen",
    "Kim",
    "Li",
)
_CITIES: Final = ("Accra", "Beijing", "Cairo", "Dakar", "Essen", "Fukuoka", "Graz", "Hangzhou", "Izmir", "Jakarta")
_COUNTRIES: Final = ("Austria", "Brazil", "China", "Egypt", "Ghana", "India", "Japan", "Norway", "Peru", "Turkey")
_WORDS: Final = ("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "harbor", "island", "juniper", "kelp")
_COLORS: Final = ("black", "blue", "brown", "green", "grey", "orange", "purple", "red", "white", "yellow")
_HERO: Final = (
    ("Captain", "Doctor", "Mighty", "Silent", "Iron", "Crimson"),
    ("Comet", "Falcon", "Tide", "Ember", "Quake"),
)
_POWERS: Final = ("flight", "invisibility", "strength", "telepathy", "speed", "shape shifting")
_THINGS: Final = (
    ("Small", "Sturdy", "Light", "Practical"),
    ("Steel", "Cotton", "Wooden", "Glass"),
    ("Chair", "Lamp", "Bag"),
)
_JOBS: Final = ("Accountant", "Baker", "Carpenter", "Dentist", "Engineer", "Farmer", "Gardener", "Nurse")
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"

Maker = Callable[[random.Random], str]


class ExpressionError(ValueError):
    """An expression that is not one; the message says why, without the name of the option."""


@dataclass(frozen=True)
class Provider:
    """The values of a name in an expression.

    Attributes:
        least, most: how many arguments it takes.
        bind: checks the arguments and gives what makes values.
    """

    least: int
    most: int
    bind: Callable[[Sequence[str]], Maker]


def read_expression(text: str) -> Maker:
    """Return the generator of an expression's values.

    Raises:
        ExpressionError: it names an unknown provider, or arguments that this does not take.
    """
    parts: list[Maker] = []
    at = 0
    for call in _CALL.finditer(text):
        if call.start() > at:
            parts.append(partial(_fixed, text[at : call.start()]))
        parts.append(_bound(call[1], [item.replace("''", "'") for item in _ARGUMENT.findall(call[2])]))
        at = call.end()
    rest = text[at:]
    if "#{" in rest:
        raise ExpressionError("is written #{provider.name 'argument','argument'}; a part of it cannot be read")
    if rest:
        parts.append(partial(_fixed, rest))
    if len(parts) == 1:
        return parts[0]
    return lambda rng: "".join(part(rng) for part in parts)


def _fixed(text: str, rng: random.Random) -> str:
    del rng
    return text


def _bound(name: str, arguments: list[str]) -> Maker:
    provider = PROVIDERS.get(_folded(name))
    if provider is None:
        hint = nearest(_folded(name), PROVIDERS)
        raise ExpressionError(f"names '{name}', which is not made here{hint}; known are {', '.join(sorted(PROVIDERS))}")
    if not provider.least <= len(arguments) <= provider.most:
        takes = str(provider.least) if provider.least == provider.most else f"{provider.least} to {provider.most}"
        raise ExpressionError(f"gives '{name}' {len(arguments)} arguments, it takes {takes}")
    return provider.bind(arguments)


def _folded(name: str) -> str:
    """``number.numberBetween`` and ``Number.number_between`` are one name."""
    return name.replace("_", "").lower()


def _chosen(*groups: Sequence[str]) -> Provider:
    def make(rng: random.Random) -> str:
        return " ".join(rng.choice(group) for group in groups)

    return Provider(0, 0, lambda _: make)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ExpressionError(f"gives '{text}' where a whole number is expected") from None


def _number_between(arguments: Sequence[str]) -> Maker:
    low, high = _whole(arguments[0]), _whole(arguments[1])
    if high <= low:
        raise ExpressionError(f"asks for a number from {low} to below {high}, and there is none")
    return lambda rng: str(rng.randrange(low, high))


def _random_double(arguments: Sequence[str]) -> Maker:
    digits, low, high = (_whole(item) for item in arguments)
    if high < low or digits < 0:
        raise ExpressionError("takes digits after the point, the least and the greatest number, in this order")
    return lambda rng: f"{rng.uniform(low, high):.{digits}f}"


def _digits(arguments: Sequence[str]) -> Maker:
    count = _whole(arguments[0])
    return lambda rng: "".join(str(rng.randrange(10)) for _ in range(count))


def _option(arguments: Sequence[str]) -> Maker:
    choices = tuple(arguments)
    return lambda rng: rng.choice(choices)


def _letters(arguments: Sequence[str]) -> Maker:
    low = _whole(arguments[0])
    high = _whole(arguments[1]) if len(arguments) > 1 else low
    if not 0 <= low <= high:
        raise ExpressionError("takes a length, or the least and the greatest length")
    return lambda rng: "".join(rng.choice(_LETTERS) for _ in range(rng.randint(low, high)))


def _words(arguments: Sequence[str]) -> Maker:
    count = _whole(arguments[0]) if arguments else 4
    return lambda rng: " ".join(rng.choice(_WORDS) for _ in range(count)).capitalize() + "."


def _moment(arguments: Sequence[str], *, sign: int) -> Maker:
    """A time up to so many units before or after now, as SQL writes it, in UTC."""
    unit = _UNITS.get(arguments[-1].upper())
    if unit is None:
        raise ExpressionError(f"gives the unit '{arguments[-1]}'; units are {', '.join(_UNITS)}")
    numbers = [_whole(item) for item in arguments[:-1]]
    far, near = numbers[0] * unit, (numbers[1] * unit if len(numbers) > 1 else 0.0)
    if not 0 <= near <= far:
        raise ExpressionError("takes how far a time is at most, and perhaps at least, before the unit")

    def make(rng: random.Random) -> str:
        at = datetime.now(UTC) + sign * timedelta(seconds=rng.uniform(near, far))
        return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond:06d}"

    return make


def _mail(rng: random.Random) -> str:
    return f"{rng.choice(_FIRST)}.{rng.choice(_LAST)}@example.com".lower()


def _uuid(rng: random.Random) -> str:
    text = f"{rng.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"


def _address(rng: random.Random) -> str:
    return ".".join(str(rng.randrange(1, 255)) for _ in range(4))


def _price(rng: random.Random) -> str:
    return f"{rng.randrange(100, 100_000) / 100:.2f}"


PROVIDERS: Final[dict[str, Provider]] = {
    "number.numberbetween": Provider(2, 2, _number_between),
    "number.randomdouble": Provider(3, 3, _random_double),
    "number.randomdigit": Provider(0, 0, lambda _: lambda rng: str(rng.randrange(10))),
    "number.digits": Provider(1, 1, _digits),
    "bool.bool": Provider(0, 0, lambda _: lambda rng: rng.choice(("true", "false"))),
    "options.option": Provider(1, 1000, _option),
    "lorem.word": _chosen(_WORDS),
    "lorem.sentence": Provider(0, 1, _words),
    "lorem.characters": Provider(1, 2, _letters),
    "name.firstname": _chosen(_FIRST),
    "name.lastname": _chosen(_LAST),
    "name.fullname": _chosen(_FIRST, _LAST),
    "name.name": _chosen(_FIRST, _LAST),
    "superhero.name": _chosen(*_HERO),
    "superhero.power": _chosen(_POWERS),
    "address.city": _chosen(_CITIES),
    "address.country": _chosen(_COUNTRIES),
    "color.name": _chosen(_COLORS),
    "commerce.productname": _chosen(*_THINGS),
    "commerce.price": Provider(0, 0, lambda _: _price),
    "job.title": _chosen(_JOBS),
    "internet.emailaddress": Provider(0, 0, lambda _: _mail),
    "internet.uuid": Provider(0, 0, lambda _: _uuid),
    "internet.ipv4address": Provider(0, 0, lambda _: _address),
    "date.past": Provider(2, 3, partial(_moment, sign=-1)),
    "date.future": Provider(2, 3, partial(_moment, sign=1)),
}
"""Providers by their names in small letters."""
