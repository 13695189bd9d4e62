"""Batches that end half-way, runs that meet, compaction in between, plans that change: the result stays what it is."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest

from upsert_platform.changelog import rows
from upsert_platform.changelog.upkeep import trim_log
from upsert_platform.core.errors import ChangelogError
from upsert_platform.engine import state, store
from upsert_platform.engine.engine import advance, plan_batch
from upsert_platform.engine.rebuild import rebuild
from upsert_platform.engine.runners import LocalRunner
from upsert_platform.engine.store import QueryStore
from upsert_platform.engine.tasks import Answer, Task
from upsert_platform.engine.upkeep import compact, remove_unused
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.query_hop import QueryHop
from upsert_platform_tests.campaign import first_of
from upsert_platform_tests.engine.statements import STATEMENTS
from upsert_platform_tests.engine.world import Kept, World, plan_query, same_rows

pytestmark = pytest.mark.whole_runs


class KilledError(Exception):
    """Stands for the end of a process."""


@dataclass
class DyingRunner(LocalRunner):
    """Ends after some tasks; what they wrote stays where it is."""

    left: int
    ran: list[Task] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def run(self, tasks: Sequence[Task], *, rows: int, state: int) -> list[Answer]:
        answers: list[Answer] = []
        for task in tasks:
            if not self.left:
                raise KilledError
            self.left -= 1
            answers += super().run([task], rows=rows, state=state)
        return answers


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few buckets, and files of state that are merged soon."""
    monkeypatch.setattr(store, "BUCKETS", 2)
    monkeypatch.setattr(state, "MOST_FILES", 3)


KEYED = [name for name, sql in STATEMENTS.items() if plan_query(sql).key]


@pytest.mark.parametrize("name", first_of(KEYED[::3], every=2))
def test_batches_that_die_and_are_repeated_give_the_same(name: str, tmp_path: Path) -> None:
    sql = STATEMENTS[name]
    world = World(tmp_path, random.Random(name))
    kept = Kept(world, plan_query(sql))
    for _ in range(5):
        for table in kept.query.tables:
            world.change(table, 15)
        for tasks in range(world.rng.randrange(6)):
            kept.runner = DyingRunner(tasks)
            try:
                kept.advance()
            except KilledError:
                continue
        kept.runner = LocalRunner()
        kept.advance()
        assert same_rows(kept.result(), world.judge(sql))
        remove_unused(kept.store, hours=0)
    assert same_rows(kept.result(), world.judge(sql))


@pytest.mark.parametrize("name", first_of(KEYED[1::4], every=2))
def test_compaction_between_batches_changes_no_result(name: str, tmp_path: Path) -> None:
    sql = STATEMENTS[name]
    world = World(tmp_path, random.Random(name))
    kept = Kept(world, plan_query(sql))
    for turn in range(6):
        for table in kept.query.tables:
            world.change(table, 15)
        kept.advance()
        head = kept.store.head()
        assert head is not None
        if turn % 2:
            report = compact(kept.store, applied_everywhere=world.rng.choice([0, head.batch]))
            assert report.files_after <= 1
            assert len(kept.store.accounts(after=0, upto=head.batch)) == head.batch
        assert same_rows(kept.last_rows(), world.judge(sql))
    remove_unused(kept.store, hours=0)
    assert same_rows(kept.last_rows(), world.judge(sql))


