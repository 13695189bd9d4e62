"""Random changelogs for tests of queries: histories, snapshots by a list, DuckDB as the judge."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import DataFile, read_rows, write_files
from upsert_platform.changelog.store import ChangelogStore, Positions
from upsert_platform.core.connector import KeyReader
from upsert_platform.core.model import Table
from upsert_platform.core.plan import Project, Query, column
from upsert_platform.core.types import arrow_type
from upsert_platform.engine.engine import QueryBatch, advance, plan_batch
from upsert_platform.engine.runners import LocalRunner, Runner
from upsert_platform.engine.store import QueryStore
from upsert_platform.sql.lexer import tokenize
from upsert_platform.sql.planning.from_clause import View
from upsert_platform.sql.planning.pruning import prune
from upsert_platform.sql.planning.select import plan_select
from upsert_platform.sql.variables import Variables
from upsert_platform_tests.engine.statements import judged
from upsert_platform_tests.sql.reading import read_scripts

DDL = """
CREATE TABLE users (id INT, region STRING, age INT, score DOUBLE, spent DECIMAL(10, 2), PRIMARY KEY (id) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = 'users', 'key.format' = 'json', 'value.format' = 'json',
        'properties.bootstrap.servers' = 'b:1');
CREATE TABLE orders (oid BIGINT, uid INT, amount BIGINT, kind STRING, ts TIMESTAMP(3), PRIMARY KEY (oid) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = 'orders', 'key.format' = 'json', 'value.format' = 'json',
        'properties.bootstrap.servers' = 'b:1');
CREATE TABLE views (uid INT, page STRING, secs BIGINT, ts TIMESTAMP(3))
  WITH ('connector' = 'kafka', 'topic' = 'views', 'format' = 'json', 'properties.bootstrap.servers' = 'b:1');
