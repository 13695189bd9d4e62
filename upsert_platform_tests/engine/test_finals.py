"""Windows into a table without a key: rows of closed windows, each once, by a model that knows none of the engine."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from upsert_platform.changelog import rows
from upsert_platform.core.plan import Query
from upsert_platform.engine import engine, state, store
from upsert_platform.engine.engine import QueryBatch
from upsert_platform.engine.explain import explain_query
from upsert_platform.engine.runners import LocalRunner, SparkRunner
from upsert_platform.engine.upkeep import compact, remove_unused
from upsert_platform.sql.evaluation import prepared
from upsert_platform_tests.engine.test_faults import DyingRunner, KilledError
from upsert_platform_tests.engine.world import DDL, START, Kept, World, same_rows
from upsert_platform_tests.sql.reading import errors, read

pytestmark = pytest.mark.whole_runs

MINUTE = timedelta(minutes=1)
NOON = datetime(2024, 5, 1, 12)  # noqa: DTZ001 - TIMESTAMP has no zone
DELAY = MINUTE
TABLES = DDL.replace("ts TIMESTAMP(3)", "ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE")
EDGES = "window_start, window_end"
SHOWN = "COUNT(*) AS n, SUM({0}) AS s, MAX({0}) AS hi, COUNT(DISTINCT {0}) AS d"


@dataclass
class Model:
    """What the windows hold and which are closed, in lists and dictionaries."""

    kind: str
    size: int
    step: int
    lateness: timedelta = timedelta(0)
    times: dict[int, datetime] = field(default_factory=dict)
    held: dict[tuple[datetime, datetime, Any], Counter[Any]] = field(default_factory=lambda: defaultdict(Counter))
    given: list[tuple[Any, ...]] = field(default_factory=list)
    closed: datetime = datetime.min  # noqa: DTZ901
    late: int = 0

    def windows(self, moment: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Every window is tried, minute by minute."""
        first = NOON + (moment - NOON) // MINUTE * MINUTE
        for back in range(self.size):
            start = first - back * MINUTE
            whole = self.size if self.kind == "cumulate" else self.step
            if (start - NOON) // MINUTE % whole:
                continue
            if self.kind != "cumulate":
                yield start, start + self.size * MINUTE
                continue
            for length in range(self.step, self.size + 1, self.step):
                if moment < start + length * MINUTE:
                    yield start, start + length * MINUTE

    def batch(self, changes: Sequence[tuple[int, datetime, Any, Any]], seen: Sequence[tuple[int, datetime]]) -> int:
        """Takes signed rows (sign, time, group, value) and the times of records by partition; how many are late."""
        late = 0
        for sign, moment, group, value in changes:
            for start, end in self.windows(moment):
                if end <= self.closed:
                    late += 1
                else:
                    self.held[start, end, group][value] += sign
        for lane, moment in seen:
            self.times[lane] = max(moment, self.times.get(lane, moment))
        if self.times:
            self.closed = max(self.closed, min(self.times.values()) - DELAY - self.lateness)
        for window in [item for item in self.held if item[1] <= self.closed]:
            values = list(self.held.pop(window).elements())
            there = [value for value in values if value is not None]
            if values:
                self.given.append(
                    (*window, len(values), sum(there) if there else None, max(there, default=None), len(set(there)))
                )
        self.late += late
        return late


def planned(select: str, *, setting: str = "", columns: str | None = None) -> Query:
    """The query of an insert into a table without a key."""
    given = columns or "s TIMESTAMP(3), e TIMESTAMP(3), g STRING, n BIGINT, t BIGINT, hi BIGINT, d BIGINT"
    target = f"CREATE TABLE log ({given}) WITH ('connector' = 'kafka', 'topic' = 'log', 'format' = 'json');"
    scripts, problems = read(f"{TABLES}{target}{setting}INSERT INTO log {select};")
    assert errors(problems) == []
    (insert,) = scripts.inserts
    assert insert.query is not None
    assert insert.query.key == ()
    return insert.query


