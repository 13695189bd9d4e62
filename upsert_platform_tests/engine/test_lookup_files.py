"""Lookup joins with files: every row shows all that they held when its batch began, which a dictionary knows here."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from upsert_platform.changelog.exchanges import FOLDER
from upsert_platform.core.connector import KeyReader
from upsert_platform.core.errors import ChangelogError, DestinationError
from upsert_platform.core.model import Table
from upsert_platform.engine import engine, held_rows, store
from upsert_platform.engine.rebuild import rebuild
from upsert_platform.engine.runners import LocalRunner, Runner, SparkRunner
from upsert_platform.engine.store import QueryStore
from upsert_platform.engine.tasks import Answer, Task
from upsert_platform.sql.evaluation import prepared
from upsert_platform.sync.filesystem_connector import FilesystemConnector
from upsert_platform_tests.engine.people import DIM, ORDERS, VIEWS, Arrived
from upsert_platform_tests.engine.world import Kept, World, plan_query, same_rows
from upsert_platform_tests.sql.reading import one_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Held = dict[int, list[tuple[str | None, int | None]]]
LEFT = f"SELECT o.oid, o.amount, d.name, d.grade FROM {ORDERS} LEFT JOIN {DIM} o.proc AS d ON o.uid = d.id"
INNER = f"SELECT o.oid, d.name FROM {ORDERS} JOIN {DIM} o.proc AS d ON d.id = o.uid AND d.grade > 1 WHERE o.kind = 'a'"


class Side:
    """A file of people, of whom some stand there several times, and what it holds."""

    def __init__(self, folder: Path, *, key: str = "", seed: int = 1) -> None:
        self.path, self.rng = folder / "side.csv", random.Random(seed)
        self.rows: Held = {}
        options = f"'connector' = 'filesystem', 'path' = '{self.path}', 'format' = 'csv', 'csv.null-literal' = '-'"
        self.table: Table = one_table(f"CREATE TABLE dim (id INT, name STRING, grade INT{key}) WITH ({options});")

    def write(self, rows: Held) -> None:
        self.rows = rows
        lines = [
            f"{uid},{name or '-'},{'-' if grade is None else grade}\n" for uid in rows for name, grade in rows[uid]
        ]
        self.rng.shuffle(lines)
        self.path.write_text("".join(lines))

    def change(self) -> None:
        def person() -> tuple[str | None, int | None]:
            return self.rng.choice(["ann", "bob", None]), self.rng.choice([None, 1, 2, 3])

        counts = {uid: self.rng.choice([0, 1, 1, 2, 5]) for uid in range(10)}
        self.write({uid: [person() for _ in range(count)] for uid, count in counts.items() if count})

    @property
    def reader(self) -> KeyReader:
        found, problems = FilesystemConnector().key_reader(self.table)
        assert found is not None, problems
        return found

    def kept(self, world: World, sql: str, *, name: str = "query", runner: Runner | None = None) -> Kept:
        query = plan_query(sql, more={"dim": self.table})
        return Kept(world, query, name, runner=runner or LocalRunner(), lookups={"dim": self.reader})


@pytest.fixture(params=["in this process", "in workers"])
def runner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Each runner; in workers, a stage has several tasks."""
    if request.param == "in this process":
        return LocalRunner()
    spark: SparkSession = request.getfixturevalue("spark")
    monkeypatch.setattr(engine, "_FEW_ROWS", 5)
    monkeypatch.setattr(store, "BUCKETS", 4)
    return SparkRunner(lambda: prepared(spark))