"""


@lru_cache(maxsize=1)
def declared() -> Mapping[str, Table]:
    """The tables of these tests."""
    scripts, problems = read_scripts({"test.sql": DDL}, Variables({}, {}, {}))
    assert not problems, problems
    return scripts.tables


def plan_query(
    sql: str,
    *,
    key: Sequence[str] | None = None,
    views: Mapping[str, str] | None = None,
    more: Mapping[str, Table] | None = None,
    lateness: int | None = None,
) -> Query:
    """A query of its text; its key is the plan's own.

    Args:
        more: tables beside those of a world, or in their place.
        lateness: as `plan_select` takes it.
    """
    tables = {**declared(), **(more or {})}

    def find(name: str) -> Table | View | None:
        if name in (views or {}):
            return View(_tokens((views or {})[name]))
        return tables.get(name)

    relation = plan_select(_tokens(sql), find, lateness=lateness)
    assert relation.rank is None
    plan = prune(relation.node, [item.name for _, item in relation.columns])
    shown = Project(plan, tuple((item.name, column(item)) for _, item in relation.columns))
    chosen = tuple(sorted(shown.keys[0])) if shown.keys and not shown.appends else ()
    return Query("result", shown, tuple(key) if key is not None else chosen, sql)


def _tokens(sql: str) -> Any:
    tokens, problems = tokenize(sql, "test.sql")
    assert not problems
    return tuple(tokens)


START = datetime(2024, 5, 1, tzinfo=UTC)


def random_row(name: str, rng: random.Random) -> dict[str, Any]:
    """A row without its key: few values, so that groups and joins meet, nulls and extremes among them."""
    some = rng.choice
    at = START.replace(tzinfo=None) + timedelta(seconds=rng.randrange(3600))
    match name:
        case "users":
            return {
                "region": some(["eu", "us", "asia", "", None]),
                "age": some([None, 1, 2, 3, rng.randrange(90)]),
                "score": some([None, 0.1, -0.1, 1e16, 1.5, -1e16, 3e-9, rng.uniform(-5, 5)]),
                "spent": some([None, Decimal("0.01"), Decimal("-3.50"), Decimal(rng.randrange(100000)) / 100]),
            }
        case "orders":
            return {
                "uid": some([None, *range(8)]), "amount": some([None, 0, 5, -5, rng.randrange(1000)]),
                "kind": some(["a", "b", None]), "ts": some([None, at, at]),
            }  # fmt: skip
    return {"uid": some([None, *range(8)]), "page": some(["p", "q", None, "long page name"]),
            "secs": some([None, rng.randrange(50)]), "ts": at}  # fmt: skip


@lru_cache(maxsize=1)
def _database() -> duckdb.DuckDBPyConnection:
    """One database of the process: to make one takes longer than most questions to it."""
    return duckdb.connect()


KEYS = {"users": ("id", 10), "orders": ("oid", 25)}


@dataclass
class World:
    """Changelogs of the declared tables below a folder, and what their topics hold by the offsets of their records.

    Attributes:
        last: the records of the last `change` of each table, in the order of their offsets.
    """

    folder: Path
    rng: random.Random
    stores: dict[str, ChangelogStore] = field(default_factory=dict)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    last: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, table in declared().items():
            mode = "upsert" if table.primary_key else "append"
            self.stores[name] = ChangelogStore(str(self.folder / "changelogs" / name), table, mode=mode)
            self.stores[name].keep_open()  # as continuous mode does: to open a table takes longer than a small batch
            self.rows[name], self.offsets[name] = [], 0

    def change(self, name: str, count: int) -> None:
        """Appends a batch of random changes to a changelog; of a key, the record with the greatest offset counts."""
        rng = self.rng
        batch: list[dict[str, Any]] = []
        for _ in range(count):
            row = random_row(name, rng)
            kind = rows.KIND_INSERT
            if name in KEYS:
                key, most = KEYS[name]
                row[key] = rng.randrange(most)
                if rng.random() < 0.3:
                    row = dict.fromkeys(row) | {key: row[key]}
                    kind = rows.KIND_DELETE
                else:
                    kind = rows.KIND_UPDATE_AFTER
                self.rows[name] = [item for item in self.rows[name] if item[key] != row[key]]
            if kind != rows.KIND_DELETE:
                self.rows[name].append(row)
            system = {
                rows.KIND: kind, rows.TOPIC: name, rows.PARTITION: 0, rows.OFFSET: self.offsets[name], rows.ROW: 0,
                rows.TIMESTAMP: START - timedelta(seconds=rng.randrange(100)),
            }  # fmt: skip
            self.offsets[name] += 1
            batch.append({**row, **system})
        self.last[name] = list(batch)
        rng.shuffle(batch)
        self.write(name, batch)

    def write(self, name: str, batch: Sequence[Mapping[str, Any]]) -> None:
        """Appends a batch of rows with their system columns to a changelog."""
        store = self.stores[name]
        head = store.create()
        schema = rows.arrow_schema(store.table)
        found = [pa.RecordBatch.from_pylist(list(batch), schema=schema)] if batch else []
        manifests = write_files(found, location=store.location, schema=schema, batch=head.batch + 1)
        files = [DataFile(**row) for item in manifests for row in item.to_pylist()]
        assert store.append(files, head=head, positions=Positions(), run="test") is not None

    def judge(self, sql: str) -> list[tuple[Any, ...]]:
        """What DuckDB makes of the same statement over the snapshots."""
        return self.snapshots().execute(judged(sql)).fetchall()

    def snapshots(self) -> duckdb.DuckDBPyConnection:
        """A database with what the topics end with; `_in_order` is a table with the place of each row in `_at`."""
        connection = _database().cursor()  # a session of its own: what is temporary is seen by it alone
        for name, store in self.stores.items():
            schema = pa.schema(
                [pa.field(item.name, arrow_type(item.type)) for item in store.table.columns if item.type is not None]
            )
            held = pa.Table.from_pylist(self.rows[name], schema=schema)
            connection.register(
                f"{name}_in_order", held.append_column("_at", pa.array(range(held.num_rows), pa.int64()))
            )
            connection.execute(f"CREATE TEMP VIEW {name} AS SELECT * EXCLUDE (_at) FROM {name}_in_order")
        return connection


@dataclass
class Kept:
    """A query kept up to date over a world."""

    world: World
    query: Query
    name: str = "query"
    runner: Runner = field(default_factory=LocalRunner)
    lookups: Mapping[str, KeyReader] = field(default_factory=dict)

    @cached_property
    def store(self) -> QueryStore:
        found = QueryStore(str(self.world.folder / "queries" / self.name), self.query)
        found.keep_open()
        return found

    def advance(self, *, most_rows: int = 1 << 30) -> QueryBatch | None:
        """Applies what is new; None when nothing is."""
        store = self.store
        inputs = {name: self.world.stores[name] for name in self.query.tables}
        done: QueryBatch | None = None
        while True:
            plan = plan_batch(store, inputs, most_rows=most_rows)
            if not plan.is_due:
                return done
            done = advance(store, plan, runner=self.runner, run="test", lookups=self.lookups)
            assert done is not None

    def result(self) -> list[tuple[Any, ...]]:
        """What readers of the query's changelog end with: the last row of each key, or all that were not taken back."""
        names = [item.name for item in self.query.plan.fields]
        found: dict[Any, Any] = {}
        counted: list[tuple[Any, ...]] = []
        for row in sorted(self.changes(), key=lambda item: (item[rows.BATCH], item[rows.OFFSET])):
            values = tuple(row[name] for name in names)
            if self.query.key:
                key = tuple(row[name] for name in self.query.key)
                if row[rows.KIND] == rows.KIND_UPDATE_BEFORE:
                    assert found.get(key) == values or repr(found.get(key)) == repr(values), (found.get(key), values)
                elif row[rows.KIND] == rows.KIND_DELETE:
                    assert key in found
                    del found[key]
                else:
                    found[key] = values
            elif row[rows.KIND] == rows.KIND_UPDATE_BEFORE:
                counted.remove(values)
            else:
                counted.append(values)
        return [*found.values(), *counted]

    def last_rows(self) -> list[tuple[Any, ...]]:
        """The last row of each key, as a table that was fed by the query holds it."""
        names = [item.name for item in self.query.plan.fields]
        found: dict[Any, Any] = {}
        for row in sorted(self.changes(), key=lambda item: (item[rows.BATCH], item[rows.OFFSET])):
            key = tuple(row[name] for name in self.query.key)
            if row[rows.KIND] == rows.KIND_DELETE:
                found.pop(key, None)
            elif row[rows.KIND] == rows.KIND_UPDATE_AFTER:
                found[key] = tuple(row[name] for name in names)
        return list(found.values())

    def changes(self) -> list[dict[str, Any]]:
        """The rows of the query's changelog."""
        store = self.store
        schema = store.result().schema
        found = read_rows(store.location, [item.path for item in store.result_files()], schema=schema)
        return [row for batch in found for row in batch.to_pylist() if row[rows.KIND] in rows.CHANGE_KINDS]


def same_rows(left: Sequence[tuple[Any, ...]], right: Sequence[tuple[Any, ...]]) -> bool:
    """Whether two results hold the same rows; doubles within 1e-12 of each other."""
    return sorted(map(_shown, left)) == sorted(map(_shown, right))


def _shown(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_value(item) for item in row)


def _value(value: Any) -> Any:
    if value is None:
        return ("", "null")
    if isinstance(value, float):
        return ("n", f"{value + 0.0:.11e}" if value else "0")
    return (type(value).__name__ if not isinstance(value, int) else "int", str(value))