def _views(world: World, now: datetime, count: int) -> list[dict[str, Any]]:
    """Records of two partitions, one of which is behind, some of them later than the watermark allows."""
    rng, found = world.rng, []
    for _ in range(count):
        world.offsets["views"] += 1
        lane = rng.randrange(2)
        back = timedelta(seconds=rng.choice([rng.randrange(60), rng.randrange(1200)]))
        found.append({
            "uid": 1, "page": rng.choice(["p", "q", None]), "secs": rng.choice([None, 1, 2, rng.randrange(9)]),
            "ts": now - lane * 2 * MINUTE - back, rows.KIND: rows.KIND_INSERT, rows.TOPIC: "views", rows.ROW: 0,
            rows.PARTITION: lane, rows.OFFSET: world.offsets["views"], rows.TIMESTAMP: START,
        })  # fmt: skip
    return found


def _take_views(model: Model, batch: Sequence[Mapping[str, Any]]) -> int:
    changes = [(1, row["ts"], row["page"], row["secs"]) for row in batch]
    return model.batch(changes, [(row[rows.PARTITION], row["ts"]) for row in batch])


def _orders(world: World, now: datetime, count: int) -> list[dict[str, Any]]:
    """Upserts and deletes of twenty keys."""
    rng, found = world.rng, []
    for _ in range(count):
        world.offsets["orders"] += 1
        oid, gone = rng.randrange(20), rng.random() < 0.2
        row = {
            "oid": oid, "uid": 1, "amount": rng.choice([None, rng.randrange(9)]), "kind": rng.choice(["a", "b", None]),
            "ts": now - timedelta(seconds=rng.randrange(600)),
        }  # fmt: skip
        found.append({
            **(dict.fromkeys(row) | {"oid": oid} if gone else row), rows.TOPIC: "orders", rows.PARTITION: 0,
            rows.KIND: rows.KIND_DELETE if gone else rows.KIND_UPDATE_AFTER, rows.ROW: 0, rows.TIMESTAMP: START,
            rows.OFFSET: world.offsets["orders"],
        })  # fmt: skip
    return found


def _take_orders(model: Model, there: dict[int, tuple[Any, ...]], batch: Sequence[Mapping[str, Any]]) -> int:
    changes: list[tuple[int, datetime, Any, Any]] = []
    for oid, row in {row["oid"]: row for row in batch}.items():
        old, new = there.pop(oid, None), None
        if row[rows.KIND] != rows.KIND_DELETE:
            new = there[oid] = (row["ts"], row["kind"], row["amount"])
        if old != new:
            changes += [(-1, *old)] if old else []
            changes += [(1, *new)] if new else []
    return model.batch(changes, [(0, row["ts"]) for row in batch if row["ts"] is not None])


def _apply(kept: Kept, *, kills: int = 0) -> QueryBatch:
    """What is new, after attempts that died somewhere."""
    runner = kept.runner
    for _ in range(kills):
        kept.runner = DyingRunner(kept.world.rng.randrange(7))
        try:
            done = kept.advance()
        except KilledError:
            continue
        kept.runner = runner
        assert done is not None
        return done
    kept.runner = runner
    done = kept.advance()
    assert done is not None
    return done


def _same(kept: Kept, model: Model) -> bool:
    assert {row[rows.KIND] for row in kept.changes()} <= {rows.KIND_INSERT}
    return same_rows(kept.result(), model.given)