@pytest.mark.parametrize(("applied", "upto", "held_later"), [({2, 4}, None, (2, 4, 6)), ({2}, 3, (2, 3, 4, 5, 6))])
def test_compaction_keeps_what_a_table_that_lags_holds(
    applied: set[int], upto: int | None, held_later: tuple[int, ...], tmp_path: Path
) -> None:
    """Or that is being written meanwhile."""
    world = World(tmp_path, random.Random(3))
    kept = Kept(world, plan_query("SELECT uid, COUNT(*) AS n FROM orders GROUP BY uid"))
    held: list[dict[int | None, int]] = [{}]
    for _ in range(6):
        world.change("orders", 15)
        kept.advance()
        held.append(dict(world.judge("SELECT uid, COUNT(*) FROM orders GROUP BY uid")))
    (key,) = kept.query.key
    _, count = (field.name for field in kept.query.plan.fields)
    compact(kept.store, applied_everywhere=2, applied=applied, upto=upto)
    for batch in held_later:
        told: dict[int | None, int] = {}
        for row in sorted(kept.changes(), key=lambda item: (item[rows.BATCH], item[rows.OFFSET])):
            if row[rows.BATCH] <= batch:
                told.pop(row[key], None)
                told |= {row[key]: row[count]} if row[rows.KIND] == rows.KIND_UPDATE_AFTER else {}
        assert told == held[batch], batch


def test_of_two_runs_one_commits(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(1))
    kept = Kept(world, plan_query(STATEMENTS["groups of a join"]))
    for table in kept.query.tables:
        world.change(table, 20)
    inputs = {name: world.stores[name] for name in kept.query.tables}
    kept.store.create()
    plans = [plan_batch(kept.store, inputs) for _ in range(2)]
    done = [advance(kept.store, plan, runner=LocalRunner(), run="test") for plan in plans]
    assert [item is None for item in done] == [False, True]
    assert same_rows(kept.result(), world.judge(STATEMENTS["groups of a join"]))


def test_files_of_state_stay_few_and_follow_its_size(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(2))
    kept = Kept(world, plan_query(STATEMENTS["groups"]))
    for _ in range(20):
        world.change("users", 10)
        kept.advance()
    files = kept.store.state_files()
    assert {len(found) for found in files.values()} <= set(range(2 * state.MOST_FILES))
    assert same_rows(kept.result(), world.judge(STATEMENTS["groups"]))


def test_plan_that_changed_is_refused_with_the_remedy(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(3))
    kept = Kept(world, plan_query(STATEMENTS["groups"]))
    world.change("users", 10)
    kept.advance()
    other = QueryStore(kept.store.uri, plan_query(STATEMENTS["groups"].replace("SUM(age)", "MAX(age)")))
    with pytest.raises(ChangelogError, match=r"'result' was changed: its table at .* Run the job 'rebuild'"):
        plan_batch(other, {"users": world.stores["users"]})


def test_input_that_was_made_anew_is_refused(tmp_path: Path) -> None:
    world, again = World(tmp_path / "one", random.Random(3)), World(tmp_path / "other", random.Random(4))
    kept = Kept(world, plan_query(STATEMENTS["groups"]))
    world.change("users", 10)
    kept.advance()
    again.change("users", 10)
    with pytest.raises(ChangelogError, match="computed from another changelog of 'users'"):
        plan_batch(kept.store, {"users": again.stores["users"]})


def test_exchanges_are_deleted_with_their_batch(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(5))
    kept = Kept(world, plan_query(STATEMENTS["groups of a join"]))
    for table in kept.query.tables:
        world.change(table, 20)
    kept.advance()
    assert not list((tmp_path / "queries" / "query").rglob("*.arrow"))


def test_what_killed_runs_left_is_deleted_when_it_is_old(tmp_path: Path) -> None:
    """Exchanges of their batches and tables of their rebuilds, which Delta's own clean-up passes over."""
    world = World(tmp_path, random.Random(7))
    kept = Kept(world, plan_query(STATEMENTS["groups"]))
    world.change("users", 10)
    kept.advance()
    table = tmp_path / "queries" / "query"
    left = [table / "_exchange" / "dead" / "1-a.arrow", table / "_rebuild" / "dead" / "query" / "part-a.parquet"]
    for path in left:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"left")
    assert remove_unused(kept.store, hours=1) == 0
    assert all(path.exists() for path in left)
    assert remove_unused(kept.store, hours=0) == 2
    assert not any(path.exists() for path in left)
    assert same_rows(kept.result(), world.judge(STATEMENTS["groups"]))


