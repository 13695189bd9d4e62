"""State that is let go of: with a time that never passes results are those without, and with one that does they are
those of a model of dictionaries, in which every entry has the time of its last use.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from upsert_platform.changelog import rows
from upsert_platform.engine import engine, reading, state, tasks
from upsert_platform.engine.runners import LocalRunner
from upsert_platform.engine.upkeep import compact
from upsert_platform_tests.campaign import first_of, seeds
from upsert_platform_tests.engine.statements import STATEMENTS
from upsert_platform_tests.engine.test_faults import DyingRunner, KilledError
from upsert_platform_tests.engine.test_merge import query_of
from upsert_platform_tests.engine.world import Kept, World, plan_query, same_rows

Row = tuple[Any, ...]
Signed = list[tuple[Row, int]]
TTL = 1000
LONG = 1 << 50


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MOST_FILES", 3)
    monkeypatch.setattr(reading, "_CHUNK", 4)
    monkeypatch.setattr(tasks, "_WAITING", 7)
    monkeypatch.setattr(engine, "_FEW_ROWS", 1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of batches."""
    found = Clock()
    monkeypatch.setattr(engine, "now_in_milliseconds", lambda: found.now)
    return found


@dataclass
class Clock:
    now: int = 1_700_000_000_000


@pytest.mark.parametrize("name", first_of(STATEMENTS, every=4))
def test_a_time_that_never_passes_changes_no_result(name: str, tmp_path: Path) -> None:
    sql = STATEMENTS[name]
    world = World(tmp_path, random.Random(f"{name} kept"))
    kept = Kept(world, replace(plan_query(sql), state_ttl=LONG))
    for _ in range(4):
        for table in kept.query.tables:
            if world.rng.random() < 0.8:
                world.change(table, world.rng.randrange(0, 25))
        done = kept.advance()
        assert done is None or done.forgotten == done.let_go == 0
        assert same_rows(kept.result(), world.judge(sql))


@dataclass
class Held:
    """Entries with the time of their last use."""

    clock: Clock
    ttl: int = TTL
    there: dict[Any, list[Any]] = field(default_factory=dict)

    def get(self, key: Any) -> Any:
        found = self.there.get(key)
        return found[0] if found is not None and found[1] > self.clock.now - self.ttl else None

    def put(self, key: Any, value: Any) -> None:
        self.there[key] = [value, self.clock.now]

    def drop(self, key: Any) -> None:
        self.there.pop(key, None)

    def alive(self) -> list[tuple[Any, Any]]:
        return [(key, self.get(key)) for key in self.there if self.get(key) is not None]


def _changes(index: Held, batch: Iterable[dict[str, Any]], key: str, columns: tuple[str, ...]) -> Signed:
    """What records of a topic take back and add; a row that one repeats has weight 0."""
    out: Signed = []
    for record in {item[key]: item for item in batch}.values():
        old = index.get(record[key])
        if record[rows.KIND] == rows.KIND_DELETE:
            out += [(old, -1)] if old is not None else []
            index.drop(record[key])
            continue
        new = tuple(record[name] for name in columns)
        out += [(new, 0)] if old == new else [*([(old, -1)] if old is not None else []), (new, 1)]
        index.put(record[key], new)
    return out


@dataclass
class Model:
    """A table that follows a query which lets go of state."""

    clock: Clock
    shown: dict[Any, Row] = field(default_factory=dict)
    forgotten: int = 0

    sources: ClassVar[int] = 0
    """So many of the first entries stay."""

    def __post_init__(self) -> None:
        self.held = [Held(self.clock, LONG if number < self.sources else TTL) for number in range(4)]

    def show(self, before: Iterable[Row], after: Iterable[Row], key: int) -> None:
        """Applies the difference of two results."""
        old, new = Counter(before), Counter(after)
        for row in old - new:
            self.shown.pop(row[key], None)
        for row in new - old:
            self.shown[row[key]] = row


