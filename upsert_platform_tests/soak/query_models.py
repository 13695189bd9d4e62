"""Kept-up queries that a database cannot judge, since what comes when decides: lookup joins, and windows that close.

A list and a dictionary know what they show (`engine/people.py`, `engine/reckoning.py`).
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from upsert_platform.core.plan import Arrivals, Materialize, Query
from upsert_platform.engine.explain import explain_plan
from upsert_platform.sql.variables import Variables
from upsert_platform_tests.engine.people import DIM, ORDERS, Arrived, People, kept_over
from upsert_platform_tests.engine.reckoning import MINUTE, Reckoning
from upsert_platform_tests.engine.test_materialize import Lists
from upsert_platform_tests.engine.test_unnest import DDL as BOXES
from upsert_platform_tests.engine.world import DDL, Kept, World, declared, plan_query
from upsert_platform_tests.soak.query_statements import TIME, Maker
from upsert_platform_tests.soak.query_world import Everything
from upsert_platform_tests.sql.reading import read_scripts

Rows = list[tuple[Any, ...]]
_TYPES = {TIME: "TIMESTAMP(3)"}


class Model(Protocol):
    """Follows a query batch by batch.

    Attributes:
        sql: the statement; `classes` are its operators.
        rebuilds: whether it knows what a rebuild gives.
        whole: what one batch brings is to be applied as one.
    """

    sql: str
    classes: tuple[str, ...]
    rebuilds: bool
    whole: bool

    def kept(self, world: World, name: str) -> Kept:
        """The query over a world."""

    def follow(self, world: World) -> int | None:
        """Takes what the last changes brought; how many rows of them came too late, None where no row ever does."""

    def rebuilt(self, world: World) -> None:
        """Takes it that the query was computed anew."""

    def expected(self) -> Rows:
        """What the query gives."""


class LookupModel:
    """A lookup join of orders, by itself or under a grouping."""

    rebuilds, whole = True, False

    def __init__(self, rng: random.Random, people: People) -> None:
        self._people = people
        self._outer, self._grouped = rng.random() < 0.5, rng.random() < 0.4
        self._where, self._graded = rng.random() < 0.3, rng.random() < 0.3
        self._used = ["amount"] if self._grouped else rng.sample(["amount", "kind"], rng.randint(0, 2))
        self.classes = ("lookup join", *(["groups"] if self._grouped else []))
        shown = "d.name, COUNT(*) AS n, SUM(o.amount) AS s"
        if not self._grouped:
            shown = ", ".join(["o.oid", *(f"o.{name}" for name in self._used), "d.name", "d.grade"])
        self.sql = f"SELECT {shown} FROM {ORDERS} {'LEFT ' * self._outer}JOIN {DIM} o.proc AS d ON o.uid = d.id"
        self.sql += " AND d.grade > 1" * self._graded + " WHERE o.kind = 'a'" * self._where
        self.sql += " GROUP BY d.name" * self._grouped
        self._arrived = Arrived(self._used_of)

    def _used_of(self, row: dict[str, Any]) -> tuple[Any, ...] | None:
        if self._where and row["kind"] != "a":
            return None
        return (row["uid"], *(row[name] for name in self._used))

    def kept(self, world: World, name: str) -> Kept:
        return kept_over(self._people, world, self.sql, name=name)

    def follow(self, world: World) -> int | None:
        self._arrived.follow(world.rows["orders"], self._people.rows)
        return None

    def rebuilt(self, world: World) -> None:
        self._arrived = Arrived(self._used_of)
        self.follow(world)

    def expected(self) -> Rows:
        shown: list[tuple[int, tuple[Any, ...], tuple[Any, ...]]] = []
        for oid, (used, found) in self._arrived.shown.items():
            if found is not None and self._graded and (found[1] is None or found[1] <= 1):
                found = None
            if found is not None or self._outer:
                shown.append((oid, used[1:], found or (None, None)))
        if not self._grouped:
            return [(oid, *used, *found) for oid, used, found in shown]
        groups: dict[Any, list[Any]] = {}
        for _, (amount,), (name, _) in shown:
            groups.setdefault(name, []).append(amount)
        return [(name, len(values), _sum(values)) for name, values in groups.items()]


class ClosingModel:
    """Counts and sums of windows that close, over rows that are only added or over an upsert topic."""

    rebuilds = whole = False
    classes = ("window that closes",)

    def __init__(self, rng: random.Random) -> None:
        self._table = rng.choice(["views", "orders"])
        kind, size, step = rng.choice([("TUMBLE", 10, 10), ("HOP", 15, 5)])
        self._value, texts = ("secs", ["page"]) if self._table == "views" else ("amount", ["kind"])
        self._by: list[str] = rng.choice([[], ["uid"], texts])
        self._lateness = rng.choice([0, 2, 10, 20]) * MINUTE
        self._reckoning = Reckoning(size, step, self._lateness)
        self._there: dict[int, tuple[datetime, tuple[Any, ...]]] = {}
        self._seen = 0
        spans = f"INTERVAL '{step}' MINUTES, " * (kind == "HOP") + f"INTERVAL '{size}' MINUTES"
        columns = ", ".join(["window_start", "window_end", *self._by])
        self.sql = (
            f"SELECT {columns}, COUNT(*) AS n, SUM({self._value}) AS s FROM TABLE({kind}(TABLE {self._table},"
            f" DESCRIPTOR(ts), {spans})) GROUP BY {columns}"
        )

    def kept(self, world: World, name: str) -> Kept:
        watermark = "WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE"
        more = {self._table: replace(declared()[self._table], watermark=watermark)}
        return Kept(world, plan_query(self.sql, more=more, lateness=self._lateness // timedelta(microseconds=1)), name)

    def follow(self, world: World) -> int | None:
        records = world.last.get(self._table)
        if records is None:
            return 0
        changes: list[tuple[int, datetime, Any]] = []
        if self._table == "views":
            changes = [(1, row["ts"], self._group(row)) for row in world.rows["views"][self._seen :]]
            self._seen = len(world.rows["views"])
        else:
            now = {row["oid"]: (row["ts"], self._group(row)) for row in world.rows["orders"] if row["ts"] is not None}
            changes += [(-1, *item) for oid, item in self._there.items() if now.get(oid) != item]
            changes += [(1, *item) for oid, item in now.items() if self._there.get(oid) != item]
            self._there = now
        return self._reckoning.batch(changes, [(0, row["ts"]) for row in records if row["ts"] is not None])

    def _group(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return (*(row[name] for name in self._by), row[self._value])

    def rebuilt(self, world: World) -> None:
        raise AssertionError("which windows were closed when is not told anew")

    def expected(self) -> Rows:
        groups: dict[Any, list[Any]] = {}
        for (start, end, (*by, value)), count in self._reckoning.held.items():
            groups.setdefault((start, end, *by), []).extend([value] * count)
        return [(*group, len(values), _sum(values)) for group, values in groups.items() if values]


class TemporalModel:
    """A temporal join, by itself or under a grouping: a loop over all records of versions finds each row's."""

    rebuilds, whole = True, False

    def __init__(self, rng: random.Random) -> None:
        self._table = rng.choice(["orders", "views"])
        self._used = ["amount", "kind"] if self._table == "orders" else ["secs", "page"]
        self._outer, self._grouped, self._where = (rng.random() < 0.4 for _ in range(3))
        self._least = rng.choice([None, 40])
        self.classes = ("temporal join", *(["groups"] if self._grouped else []))
        number, text = self._used
        shown = f"o.{text}, SUM(r.rate) AS s, COUNT(*) AS n, COUNT(o.{number}) AS c"
        if not self._grouped:
            shown = ", ".join([*["o.oid"] * (self._table == "orders"), f"o.{number}, o.{text}, r.rate, r.since"])
        self.sql = (
            f"SELECT {shown} FROM {self._table} AS o {'LEFT ' * self._outer}JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r"
            f" ON o.uid = r.uid{f' AND r.rate > {self._least}' * (self._least is not None)}"
            f"{f' WHERE o.{number} > 4' * self._where}{f' GROUP BY o.{text}' * self._grouped}"
        )
        self._world: Everything | None = None

    def kept(self, world: World, name: str) -> Kept:
        assert isinstance(world, Everything)
        self._world = world
        more = {**world.more, "views": replace(declared()["views"], watermark="WATERMARK FOR ts AS ts")}
        return Kept(world, plan_query(self.sql, more=more), name)

    def follow(self, world: World) -> int | None:
        assert world is self._world
        return None

    def rebuilt(self, world: World) -> None:
        self.follow(world)

    def expected(self) -> Rows:
        assert self._world is not None
        number, text = self._used
        found: Rows = []
        for row in self._world.rows[self._table]:
            version = self._world.valid(row["uid"], row["ts"])
            if version is not None and self._least is not None and (version["rate"] or 0) <= self._least:
                version = None
            if (version is None and not self._outer) or (self._where and (row[number] or 0) <= 4):
                continue
            shown = (version["rate"], version["since"]) if version is not None else (None, None)
            key = [row["oid"]] if self._table == "orders" else []
            found.append((*key, row[number], row[text], *shown))
        if not self._grouped:
            return found
        groups: dict[Any, list[tuple[Any, ...]]] = {}
        for *_, value, name, rate, _ in found:
            groups.setdefault(name, []).append((value, rate))
        return [
            (name, _sum([rate for _, rate in rows]), len(rows), sum(value is not None for value, _ in rows))
            for name, rows in groups.items()
        ]


