"""Sums that tasks make say that rows are equal only where they are; where they are not, a closer look tells what is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from upsert_platform.changelog import latest_in_tasks
from upsert_platform.changelog import row_hashes as row_hashes_module
from upsert_platform.changelog.row_sums import RowSums
from upsert_platform.changelog.summed_in_tasks import ExpectedRows, FoundRows, KeySet, Sample, Told, last_of_keys
from upsert_platform.core.capabilities import ReadsInTasks, RowsByKey, RowsByShare, Shares
from upsert_platform.core.types import arrow_type, parse_type
from upsert_platform.sync import equal_in_tasks
from upsert_platform.sync.equal_in_tasks import equal_everywhere
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.verify import check_batch
from upsert_platform_tests.changelog.places import Placed
from upsert_platform_tests.sync.test_equal_sums import DIFFERENT
from upsert_platform_tests.sync.test_one_task import TaskMemory, append, hop_to, never
from upsert_platform_tests.writing.in_memory import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.whole_runs

PAIR = pa.schema({"id": pa.int64(), "name": pa.string()})
KEY = pa.schema([PAIR.field("id")])


def sums(kinds: str, rows: list[tuple[Any, ...]], *, parts: int = 1) -> RowSums:
    pairs = [item.split(" ", 1) for item in kinds.replace("(38, 18)", "(38:18)").split(", ")]
    fields = pa.schema([(name, arrow_type(parse_type(kind.replace(":", ", ")))) for name, kind in pairs])
    found = RowSums()
    for part in range(parts):
        columns = [
            pa.array([row[place] for row in rows[part::parts]], field.type) for place, field in enumerate(fields)
        ]
        found.add(pa.RecordBatch.from_arrays(columns, schema=fields), fields)
    return found


@pytest.mark.parametrize("case", DIFFERENT)
def test_rows_that_differ_have_other_sums(case: str) -> None:
    kinds, expected, found = DIFFERENT[case]
    assert sums(kinds, expected) != sums(kinds, found)


def test_rows_have_the_same_sums_in_any_order_and_in_any_parts() -> None:
    kinds = "k BIGINT, a STRING, b DOUBLE, c DECIMAL(38, 18), d BOOLEAN"
    rows = [(key, f"text of {key}" if key % 3 else None, key / 7, None, key % 2 == 0) for key in range(40_000)]
    assert sums(kinds, rows) == sums(kinds, rows[::-1], parts=7)
    changed = [*rows[:-1], (39_999, None, 39_999 / 7, None, True)]
    assert sums(kinds, rows) != sums(kinds, changed)


def test_no_number_is_taken_for_null() -> None:
    """Of all numbers of 64 bits one has the hash of null."""
    values = mix_back(row_hashes_module._NULL) ^ int(row_hashes_module._SEED)
    number = values - (1 << 64) if values >= 1 << 63 else values
    array = pa.array([number, None])
    assert len(set(row_hashes_module.hash_cells(array).tolist())) == 1
    assert sums("k INT, n BIGINT", [(1, number)]) != sums("k INT, n BIGINT", [(1, None)])
    assert sums("k INT, n BIGINT", [(1, None), (2, 5)]) == sums("k INT, n BIGINT", [(2, 5), (1, None)])
    assert sums("n BIGINT, m BIGINT", [(1, None)]) != sums("n BIGINT, m BIGINT", [(None, 1)])


def mix_back(value: Any) -> int:
    """The inverse of SplitMix64's finisher, step by step."""
    found, most = int(value), (1 << 64) - 1
    found ^= found >> 31 ^ found >> 62
    found = found * pow(0x94D049BB133111EB, -1, 1 << 64) & most
    found ^= found >> 27 ^ found >> 54
    found = found * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & most
    return found ^ found >> 30 ^ found >> 60


def test_values_that_sql_calls_equal_have_the_same_sums() -> None:
    zeros = sums("k INT, a DOUBLE", [(1, 0.0), (2, float("nan"))])
    assert zeros == sums("k INT, a DOUBLE", [(1, -0.0), (2, float("nan"))])
    moment = pa.array([1, None], pa.timestamp("us", tz="UTC"))
    fields, found = pa.schema({"at": moment.type}), [RowSums(), RowSums()]
    for side, values in zip(found, (moment, moment.cast(pa.timestamp("us", tz="Asia/Shanghai"))), strict=True):
        side.add(pa.RecordBatch.from_arrays([values], names=["at"]), fields)
    assert found[0] == found[1]