def _waiting(kept: Kept) -> int:
    """How many rows the state of open windows has, those that left it not yet written anew among them."""
    (name,) = [stage.operator.state_name for stage in kept.store.stages() if stage.final_of]  # type: ignore[union-attr]
    return sum(file.rows for (state_name, _), files in kept.store.state_files().items() if state_name == name
               for file in files)  # fmt: skip


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of state are merged soon."""
    monkeypatch.setattr(state, "MOST_FILES", 3)


def _of(function: str, arguments: str, table: str = "views", value: str = "secs", group: str = "page") -> str:
    return (
        f"SELECT {EDGES}, {group}, {SHOWN.format(value)} FROM TABLE({function}(TABLE {table}, DESCRIPTOR(ts),"
        f" {arguments})) GROUP BY {EDGES}, {group}"
    )


TTL = "SET 'table.exec.state.ttl' = '1 d';"
"""State of windows stays as long as they are open, whatever this says."""
LEGACY = "TUMBLE(ts, INTERVAL '3' MINUTE)"
WINDOWS = {
    "tumble": (_of("TUMBLE", "INTERVAL '3' MINUTES"), 3, 3),
    "hop": (_of("HOP", "INTERVAL '2' MINUTES, INTERVAL '6' MINUTES"), 6, 2),
    "cumulate": (_of("CUMULATE", "INTERVAL '2' MINUTES, INTERVAL '6' MINUTES"), 6, 2),
    "legacy": (
        f"SELECT {LEGACY.replace('E(', 'E_START(')}, {LEGACY.replace('E(', 'E_END(')}, page, {SHOWN.format('secs')}"
        f" FROM views GROUP BY page, {LEGACY}",
        3,
        3,
    ),
}


@pytest.mark.parametrize("kind", WINDOWS)
def test_rows_are_given_once_when_their_window_closes(kind: str, tmp_path: Path) -> None:
    """With kills, compactions and stores that are opened anew between."""
    sql, size, step = WINDOWS[kind]
    world, model = World(tmp_path, random.Random(kind)), Model(kind, size, step)
    setting = TTL if kind == "hop" else ""
    kept = Kept(world, planned(sql, setting=setting))
    for turn in range(12):
        batch = _views(world, NOON + turn * MINUTE, 10)
        world.write("views", batch)
        late = _take_views(model, batch)
        done = _apply(kept, kills=turn % 3)
        assert done.late == late
        assert _same(kept, model)
        if turn % 4 == 3:
            head = kept.store.head()
            assert head is not None
            compact(kept.store, applied_everywhere=head.batch)
            remove_unused(kept.store, hours=0)
            kept = Kept(world, planned(sql, setting=setting))
            assert _same(kept, model)
    assert model.late > 10
    assert len(model.given) > 8


LAST_MILLISECOND = {
    "the last millisecond is open": (-1, 0),
    "the last millisecond is reached": (0, 1),
    "the end is reached": (1, 1),
}
"""Milliseconds after the last one of a window, and how many rows are given: Flink fires at window_end - 1 ms.