class MaterializeModel:
    """A random statement into a table whose key does not tell its rows apart: lists of the rows in their order."""

    rebuilds = whole = True

    def __init__(self, rng: random.Random) -> None:
        while True:
            statement = Maker(rng).statement(rng.choice([1, 1, 2]))
            columns = list(statement.columns)
            key = rng.choice(columns)
            columns.remove(key)
            names = ", ".join(item.name for item in (key, *columns))
            self.sql, self._judged = (
                f"SELECT {names} FROM ({text}) AS x WHERE {key.name} IS NOT NULL"
                for text in (statement.flink, statement.duckdb)
            )
            target = ", ".join(f"{item.name} {_TYPES.get(item.type, item.type)}" for item in (key, *columns))
            self._target = (
                f"CREATE TABLE t ({target}, PRIMARY KEY ({key.name}) NOT ENFORCED) WITH ('connector' = 'tablestore');"
            )
            query = _planned(f"{DDL}{BOXES}{self._target}INSERT INTO t {self.sql};")
            if query is not None and any("upsert-materialize" in line for line in explain_plan(query.plan)):
                break
        self._query = query
        self._by_records = isinstance(query.plan, Materialize) and isinstance(query.plan.input, Arrivals)
        self.classes = ("materialize", *statement.classes)
        self._lists = Lists()
        self._newest: dict[Any, set[Any]] = {}

    def kept(self, world: World, name: str) -> Kept:
        return Kept(world, self._query, name)

    def follow(self, world: World) -> int | None:
        now = Counter(world.judge(self._judged))
        newest: dict[Any, set[Any]] = {}
        for row in now - self._lists.there:
            newest.setdefault(row[0], set()).add(row)
        self._newest |= newest
        self._lists.follow(now)
        return None

    def rebuilt(self, world: World) -> None:
        self._lists, self._newest = Lists(), {}
        self.follow(world)

    def expected(self) -> Rows:
        return self._lists.shown

    def among(self, found: Rows) -> Rows:
        """What is found, of each key whose row may be the one: rows that are only added arrive as their records do.

        Which record of a batch is the last is judged elsewhere; here any row that the last batch of the key brought is.
        """
        if not self._by_records:
            return self.expected()
        given = {row[0]: row for row in map(tuple, found)}
        return [given[row[0]] if given.get(row[0]) in self._newest[row[0]] else row for row in self._lists.shown]


def _planned(text: str) -> Query | None:
    """The query of the one insert of a text; None for an insert of one row at a time."""
    scripts, problems = read_scripts({"test.sql": text}, Variables({}, {}, {}))
    assert not [item for item in problems if item.severity == "error"], problems
    (insert,) = scripts.inserts
    return insert.query


def _sum(values: list[Any]) -> Any:
    """As SQL adds: nulls left out, and null of nothing."""
    there = [item for item in values if item is not None]
    return sum(there) if there else None
