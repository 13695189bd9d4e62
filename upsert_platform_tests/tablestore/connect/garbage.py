"""Records that no well-meaning producer sends: broken JSON and UTF-8, values of all shapes, sizes beyond limits."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Iterator
from typing import Any

_GOOD = {"A": "text", "B": 1, "C": 1.5, "D": True}
_LARGE = 2 * 1024 * 1024 + 1
_LARGE_ONE_IN = 10_000
"""Values above the limit of a cell are rare: a hundred of them weigh more than all others."""


def _cut(chance: random.Random) -> bytes:
    text = json.dumps(_GOOD)
    return text[: chance.randrange(len(text))].encode()


def _flipped(chance: random.Random) -> bytes:
    data = bytearray(json.dumps(_GOOD).encode())
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def _nested(chance: random.Random) -> bytes:
    depth = chance.choice((2, 50, 3_000))
    return b'{"A":' * depth + b"1" + b"}" * chance.choice((depth, depth - 1))


def _literal(chance: random.Random) -> bytes:
    literals = (
        "null", "true", "7", '"x"', "[1]", "[]", "{}", "NaN", "-Infinity", "", " ", '{"A":NaN}', '{"A":1e400}',
        '{"A":-1e400}', '{"A":9223372036854775808}', '{"A":' + "9" * 400 + "}", '{"A":"\\ud800"}', '{"A":"\\u0000"}',
        '{"A":1,"A":2}', '{"":1}', '{"A":null}', '{"A":{"B":[null]}}', "\ufeff{}", '{"schema":null,"payload":null}',
        '{"schema":{"type":"struct"},"payload":{"A":1}}', '{"schema":{"type":"int32"},"payload":"x"}',
    )  # fmt: skip
    return chance.choice(literals).encode("utf-8", "surrogatepass")


def _name(chance: random.Random) -> bytes:
    names = ("1a", "é", "a b", "a" * 256, "a\0b", "A", "_", "offset", "pk0")
    return json.dumps({chance.choice(names): 1}, ensure_ascii=chance.random() < 0.5).encode()


def _wide(chance: random.Random) -> bytes:
    return json.dumps({f"c{number}": number for number in range(chance.choice((129, 1024, 1025)))}).encode()


def _own(chance: random.Random) -> bytes:
    """Fields that no other record has."""
    return json.dumps({f"f{chance.getrandbits(64):x}": "v" for _ in range(chance.randrange(40))}).encode()


def _any(chance: random.Random) -> Any:
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: None,
        lambda: chance.random() < 0.5,
        lambda: chance.randint(-(2**65), 2**65),
        lambda: chance.gauss(0, 1e300),
        lambda: "".join(chance.choices(string.printable + "é漢😀", k=chance.randrange(12))),
        lambda: [_any(chance) for _ in range(chance.randrange(3))],
        lambda: {chance.choice("ABCxyz"): _any(chance) for _ in range(chance.randrange(3))},
    )
    return chance.choice(kinds)()


def _shape(chance: random.Random) -> bytes:
    return json.dumps({name: _any(chance) for name in chance.sample("ABCDEF", chance.randrange(6))}).encode()


def _value(chance: random.Random) -> bytes | None:
    if chance.randrange(_LARGE_ONE_IN) == 0:
        return json.dumps({"A": "x" * _LARGE}).encode()
    kinds: tuple[Callable[[random.Random], bytes | None], ...] = (
        lambda _: json.dumps(_GOOD).encode(),
        lambda _: None,
        lambda chance: chance.randbytes(chance.randrange(40)),
        _cut, _flipped, _literal, _name, _own, _shape, _shape,
    )  # fmt: skip
    rare = (_nested, _wide)
    return chance.choice(rare)(chance) if chance.randrange(200) == 0 else chance.choice(kinds)(chance)


def _key(chance: random.Random, number: int) -> bytes | None:
    roll = chance.randrange(20)
    if roll == 0:
        return None
    if roll == 1:
        return chance.randbytes(chance.randrange(12))
    if roll == 2:
        return json.dumps({"pk0": f"{number}-" + "k" * chance.choice((1014, 1020, 1100))}).encode()
    if roll == 3:
        return json.dumps({"pk0": _any(chance), "n": number}).encode()
    return json.dumps({"pk0": f"k{number}"}).encode()


def garbage(seed: int, count: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Keys and values; of the keys that can be keys, nearly all are different."""
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        yield _key(chance, number), _value(chance)
