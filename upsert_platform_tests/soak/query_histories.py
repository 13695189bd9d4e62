"""Histories of kept-up queries: random changes, and everything that may come between two batches."""

from __future__ import annotations

import math
import random
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import duckdb

from upsert_platform.changelog import compaction
from upsert_platform.engine import cache, engine, reading, rebuild, state, store, tasks
from upsert_platform.engine.runners import LocalRunner
from upsert_platform.engine.store import QueryStore
from upsert_platform.engine.tasks import Answer, Task
from upsert_platform.engine.upkeep import compact, remove_unused
from upsert_platform_tests.engine.people import People, drop_from_tablestore, people_on_tablestore
from upsert_platform_tests.engine.statements import STATEMENTS, judged
from upsert_platform_tests.engine.world import KEYS, Kept, World, plan_query, same_rows
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.soak.query_models import ClosingModel, LookupModel, MaterializeModel, Model, TemporalModel
from upsert_platform_tests.soak.query_statements import Maker, Statement
from upsert_platform_tests.soak.query_world import Everything

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = 10
"""Queries, and so histories, of a world."""
COMPACTED = 0.05
"""Share of worlds whose changelogs are compacted between batches; that needs Spark."""
LOOKUPS = 0.12
"""Share of worlds with a table on a server, for lookup joins."""
KEPT_OPEN = 0.7
"""Share of tables that are looked at as continuous mode does, through one handle; others are opened each time."""
DOUBLES = Statement(
    "SELECT region, SUM(score) AS s, AVG(score) AS a, VAR_POP(score) AS v, STDDEV_SAMP(score) AS d FROM users GROUP BY"
    " region", "", ("doubles",),
)  # fmt: skip
"""Judged by exact fractions: DuckDB rounds while it adds."""


class KilledError(Exception):
    """Stands for the end of a process."""


class _Runner(LocalRunner):
    """Divides work among some tasks, and ends the process after a number of them; what they wrote stays."""

    def __init__(self, parallel: int, left: int | None = None) -> None:
        super().__init__()
        self._parallel = parallel
        self.left = left

    def parallel(self, *, rows: int, state: int) -> int:
        return self._parallel

    def run(self, tasks: Sequence[Task], *, rows: int, state: int) -> list[Answer]:
        answers: list[Answer] = []
        for task in tasks:
            if self.left == 0:
                raise KilledError
            if self.left is not None:
                self.left -= 1
            answers += super().run([task], rows=rows, state=state)
        return answers


@dataclass
class _History:
    """One query over a world.

    Attributes:
        model: that judges it; None where DuckDB does.
        reduced: before-images were compacted away.
    """

    statement: Statement
    kept: Kept
    model: Model | None = None
    reduced: bool = False


@dataclass
class Played:
    """What became of a world.

    Attributes:
        wrong: a text for every history that went wrong.
    """

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def play(folder: Path, seed: int, number: int, server: ServerHandle) -> Played:
    """Plays the histories of one world, to the end or up to the batch that went wrong.

    Args:
        server: holds the tables of lookup joins.
    """
    rng = random.Random(f"{seed} {number}")
    played = Played()
    path = folder / str(number)
    path.mkdir(parents=True)
    settings: tuple[tuple[object, str, Any], ...] = (
        (store, "BUCKETS", rng.choice([1, 2, 3])),
        (state, "MOST_FILES", rng.choice([2, 3, 8])),
        (state, "WORTHWHILE_ROWS", rng.choice([1, 1 << 16])),
        (reading, "_CHUNK", rng.choice([3, 1 << 17])),
        (tasks, "_WAITING", rng.choice([5, 1 << 18])),
        (engine, "_FEW_ROWS", 1),
        (cache, "folder", lambda: path),
    )
    with _settings(settings), ExitStack() as opened:
        world = Everything(path, rng)
        people = _people(server, rng, opened) if rng.random() < LOOKUPS else None
        histories = _histories(world, rng, people, played.counts)
        for table in [*world.stores.values(), *(history.kept.store for history in histories)]:
            if rng.random() < KEPT_OPEN:
                table.keep_open()
        spark = _session() if rng.random() < COMPACTED else None
        for _ in range(rng.choice([2, 2, 3])):
            world.last.clear()
            for name in world.stores:
                if rng.random() < 0.85:
                    world.change(name, rng.randrange(0, 25))
            if people is not None:
                people.change(rng.randrange(6))
            if spark is not None:
                _compact_inputs(world, histories, spark, played.counts)
            snapshots = world.snapshots()
            for history in list(histories):
                try:
                    late = history.model.follow(world) if history.model is not None else None
                    _advance(history, rng, late, played.counts)
                    _judge(history, snapshots)
                    played.counts["batches equal"] += 1
                except Exception:  # noqa: BLE001 - whatever it is, it is told with its statement
                    told = f"world {number}: {history.statement.flink}\n{traceback.format_exc()[-3000:]}"
                    played.wrong.append(told)
                    histories.remove(history)
    shutil.rmtree(path, ignore_errors=True)
    return played