class Groups(Model):
    """COUNT, SUM, MAX and COUNT(DISTINCT) of each `uid`."""

    sql = (
        "SELECT uid, COUNT(*) AS n, SUM(amount) AS s, MAX(amount) AS m, COUNT(DISTINCT kind) AS k FROM orders GROUP BY"
        " uid"
    )

    def follow(self, changed: dict[str, list[dict[str, Any]]]) -> None:
        index, groups, values, kinds = self.held[:4]
        change = _changes(index, changed["orders"], "oid", ("uid", "amount", "kind", "oid"))
        touched = dict.fromkeys(row[0] for row, _ in change)
        known = {uid: groups.get((uid,)) for uid in touched}
        now: dict[Any, list[Any]] = {uid: list(known[uid] or (0, 0, 0, None, 0)) for uid in touched}
        for (uid, amount, _, _), weight in change:
            if weight < 0 and known[uid] is None:
                self.forgotten += 1
                continue
            now[uid][0] += weight
            now[uid][1] += weight * (amount or 0)
            now[uid][2] += weight * (amount is not None)
        self._greatest(change, values, now)
        for (uid, kind), weight in _summed(((row[0], row[2]), weight) for row, weight in change if row[2] is not None):
            was = kinds.get((uid, kind)) or 0
            if was or weight > 0:
                kinds.put((uid, kind), max(0, was + weight))
            now[uid][4] += (max(0, was + weight) > 0) - (was > 0)
        for uid, found in now.items():
            self.forgotten += max(0, -found[0])
            before = [_told(uid, known[uid])] if known[uid] is not None else []
            if found[0] > 0:
                groups.put((uid,), tuple(found))
            else:
                groups.drop((uid,))
            self.show(before, [_told(uid, found)] if found[0] > 0 else [], 0)

    def _greatest(self, change: Signed, values: Held, now: dict[Any, list[Any]]) -> None:
        """All amounts of a group live as long as one of them is in use."""
        given = [((row[0], row[1]), weight) for row, weight in change if row[1] is not None]
        for uid in dict.fromkeys(uid for (uid, _), _ in given):
            counts = Counter(values.get((uid,)) or {})
            for (other, amount), weight in _summed(given):
                if other == uid:
                    counts[amount] = max(0, counts[amount] + weight)
            kept = +counts
            values.put((uid,), dict(kept))
            now[uid][3] = max(kept, default=None)


def _summed(given: Iterable[tuple[Any, int]]) -> list[tuple[Any, int]]:
    sums: dict[Any, int] = {}
    for item, weight in given:
        sums[item] = sums.get(item, 0) + weight
    return list(sums.items())


def _told(uid: Any, found: Any) -> Row:
    count, total, values, greatest, kinds = found
    return uid, count, total if values else None, greatest, kinds


class Joined(Model):
    """Orders with the region of their user, or without."""

    sql = "SELECT o.oid, o.amount, u.region FROM orders o LEFT JOIN users u ON o.uid = u.id"
    kind = "left"

    def follow(self, changed: dict[str, list[dict[str, Any]]]) -> None:
        of_orders, of_users, left, right = self.held[:4]
        lefts = _changes(of_orders, changed["orders"], "oid", ("uid", "amount", "oid"))
        rights = _changes(of_users, changed["users"], "id", ("id", "region"))
        before = self._result(left, right)
        self._move(left, [item for item in lefts if item[0][0] is not None])
        self._move(right, rights)
        after = self._result(left, right)
        for (_, amount, oid), weight in (item for item in lefts if item[0][0] is None):
            (before if weight < 0 else after).extend([(oid, amount, None)] * abs(weight))
        self.show(before, after, 0)

    def _move(self, held: Held, change: Signed) -> None:
        for row, weight in change:
            there = held.get(row) is not None
            if weight > 0 or (weight == 0 and there):
                held.put(row, True)
            elif weight < 0:
                self.forgotten += not there
                held.drop(row)

    def _result(self, left: Held, right: Held) -> list[Row]:
        users = dict(row for row, _ in right.alive())
        return [(oid, amount, users.get(uid)) for (uid, amount, oid), _ in left.alive()]


class HintedGroups(Groups):
    """Groups whose orders are known for longer: some are taken back that the group no longer has."""

    sql = Groups.sql.replace("SELECT", "SELECT /*+ STATE_TTL('orders' = '1 s') */", 1)
    sources = 1