Source: `TimeWindowUtil.isWindowFired` of Flink 2.2 compares the watermark with the window's last millisecond.
"""


@pytest.mark.parametrize("kind", ["tumble", "session"])
@pytest.mark.parametrize("case", LAST_MILLISECOND)
def test_a_window_closes_with_its_last_millisecond(case: str, kind: str, tmp_path: Path) -> None:
    after, given = LAST_MILLISECOND[case]
    world = World(tmp_path, random.Random(4))
    sql = _of("TUMBLE", "INTERVAL '3' MINUTES") if kind == "tumble" else _of("SESSION", "INTERVAL '3' MINUTES")
    kept = Kept(world, planned(sql))
    batch = _views(world, NOON, 2)
    moved = NOON + 3 * MINUTE + DELAY + timedelta(milliseconds=after - 1)
    for row, moment in zip(batch, (NOON, moved), strict=True):
        row |= {"ts": moment, "page": "p", rows.PARTITION: 0}
    world.write("views", batch)
    _apply(kept)
    assert len(kept.result()) == given
    # Who comes for the window once it is closed is late.
    (row,) = _views(world, NOON, 1)
    row |= {"ts": NOON + MINUTE, "page": "p", rows.PARTITION: 0}
    world.write("views", [row])
    assert _apply(kept).late == (given if kind == "tumble" else 0)


def test_rows_that_change_count_until_their_window_closes(tmp_path: Path) -> None:
    """Updates, deletes and rows that move from one window to another."""
    world, model = World(tmp_path, random.Random(7)), Model("tumble", 3, 3)
    kept = Kept(world, planned(_of("TUMBLE", "INTERVAL '3' MINUTES", "orders", "amount", "kind")))
    there: dict[int, tuple[Any, ...]] = {}
    for turn in range(14):
        batch = _orders(world, NOON + turn * MINUTE, 10)
        world.write("orders", batch)
        late = _take_orders(model, there, batch)
        assert _apply(kept, kills=turn % 2).late == late
        assert _same(kept, model)
    assert model.late > 10
    assert len(model.given) > 8


def test_lateness_that_is_declared_holds_rows_back(tmp_path: Path) -> None:
    """And may change: no window is given twice, and none that was given takes rows."""
    sql = WINDOWS["tumble"][0]
    world, model = World(tmp_path, random.Random(11)), Model("tumble", 3, 3)
    for turn, minutes in enumerate([2, 2, 2, 6, 6, 0, 0, 3, 3, 0, 0]):
        model.lateness = minutes * MINUTE
        batch = _views(world, NOON + turn * 2 * MINUTE, 12)
        before = model.closed
        if model.times:  # what is closed follows the setting at once, its rows come with the next batch
            model.closed = max(before, min(model.times.values()) - DELAY - model.lateness)
        world.write("views", batch)
        late = _take_views(model, batch)
        setting = f"SET 'table.exec.emit.allow-lateness' = '{minutes} min';" if minutes else ""
        kept = Kept(world, planned(sql, setting=setting))
        assert _apply(kept).late == late
        assert _same(kept, model)
    assert len(model.given) > 8


def test_state_holds_open_windows_alone(tmp_path: Path) -> None:
    """However long the history is; and a batch that closes no window reads no more than what it touches."""
    world, model = World(tmp_path, random.Random(12)), Model("tumble", 3, 3)
    kept = Kept(world, planned(WINDOWS["tumble"][0]))
    sizes = []
    for turn in range(30):
        batch = [{**row, "ts": NOON + turn * MINUTE, rows.PARTITION: 0} for row in _views(world, NOON, 6)]
        world.write("views", batch)
        _take_views(model, batch)
        _apply(kept)
        assert _same(kept, model)
        sizes.append((_waiting(kept), sum(1 for values in model.held.values() if values)))
    after_closing = [held for (held, open_now), (_, before) in zip(sizes[1:], sizes, strict=False) if open_now < before]
    assert max(after_closing) <= 6
    assert max(held for held, _ in sizes) <= 30
    of_groups = sum(file.rows for (name, _), files in kept.store.state_files().items() for file in files)
    assert of_groups < 150, "closed groups leave the state of the grouping too"


HAVING = (
    f"SELECT SUM(n), MAX(p) FROM (SELECT {EDGES}, page AS p, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE views,"
    f" DESCRIPTOR(ts), INTERVAL '3' MINUTES)) WHERE secs > 0 GROUP BY {EDGES}, page) GROUP BY {EDGES}"
    " HAVING SUM(n) > 2"
)
BEST = (
    f"SELECT n, p FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {EDGES} ORDER BY n DESC, p) AS r FROM (SELECT"
    f" {EDGES}, page AS p, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE views, DESCRIPTOR(ts), INTERVAL '3' MINUTES)) WHERE"
    f" page IS NOT NULL GROUP BY {EDGES}, page)) WHERE r = 1"
)
FIRSTS = (
    "SELECT COUNT(*), FIRST_VALUE(page) FROM TABLE(TUMBLE(TABLE views, DESCRIPTOR(ts), INTERVAL '3' MINUTES))"
    f" GROUP BY {EDGES}"
)


RUNNING = (
    f"SELECT COUNT(*) OVER (PARTITION BY {EDGES} ORDER BY ts), page FROM TABLE(TUMBLE(TABLE views, DESCRIPTOR(ts),"
    " INTERVAL '3' MINUTES))"
)


SETS = (
    "SELECT COUNT(*), page FROM TABLE(TUMBLE(TABLE views, DESCRIPTOR(ts), INTERVAL '3' MINUTES)) WHERE page IS NOT NULL"
    f" GROUP BY GROUPING SETS (({EDGES}, page), ({EDGES}))"
)


def _pages(batches: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[list[Mapping[str, Any]]]:
    """The rows of each closed window as it closes, in the order in which they came, by windows of three minutes."""
    held: dict[datetime, list[Mapping[str, Any]]] = defaultdict(list)
    times: dict[int, datetime] = {}
    closed = datetime.min  # noqa: DTZ901
    for batch in batches:
        for row in batch:
            end = NOON + ((row["ts"] - NOON) // (3 * MINUTE) + 1) * 3 * MINUTE
            if end > closed:
                held[end].append(row)
        for row in batch:
            times[row[rows.PARTITION]] = max(row["ts"], times.get(row[rows.PARTITION], row["ts"]))
        closed = max(closed, min(times.values()) - DELAY)
        for end in [item for item in held if item <= closed]:
            yield held.pop(end)


def _having(window: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    there = [row for row in window if (row["secs"] or 0) > 0]
    pages = [row["page"] for row in there if row["page"] is not None]
    return [(len(there), max(pages, default=None))] if len(there) > 2 else []


def _best(window: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    counts = Counter(row["page"] for row in window if row["page"] is not None)
    return sorted(((n, page) for page, n in counts.items()), key=lambda item: (-item[0], item[1]))[:1]


def _first(window: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    return [(len(window), next((row["page"] for row in window if row["page"] is not None), None))]


def _sets(window: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    counts = Counter(row["page"] for row in window if row["page"] is not None)
    return [*((n, page) for page, n in counts.items()), *([(counts.total(), None)] if counts else [])]


def _running(window: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Equal times share what came up to them."""
    return [(sum(other["ts"] <= row["ts"] for other in window), row["page"]) for row in window]


