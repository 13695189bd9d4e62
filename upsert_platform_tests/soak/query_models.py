"""Kept-up queries that a database cannot judge, since what comes when decides: lookup joins, and windows that close.

A list and a dictionary know what they show (`queries/people.py`, `queries/reckoning.py`).
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from upsert_platform_tests.queries.people import DIM, ORDERS, Arrived, People, kept_over
from upsert_platform_tests.queries.reckoning import MINUTE, Reckoning
from upsert_platform_tests.queries.world import Kept, World, declared, plan_query

Rows = list[tuple[Any, ...]]


class Model(Protocol):
    """Follows a query batch by batch.

    Attributes:
        sql: the statement; `classes` are its operators.
        rebuilds: whether it knows what a rebuild gives.
    """

    sql: str
    classes: tuple[str, ...]
    rebuilds: bool

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

    rebuilds = True

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

    rebuilds = False
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


def _sum(values: list[Any]) -> Any:
    """As SQL adds: nulls left out, and null of nothing."""
    there = [item for item in values if item is not None]
    return sum(there) if there else None
