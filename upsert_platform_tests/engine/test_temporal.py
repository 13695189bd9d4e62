"""Temporal joins: each row with the version that was valid at its time; a loop over all records is the model."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from upsert_platform.changelog import rows
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.model import Table
from upsert_platform.declarations.project import load_project
from upsert_platform.engine import engine, reading, state, store, tasks
from upsert_platform.engine.explain import explain_plan
from upsert_platform.engine.runners import LocalRunner
from upsert_platform.engine.upkeep import compact
from upsert_platform.sql.reader import Fault
from upsert_platform.sql.variables import Variables
from upsert_platform.sync.binding import bind
from upsert_platform.sync.connectors import CONNECTORS
from upsert_platform_tests.engine.test_faults import DyingRunner, KilledError
from upsert_platform_tests.engine.world import START, Kept, World, declared, plan_query, same_rows
from upsert_platform_tests.sql.reading import read_scripts

RATES = """
CREATE TABLE rates (uid INT, rate BIGINT, since {since}, WATERMARK FOR since AS since, PRIMARY KEY (uid) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = 'rates', 'key.format' = 'json', 'value.format' = 'json',
        'properties.bootstrap.servers' = 'b:1');
"""
SELECT = (
    "SELECT o.oid, o.amount, r.rate FROM orders AS o {kind} rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.uid ="
    " r.uid{more}"
)
NOON = START.replace(tzinfo=None)
Record = dict[str, Any]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BUCKETS", 2)
    monkeypatch.setattr(state, "MOST_FILES", 3)
    monkeypatch.setattr(reading, "_CHUNK", 4)
    monkeypatch.setattr(tasks, "_WAITING", 7)
    monkeypatch.setattr(engine, "_FEW_ROWS", 1)


def _tables(since: str = "TIMESTAMP(3)") -> Mapping[str, Table]:
    watermarked = replace(declared()["orders"], watermark="WATERMARK FOR ts AS ts")
    rates = read_scripts({"rates.sql": RATES.format(since=since)}, Variables({}, {}, {}))[0].tables["rates"]
    return {"orders": watermarked, "rates": rates}


class Rates(World):
    """A world with a versioned topic, all of whose records are kept."""

    since = "TIMESTAMP(3)"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.more = _tables(self.since)
        self.stores["rates"] = ChangelogStore(
            str(self.folder / "changelogs" / "rates"), self.more["rates"], mode="append"
        )
        self.records: list[Record] = []

    def rate(self, count: int) -> None:
        """A batch of versions and deletes; times go back, and are equal now and then."""
        batch = []
        for _ in range(count):
            gone = self.rng.random() < 0.25
            at = NOON + timedelta(minutes=self.rng.randrange(12) * 5)
            record: Record = {
                "uid": self.rng.randrange(6), "rate": None if gone else self.rng.randrange(100),
                "since": None if gone else at, rows.KIND: rows.KIND_DELETE if gone else rows.KIND_UPDATE_AFTER,
                rows.TOPIC: "rates", rows.PARTITION: 0, rows.OFFSET: len(self.records) + len(batch), rows.ROW: 0,
                rows.TIMESTAMP: START + timedelta(minutes=len(self.records) + len(batch)),
            }  # fmt: skip
            batch.append(record)
        self.records += batch
        shuffled = list(batch)
        self.rng.shuffle(shuffled)
        self.write("rates", shuffled)

    def valid(self, uid: Any, moment: datetime | None, *, of_record: bool = False) -> Record | None:
        """The version of a key at a moment."""
        best: tuple[datetime, Record] | None = None
        before: datetime | None = None
        for record in self.records:
            if uid is None or moment is None or record["uid"] != uid:
                continue
            since = record["since"]
            if record[rows.KIND] == rows.KIND_DELETE:
                since = record[rows.TIMESTAMP].replace(tzinfo=None) if of_record else before
            else:
                before = since
            if since is not None and since <= moment and (best is None or since >= best[0]):
                best = (since, record)
        return best[1] if best is not None and best[1][rows.KIND] != rows.KIND_DELETE else None


def _expected(world: Rates, *, left: bool, least: int | None = None) -> list[tuple[Any, ...]]:
    found = []
    for row in world.rows["orders"]:
        version = world.valid(row["uid"], row["ts"])
        rate = version["rate"] if version is not None else None
        if least is not None and (rate is None or rate <= least):
            rate = version = None
        if version is not None or left:
            found.append((row["oid"], row["amount"], rate))
    return found


@pytest.mark.parametrize(
    ("kind", "more", "left", "least"),
    [
        ("JOIN", "", False, None), ("LEFT JOIN", "", True, None),
        ("JOIN", " AND r.rate > 40", False, 40), ("LEFT JOIN", " AND r.rate > 40", True, 40),
    ],
)  # fmt: skip
def test_rows_show_the_version_of_their_time(
    kind: str, more: str, left: bool, least: int | None, tmp_path: Path
) -> None:
    """Versions and rows come late, are written anew and deleted; kills and compaction change nothing."""
    sql = SELECT.format(kind=kind, more=more)
    for seed in range(3):
        world = Rates(tmp_path / str(seed), random.Random(f"{kind} {more} {seed}"))
        kept = Kept(world, plan_query(sql, more=world.more))
        once = Kept(world, kept.query, "once")
        for turn in range(4):
            world.change("orders", world.rng.randrange(0, 20))
            world.rate(world.rng.randrange(0, 12))
            if turn % 2:
                kept.runner = DyingRunner(turn)
                with suppress(KilledError):
                    kept.advance()
            kept.runner = LocalRunner()
            kept.advance()
            expected = _expected(world, left=left, least=least)
            assert same_rows(kept.result() if turn < 3 else kept.last_rows(), expected), (seed, turn)
            if turn == 2:
                head = kept.store.head()
                assert head is not None
                compact(kept.store, applied_everywhere=head.batch)
        once.advance()
        assert same_rows(once.result(), _expected(world, left=left, least=least))


def test_sums_of_joined_rows_follow_versions_that_come_late(tmp_path: Path) -> None:
    sql = (
        "SELECT o.kind, SUM(r.rate) AS s, COUNT(*) AS n FROM (SELECT oid, kind, uid, ts FROM orders) AS o JOIN rates"
        " FOR SYSTEM_TIME AS OF o.ts AS r ON r.uid = o.uid GROUP BY o.kind"
    )
    world = Rates(tmp_path, random.Random(4))
    kept = Kept(world, plan_query(sql, more=world.more))
    for _ in range(4):
        world.change("orders", 15)
        world.rate(8)
        kept.advance()
        groups: dict[Any, list[int]] = {}
        for row in world.rows["orders"]:
            version = world.valid(row["uid"], row["ts"])
            if version is not None:
                groups.setdefault(row["kind"], []).append(version["rate"])
        assert same_rows(kept.result(), [(kind, sum(rates), len(rates)) for kind, rates in groups.items()])


class StampedRates(Rates):
    """Versions are valid from the time of their records."""

    since = "TIMESTAMP(3) METADATA FROM 'timestamp'"

    def valid(self, uid: Any, moment: datetime | None, *, of_record: bool = True) -> Record | None:
        return super().valid(uid, moment, of_record=of_record)


def test_a_delete_ends_a_version_at_the_time_of_its_record(tmp_path: Path) -> None:
    world = StampedRates(tmp_path, random.Random(5))
    kept = Kept(world, plan_query(SELECT.format(kind="JOIN", more=""), more=world.more))
    for _ in range(3):
        world.change("orders", 20)
        world.rate(10)
        kept.advance()
        assert same_rows(kept.result(), _expected(world, left=False))


def test_the_changelog_of_versions_keeps_every_record(tmp_path: Path) -> None:
    """Otherwise a batch of a changelog holds the last record of each key alone."""
    orders = (
        "CREATE TABLE orders (oid BIGINT, uid INT, amount BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, PRIMARY KEY"
        " (oid) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'o', 'key.format' = 'json', "
        "'value.format' = 'json', 'properties.bootstrap.servers' = 'b:1');"
    )
    target = (
        "CREATE TABLE t (oid BIGINT, amount BIGINT, rate BIGINT, PRIMARY KEY (oid) NOT ENFORCED) WITH ('connector' ="
        " 'upsert-kafka', 'topic' = 't', 'key.format' = 'json', 'value.format' = 'json',"
        " 'properties.bootstrap.servers' = 'b:1');"
    )
    rates = RATES.format(since="TIMESTAMP(3)")
    statement = f"INSERT INTO t {SELECT.format(kind='LEFT JOIN', more='')};"
    (tmp_path / "project.sql").write_text(f"{orders}\n{rates}\n{target}\n{statement}", "utf-8")
    sources = bind(*load_project(tmp_path, {}, connectors=CONNECTORS)).sources
    assert {name: getattr(source, "every_record", None) for name, source in sources.items()} == {
        "orders": False, "rates": True,
    }  # fmt: skip


def test_explain_tells_of_versions() -> None:
    plan = plan_query(SELECT.format(kind="JOIN", more=""), more=_tables()).plan
    lines = [line.strip() for line in explain_plan(plan)]
    assert any(line.startswith("the version with uid") for line in lines)
    assert any(line.startswith("read rates") and line.endswith("every record is a version") for line in lines)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (
            SELECT.format(kind="JOIN", more="").replace("o.uid = r.uid", "o.uid = r.rate"),
            "ON needs an equality for uid",
        ),
        (SELECT.format(kind="RIGHT JOIN", more=""), "stands in JOIN ... ON ... or LEFT JOIN"),
        (SELECT.format(kind="JOIN", more="").replace("o.ts", "o.amount"), "takes a column of processing time"),
        ("SELECT o.oid FROM orders AS o JOIN users FOR SYSTEM_TIME AS OF o.ts AS u ON o.uid = u.id", "has no versions"),
    ],
)
def test_other_forms_are_refused_with_the_reason(sql: str, reason: str) -> None:
    with pytest.raises(Fault, match=reason):
        plan_query(sql, more=_tables())