@pytest.mark.parametrize(
    ("sql", "shown"),
    [(HAVING, _having), (BEST, _best), (FIRSTS, _first), (RUNNING, _running), (SETS, _sets)],
    ids=["groups of groups", "first rows", "first values", "counts up to each row", "grouping sets"],
)
def test_what_is_computed_of_the_rows_of_one_window_is_given_with_it(sql: str, shown: Any, tmp_path: Path) -> None:
    """None of them shows its window."""
    world, batches = World(tmp_path, random.Random(sql)), []
    kept = Kept(world, planned(sql, columns="n BIGINT, p STRING"))
    for turn in range(14):
        # One partition: between two, the records' time would decide which is first.
        batches.append([{**row, rows.PARTITION: 0} for row in _views(world, NOON + turn * MINUTE, 8)])
        world.write("views", batches[-1])
        _apply(kept, kills=turn % 2)
        assert same_rows(kept.result(), [row for window in _pages(batches) for row in shown(window)])
    assert len(kept.result()) > 3
    assert max(len(files) for files in kept.store.state_files().values()) <= 2 * state.MOST_FILES


def test_windows_of_two_tables_are_joined_when_both_are_closed(tmp_path: Path) -> None:
    side = (
        f"SELECT {EDGES}, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE {{}}, DESCRIPTOR(ts), INTERVAL '3' MINUTES))"
        f" GROUP BY {EDGES}"
    )
    sql = (
        f"SELECT a.window_end, a.n, b.n FROM ({side.format('views')}) AS a LEFT JOIN ({side.format('orders')}) AS b ON"
        " a.window_start = b.window_start AND a.window_end = b.window_end"
    )
    world, both = World(tmp_path, random.Random(5)), (Model("tumble", 3, 3), Model("tumble", 3, 3))
    kept = Kept(world, planned(sql, columns="e TIMESTAMP(3), a BIGINT, b BIGINT"))
    views, orders = both
    for turn in range(16):
        batch = [{**row, "page": "p"} for row in _views(world, NOON + turn * MINUTE, 5)]
        world.write("views", batch)
        late = _take_views(views, batch)
        if turn % 3 == 1:  # one side is far behind the other at times
            others = [{**row, "oid": 100 + world.offsets["orders"] * 9 + at, "uid": 1, "kind": "p", "amount": 1,
                       "ts": NOON + turn * MINUTE - timedelta(seconds=world.rng.randrange(400)),
                       rows.KIND: rows.KIND_UPDATE_AFTER}
                      for at, row in enumerate(_orders(world, NOON, 4))]  # fmt: skip
            world.write("orders", others)
            changes = [(1, row["ts"], row["kind"], 1) for row in others]
            late += orders.batch(changes, [(0, row["ts"]) for row in others])
        assert _apply(kept, kills=turn % 2).late == late
        of_orders = {row[1]: row[3] for row in orders.given}
        closed = min(views.closed, orders.closed) if orders.times else datetime.min  # noqa: DTZ901
        expected = [(row[1], row[3], of_orders.get(row[1])) for row in views.given if row[1] <= closed]
        assert same_rows(kept.result(), expected)
    assert len(kept.result()) > 3
    assert any(row[2] is not None for row in kept.result())


