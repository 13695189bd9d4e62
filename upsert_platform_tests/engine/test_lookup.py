"""Lookup joins on real servers: every row shows what the table held when it arrived, which a dictionary knows here."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from upsert_platform.core.errors import DestinationError
from upsert_platform.core.model import Options
from upsert_platform.engine.rebuild import rebuild
from upsert_platform.engine.runners import LocalRunner
from upsert_platform.engine.store import QueryStore
from upsert_platform.engine.tasks import Answer, Task
from upsert_platform.sync.connectors import searchable
from upsert_platform_tests.engine.people import (
    DIM,
    ORDERS,
    VIEWS,
    Arrived,
    People,
    kept_over,
    people_by,
    people_on_tablestore,
)
from upsert_platform_tests.engine.world import World, same_rows
from upsert_platform_tests.local.maxcompute.server import ServerHandle as MaxComputeServer
from upsert_platform_tests.local.tablestore.server import ServerHandle as TablestoreServer


@pytest.fixture(params=["tablestore", "maxcompute", "maxcompute by tunnel"])
def people(request: pytest.FixtureRequest) -> Iterator[People]:
    """The table on each kind of server."""
    if request.param == "tablestore":
        found = people_on_tablestore(request.getfixturevalue("shared_tablestore"))
    else:
        server: MaxComputeServer = request.getfixturevalue("shared_maxcompute")
        found = people_by(
            {
                "connector": "maxcompute", "odps.end.point": server.endpoint, "odps.project.name": server.project,
                "odps.access.id": server.access_id, "odps.access.key": server.access_key, "sink.operation": "upsert",
                "upsert.write.bucket.num": "2", "write.api": "tunnel" if "tunnel" in request.param else "maxstorage",
                "commit.min-interval": "0 s",
            }
        )  # fmt: skip
    yield found
    found.destination.close()


@pytest.fixture
def few(shared_tablestore: TablestoreServer) -> Iterator[People]:
    """The table on Tablestore alone."""
    found = people_on_tablestore(shared_tablestore)
    yield found
    found.destination.close()


def test_orders_show_what_the_table_held_when_they_came(people: People, tmp_path: Path) -> None:
    """Left and inner joins of a topic with deletes; what is taken back is what was shown."""
    world = World(tmp_path, random.Random(11))
    left = f"SELECT o.oid, o.amount, d.name, d.grade FROM {ORDERS} LEFT JOIN {DIM} o.proc AS d ON o.uid = d.id"
    inner = (
        f"SELECT o.oid, d.name FROM {ORDERS} JOIN {DIM} o.proc AS d ON d.id = o.uid AND d.grade > 1 WHERE o.kind = 'a'"
    )
    kept = kept_over(people, world, left, name="left"), kept_over(people, world, inner, name="inner")
    of_left = Arrived(lambda row: (row["uid"], row["amount"]))
    of_inner = Arrived(lambda row: (row["uid"],) if row["kind"] == "a" else None)
    for turn in range(5 if people.table.connector == "tablestore" else 3):
        people.change(5)
        world.change("orders", world.rng.randrange(25))
        for query in kept:
            query.advance()
        of_left.follow(world.rows["orders"], people.rows)
        of_inner.follow(world.rows["orders"], people.rows)
        expected = [(oid, used[1], *(found or (None, None))) for oid, (used, found) in of_left.shown.items()]
        assert same_rows(kept[0].result(), expected), turn
        met = [(oid, found[0]) for oid, (_, found) in of_inner.shown.items() if found and (found[1] or 0) > 1]
        assert same_rows(kept[1].result(), met), turn
    assert any(found is None for _, found in of_left.shown.values())


def test_a_condition_of_a_left_join_leaves_nulls(few: People, tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(12))
    sql = (
        f"SELECT o.oid, d.name, d.grade FROM {ORDERS} LEFT JOIN {DIM} o.proc AS d ON o.uid = d.id AND d.grade > 1"
        " AND o.kind = 'b'"
    )
    kept, arrived = kept_over(few, world, sql), Arrived(lambda row: (row["uid"], row["kind"]))
    for _ in range(3):
        few.change(6)
        world.change("orders", 20)
        kept.advance()
        arrived.follow(world.rows["orders"], few.rows)
        expected = [
            (oid, *(found if found and (found[1] or 0) > 1 and used[1] == "b" else (None, None)))
            for oid, (used, found) in arrived.shown.items()
        ]
        assert same_rows(kept.result(), expected)


def test_groups_over_what_was_found(few: People, tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(13))
    sql = (
        f"SELECT d.name, COUNT(*) AS n, SUM(o.amount) AS s FROM {ORDERS} LEFT JOIN {DIM} o.proc AS d ON o.uid = d.id"
        " GROUP BY d.name"
    )
    kept, arrived = kept_over(few, world, sql), Arrived(lambda row: (row["uid"], row["amount"]))
    for _ in range(5):
        few.change(4)
        world.change("orders", 20)
        kept.advance()
        arrived.follow(world.rows["orders"], few.rows)
        counts: Counter[str | None] = Counter()
        sums: dict[str | None, list[int]] = {}
        for used, found in arrived.shown.values():
            name = found[0] if found else None
            counts[name] += 1
            sums.setdefault(name, []).extend([used[1]] if used[1] is not None else [])
        expected = [(name, count, sum(sums[name]) if sums[name] else None) for name, count in counts.items()]
        assert same_rows(kept.result(), expected)


def test_rows_that_are_only_added_need_no_state(few: People, tmp_path: Path) -> None:
    """Every copy finds its own; so a table without a key takes them."""
    world = World(tmp_path, random.Random(14))
    kept = kept_over(few, world, f"SELECT v.page, v.secs, d.name FROM {VIEWS} JOIN {DIM} v.proc AS d ON v.uid = d.id")
    assert kept.query.key == ()
    assert not any(state for stage in kept.store.stages() for state in stage.states)
    expected: list[tuple[Any, ...]] = []
    for _ in range(4):
        few.change(4)
        before = len(world.rows["views"])
        world.change("views", 30)
        kept.advance()
        for row in world.rows["views"][before:]:
            if row["uid"] in few.rows:
                expected.append((row["page"], row["secs"], few.rows[row["uid"]][0]))
        assert same_rows(kept.result(), expected)


class _Dying(LocalRunner):
    """Ends before anything is committed, with its tasks done."""

    def run(self, tasks: Sequence[Task], *, rows: int, state: int) -> list[Answer]:
        answers = super().run(tasks, rows=rows, state=state)
        if tasks and tasks[0].stage.result is not None:
            raise ConnectionError("killed")
        return answers


def test_a_batch_that_was_not_committed_finds_anew(few: People, tmp_path: Path) -> None:
    """Nothing of what the first try found is shown, nor taken back."""
    world = World(tmp_path, random.Random(15))
    kept = kept_over(few, world, f"SELECT o.oid, d.name FROM {ORDERS} LEFT JOIN {DIM} o.proc AS d ON o.uid = d.id")
    arrived = Arrived(lambda row: (row["uid"],))
    for _ in range(3):
        few.change(6)
        world.change("orders", 15)
        kept.runner = _Dying()
        with pytest.raises(ConnectionError):
            kept.advance()
        kept.runner = LocalRunner()
        few.change(6)
        kept.advance()
        arrived.follow(world.rows["orders"], few.rows)
        expected = [(oid, found[0] if found else None) for oid, (_, found) in arrived.shown.items()]
        assert same_rows(kept.result(), expected)


def test_a_rebuild_finds_everything_as_it_is_now(few: People, tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(16))
    kept = kept_over(few, world, f"SELECT o.oid, d.name FROM {ORDERS} LEFT JOIN {DIM} o.proc AS d ON o.uid = d.id")
    few.put({1: ("ann", 1), 2: ("bob", 2)})
    world.change("orders", 25)
    kept.advance()
    few.put({1: ("eve", 1), 2: None, 3: ("new", None)})
    inputs = {name: world.stores[name] for name in kept.query.tables}
    anew = QueryStore(kept.store.uri, kept.query, any_plan=True)
    assert rebuild(anew, inputs, runner=LocalRunner(), run="test", lookups=kept.lookups) is not None
    names = {uid: few.rows.get(uid, (None, None))[0] for uid in (*range(8), None)}
    assert same_rows(kept.last_rows(), [(row["oid"], names[row["uid"]]) for row in world.rows["orders"]])


def test_a_table_that_is_not_there_stops_the_query(few: People, tmp_path: Path) -> None:
    """And nothing is taken as 'not found'."""
    world = World(tmp_path, random.Random(17))
    kept = kept_over(few, world, f"SELECT o.oid, d.name FROM {ORDERS} LEFT JOIN {DIM} o.proc AS d ON o.uid = d.id")
    elsewhere = replace(few.table, options=Options({**few.table.options, "table.name": "nowhere"}))
    missing, _ = searchable()["tablestore"].key_reader(elsewhere)
    assert missing is not None
    kept.lookups = {"dim": missing}
    world.change("orders", 25)
    with pytest.raises(DestinationError, match="Tablestore table 'nowhere' does not exist"):
        kept.advance()
    assert kept.result() == []
