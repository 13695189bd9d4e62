"""The last record of each key, whatever the keys hash to and however often they are looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.kafka.source import reduce
from upsert_platform.kafka.source.reduce import LatestByKey


@dataclass(frozen=True)
class Held:
    """A record as Kafka's client gives it."""

    place: int
    of: bytes | None
    size: int = 3

    def key(self) -> bytes | None:
        return self.of

    def value(self) -> bytes | None:
        return b"%d:" % self.place + b"v" * self.size

    def offset(self) -> int:
        return self.place

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000 + self.place

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def __len__(self) -> int:
        return len(self.value() or b"")


def few_hashes(keys: pa.Array) -> np.ndarray:
    """So few that different keys share one."""
    return np.array([len(key.as_py()) % 2 for key in keys], np.uint64)


@pytest.fixture(params=["texts", "hashes", "shared hashes"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "texts":
        monkeypatch.setattr(reduce, "_MANY_KEYS", 0)
    if request.param == "shared hashes":
        monkeypatch.setattr(reduce, "hash_cells", few_hashes)
    return str(request.param)


@pytest.mark.usefixtures("way")
class TestEveryWay:
    @settings(deadline=None)
    @given(st.lists(st.lists(st.one_of(st.none(), st.binary(max_size=3)), min_size=1, max_size=9), max_size=6))
    def test_what_is_left_is_the_last_record_of_each_key(self, blocks: list[list[bytes | None]]) -> None:
        buffer, model, lone = LatestByKey(budget=1 << 20), dict[bytes, int](), 0
        place = 100
        for keys in blocks:
            buffer.add([Held(place + at, key) for at, key in enumerate(keys)])
            for key in keys:
                if key is None:
                    lone += 1
                else:
                    model[key] = place
                place += 1
        left = buffer.survivors()
        assert (left.offsets.tolist() if left is not None else []) == sorted(model.values())
        if left is not None:
            assert [model[key] for key in left.keys.to_pylist()] == left.offsets.tolist()
            assert [value.split(b":")[0] for value in left.values.to_pylist()] == [b"%d" % at for at in left.offsets]
        assert len(buffer.without_key) == lone
        assert buffer.superseded(left) == buffer.records - lone - len(model)


@pytest.mark.parametrize(
    ("key_of", "looks"), [(lambda at: b"%d" % at, 2), (lambda at: b"%d" % (at % 500), 11)], ids=["distinct", "repeated"]
)
def test_keys_that_are_not_repeated_are_looked_at_once_and_at_the_end(
    key_of: Callable[[int], bytes], looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reduce, "FIRST_REDUCTION_BYTES", 1 << 20)
    seen: list[int] = []
    last_of_keys = reduce.last_of_keys
    monkeypatch.setattr(reduce, "last_of_keys", lambda keys: seen.append(len(keys)) or last_of_keys(keys))
    buffer = LatestByKey(budget=8 << 20)
    for start in range(0, 7_000, 100):
        buffer.add([Held(at, key_of(at), 1_000) for at in range(start, start + 100)])
        assert not buffer.is_full()
    survivors = buffer.survivors()
    assert survivors is not None and len(survivors) == len({key_of(at) for at in range(7_000)})
    assert buffer.survivors() is survivors  # nothing was added: it is not looked at again
    assert len(seen) == looks


def test_a_buffer_of_different_keys_is_full_at_its_budget() -> None:
    buffer = LatestByKey(budget=4 << 20)
    at = 0
    while not buffer.is_full():
        buffer.add([Held(at + more, b"%d" % (at + more), 1_000) for more in range(100)])
        at += 100
    assert 3_500 < at <= 4_200
