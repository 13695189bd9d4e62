"""The clock of a batch: one time in every row and task, whichever of Arrow and Spark computes it."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from upsert_platform.core.plan import form_at, text_at
from upsert_platform.core.types import arrow_type, parse_type
from upsert_platform.engine import engine, store
from upsert_platform.engine.runners import LocalRunner, Runner, SparkRunner
from upsert_platform.engine.steps import evaluate
from upsert_platform.engine.tasks import Answer, Task
from upsert_platform.sql.evaluation import flink_sql, prepared
from upsert_platform.sql.functions import call
from upsert_platform.sql.native import native_form
from upsert_platform_tests.engine.world import Kept, World, plan_query, same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENTS = ["2001-09-09 01:46:40.000", "2001-12-31 23:59:59.999", "2004-02-29 00:00:00.001", "2038-01-19 03:14:08.120"]
"""No time that a clock shows today: what does not read the batch's is found out."""
FUNCTIONS: dict[str, tuple[str, Callable[[datetime], Any]]] = {
    **dict.fromkeys(
        ("NOW", "CURRENT_TIMESTAMP", "CURRENT_ROW_TIMESTAMP", "PROCTIME"), ("TIMESTAMP_LTZ(3)", lambda at: at)
    ),
    "LOCALTIMESTAMP": ("TIMESTAMP(3)", lambda at: at.replace(tzinfo=None)),
    "CURRENT_DATE": ("DATE", lambda at: date(at.year, at.month, at.day)),
    **dict.fromkeys(
        ("CURRENT_TIME", "LOCALTIME"),
        ("TIME(0)", lambda at: ((at.hour * 60 + at.minute) * 60 + at.second) * 1_000_000),
    ),
    "UNIX_TIMESTAMP": ("BIGINT", lambda at: int(at.replace(microsecond=0).timestamp())),
}
"""Flink's functions of the clock, their types, and what they give at a moment; a TIME is microseconds of the day."""