class HintedJoin(Joined):
    """Sides of a join whose tables are known for longer."""

    sql = Joined.sql.replace("SELECT", "SELECT /*+ STATE_TTL('o' = '1 s', 'u' = '1 s') */", 1)
    sources = 2


class First(Model):
    """The two greatest orders of each user."""

    sql = (
        "SELECT oid, uid, amount FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY uid ORDER BY amount DESC, oid) AS r"
        " FROM orders) WHERE r <= 2"
    )

    def follow(self, changed: dict[str, list[dict[str, Any]]]) -> None:
        index, partitions = self.held[:2]
        change = _changes(index, changed["orders"], "oid", ("uid", "amount", "oid"))
        before: list[Row] = []
        after: list[Row] = []
        for uid in dict.fromkeys(row[0] for row, _ in change):
            known = partitions.get((uid,))
            now = set(known or ())
            for row, weight in change:
                if row[0] == uid and weight < 0:
                    self.forgotten += row not in now
                    now.discard(row)
            now |= {row for row, weight in change if row[0] == uid and weight > 0}
            partitions.put((uid,), now)
            before += _best(known or ())
            after += _best(now)
        self.show(before, after, 0)


def _best(there: Iterable[Row]) -> list[Row]:
    order = sorted(there, key=lambda row: (row[1] is None, -(row[1] or 0), row[2]))
    return [(oid, uid, amount) for uid, amount, oid in order[:2]]


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("model", [Groups, Joined, First, HintedGroups, HintedJoin])
def test_histories_end_as_those_of_a_model(model: type[Any], seed: int, tmp_path: Path, clock: Clock) -> None:
    """With kills, compactions and pauses of any length between batches."""
    forgotten = let_go = 0
    world, expected = World(tmp_path / str(seed), random.Random(f"{model} {seed}")), model(clock)
    kept = Kept(world, replace(plan_query(model.sql), state_ttl=None if model.sources else TTL))
    for turn in range(12):
        clock.now += world.rng.choice([1, TTL // 3, TTL // 3, TTL * 2 // 3, TTL, TTL * 2])
        changed: dict[str, list[dict[str, Any]]] = {}
        for name in kept.query.tables:
            world.change(name, world.rng.randrange(0, 14))
            changed[name] = world.last[name]
        expected.follow(changed)
        if turn % 3 == 1:
            kept.runner = DyingRunner(turn // 3)
            with suppress(KilledError):  # a batch of few rows may end before
                done = kept.advance()
                forgotten, let_go = forgotten + done.forgotten, let_go + done.let_go
        kept.runner = LocalRunner()
        done = kept.advance()
        if done is not None:
            forgotten, let_go = forgotten + done.forgotten, let_go + done.let_go
        assert same_rows(kept.last_rows(), list(expected.shown.values())), (seed, turn)
        if turn == 7:
            head = kept.store.head()
            assert head is not None
            compact(kept.store, applied_everywhere=head.batch)
    assert forgotten == expected.forgotten
    assert let_go > 5
    assert (forgotten > 0) == bool(model.sources), "without hints all state of a row goes at once"


def _view(number: int) -> dict[str, Any]:
    system = {rows.KIND: rows.KIND_INSERT, rows.TOPIC: "views", rows.PARTITION: 0, rows.OFFSET: number, rows.ROW: 0}
    return {"uid": number, "page": "p", "secs": 1, "ts": None, **system}


def test_state_of_keys_that_do_not_come_back_stays_small(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, random.Random(1))
    kept = Kept(world, replace(plan_query("SELECT uid, COUNT(*) AS n FROM views GROUP BY uid"), state_ttl=TTL))
    let_go = 0
    for turn in range(30):
        clock.now += TTL // 2
        world.write("views", [_view(20 * turn + number) for number in range(20)])
        done = kept.advance()
        assert done is not None
        let_go += done.let_go
    held = sum(file.rows for files in kept.store.state_files().values() for file in files)
    assert held <= 20 * 5, "what was in use during two and a half times the TTL"
    assert let_go + held == 30 * 20
    assert len(kept.result()) == 30 * 20, "the table keeps what it was given"
    clock.now += 2 * TTL
    world.write("views", [_view(1_000)])
    kept.advance()
    held = sum(file.rows for files in kept.store.state_files().values() for file in files)
    assert held == 1, "buckets that the batch does not touch are let go of too"


def test_rows_written_before_the_setting_count_as_used_when_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, query = World(tmp_path, random.Random(1)), plan_query("SELECT uid, COUNT(*) AS n FROM views GROUP BY uid")

    def counts(ttl: int | None, *, after: int) -> int:
        monkeypatch.setattr(engine, "now_in_milliseconds", lambda: int(time.time() * 1000) + after)
        world.write("views", [_view(7)])
        kept = Kept(world, replace(query, state_ttl=ttl))
        kept.advance()
        ((_, count),) = kept.last_rows()
        return int(count)

    assert counts(None, after=0) == 1
    assert counts(3_600_000, after=0) == 2
    assert counts(3_600_000, after=1_800_000) == 3
    assert counts(3_600_000, after=7_200_000) == 1
    assert counts(None, after=9_000_000) == 2, "without the setting nothing more is let go of"


def test_a_row_that_a_record_repeats_stays_in_use_behind_the_source(tmp_path: Path, clock: Clock) -> None:
    """A user whose other columns change keeps its place in the join, and the group of its region too."""
    world = World(tmp_path, random.Random(1))
    sql = (
        "SELECT r.oid, r.n FROM (SELECT o.oid, u.n FROM orders o JOIN (SELECT id, COUNT(*) AS n FROM users GROUP BY id)"
        " u ON o.uid = u.id) r"
    )
    kept = Kept(world, replace(plan_query(sql), state_ttl=TTL))
    user = {"id": 1, "region": "eu", "age": 1, "score": None, "spent": None, rows.KIND: rows.KIND_UPDATE_AFTER}
    order = {"uid": 1, "amount": 1, "kind": "a", "ts": None, rows.KIND: rows.KIND_UPDATE_AFTER}
    system = {rows.PARTITION: 0, rows.ROW: 0}
    for turn in range(5):
        clock.now += TTL * 2 // 3
        world.write("users", [{**user, "age": turn, rows.TOPIC: "users", rows.OFFSET: turn, **system}])
        kept.advance()
    world.write("orders", [{**order, "oid": 9, rows.TOPIC: "orders", rows.OFFSET: 1, **system}])
    kept.advance()
    assert kept.result() == [(9, 1)]


def test_a_distinct_row_that_comes_again_is_no_later_row(tmp_path: Path) -> None:
    """Of the rows of a key the last counts, and a row of SELECT DISTINCT comes with the first record that gives it."""
    world = World(tmp_path, random.Random(1))
    query = query_of("INSERT INTO t SELECT DISTINCT uid, secs, page FROM views WHERE uid IS NOT NULL")
    kept = Kept(world, replace(query, state_ttl=LONG))
    for number, page in enumerate(["p", "q", "p"]):
        world.write("views", [{**_view(number), "uid": 1, "page": page}])
        kept.advance()
    assert kept.last_rows() == [(1, 1, "q")]


@pytest.mark.parametrize(
    ("sql", "stays"),
    [
        ("SELECT uid, window_start, window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE views, DESCRIPTOR(ts), INTERVAL"
         " '1' MINUTE)) GROUP BY uid, window_start, window_end", True),
        ("SELECT uid, ts, secs FROM views UNION SELECT uid, ts, secs FROM views", False),
        ("SELECT uid, SUM(secs) OVER (PARTITION BY uid ORDER BY ts) AS s FROM views", False),
    ],
)  # fmt: skip
def test_windows_are_not_let_go_of(sql: str, stays: bool) -> None:
    stages = Kept(World(Path("/nowhere"), random.Random()), replace(plan_query(sql), state_ttl=TTL)).store.stages()
    ttls = {ttl for stage in stages for _, ttl in stage.ttls}
    assert ttls == ({state.NEVER} if stays else {TTL})