def changes(rows: Sequence[tuple[int, str | None, str, int]]) -> pa.RecordBatch:
    schema = pa.schema([*PAIR, ("_op", pa.string()), ("_seq", pa.int64())])
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def told(task: ExpectedRows | FoundRows, *batches: pa.RecordBatch) -> Told:
    found = Told()
    for answer in task(iter(batches)):
        found.add(answer.column("told")[0].as_py())
    return found


def test_keys_that_are_deleted_have_to_be_told_as_deleted() -> None:
    expected = told(ExpectedRows(PAIR, KEY), changes([(1, "a", "U", 1), (2, None, "D", 1), (3, None, "D", 1)]))
    assert (expected.rows, expected.expected.rows, expected.deleted.rows) == (3, 1, 2)
    for deleted, same in ((("2", "3"), True), (("2",), False), (("2", "4"), False), (("2", "3", "1"), False)):
        rows = [(1, "a", "U", 0), *((int(key), None, "D", 0) for key in deleted)]
        found = told(FoundRows(PAIR, KEY, iter, tells_deletes=True), changes(rows))
        assert found.found == expected.expected
        assert (found.found_deleted == expected.deleted) is same


@pytest.mark.parametrize("width", [1, 3])
def test_rows_are_compared_as_the_destination_holds_them(width: int) -> None:
    """A destination that cuts texts: whether it does is asked of fewer and fewer batches, and of the first one."""
    looks: list[int] = []

    def cut(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            looks.append(batch.num_rows)
            texts = pa.array([text[:width] for text in batch.column("name").to_pylist()], pa.string())
            yield batch.set_column(1, "name", texts)

    given = [changes([(at * 400 + row, "abc", "U", 1) for row in range(400)]) for at in range(40)]
    as_held = changes([(key, "abc"[:width], "U", 1) for key in range(16_000)])
    assert told(ExpectedRows(PAIR, KEY, held=cut), *given).expected == told(ExpectedRows(PAIR, KEY), as_held).expected
    assert looks.count(256) == (1 if width == 1 else 6)  # batch 1, and 2, 4, 8, 16, 32 while none was changed
    assert looks.count(400) == (40 if width == 1 else 0)


def test_rows_that_formats_change_are_followed_by_others() -> None:
    """A batch whose first rows are held as they are ends nothing."""

    def lower(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            texts = [None if text is None else text.lower() for text in batch.column("name").to_pylist()]
            yield batch.set_column(1, "name", pa.array(texts, pa.string()))

    given = [changes([(at, name, "U", 1)]) for at, name in enumerate(["A", None, "C"])]
    as_held = changes([(at, name, "U", 1) for at, name in enumerate(["a", None, "c"])])
    assert told(ExpectedRows(PAIR, KEY, held=lower), *given).expected == told(ExpectedRows(PAIR, KEY), as_held).expected


def test_of_earlier_batches_a_sample_is_looked_at_and_of_another_batch_another_one() -> None:
    rows = [(key, "x", "U", 1 if key < 1000 else 2) for key in range(1500)]
    numbers = {after: told(ExpectedRows(PAIR, KEY, Sample(after, 10)), changes(rows)).rows for after in (0, 1, 2)}
    assert numbers[0] == 1500
    assert 550 < numbers[1] < 650  # five hundred of the batch itself, one in ten of those before
    assert 100 < numbers[2] < 200
    drawn = []
    for after in (2, 3):
        every = [told(ExpectedRows(PAIR, KEY, Sample(after, 10)), changes([row])).rows for row in rows[:200]]
        drawn.append([place for place, looked_at in enumerate(every) if looked_at])
    assert drawn[0] != drawn[1]


@dataclass(frozen=True)
class Asked:
    """Reads rows by their keys."""

    rows: dict[int, tuple[int, str | None]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pairs([self.rows[key] for key in batch.column("id").to_pylist() if key in self.rows])


@dataclass(frozen=True)
class Shared:
    """Reads all rows in two shares."""

    rows: tuple[tuple[int, str | None], ...]
    deleted: tuple[int, ...] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                found = pairs(self.rows[number::2])
                if self.deleted is not None:
                    found = found.append_column("_op", pa.repeat(pa.scalar("U"), found.num_rows))
                yield found
                if self.deleted is not None and number == 0:
                    gone = pairs([(key, None) for key in self.deleted])
                    yield gone.append_column("_op", pa.repeat(pa.scalar("D"), gone.num_rows))


def pairs(rows: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": key, "name": name} for key, name in rows], schema=PAIR)


class InTasks(TaskMemory, ReadsInTasks):
    """A destination that tasks read by keys, as a whole, or with the deletes of a batch; or Spark, which is counted."""

    def __init__(self, place: Place, shape: str, *, native: bool) -> None:
        super().__init__(place)
        self.shape, self.native = shape, native
        self.deleted: tuple[int, ...] = ()
        self.closer_looks = 0
        self.told_rows: int | None = None

    def writes_in_task(self) -> bool:
        return self.native

    def reads_in_tasks(self, *, since: int, rows: int) -> RowsByKey | RowsByShare:
        held = self._place.rows
        if self.shape == "keys":
            return RowsByKey(Asked(dict(held)))
        if self.shape == "whole":
            return RowsByShare(lambda: Shares(2, Shared(tuple(held.values())), self.told_rows), others=True)
        recent = Shared(tuple(held.values()), self.deleted)
        return RowsByShare(lambda: Shares(2, recent), others=False, tells_deletes=True)

    def read(self, spark: SparkSession, *, keys: DataFrame | None = None) -> DataFrame:
        self.closer_looks += 1
        return super().read(spark, keys=keys)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("shape", ["keys", "whole", "recent"])
def test_equal_rows_pass_without_a_closer_look_and_spoiled_ones_are_told(
    spark: SparkSession, tmp_path: Path, shape: str, native: bool
) -> None:
    place = Place()
    hop = hop_to(place, tmp_path)
    first = [Placed(1, 0, key, None, key, f"old {key}") for key in range(20)]
    second = [Placed(2, 0, 100 + key, None, 100 + key, f"name {key}") for key in range(30)]
    second += [Placed(2, 0, 200 + key, None, 100 + key, None) for key in range(4)]
    for batch, records in ((1, first), (2, second)):
        append(hop.store, batch, records)
        hop.execute(OnDemand(never), hop.plan())
    destination = InTasks(place, shape, native=native)
    destination.deleted = (100, 101, 102, 103)
    hop.destination = destination
    if shape != "recent":
        place.rows[999] = (999, "of nobody, and of no batch")
    found = check_batch(OnDemand.dividing(spark), hop, after=1, upto=2)
    assert (found.passed, found.compared, destination.closer_looks) == (True, 50, 0)
    del place.rows[104], place.rows[105]
    place.rows[106] = (106, "another")
    place.rows[100] = (100, "back again")
    found = check_batch(OnDemand.dividing(spark), hop, after=1, upto=2)
    assert (found.missing, found.stale, found.extra, found.passed) == (2, 1, 1, False)
    assert destination.closer_looks


@pytest.mark.parametrize("native", [True, False])
def test_where_as_many_rows_are_told_as_there_should_be_no_key_is_looked_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    asked: list[bool] = []

    def finding(*args: Any, among: Any = None, **options: Any) -> FoundRows:
        asked.append(among is not None)
        return FoundRows(*args, among=among, **options)

    monkeypatch.setattr("upsert_platform.changelog.summed_in_tasks.FoundRows", finding)
    place = Place()
    hop = hop_to(place, tmp_path)
    append(hop.store, 1, [Placed(1, 0, key, None, key, f"name {key}") for key in range(30)])
    hop.execute(OnDemand(never), hop.plan())
    hop.destination = destination = InTasks(place, "whole", native=native)

    def check(*, told: int) -> tuple[bool, list[bool], int]:
        asked.clear()
        destination.told_rows, destination.closer_looks = told, 0
        return check_batch(OnDemand.dividing(spark), hop, after=0, upto=1).passed, list(asked), destination.closer_looks

    assert check(told=30) == (True, [False], 0)
    assert check(told=29) == (True, [True], 0)
    assert check(told=10**6) == (True, [True], 0)
    place.rows[999] = (999, "of nobody")
    assert check(told=30) == (True, [False, True], 0)  # as many were told, and there are more
    del place.rows[7]
    passed, looked, closer = check(told=30)  # one is missing, one too many is there
    assert (passed, looked) == (False, [False, True])
    assert closer


@dataclass(frozen=True)
class InOrder:
    """Reads rows in two shares, in several parts each; rows that later ones replaced are among them."""

    shares: tuple[tuple[tuple[Any, ...], ...], ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for place, row in enumerate(self.shares[number]):
                    told = pairs([row[:2]]).append_column("_op", pa.array([row[2]]))
                    yield told.append_column("_seq", pa.array([row[3] if len(row) > 3 else place]))


class Topic(InTasks):
    """A destination of which tasks read every record."""

    shares: tuple[tuple[tuple[Any, ...], ...], ...] = ((), ())

    def all_in_tasks(self, *, at_once: int) -> RowsByShare | None:
        read = InOrder(self.shares)
        return RowsByShare(lambda: Shares(2, read), others=False, tells_deletes=True, replaced=True)


FIRST = [Placed(1, 0, key, None, key, f"old {key}") for key in range(40)]
FEW_AGAIN = [*(Placed(2, 0, 100 + key, None, key, "new") for key in range(3)), Placed(2, 0, 110, None, 3, None)]
MANY_AGAIN = [Placed(2, 0, 100 + key, None, key, "new" if key < 3 else None) for key in range(4)] + [
    Placed(2, 0, 110 + key, None, key, f"old {key}") for key in range(4, 30)
]
ALL = [*((key, "new") for key in range(3)), *((key, f"old {key}") for key in range(4, 40))]
PUT = tuple((key, name, "U") for key, name in ALL)
TOPICS = {
    "each row once": ((PUT[::2], PUT[1::2]), True),
    "deletes, of keys that nobody has as well": (((*PUT[::2], (3, None, "D"), (77, None, "D")), PUT[1::2]), True),
    "replaced rows": ((((0, "old 0", "U"), (3, "x", "U"), *PUT[::2], (3, None, "D")), PUT[1::2]), True),
    "an old row behind the new one": (((*PUT[::2], (0, "old 0", "U")), PUT[1::2]), False),
    "an old row that is read behind the new one": (((*PUT[::2], (0, "old 0", "U", -1)), PUT[1::2]), True),
    "the new row before the old one that it should have replaced": (
        (((0, "new", "U", -1), *PUT[2::2], (0, "old 0", "U", 100)), PUT[1::2]),
        False,
    ),
    "the same row in two shares": ((PUT[::2], (*PUT[1::2], PUT[0])), False),
    "a row too many": (((*PUT[::2], (77, "of nobody", "U")), PUT[1::2]), False),
    "a deleted row": (((*PUT[::2], (3, "old 3", "U")), PUT[1::2]), False),
    "a deleted row that should be there": (((*PUT[::2], (0, None, "D")), PUT[1::2]), False),
    "a deleted row that should be there, in another share": ((PUT[::2], (*PUT[1::2], (0, None, "D"))), False),
    "a deleted row that should be there, in the share before": (((*PUT[::2], (1, None, "D")), PUT[1::2]), False),
    "a row too few": ((PUT[2::2], PUT[1::2]), False),
    "nothing": (((), ()), False),
}


@pytest.mark.parametrize(
    ("again", "most_rows"),
    [
        pytest.param(FEW_AGAIN, latest_in_tasks.MOST_ROWS, id="few repeat-short"),
        pytest.param(FEW_AGAIN, 0, id="few repeat-long", marks=pytest.mark.soak),
        pytest.param(MANY_AGAIN, latest_in_tasks.MOST_ROWS, id="many repeat-short", marks=pytest.mark.soak),
        pytest.param(MANY_AGAIN, 0, id="many repeat-long"),
    ],
)
@pytest.mark.parametrize("case", TOPICS)
def test_a_whole_destination_is_equal_where_the_last_rows_of_its_keys_are(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, again: list[Placed], most_rows: int
) -> None:
    monkeypatch.setattr(latest_in_tasks, "MOST_ROWS", most_rows)
    hop = hop_to(Place(), tmp_path)
    for batch, records in ((1, FIRST), (2, again)):
        append(hop.store, batch, records)
    hop.destination = destination = Topic(Place(), "", native=True)
    destination.shares, equal = TOPICS[case]
    compared = equal_everywhere(spark, hop, upto=2)
    assert (compared.rows is not None) is equal
    if equal:
        assert compared == (True, (40, 39))


class Dying(Topic):
    """A destination whose tasks are killed, as they are for want of memory."""

    def all_in_tasks(self, *, at_once: int) -> RowsByShare | None:
        return RowsByShare(lambda: Shares(2, _die), others=False, tells_deletes=True, replaced=True)


def _die(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    os._exit(137)
    yield from batches


def test_tasks_that_are_killed_leave_the_comparison_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    hop = hop_to(Place(), tmp_path)
    append(hop.store, 1, FIRST)
    hop.destination = Dying(Place(), "", native=True)
    assert equal_everywhere(spark, hop, upto=1) == equal_in_tasks.NOT_COMPARED


def test_many_keys_that_end_with_a_delete_are_left_to_a_closer_look(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hop = hop_to(Place(), tmp_path)
    for batch, records in ((1, FIRST), (2, FEW_AGAIN)):
        append(hop.store, batch, records)
    hop.destination = destination = Topic(Place(), "", native=True)
    gone = tuple((key, None, "D") for key in range(100, 110))
    destination.shares = (*PUT[::2], *gone), PUT[1::2]
    assert equal_everywhere(spark, hop, upto=2) == (True, (40, 39))
    monkeypatch.setattr(equal_in_tasks, "_MOST_ENDED", 18)
    assert equal_everywhere(spark, hop, upto=2) == equal_in_tasks.NOT_COMPARED


@pytest.mark.parametrize("again", [FEW_AGAIN, MANY_AGAIN], ids=["few repeat", "many repeat"])
def test_of_a_long_span_tasks_reduce_what_they_read_where_few_keys_repeat(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: list[Placed]
) -> None:
    monkeypatch.setattr(latest_in_tasks, "MOST_ROWS", 0)
    hop = hop_to(Place(), tmp_path)
    for batch, records in ((1, FIRST), (2, again)):
        append(hop.store, batch, records)
    hop.destination = Topic(Place(), "", native=True)
    by_arrow = equal_in_tasks._by_arrow(spark, hop, since=0, upto=2, drawn=None, counts_longer=True)
    assert by_arrow is not None
    found, _ = equal_in_tasks._expected(spark, hop, ExpectedRows(PAIR, KEY), by_arrow, since=0, upto=2)
    assert (found.divided, found.rows) == ((True, 0) if again is MANY_AGAIN else (False, 40))
    assert equal_in_tasks._by_arrow(spark, hop, since=0, upto=2, drawn=None) is None  # nobody asked for so much
    monkeypatch.setattr(latest_in_tasks, "MOST_COUNTED", 0)
    assert equal_in_tasks._by_arrow(spark, hop, since=0, upto=2, drawn=None, counts_longer=True) is None


def test_the_last_row_of_each_key_is_found_by_hashes() -> None:
    chance = np.random.default_rng(5)
    keys = chance.integers(0, 300, 2000)
    one, other = (chance.integers(0, 1 << 63, 300, np.uint64) for _ in range(2))
    last = {key: place for place, key in enumerate(keys.tolist())}
    there = np.arange(2000)
    assert np.flatnonzero(last_of_keys(one[keys], other[keys], there)).tolist() == sorted(last.values())
    moved = chance.permutation(2000)
    found = last_of_keys(one[keys[moved]], other[keys[moved]], there[moved])
    assert sorted(moved[found].tolist()) == sorted(last.values())
    same = np.zeros(3, np.uint64)  # two keys of one hash: no row that counts is left out
    assert last_of_keys(same, np.array([1, 2, 1], np.uint64), there[:3]).tolist()[1:] == [True, True]
    assert last_of_keys(same[:0], same[:0], there[:0]).tolist() == []


def test_keys_are_found_again_by_their_hashes() -> None:
    chance = np.random.default_rng(3)
    spread = chance.integers(0, 1 << 63, 5000, np.uint64) * np.uint64(2)
    close = np.arange(300, dtype=np.uint64) * np.uint64(2) + np.uint64(1 << 63)  # all with the same first bits
    for hashes in (spread, close, np.concatenate([spread, close, spread[:70]]), spread[:1], spread[:0]):
        asked = np.concatenate([hashes[::-1], hashes + np.uint64(1), spread])
        known = set(hashes.tolist())
        wanted = [item in known for item in asked.tolist()]
        assert KeySet(chance.permutation(hashes)).holds(asked).tolist() == wanted
