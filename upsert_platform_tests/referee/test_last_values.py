"""Which record of a key is the last, told by tables of records and what must come of them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from upsert_platform.referee.formats import Side
from upsert_platform.referee.last_values import Form, LastValues
from upsert_platform.referee.topic import Ends, Record

KEY = Side("json", {"id": "INT"}, ("id",))
VALUE = Side("json", {"id": "INT", "n": "INT"}, ("id", "n"))
FORM = Form(KEY, VALUE, ("id",))


def record(partition: int, offset: int, time: int, key: int | bytes, number: int | bytes | None) -> Record:
    raw = key if isinstance(key, bytes) else b'{"id":%d}' % key
    value = b'{"n":%d}' % number if isinstance(number, int) else number
    return Record("t", partition, offset, time, raw, value)


def table(records: list[Record], *, batches: list[Ends] | None = None, in_memory: int = 1000) -> dict[int, Any]:
    values = LastValues(FORM, batches=batches or [], in_memory=in_memory)
    values.add(records)
    found = {item.key["id"]: item.row["n"] for item in values.results() if item.row is not None}
    values.close()
    return found


ORDERS = {
    "the offset decides, though its time is earlier": ([record(0, 0, 5, 1, 10), record(0, 1, 1, 1, 11)], {1: 11}),
    "a tombstone with an earlier time deletes": ([record(0, 0, 5, 1, 10), record(0, 1, 1, 1, None)], {}),
    "two spellings are one key": ([record(0, 0, 5, b'{"id":1}', 10), record(0, 1, 1, b'{"id": 1}', 11)], {1: 11}),
    "records that come in another order": ([record(0, 1, 1, 1, 11), record(0, 0, 5, 1, 10)], {1: 11}),
    "what cannot be decoded has no part": ([record(0, 0, 1, 1, 10), record(0, 1, 2, 1, b"{")], {1: 10}),
    "nor has a value whose copy of the key differs": (
        [record(0, 0, 1, 1, 10), record(0, 1, 2, 1, b'{"id":2,"n":3}')], {1: 10}),
    "between partitions time decides": ([record(0, 9, 5, 1, 10), record(1, 0, 6, 1, 11)], {1: 11}),
    "between partitions only the last of each counts": (
        [record(0, 0, 9, 1, 10), record(0, 1, 2, 1, 12), record(1, 0, 6, 1, 11)], {1: 11}),
    "then the number of the partition": ([record(2, 0, 5, 1, 10), record(1, 5, 5, 1, 11)], {1: 10}),
    "a tombstone of the later partition deletes": ([record(0, 9, 5, 1, 10), record(1, 0, 6, 1, None)], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_last_value(name: str) -> None:
    records, wanted = ORDERS[name]
    assert table(records) == wanted
    assert table(records, in_memory=1) == wanted


def test_between_partitions_the_later_batch_comes_before_time() -> None:
    records = [record(0, 0, 9, 1, 10), record(1, 0, 1, 1, 11)]
    assert table(records, batches=[{("t", 0): 1}, {("t", 0): 1, ("t", 1): 1}]) == {1: 11}
    assert table(records, batches=[{("t", 0): 1, ("t", 1): 1}]) == {1: 10}


def test_every_record_is_counted() -> None:
    values = LastValues(FORM)
    values.add(
        [record(0, 0, 1, 1, 10), record(0, 1, 1, 2, None), record(0, 2, 1, b"x", 1), record(0, 3, 1, 2, b'{"n":"x"}'),
         record(0, 4, 1, 1, b'{"n":1,"n":2}'), Record("t", 0, 5, 1, None, b"{}"), record(1, 0, 1, 2, 5)]
    )  # fmt: skip
    found = {item.key["id"]: item for item in values.results()}
    counts = values.counts
    assert (counts.records, counts.values, counts.tombstones, counts.undecodable, counts.unjudged) == (7, 2, 1, 3, 1)
    assert counts.several == 1
    assert found[1].is_open
    assert not found[2].is_open
    assert [text.split(":")[0] for text in counts.first] == ["t-0@2", "t-0@3", "t-0@4", "t-0@5"]


def test_a_key_is_no_longer_open_when_a_later_record_is_beyond_doubt() -> None:
    values = LastValues(FORM, in_memory=1)
    values.add([record(0, 0, 1, 1, b'{"n":1,"n":2}'), record(0, 1, 1, 1, 7), record(0, 2, 1, 2, b'{"n":1,"n":2}')])
    assert {item.key["id"]: (item.row, item.is_open) for item in values.results()} == {
        1: ({"id": 1, "n": 7}, False),
        2: (None, True),
    }


def test_what_is_spilled_ends_as_what_is_not() -> None:
    chance = random.Random(5)
    records = [
        record(partition, offset, chance.randrange(50), chance.randrange(30), chance.choice([None, b"{", offset]))
        for partition in range(3)
        for offset in range(300)
    ]
    assert table(records, in_memory=7) == table(records)
    assert len(table(records)) > 5
