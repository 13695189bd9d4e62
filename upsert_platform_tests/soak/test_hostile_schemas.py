"""A hundred thousand hostile schemas, registry answers and messages: decoded, quarantined or refused, in bounds."""

from __future__ import annotations

import random

import pytest

from upsert_platform_tests.formats.hostile import Counts, answers, fuzz, run_case
from upsert_platform_tests.formats.registered.test_registry import Fake, fake

__all__ = ["fake"]

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2700)]

SCHEMAS = 80_000
ANSWERS = 20_000


def test_fuzz_of_schemas(seed: int, scale: float) -> None:
    counts = Counts()
    fuzz(counts, seed, int(SCHEMAS * scale))
    print(counts)  # noqa: T201
    assert counts.worst == []
    assert counts.cases == int(SCHEMAS * scale)


def test_fuzz_of_registry_answers(fake: Fake, seed: int, scale: float) -> None:
    counts = Counts()
    for number in range(int(ANSWERS * scale)):
        chance = random.Random(f"{seed}/{number}")
        fake.requests.clear()
        fake.answers = {path: [answer] for path, answer in answers(chance).items()}
        run_case(counts, f"{seed}/{number}", "avro-confluent", fake.url, [b"\0\0\0\0\1\2\0\0", b"\0\0\0\0\1"])
    print(counts)  # noqa: T201
    assert counts.worst == []
    assert counts.refused > 0