def _moment(text: str) -> tuple[datetime, int]:
    at = datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC)
    return at, (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


@pytest.mark.parametrize("text", MOMENTS)
def test_arrow_and_spark_give_the_same_moment(text: str, spark: SparkSession) -> None:
    at, now = _moment(text)
    rendered = {name: call(name, ()) for name in FUNCTIONS}
    shown = ", ".join(f"{text_at(item.sql, now)} AS {name}" for name, item in rendered.items())
    of_spark = flink_sql(spark, f"SELECT {shown} FROM RANGE(3)").toArrow()
    for name, (kind, expected) in FUNCTIONS.items():
        assert rendered[name].type == parse_type(kind)
        native = native_form(rendered[name].sql, {})
        assert native is not None, name
        of_arrow = evaluate(form_at(native, now), pa.table({"n": [1, 2, 3]}))
        assert of_arrow.type == arrow_type(parse_type(kind))
        assert of_arrow.to_pylist() == [expected(at)] * 3, name
        assert of_spark.column(name).cast(of_arrow.type).to_pylist() == [expected(at)] * 3, name


@pytest.mark.parametrize(
    "text",
    [
        "'CURRENT_TIMESTAMP()'", "'it\\'s CURRENT_DATE()'", "'a\\\\' || 'UNIX_TIMESTAMP()'", "`LOCALTIMESTAMP()`",
        "`a``CURRENT_DATE()`", "_f_UNIX_TIMESTAMP()", "UNIX_TIMESTAMP(`a`)", "CONCAT('`', 'NOW()', '`CURRENT_DATE()')",
    ],
)  # fmt: skip
def test_texts_and_names_stay(text: str) -> None:
    assert text_at(text, 0) == text
    assert text_at(f"{text} = CURRENT_DATE()", 0) == f"{text} = {text_at('CURRENT_DATE()', 0)}"


def test_what_varies_in_another_way_has_no_form() -> None:
    for name in ("RAND", "UUID"):
        assert native_form(call(name, ()).sql, {}) is None


@dataclass
class Clock:
    """The time of batches: a day and a millisecond later with each look."""

    given: list[datetime] = field(default_factory=list)

    def __call__(self) -> int:
        at, now = _moment(MOMENTS[1])
        later = timedelta(days=1, milliseconds=1) * len(self.given)
        self.given.append(at + later)
        return now + later // timedelta(milliseconds=1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(engine, "now_in_milliseconds", found)
    monkeypatch.setattr(engine, "_FEW_ROWS", 4)
    monkeypatch.setattr(store, "BUCKETS", 4)
    return found


class Twice(LocalRunner):
    """Carries out every task twice, as Spark does when a worker is lost after it."""

    def run(self, tasks: Sequence[Task], *, rows: int, state: int) -> list[Answer]:
        super().run(pickle.loads(pickle.dumps(list(tasks))), rows=rows, state=state)
        return super().run(tasks, rows=rows, state=state)


RUNNERS: dict[str, Callable[[SparkSession], Runner]] = {
    "here": lambda spark: LocalRunner(lambda: prepared(spark)),
    "workers": lambda spark: SparkRunner(lambda: prepared(spark)),
    "twice": lambda spark: Twice(lambda: prepared(spark)),
}
SPANS = "SELECT {0} AS p, MIN(a) AS a, MAX(b) AS b, MIN(c) AS c, MAX(c) AS d, {1} AS e FROM ({2}) t GROUP BY {0}"
ROWS = "SELECT page, NOW() AS a, PROCTIME() AS b, CURRENT_TIMESTAMP AS c FROM views"
QUERIES = {
    "Arrow alone": (SPANS.format("page", "NOW()", ROWS), [False]),
    "Spark first": (SPANS.format("REPEAT(UPPER(page), 1)", "NOW()", ROWS), [False, True]),
    "Spark last": (SPANS.format("page", "TIMESTAMPADD(MONTH, CHAR_LENGTH(''), NOW())", ROWS), [False, True]),
    "Spark on both sides": (
        SPANS.format("REPEAT(UPPER(page), 1)", "TIMESTAMPADD(MONTH, CHAR_LENGTH(''), NOW())", ROWS),
        [False, True],
    ),
}
"""Statements that read the clock before and after an exchange, and which kinds of stages they have."""


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("name", QUERIES)
def test_a_batch_has_one_time(name: str, runner: str, clock: Clock, spark: SparkSession, tmp_path: Path) -> None:
    sql, kinds = QUERIES[name]
    world = World(tmp_path, random.Random(name))
    kept = Kept(world, plan_query(sql), runner=RUNNERS[runner](spark))
    assert sorted({stage.needs_spark for stage in kept.store.stages()}) == kinds
    first: dict[Any, datetime] = {}
    for turn in range(2):
        world.change("views", 30)
        done = kept.advance()
        assert done is not None
        assert len(clock.given) == turn + 1
        now = clock.given[-1]
        touched = {row["page"] for row in world.last["views"]}
        touched = {page.upper() if page and "UPPER" in sql else page for page in touched}
        assert len(touched) > 2
        for page in touched:
            first.setdefault(page, now)
        # The aggregates see the rows of both batches; what stands beside them is of the batch that touched the group.
        expected = [(page, begun, now, begun, now, now) for page, begun in first.items() if page in touched]
        assert same_rows([row for row in kept.last_rows() if row[0] in touched], expected)


def test_conditions_read_the_clock_of_the_batch(clock: Clock, spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(3))
    sql = "SELECT page, COUNT(*) AS n FROM views WHERE {} GROUP BY page"
    day, second = MOMENTS[1].split(".", maxsplit=1)[0].split(" ")
    conditions = {
        f"CURRENT_DATE = DATE '{day}'": True,
        f"LOCALTIMESTAMP > TIMESTAMP '{day} {second}'": True,
        f"UNIX_TIMESTAMP() = {_moment(MOMENTS[1])[1] // 1000}": True,
        "UNIX_TIMESTAMP() % 2 = 0 AND page <> REPEAT('X', 1)": False,
    }
    world.change("views", 20)
    for number, (condition, holds) in enumerate(conditions.items()):
        clock.given.clear()
        kept = Kept(world, plan_query(sql.format(condition)), f"q{number}", LocalRunner(lambda: prepared(spark)))
        done = kept.advance()
        assert done is not None
        assert done.read == 20
        counted = world.judge(sql.format("TRUE")) if holds else []
        assert same_rows(kept.result(), counted), condition
