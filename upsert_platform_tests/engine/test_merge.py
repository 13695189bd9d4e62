"""Several inserts into one table: after every batch it shows, of the branches that have a key, the row changed last."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from upsert_platform.changelog.store import LiveFile
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.plan import Query
from upsert_platform.engine import store, upkeep
from upsert_platform.engine.store import QueryStore
from upsert_platform.sql.variables import Variables
from upsert_platform.sync.replay_order import check_order
from upsert_platform_tests.campaign import seeds
from upsert_platform_tests.engine.world import DDL, Kept, World, same_rows
from upsert_platform_tests.sql.reading import NONE, read_scripts

TARGET = """
CREATE TABLE t (k INT, v BIGINT, w STRING, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'tablestore', 'table.name' = 't');
"""


@pytest.fixture(autouse=True)
def _few_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BUCKETS", 2)


def query_of(*statements: str, target: str = TARGET) -> Query:
    """The query of inserts into one table."""
    text = ";\n".join([DDL, target, *statements]).replace(";\n;", ";")
    scripts, problems = read_scripts({"test.sql": text + ";"}, Variables({}, {}, {}))
    assert not [item for item in problems if item.severity == "error"], problems
    (insert,) = scripts.inserts
    assert insert.query is not None
    return insert.query


Rows = dict[int, tuple[Any, ...]]


def _users(world: World) -> Rows:
    return {row["id"]: (row["id"], row["age"], row["region"]) for row in world.rows["users"]}


def _groups(world: World) -> Rows:
    counts: dict[int, int] = {}
    for row in world.rows["orders"]:
        if row["uid"] is not None:
            counts[row["uid"]] = counts.get(row["uid"], 0) + 1
    return {uid: (uid, count, "orders") for uid, count in counts.items()}


def _views(world: World) -> Rows:
    return {row["uid"]: (row["uid"], row["secs"], row["page"]) for row in world.rows["views"] if row["uid"] is not None}


BRANCHES: dict[str, Callable[[World], Rows]] = {
    "INSERT INTO t SELECT id, age, region FROM users": _users,
    "INSERT INTO t (v, k, w) SELECT COUNT(*), uid, 'orders' FROM orders WHERE uid IS NOT NULL GROUP BY uid": _groups,
    "INSERT INTO t SELECT uid, secs, page FROM views WHERE uid IS NOT NULL": _views,
}


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize(
    "chosen", [(0, 1), (1, 0), (0, 2), (2, 1, 0), (1, 2)], ids=lambda item: "".join(map(str, item))
)
def test_row_that_changed_last_is_shown(chosen: tuple[int, ...], seed: int, tmp_path: Path) -> None:
    statements = [list(BRANCHES)[at] for at in chosen]
    world = World(tmp_path, random.Random(f"{chosen} {seed}"))
    kept = Kept(world, query_of(*statements))
    assert kept.query.key == ("k",)
    since: dict[tuple[int, int], int] = {}
    before: list[Rows] = [{} for _ in statements]
    for batch in range(6):
        for table in kept.query.tables:
            if world.rng.random() < 0.7:
                world.change(table, world.rng.randrange(0, 15))
        done = kept.advance()
        now = [BRANCHES[statement](world) for statement in statements]
        for at, rows in enumerate(now):
            since |= {(at, key): batch for key, row in rows.items() if before[at].get(key) != row}
        wanted: Rows = {}
        for at, rows in enumerate(now):
            for key, row in rows.items():
                last = max((since[other, key], other) for other in range(len(now)) if key in now[other])
                if last == (since[at, key], at):
                    wanted[key] = row
        assert same_rows(kept.result(), list(wanted.values()))
        given = {key for at, rows in enumerate(now) for key, row in rows.items() if before[at].get(key) != row}
        shared = {key for key in given if sum(key in rows for rows in now) > 1}
        assert (done.met if done is not None else 0) == len(shared)
        before = now


@pytest.mark.soak
def test_state_that_is_merged_keeps_what_changed_in_that_batch(tmp_path: Path) -> None:
    """Rows come and go in the batch that merges files of state: neither brings back what the other replaced."""
    users, groups = list(BRANCHES)[:2]
    world = World(tmp_path, random.Random(11))
    kept = Kept(world, query_of(users, groups))
    since: dict[tuple[int, int], int] = {}
    before: list[Rows] = [{}, {}]
    for batch in range(24):
        world.change("users", 6)
        world.change("orders", 6)
        kept.advance()
        now = [_users(world), _groups(world)]
        wanted: Rows = {}
        for at, rows in enumerate(now):
            since |= {(at, key): batch for key, row in rows.items() if before[at].get(key) != row}
        for key in {*now[0], *now[1]}:
            _, shown = max((since[at, key], at) for at in (0, 1) if key in now[at])
            wanted[key] = now[shown][key]
        assert same_rows(kept.result(), list(wanted.values())), batch
        before = now


def test_rows_that_are_only_added_keep_the_order_of_their_records(tmp_path: Path) -> None:
    """A union by itself has no order: a key that goes from a to b and back to a within one batch ends with a."""
    statement = "INSERT INTO t SELECT uid, secs, page FROM (SELECT * FROM views UNION ALL SELECT * FROM views) u"
    for seed in range(5):
        world = World(tmp_path / str(seed), random.Random(seed))
        kept = Kept(world, query_of(f"{statement} WHERE uid IS NOT NULL"))
        for _ in range(3):
            world.change("views", 40)
            kept.advance()
            assert same_rows(kept.result(), list(_views(world).values()))


@pytest.mark.parametrize(
    "beside", [[], ["INSERT INTO t SELECT id + 100, age, region FROM users"]], ids=["alone", "beside"]
)
def test_the_order_of_records_is_above_that_of_branches(beside: list[str], tmp_path: Path) -> None:
    """However the records are divided among batches: of a key, the branch that took its last record does not count."""
    pages = (f"SELECT uid, secs, page FROM views WHERE uid IS NOT NULL AND page = '{page}'" for page in "qp")
    query = query_of(f"INSERT INTO t {' UNION ALL '.join(pages)}", *beside)
    for seed in range(4):
        world = World(tmp_path / str(seed), random.Random(seed))
        kept, once = Kept(world, query), Kept(world, query, "once")
        wanted: Rows = {}
        for _ in range(3):
            world.change("views", 12)
            kept.advance()
            wanted |= {
                row["uid"]: (row["uid"], row["secs"], row["page"])
                for row in world.rows["views"]
                if row["uid"] is not None and row["page"] in ("p", "q")
            }
            assert same_rows(kept.result(), list(wanted.values()))
        once.advance()
        assert same_rows(once.result(), list(wanted.values()))


def test_records_that_would_come_out_of_order_are_not_replayed() -> None:
    """A replayed record would stand over rows of its key that had overtaken it: of its own topic, or another branch."""
    users, groups, views = BRANCHES
    with pytest.raises(ChangelogError, match="records of 'views' cannot be replayed: it has no key, and 't'"):
        check_order([query_of(users, views)], "views")
    with pytest.raises(
        ChangelogError, match="records of 'users' cannot be replayed: several INSERTs fill one table, on"
    ):
        check_order([query_of(users, views)], "users")
    joined = "INSERT INTO t SELECT v.uid, v.secs, w.page FROM views v JOIN views w ON v.uid = w.uid"
    with pytest.raises(ChangelogError, match="records of 'views' cannot be replayed"):
        check_order([query_of(joined)], "views")
    counted = "INSERT INTO t SELECT uid, COUNT(*), 'views' FROM views WHERE uid IS NOT NULL GROUP BY uid"
    check_order([query_of(users, counted), query_of(groups)], "views")
    check_order([query_of(users, groups)], "orders")
    shared = "INSERT INTO t SELECT age, id, region FROM users WHERE age IS NOT NULL"
    with pytest.raises(ChangelogError, match="several of its rows share a key there, and 't' shows the row"):
        check_order([query_of(shared)], "users")
    check_order([query_of(shared)], "orders")


def test_a_statement_per_grouping_gives_subtotals(tmp_path: Path) -> None:
    """What is told to write in the place of GROUPING SETS; in a statement set."""
    target = TARGET.replace("k INT, v BIGINT, w STRING", "r STRING, n BIGINT").replace("KEY (k)", "KEY (r)")
    query = query_of(
        "BEGIN STATEMENT SET",
        "INSERT INTO t SELECT region, COUNT(*) FROM users WHERE region IS NOT NULL GROUP BY region",
        "INSERT INTO t SELECT '(all)', COUNT(*) FROM users",
        "END",
        target=target,
    )
    world = World(tmp_path, random.Random(4))
    kept = Kept(world, query)
    for _ in range(4):
        world.change("users", 20)
        kept.advance()
        regions = [row["region"] for row in world.rows["users"]]
        counts = {region: regions.count(region) for region in regions if region is not None}
        assert same_rows(kept.result(), [*counts.items(), ("(all)", len(regions))])


def test_table_without_key_holds_the_rows_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = TARGET.replace(", PRIMARY KEY (k) NOT ENFORCED", "")
    added = "INSERT INTO t SELECT uid, secs, page FROM views"
    world = World(tmp_path, random.Random(1))
    kept = Kept(world, query_of(added, f"{added} WHERE secs > 10", target=target))
    assert kept.query.key == ()
    for _ in range(6):
        world.change("views", 20)
        kept.advance()
    sizes = {item.path: item.size for item in kept.store.result_files()}
    most = 3 * max(sizes.values())
    monkeypatch.setattr(upkeep, "_SHARE_BYTES", most)
    read: list[int] = []
    reduce = upkeep.reduced_rows

    def watched(store: QueryStore, files: list[LiveFile], **given: Any) -> Any:
        read.append(sum(item.size for item in files))
        return reduce(store, files, **given)

    monkeypatch.setattr(upkeep, "reduced_rows", watched)
    upkeep.compact(kept.store, applied_everywhere=6)
    assert 1 < len(kept.store.result_files()) < len(sizes)
    assert max(read) <= most, "never all of a result that has no key"
    rows = [(row["uid"], row["secs"], row["page"]) for row in world.rows["views"]]
    assert same_rows(kept.result(), rows + [row for row in rows if row[1] is not None and row[1] > 10])


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["INSERT INTO t SELECT id, age, region FROM users", "INSERT INTO t SELECT uid, amount, kind FROM orders"],
         "nothing tells the rows of the query apart"),
        (["INSERT INTO t SELECT id, age, region FROM users", "INSERT OVERWRITE t SELECT uid, secs, page FROM views"],
         "INSERT OVERWRITE t: replaces what another INSERT writes"),
        (["INSERT INTO t SELECT id, age, region FROM users", "INSERT INTO t SELECT uid, page, secs FROM views"],
         "column 'secs' is BIGINT, column 'w' is STRING"),
    ],
)  # fmt: skip
def test_inserts_that_cannot_be_joined_are_refused(statements: list[str], message: str) -> None:
    text = f"{NONE}{DDL}{TARGET}{';'.join(statements)};"
    _, problems = read_scripts({"test.sql": text}, Variables({}, {}, {}))
    found = [item.message for item in problems if item.severity == "error"]
    assert any(message in item for item in found), found