@dataclass
class Sessions:
    """Sessions by page, split anew from a list of the rows that no closed session has taken."""

    gap: timedelta
    held: dict[Any, list[tuple[datetime, Any]]] = field(default_factory=lambda: defaultdict(list))
    times: dict[int, datetime] = field(default_factory=dict)
    closed: datetime = datetime.min  # noqa: DTZ901
    given: list[tuple[Any, ...]] = field(default_factory=list)

    def split(self, found: Sequence[tuple[datetime, Any]]) -> list[list[tuple[datetime, Any]]]:
        sessions: list[list[tuple[datetime, Any]]] = []
        for row in sorted(found, key=lambda item: item[0]):
            if sessions and row[0] - sessions[-1][-1][0] <= self.gap:
                sessions[-1].append(row)
            else:
                sessions.append([row])
        return sessions

    def batch(self, batch: Sequence[Mapping[str, Any]]) -> int:
        late = 0
        for row in batch:
            self.held[row["page"]].append((row["ts"], row["secs"]))
        for page, there in self.held.items():
            open_still = [item for item in self.split(there) if item[-1][0] + self.gap > self.closed]
            late += len(there) - sum(map(len, open_still))
            self.held[page] = [row for item in open_still for row in item]
        for row in batch:
            self.times[row[rows.PARTITION]] = max(row["ts"], self.times.get(row[rows.PARTITION], row["ts"]))
        self.closed = max(self.closed, min(self.times.values()) - DELAY)
        for page, there in self.held.items():
            self.held[page] = []
            for item in self.split(there):
                end, values = item[-1][0] + self.gap, [value for _, value in item if value is not None]
                if end > self.closed:
                    self.held[page] += item
                    continue
                total, most = (sum(values), max(values)) if values else (None, None)
                self.given.append((item[0][0], end, page, len(item), total, most, len(set(values))))
        return late


SESSIONS = {
    "sessions": (
        f"SELECT {EDGES}, page, {SHOWN.format('secs')} FROM TABLE(SESSION(TABLE views PARTITION BY page,"
        f" DESCRIPTOR(ts), INTERVAL '40' SECOND)) GROUP BY {EDGES}, page"
    ),
    "sessions of the older syntax": (
        "SELECT SESSION_START(ts, INTERVAL '40' SECOND), SESSION_END(ts, INTERVAL '40' SECOND), page,"
        f" {SHOWN.format('secs')} FROM views GROUP BY page, SESSION(ts, INTERVAL '40' SECOND)"
    ),
}