def _judge(history: _History, snapshots: duckdb.DuckDBPyConnection) -> None:
    kept = history.kept
    found = kept.last_rows() if history.reduced else kept.result()
    if history.statement is DOUBLES:
        exact = _exact(kept.world)
        assert _doubles(found) == exact, f"found {sorted(found, key=repr)}, expected {sorted(exact.items(), key=repr)}"
        return
    model = history.model
    if isinstance(model, MaterializeModel):
        expected = model.among(found)
        assert same_rows(found, expected), f"found {sorted(found, key=repr)}, expected {sorted(expected, key=repr)}"
        return
    expected = model.expected() if model is not None else snapshots.execute(history.statement.duckdb).fetchall()
    assert same_rows(found, expected), f"found {sorted(found, key=repr)}, expected {sorted(expected, key=repr)}"


def _people(server: ServerHandle, rng: random.Random, opened: ExitStack) -> People:
    """A table for lookup joins."""
    people = people_on_tablestore(server)
    opened.callback(drop_from_tablestore, server, people)  # an instance has so many tables
    opened.callback(people.destination.close)
    people.rng = rng
    return people


@contextmanager
def _settings(settings: Sequence[tuple[object, str, Any]]) -> Iterator[None]:
    """Small files, pieces and shares: what large inputs meet, in small ones."""
    before = [(where, name, getattr(where, name)) for where, name, _ in settings]
    for where, name, value in settings:
        setattr(where, name, value)
    try:
        yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)


def _histories(world: Everything, rng: random.Random, people: People | None, counts: Counter[str]) -> list[_History]:
    found: list[_History] = []
    for number in range(QUERIES):
        model: Model | None = None
        drawn, name = rng.random(), f"query{number}"
        if people is not None and drawn < 0.4:
            model = LookupModel(rng, people)
        elif drawn < 0.1:
            model = ClosingModel(rng)
        elif drawn < 0.22:
            listed = STATEMENTS[rng.choice(list(STATEMENTS))]
            statement = Statement(listed, judged(listed), ("listed",))
        elif drawn < 0.26:
            statement = DOUBLES
        elif drawn < 0.34:
            model = TemporalModel(rng)
        elif drawn < 0.46:
            model = MaterializeModel(rng)
        else:
            statement = Maker(rng).statement(rng.choice([1, 2, 2]))
        if model is not None:
            statement = Statement(model.sql, "", model.classes)
        if model is not None:
            kept = model.kept(world, name)
        else:
            kept = Kept(world, plan_query(statement.flink, more={"boxes": world.table}), name)
        counts.update({f"class {name}": 1 for name in statement.classes})
        counts["histories"] += 1
        found.append(_History(statement, kept, model))
    return found