@pytest.mark.parametrize("changed", ["SUM(age) AS s", "MAX(age) AS s", "MIN(id) AS s"])
def test_rebuild_corrects_the_result_by_what_differs(changed: str, tmp_path: Path) -> None:
    """The readers of the result need not begin again, and the batches after it go on from the new state."""
    old, sql = (
        f"SELECT region, COUNT(*) AS n, {call} FROM users GROUP BY region" for call in ("SUM(age) AS s", changed)
    )
    world = World(tmp_path, random.Random(8))
    kept = Kept(world, plan_query(old))
    for _ in range(3):
        world.change("users", 20)
        kept.advance()
    head = kept.store.head()
    again = Kept(world, plan_query(sql))
    store_of_any = QueryStore(again.store.uri, again.query, any_plan=True)
    with pytest.raises(KilledError):
        rebuild(store_of_any, {"users": world.stores["users"]}, runner=DyingRunner(1), run="test")
    assert same_rows(kept.result(), world.judge(old))
    done = rebuild(store_of_any, {"users": world.stores["users"]}, runner=LocalRunner(), run="test")
    assert done is not None
    assert head is not None
    assert done.batch == head.batch + 1
    assert (done.differences == 0) == (old == sql)
    assert same_rows(again.last_rows(), world.judge(sql))
    world.change("users", 20)
    again.advance()
    assert same_rows(again.last_rows(), world.judge(sql))
    assert not list((tmp_path / "queries" / "query" / "_rebuild").iterdir())


def test_an_input_that_was_restored_from_an_older_copy_is_refused_until_a_rebuild(tmp_path: Path) -> None:
    """By number alone the query would seem to hold the batches that the input has read anew."""
    sql = "SELECT region, COUNT(*) AS n FROM users GROUP BY region"
    world = World(tmp_path, random.Random(3))
    kept = Kept(world, plan_query(sql))
    place = Path(world.stores["users"].uri)
    for _ in range(2):
        world.change("users", 15)
        kept.advance()
    shutil.copytree(place, tmp_path / "copy")
    before = list(world.rows["users"])
    for _ in range(2):
        world.change("users", 15)
        kept.advance()
    shutil.rmtree(place)
    shutil.move(tmp_path / "copy", place)
    world.rows["users"] = before
    for number in range(3, 6):
        with pytest.raises(ChangelogError, match="restored from an older copy"):
            kept.advance()
        world.change("users", 15)
        assert world.stores["users"].commit_of(number) is not None
    inputs = {"users": world.stores["users"]}
    again = QueryStore(str(tmp_path / "queries" / "query"), kept.query, any_plan=True)
    assert rebuild(again, inputs, runner=LocalRunner(), run="test") is not None
    assert same_rows(kept.result(), world.judge(sql))
    world.change("users", 15)
    kept.advance()
    assert same_rows(kept.result(), world.judge(sql))


def test_inputs_know_the_batch_of_a_query_that_lags_behind_a_pruned_log(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(4))
    query = plan_query("SELECT region, COUNT(*) AS n FROM users GROUP BY region")
    place = QueryStore(str(tmp_path / "queries" / "lags"), query)
    hop = QueryHop(place, {"users": world.stores["users"]}, run="test")
    world.change("users", 15)
    here = OnDemand(unneeded, rows=1000)
    hop.execute(here)
    for _ in range(4):
        world.change("users", 15)
    log = Path(world.stores["users"].uri, "_delta_log")
    for file in log.glob("*.json"):
        os.utime(file, (0, 0))
    assert trim_log(world.stores["users"], minutes=15) > 0
    assert hop.plan().behind == 4
    assert hop.execute(here).batches == 1


def unneeded() -> NoReturn:
    raise AssertionError("Spark is not needed")