@pytest.mark.parametrize("kind", SESSIONS)
def test_sessions_are_given_once_when_they_close(kind: str, tmp_path: Path) -> None:
    """A row that comes later begins a session of its own, or is late for it."""
    world, model = World(tmp_path, random.Random(kind)), Sessions(timedelta(seconds=40))
    setting = TTL if kind == "sessions" else ""
    kept, all_late = Kept(world, planned(SESSIONS[kind], setting=setting)), 0
    for turn in range(16):
        # Whole tens of seconds: rows that are the same, and rows exactly the gap apart.
        batch = [
            {**row, "ts": row["ts"].replace(second=row["ts"].second // 10 * 10)}
            for row in _views(world, NOON + turn * MINUTE, 10)
            if NOON + (turn - 15) * MINUTE < row["ts"]
        ]
        world.write("views", batch)
        late = model.batch(batch)
        all_late += late
        assert _apply(kept, kills=turn % 3).late == late
        assert {row[rows.KIND] for row in kept.changes()} <= {rows.KIND_INSERT}
        assert same_rows(kept.result(), model.given)
        if turn % 5 == 4:
            kept = Kept(world, planned(SESSIONS[kind], setting=setting))
    assert len(model.given) > 15
    assert all_late > 8
    held = sum(file.rows for files in kept.store.state_files().values() for file in files)
    assert held < 250, "closed sessions leave the state"


def test_batches_of_a_backlog_give_all_that_it_closes(tmp_path: Path) -> None:
    """By several batches of one run, without any that has nothing to read."""
    world, model = World(tmp_path, random.Random(13)), Model("tumble", 3, 3)
    for turn in range(8):
        batch = _views(world, NOON + turn * MINUTE, 10)
        world.write("views", batch)
        _take_views(model, batch)
    kept = Kept(world, planned(WINDOWS["tumble"][0]))
    kept.advance(most_rows=15)
    head = kept.store.head()
    assert head is not None
    assert head.batch > 3
    assert _same(kept, model)


def test_two_statements_give_by_the_time_of_their_own_tables(tmp_path: Path) -> None:
    side = "SELECT window_end, COUNT(*) FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '3' MINUTES)) GROUP BY"
    sides = [f"{side.format(name)} {EDGES}" for name in ("views", "orders")]
    query = planned(f"{sides[0]}; INSERT INTO log {sides[1]}", columns="e TIMESTAMP(3), n BIGINT")
    world = World(tmp_path, random.Random(3))
    kept = Kept(world, query)
    (first,) = [{**row, "ts": NOON, rows.PARTITION: 0} for row in _views(world, NOON, 1)]
    world.write("orders", [{**row, "oid": at, "ts": NOON + 5 * MINUTE, rows.KIND: rows.KIND_UPDATE_AFTER, "uid": 1}
                           for at, row in enumerate(_orders(world, NOON, 2))])  # fmt: skip
    world.write("views", [first])
    kept.advance()
    assert kept.result() == []
    world.write("orders", [{**row, "oid": 9, "ts": NOON + 9 * MINUTE, rows.KIND: rows.KIND_UPDATE_AFTER, "uid": 1}
                           for row in _orders(world, NOON, 1)])  # fmt: skip
    kept.advance()
    assert kept.result() == [(NOON + 6 * MINUTE, 2)], "the other table has nothing to do with it"
    world.write("views", [{**first, "ts": NOON + 30 * MINUTE, rows.OFFSET: 99}])
    kept.advance()
    assert kept.result() == [(NOON + 6 * MINUTE, 2), (NOON + 3 * MINUTE, 1)]


def test_workers_give_the_same(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """By steps in Spark below and above the rows that wait, several tasks per stage."""
    monkeypatch.setattr(engine, "_FEW_ROWS", 5)
    monkeypatch.setattr(store, "BUCKETS", 4)

    def refuse(self: LocalRunner, tasks: Sequence[Any], *, rows: int, state: int) -> list[Any]:
        assert not tasks, "a task ran in this process"
        return []

    monkeypatch.setattr(LocalRunner, "run", refuse)
    sql = WINDOWS["tumble"][0].replace(f"SELECT {EDGES}, page", f"SELECT {EDGES}, LOWER(REPEAT(UPPER(page), 1))")
    assert sql.count("page") == 2
    sql = sql.replace(f"GROUP BY {EDGES}, page", f"GROUP BY {EDGES}, REPEAT(UPPER(page), 1)")
    world, model = World(tmp_path, random.Random(14)), Model("tumble", 3, 3)
    kept = Kept(world, planned(sql), runner=SparkRunner(lambda: prepared(spark)))  # type: ignore[arg-type]
    for turn in (0, 4, 9):
        batch = _views(world, NOON + turn * MINUTE, 12)
        world.write("views", batch)
        late = _take_views(model, batch)
        assert _apply(kept).late == late
        assert _same(kept, model)
    assert len(model.given) > 3


def test_the_plan_says_when_rows_are_given() -> None:
    lines = [line.strip() for line in explain_query(planned(WINDOWS["hop"][0]))]
    assert any(line.startswith("rows of closed windows, each once: when views.ts is 60 s after") for line in lines)
    assert any(line.startswith("state: the rows of open windows") for line in lines)