def _advance(history: _History, rng: random.Random, late: int | None, counts: Counter[str]) -> None:
    """Runs that are killed, then one that is not, and upkeep after it.

    Args:
        late: rows of the batch that come too late, where the model tells.
    """
    kept, model = history.kept, history.model
    most = rng.choice([1 << 30, 1 << 30, 12])
    if model is not None and model.whole:
        most = 1 << 30
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        how = rng.choice(["between tasks", "before the commit", "after the commit"])
        kept.runner = _Runner(rng.choice([1, 3]), rng.randrange(5) if how == "between tasks" else None)
        try:
            with _dying(how):
                kept.advance(most_rows=most)
        except KilledError:
            counts[f"kills {how}"] += 1
    kept.runner = _Runner(rng.choice([1, 3]))
    done = kept.advance(most_rows=most)
    if late is not None and done is not None:  # otherwise a run that was killed had committed them
        assert done.late == late, f"{done.late} rows came too late, not {late}"
        counts["rows too late"] += late
    drawn = rng.random()
    head = kept.store.head() if drawn < 0.4 else None
    if head is None or not head.batch:
        return
    if kept.query.key and drawn < 0.15:
        compact(kept.store, applied_everywhere=rng.choice([0, head.batch]))
        history.reduced = True
        counts["compactions of results"] += 1
    elif kept.query.key and drawn < 0.22 and (model is None or model.rebuilds):
        inputs = {name: kept.world.stores[name] for name in kept.query.tables}
        anew = QueryStore(kept.store.uri, kept.query, any_plan=True)
        made = rebuild.rebuild(anew, inputs, runner=_Runner(1), run="test", lookups=kept.lookups)
        assert made is not None
        if model is not None:
            model.rebuilt(kept.world)
        else:
            assert made.differences == 0, f"a rebuild found {made.differences} differences"
        counts["rebuilds"] += 1
    else:
        counts["unused files deleted"] += remove_unused(kept.store, hours=0)


@contextmanager
def _dying(how: str) -> Iterator[None]:
    """Ends the process at the commit of a query's batch."""
    if how == "between tasks":
        yield
        return
    append: Callable[..., Any] = QueryStore.append

    def end(self: QueryStore, *arguments: Any, **more: Any) -> Any:
        if how == "after the commit":
            append(self, *arguments, **more)
        raise KilledError

    with mock.patch.object(QueryStore, "append", end):
        yield


_SESSIONS: list[SparkSession] = []


def _session() -> SparkSession:
    """The session of this process; it ends with it."""
    if not _SESSIONS:
        from upsert_platform.spark.session import open_session

        _SESSIONS.append(open_session({"spark.master": "local[1]"}))
    return _SESSIONS[0]


def _compact_inputs(world: World, histories: Sequence[_History], spark: SparkSession, counts: Counter[str]) -> None:
    """The job `compact` over the changelogs: it drops nothing that a query has not applied."""
    for name, source in world.stores.items():
        head = source.head()
        if head is None or not head.batch or world.rng.random() < 0.5:
            continue
        heads = [history.kept.store.head() for history in histories if name in history.kept.query.tables]
        applied = [mine.positions.offsets.get(name, {}).get(0, 0) if mine else 0 for mine in heads]
        everywhere = min(applied, default=head.batch)
        begun = [batch for batch, mine in zip(applied, heads, strict=True) if mine is not None]
        upto = min(begun, default=head.batch)
        if compaction.is_worthwhile(source, applied_everywhere=everywhere, upto=upto):
            compaction.compact(spark, source, applied_everywhere=everywhere, upto=upto)
            counts["compactions of inputs"] += 1
            if upto == head.batch and name in KEYS and name in world.last:  # no query will see superseded records
                key, _ = KEYS[name]
                world.last[name] = list({record[key]: record for record in world.last[name]}.values())


def _exact(world: World) -> dict[Any, tuple[float | None, ...]]:
    """Region to the sum, the mean, the variance and the deviation of a sample of its scores, each rounded once."""
    found: dict[Any, list[Fraction]] = {}
    for item in world.rows["users"]:
        mine = found.setdefault(item["region"], [])
        if item["score"] is not None:
            mine.append(Fraction(item["score"]))
    return {region: _moments(values) for region, values in found.items()}


def _moments(values: Sequence[Fraction]) -> tuple[float | None, ...]:
    if not values:
        return (None, None, None, None)
    total = sum(values, Fraction(0))
    squares = sum(((item - total / len(values)) ** 2 for item in values), Fraction(0))
    sample = math.sqrt(float(squares / (len(values) - 1))) if len(values) > 1 else None
    return (float(total), float(total / len(values)), float(squares / len(values)), sample)


def _doubles(found: Sequence[tuple[Any, ...]]) -> dict[Any, tuple[float | None, ...]]:
    return {region: tuple(rest) for region, *rest in found}
