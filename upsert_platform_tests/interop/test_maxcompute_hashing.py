"""Buckets of 10,000 random keys of every key type: those of the official Java SDK, the platform and the server."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from upsert_platform.local.maxcompute.types import parse_type
from upsert_platform.local.maxcompute.wire import hasher as server_hasher
from upsert_platform.maxcompute.hashing import buckets_of, hash_column
from upsert_platform.maxcompute.types import parse_maxcompute_type, wire_type
from upsert_platform_tests.interop.bulk import SEPARATOR, Bulk
from upsert_platform_tests.interop.java import Java

COUNT = 10_000
BUCKETS = 4096
HASHER = "com.aliyun.odps.tunnel.hasher.TypeHasher"
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - texts and numbers of UTC
FIRST_MILLIS, LAST_MILLIS = -62_135_596_800_000, 253_402_300_799_999
LETTERS = [chr(code) for code in (*range(1, 0x180), *range(0x4E00, 0x4E20), 0x1F600) if chr(code) != SEPARATOR]


@dataclass(frozen=True)
class Kind:
    """A type of keys.

    Attributes:
        some: a random value, as the record codec has it: numbers for times.
        edges: values that are always among them.
        text: what the Java side reads it from.
        parse: the steps from the text to the Java object, as arguments of `Bulk` functions.
    """

    name: str
    some: Callable[[random.Random], Any]
    edges: tuple[Any, ...]
    parse: tuple[tuple[str, ...], ...]
    text: Callable[[Any], str] = str

    def values(self) -> list[Any]:
        chance = random.Random(self.name)
        return [*self.edges, *(self.some(chance) for _ in range(COUNT - len(self.edges)))]

    def column(self, values: list[Any]) -> pa.Array:
        kind = wire_type(parse_maxcompute_type(self.name))
        if pa.types.is_temporal(kind):
            return pa.array(values, pa.int32() if pa.types.is_date32(kind) else pa.int64()).view(kind)
        return pa.array(values, kind)


def _whole(name: str, bits: int, owner: str) -> Kind:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    steps = (("static", f"java.lang.{owner}", "valueOf", f"java.lang.{owner}", "java.lang.String"),)
    return Kind(name, lambda chance: chance.randint(least, most), (0, 1, -1, least, most), steps)


def _text(name: str, owner: str | None) -> Kind:
    def some(chance: random.Random) -> str:
        return "".join(chance.choices(LETTERS, k=chance.randrange(40)))

    steps = () if owner is None else (("constructor", f"com.aliyun.odps.data.{owner}", "java.lang.String"),)
    return Kind(name, some, ("", " ", "  1  ", "1 ", "é中\U0001f600"), steps)


def _decimal(precision: int, scale: int) -> Kind:
    most = 10**precision - 1

    def number(unscaled: int) -> Decimal:
        return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))

    def some(chance: random.Random) -> Decimal:
        return number(chance.randint(-most, most) // 10 ** chance.randrange(precision))

    steps = (("constructor", "java.math.BigDecimal", "java.lang.String"), ("decimal", str(precision), str(scale)))
    edges = tuple(map(number, (0, 1, -1, 10, most, -most)))
    return Kind(f"decimal({precision},{scale})", some, edges, steps, lambda value: format(value, "f"))


def _floating(name: str, owner: str, convert: Callable[[float], Any]) -> Kind:
    def some(chance: random.Random) -> Any:
        return convert(chance.gauss(0, 1) * 10.0 ** chance.randint(-30, 30))

    steps = (("static", f"java.lang.{owner}", "valueOf", f"java.lang.{owner}", "java.lang.String"),)
    edges = tuple(map(convert, (0.0, -0.0, 1.5, -1.99, float("inf"), float("-inf"))))
    return Kind(name, some, edges, steps, lambda value: repr(float(value)).replace("inf", "Infinity"))


def _moment(nanos: int) -> str:
    seconds, rest = divmod(nanos, 10**9)
    return f"{(EPOCH + dt.timedelta(seconds=seconds)).isoformat()}.{rest:09}Z"


def _parsed(owner: str) -> tuple[tuple[str, ...], ...]:
    return (("static", owner, "parse", owner, "java.lang.CharSequence"),)


KINDS = [
    _whole("tinyint", 8, "Byte"),
    _whole("smallint", 16, "Short"),
    _whole("int", 32, "Integer"),
    _whole("bigint", 64, "Long"),
    Kind(
        "boolean",
        lambda chance: chance.random() < 0.5,
        (True, False),
        (("static", "java.lang.Boolean", "valueOf", "java.lang.Boolean", "java.lang.String"),),
        lambda value: str(value).lower(),
    ),
    _floating("float", "Float", lambda value: float(np.float32(value))),
    _floating("double", "Double", float),
    _text("string", None),
    _text("char(255)", "Char"),
    _text("varchar(200)", "Varchar"),
    Kind(
        "date",
        lambda chance: chance.randint(FIRST_MILLIS // 86_400_000, LAST_MILLIS // 86_400_000),
        (0, -1, 18_628, FIRST_MILLIS // 86_400_000),
        _parsed("java.time.LocalDate"),
        lambda days: (EPOCH + dt.timedelta(days=days)).date().isoformat(),
    ),
    Kind(
        "datetime",
        lambda chance: chance.randint(FIRST_MILLIS, LAST_MILLIS),
        (0, -1, -999, -1000, FIRST_MILLIS, LAST_MILLIS),
        _parsed("java.time.ZonedDateTime"),
        lambda millis: _moment(millis * 1_000_000),
    ),
    Kind(
        "timestamp",
        lambda chance: chance.randint(-(2**63) + 10**9, 2**63 - 10**9),
        (0, -1, 1_609_459_200_123_456_789, -315_619_199_500_000_000, -(10**9), -999_999_999),
        _parsed("java.time.Instant"),
        _moment,
    ),
    *(_decimal(*sizes) for sizes in ((4, 2), (10, 0), (18, 18), (19, 0), (19, 2), (38, 0), (38, 18))),
]


@pytest.fixture(scope="module")
def bulk(maxcompute_java: Java) -> Bulk:
    return Bulk(maxcompute_java)


def java_hashes(java: Java, bulk: Bulk, kind: Kind, values: list[Any], hasher: str) -> list[int]:
    """The hash of each value."""
    steps = []
    for call, *arguments in kind.parse:
        if call == "decimal":
            made = bulk.constructor(
                "com.aliyun.odps.tunnel.hasher.DecimalHashObject", "java.math.BigDecimal", "int", "int"
            )
            steps.append(bulk.bind(made, 1, *map(int, arguments)))
        else:
            steps.append(getattr(bulk, call)(*arguments))
    hashing = bulk.static(HASHER, "hash", "int", "com.aliyun.odps.OdpsType", "java.lang.Object", "java.lang.String")
    kind_in_java = getattr(java.classes.com.aliyun.odps.OdpsType, kind.name.partition("(")[0].upper())
    steps.append(bulk.bind(bulk.bind(hashing, 2, hasher), 0, kind_in_java))
    return list(map(int, bulk.map([kind.text(value) for value in values], *steps)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_97_105_106_hashes_and_buckets_are_those_of_the_java_sdk(maxcompute_java: Java, bulk: Bulk, kind: Kind) -> None:
    values = kind.values()
    column, parsed = kind.column(values), parse_maxcompute_type(kind.name)
    expected = java_hashes(maxcompute_java, bulk, kind, values, "default")
    assert hash_column(column, parsed).tolist() == expected
    assert hash_column(column, parsed, legacy=True).tolist() == java_hashes(
        maxcompute_java, bulk, kind, values, "legacy"
    )

    one = bulk.static("java.util.Collections", "singletonList", "java.util.List", "java.lang.Object")
    combine = bulk.static(HASHER, "CombineHashVal", "int", "java.util.List")
    number = bulk.static("java.lang.Integer", "valueOf", "java.lang.Integer", "java.lang.String")
    buckets = [int(text) % BUCKETS for text in bulk.map(list(map(str, expected)), number, one, combine)]
    assert buckets_of([column], [parsed], BUCKETS).tolist() == buckets
    assert server_hasher.buckets_of([values], [parse_type(kind.name)], BUCKETS) == buckets


def test_97_keys_of_several_columns(maxcompute_java: Java, bulk: Bulk) -> None:
    kinds = [kind for kind in KINDS if kind.name in ("bigint", "string", "decimal(38,18)")]
    values = [kind.values()[:300] for kind in kinds]
    hashes = [
        java_hashes(maxcompute_java, bulk, kind, column, "default") for kind, column in zip(kinds, values, strict=True)
    ]
    combined = maxcompute_java.classes.com.aliyun.odps.tunnel.hasher.TypeHasher.CombineHashVal
    expected = [combined(maxcompute_java.list_of(row)) % BUCKETS for row in zip(*hashes, strict=True)]
    columns = [kind.column(column) for kind, column in zip(kinds, values, strict=True)]
    types = [parse_maxcompute_type(kind.name) for kind in kinds]
    assert buckets_of(columns, types, BUCKETS).tolist() == expected
    assert server_hasher.buckets_of(values, [parse_type(kind.name) for kind in kinds], BUCKETS) == expected