def test_orders_show_all_that_the_file_held_when_they_came(tmp_path: Path, runner: Runner) -> None:
    """Left and inner joins of a topic with deletes; what is taken back is what was shown."""
    world, side = World(tmp_path, random.Random(21)), Side(tmp_path)
    left, inner = side.kept(world, LEFT, name="left", runner=runner), side.kept(world, INNER, runner=runner)
    of_left = Arrived(lambda row: (row["uid"], row["amount"]))
    of_inner = Arrived(lambda row: (row["uid"],) if row["kind"] == "a" else None)
    several = False
    for turn in range(6 if isinstance(runner, LocalRunner) else 3):
        side.change()
        world.change("orders", world.rng.randrange(5, 25))
        left.advance()
        inner.advance()
        of_left.follow(world.rows["orders"], side.rows)  # type: ignore[arg-type]
        of_inner.follow(world.rows["orders"], side.rows)  # type: ignore[arg-type]
        expected = [
            (oid, used[1], *found) for oid, (used, many) in of_left.shown.items() for found in many or [(None, None)]
        ]
        assert same_rows(left.result(), expected), turn
        met = [(oid, one[0]) for oid, (_, many) in of_inner.shown.items() for one in many or () if (one[1] or 0) > 1]  # type: ignore[operator, index]
        assert same_rows(inner.result(), met), turn
        several = several or len(met) > len({oid for oid, _ in met})
    assert several


def test_rows_that_are_only_added_need_no_state(tmp_path: Path, runner: Runner) -> None:
    world, side = World(tmp_path, random.Random(22)), Side(tmp_path)
    sql = f"SELECT v.page, v.secs, d.name FROM {VIEWS} LEFT JOIN {DIM} v.proc AS d ON v.uid = d.id AND d.grade = 2"
    kept = side.kept(world, sql, runner=runner)
    assert not any(state for stage in kept.store.stages() for state in stage.states)
    expected: list[tuple[Any, ...]] = []
    for _ in range(3):
        side.change()
        before = len(world.rows["views"])
        world.change("views", 30)
        kept.advance()
        for row in world.rows["views"][before:]:
            found = [name for name, grade in side.rows.get(row["uid"], []) if grade == 2]
            expected += [(row["page"], row["secs"], name) for name in found or [None]]
        assert same_rows(kept.result(), expected)


def test_groups_over_several_rows_that_were_found(tmp_path: Path) -> None:
    world, side = World(tmp_path, random.Random(23)), Side(tmp_path)
    sql = f"SELECT d.name, COUNT(*) AS n FROM {ORDERS} JOIN {DIM} o.proc AS d ON o.uid = d.id GROUP BY d.name"
    kept, arrived = side.kept(world, sql), Arrived(lambda row: (row["uid"],))
    for _ in range(4):
        side.change()
        world.change("orders", 20)
        kept.advance()
        arrived.follow(world.rows["orders"], side.rows)  # type: ignore[arg-type]
        names = [one[0] for _, many in arrived.shown.values() for one in many or ()]  # type: ignore[index]
        assert same_rows(kept.result(), [(name, names.count(name)) for name in set(names)])


class _Changing(LocalRunner):
    """Changes the file when the tasks of a stage are about to run."""

    def __init__(self, change: Callable[[], None]) -> None:
        super().__init__()
        self.change = change

    def run(self, tasks: Sequence[Task], *, rows: int, state: int) -> list[Answer]:
        self.change()
        return super().run(tasks, rows=rows, state=state)


