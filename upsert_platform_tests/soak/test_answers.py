"""Garbage in the place of every answer of every server: a write ends well or says why, and the next makes it good."""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from upsert_platform.core.destination import Destination
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.table import read_maxcompute_table
from upsert_platform.tablestore.destination import TablestoreDestination
from upsert_platform_tests.local.maxcompute.server import ServerHandle as MaxComputeServer
from upsert_platform_tests.local.tablestore.server import ServerHandle as TablestoreServer
from upsert_platform_tests.maxcompute.conftest import options_for
from upsert_platform_tests.maxcompute.declare import declare
from upsert_platform_tests.referee.judging import maxcompute_table, tablestore_table, told
from upsert_platform_tests.soak.garbling import GARBAGE, Garbler, garbler
from upsert_platform_tests.soak.partition_kills import open_sessions, written_sessions
from upsert_platform_tests.soak.written_batches import COLUMNS, Batches
from upsert_platform_tests.tablestore.declared import table_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2700)]

CREATES_SESSION = ("TableCreateWriteSession", "POST #/upserts")
"""Calls that open a write session. One whose answer nobody could read holds nothing, and ends by itself."""
ANSWER_SECONDS = 1
"""How long clients wait for an answer."""
SHARES = {"upsert by storage": 1.0, "upsert by tunnel": 0.6, "insert by storage": 0.4}
"""How many of the cases of an operation one campaign does: they share most calls, and another seed does others."""
OPERATIONS: Mapping[str, Mapping[str, str]] = {
    "upsert by storage": {"sink.operation": "upsert"},
    "upsert by tunnel": {"sink.operation": "upsert", "write.api": "tunnel"},
    "insert by storage": {"sink.operation": "insert"},
}


def test_tablestore_answers(
    tablestore: TablestoreServer, variables: Mapping[str, str], spark: SparkSession, seed: int, scale: float
) -> None:
    with garbler(int(tablestore.endpoint.rsplit(":", 1)[1])) as proxy:
        name = f"answers_{uuid.uuid4().hex[:8]}"
        waits = {
            "request.timeout": f"{ANSWER_SECONDS} s",
            "retry.deadline": "4 s",
            "tablestore.endpoint": proxy.endpoint,
        }
        table = table_on(tablestore, {**COLUMNS, "id": "BIGINT NOT NULL"}, ["id"], waits, name=name)
        _campaign(
            proxy, spark, Batches(f"tablestore {seed}"), lambda: TablestoreDestination(table),
            lambda: tablestore_table(variables, table.table_name, COLUMNS, ["id"]), scale,
        )  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS)
def test_maxcompute_answers(
    operation: str,
    maxcompute: MaxComputeServer,
    variables: Mapping[str, str],
    spark: SparkSession,
    seed: int,
    scale: float,
) -> None:
    open_before = open_sessions(maxcompute)
    with garbler(maxcompute.port) as proxy:
        name = f"answers_{uuid.uuid4().hex[:8]}"
        upserts = OPERATIONS[operation]["sink.operation"] == "upsert"
        options = {
            **options_for(maxcompute, name),
            "odps.end.point": proxy.endpoint,
            "auto.create": "true",
            "request.timeout": f"{ANSWER_SECONDS} s",
            **({"upsert.write.bucket.num": "2"} if upserts else {}),
            **OPERATIONS[operation],
        }
        table, problems = read_maxcompute_table(declare(COLUMNS, key=["id"] if upserts else (), options=options))
        assert table is not None, problems
        checked = table
        struck = _campaign(
            proxy, spark, Batches(f"{operation} {seed}", appends=not upserts), lambda: MaxComputeDestination(checked),
            lambda: maxcompute_table(variables, name, COLUMNS), scale * SHARES[operation],
        )  # fmt: skip
    assert written_sessions(maxcompute) == 0
    assert open_sessions(maxcompute) - open_before <= sum(struck[call] for call in CREATES_SESSION)


def _campaign(
    proxy: Garbler,
    spark: SparkSession,
    batches: Batches,
    opened: Callable[[], Destination],
    rows: Callable[[], Iterator[list[Any]]],
    scale: float,
) -> Counter[str]:
    """Every kind of garbage in the place of the answer of every call that a write makes, each in a batch of its own.

    Returns:
        How many answers of each call were spoiled.
    """
    batches.write_at_last(spark, opened, 1)
    proxy.calm()
    batches.write_at_last(spark, opened, 2)
    seen = Counter(proxy.calls)
    chance = random.Random(batches.seed)
    cases = [(call, kind, chance.choice((0, seen[call] - 1))) for call in seen for kind in GARBAGE]
    cases = sorted(chance.sample(cases, max(len(seen), round(len(cases) * scale))))
    outcomes: Counter[str] = Counter()
    struck: Counter[str] = Counter()
    wrong: list[str] = []
    started = time.monotonic()
    for batch, (call, kind, skip) in enumerate(cases, start=3):
        destination = opened()
        proxy.spoil(call, GARBAGE[kind], skip=skip)
        try:
            batches.write(spark, destination, batch)
            outcome = "written" if proxy.struck else "not met"
        except UpsertPlatformError as error:
            outcome = "told"
            assert str(error)
        except Exception as error:  # noqa: BLE001 - what no user should see is what is looked for
            outcome = "raw error"
            wrong.append(f"{call} #{skip}, {kind}: {type(error).__name__}: {str(error)[:200]}")
        finally:
            struck[call] += proxy.struck
            proxy.calm()
            destination.close()
        outcomes[outcome] += 1
        outcomes[f"{kind}: {outcome}"] += 1
        try:
            batches.write_at_last(spark, opened, batch)
        except UpsertPlatformError as error:
            wrong.append(f"{call} #{skip}, {kind}: the next run cannot go on: {str(error)[:300]}")
            break
        wrong += [f"{call} #{skip}, {kind} ({outcome}): {line}" for line in told(batches.judge(rows(), batch))[:3]]
        print(f"{time.monotonic() - started:.0f} s: {call} #{skip}, {kind}: {outcome}, {len(wrong)} wrong", flush=True)  # noqa: T201
    for name, count in sorted(outcomes.items()):
        print(f"{count:>6} {name}")  # noqa: T201
    print(f"{len(cases)} cases of {len(seen)} calls in {time.monotonic() - started:.0f} s: {dict(seen)}")  # noqa: T201
    print(*wrong, sep="\n")  # noqa: T201
    assert wrong == []
    return struck