def test_a_batch_reads_the_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its tasks find what was there when it began, and the next batch reads anew; nothing is left behind."""
    world, side = World(tmp_path, random.Random(24)), Side(tmp_path)
    kept = side.kept(world, LEFT)
    read: list[str] = []
    own = held_rows._read.__wrapped__
    monkeypatch.setattr(held_rows, "_read", lambda location, path: (read.append(path), own(location, path))[1])
    arrived = Arrived(lambda row: (row["uid"], row["amount"]))
    for _ in range(3):
        side.change()
        held = side.rows
        kept.runner = _Changing(side.change)
        world.change("orders", 25)
        kept.advance()
        arrived.follow(world.rows["orders"], held)  # type: ignore[arg-type]
        rows = [(oid, u[1], *one) for oid, (u, many) in arrived.shown.items() for one in many or [(None, None)]]
        assert same_rows(kept.result(), rows)
    assert len(set(read)) == 3
    assert not list((Path(kept.store.uri) / FOLDER).iterdir())


def test_a_process_reads_what_is_held_once(tmp_path: Path) -> None:
    side = Side(tmp_path)
    side.change()
    found = held_rows.hold(side.reader, store_of(tmp_path), attempt="a")  # type: ignore[arg-type]
    before = held_rows._read.cache_info()
    for _ in range(3):
        with found.open() as find:
            table = pa.Table.from_batches(find(pa.table({"id": [1]})))
            assert table.num_rows == sum(map(len, side.rows.values()))
    after = held_rows._read.cache_info()
    assert (after.misses - before.misses, after.hits - before.hits) == (1, 2)


def store_of(folder: Path) -> Any:
    from upsert_platform.changelog.tables import TableLocation

    return TableLocation(str(folder / "query"))


def test_a_rebuild_finds_everything_as_it_is_now(tmp_path: Path) -> None:
    world, side = World(tmp_path, random.Random(25)), Side(tmp_path)
    kept = side.kept(
        world, f"SELECT d.name, COUNT(*) AS n FROM {ORDERS} LEFT JOIN {DIM} o.proc AS d ON o.uid = d.id GROUP BY d.name"
    )
    side.write({1: [("ann", 1), ("bob", 2)], 2: [("eve", None)]})
    world.change("orders", 25)
    kept.advance()
    side.write({1: [("ann", 1)], 3: [("new", 1), ("new", 1)]})
    inputs = {name: world.stores[name] for name in kept.query.tables}
    anew = QueryStore(kept.store.uri, kept.query, any_plan=True)
    assert rebuild(anew, inputs, runner=LocalRunner(), run="test", lookups=kept.lookups) is not None
    names = [name for row in world.rows["orders"] for name, _ in side.rows.get(row["uid"], [(None, None)])]
    assert same_rows(kept.last_rows(), [(name, names.count(name)) for name in set(names)])


def test_a_declared_key_has_one_row(tmp_path: Path) -> None:
    world, side = World(tmp_path, random.Random(26)), Side(tmp_path, key=", PRIMARY KEY (id) NOT ENFORCED")
    sql = f"SELECT o.oid, d.name FROM {ORDERS} LEFT JOIN {DIM} o.proc AS d ON o.uid = d.id AND d.grade > 1"
    kept, arrived = side.kept(world, sql), Arrived(lambda row: (row["uid"],))
    assert len(kept.query.key) == 1
    for grade in (1, 2, 3):
        side.write({uid: [(f"n{uid}", (uid + grade) % 4)] for uid in range(6)})
        world.change("orders", 20)
        kept.advance()
        arrived.follow(world.rows["orders"], side.rows)  # type: ignore[arg-type]
        shown = [(oid, many[0] if many else (None, 0)) for oid, (_, many) in arrived.shown.items()]
        assert same_rows(kept.result(), [(oid, name if at > 1 else None) for oid, (name, at) in shown])  # type: ignore[operator, misc]
    side.write({uid: [("a", 1), ("b", 1)] for uid in range(8)})
    world.change("orders", 25)
    with pytest.raises(ChangelogError, match=r"table 'dim' has several rows of one key \(id\)"):
        kept.advance()


def test_a_file_that_is_not_there_stops_the_query(tmp_path: Path) -> None:
    """And nothing is taken as 'not found'; the next run, with the file, has it all."""
    world, side = World(tmp_path, random.Random(27)), Side(tmp_path)
    kept = side.kept(world, LEFT)
    world.change("orders", 25)
    with pytest.raises(DestinationError, match="there is no such file"):
        kept.advance()
    assert kept.result() == []
    side.write({1: [("ann", 1)]})
    kept.advance()
    assert len(kept.result()) == len(world.rows["orders"])
