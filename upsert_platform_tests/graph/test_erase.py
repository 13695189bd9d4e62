"""`upsert-platform erase` on real servers: tables, lake and history without the key, by readers of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from upsert_platform.changelog import erasure as lake_erasure
from upsert_platform.hops import erase as erasing
from upsert_platform.hops.binding import bind, load
from upsert_platform_tests.graph.stack import Stack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = 7_700_000


def send(stack: Stack, rows: dict[int, Any], *, spelled: str = '{"user_id":%d}') -> None:
    """A record a row; a bare text is the name."""
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    for number, told in rows.items():
        value = {"user_id": FIRST + number, "region": "r", **({"name": told} if isinstance(told, str) else told)}
        producer.produce(stack.topic, key=(spelled % (FIRST + number)).encode(), value=json.dumps(value).encode())
    producer.flush()


def cells(value: Any) -> Iterator[Any]:
    """Every scalar in a value, bytes as text."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from cells(item)
    else:
        yield value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def holding(lake: Path, number: int) -> list[str]:
    """Files below a lake that hold a key, or a name of it: all of them, live or not, by a reader of its own."""
    key, name = FIRST + number, f"quokka{number}."
    found = []
    for path in sorted(lake.rglob("*")):
        if not path.is_file():
            continue
        if path.suffix == ".parquet":
            values = (item for row in pq.ParquetFile(path).read().to_pylist() for item in cells(row))
            if any(item == key or (isinstance(item, str) and (str(key) in item or name in item)) for item in values):
                found.append(str(path.relative_to(lake)))
        elif path.suffix in (".json", ".crc") and (str(key).encode() in path.read_bytes()):
            found.append(str(path.relative_to(lake)))
    return found


def _interrupted(*_: Any, **__: Any) -> Any:
    raise RuntimeError("killed here")


def _after(step: Callable[..., Any]) -> Callable[..., Any]:
    def stepped(*arguments: Any, **named: Any) -> Any:
        step(*arguments, **named)
        raise RuntimeError("killed here")

    return stepped


STEPS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "after the delete is committed": lambda at: at.setattr(erasing, "follow", _interrupted),
    "after the tables are written": lambda at: at.setattr(erasing.Erasure, "_proven", _interrupted),
    "after the floor is raised": lambda at: at.setattr(lake_erasure, "erase_rows", _interrupted),
    "before the files are replaced": lambda at: at.setattr(
        "upsert_platform.changelog.store.ChangelogStore.replace", _interrupted
    ),
    "after the files are replaced": lambda at: at.setattr(
        lake_erasure, "erase_rows", _after(lake_erasure.erase_rows)
    ),
    "after older files are deleted": lambda at: at.setattr(erasing.Erasure, "_settle", _interrupted),
    "before it is noted": lambda at: at.setattr(erasing.Erasure, "_elsewhere", _interrupted),
}  # fmt: skip


def test_stopped_at_any_step_it_ends_right_when_run_again(
    stack: Stack, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.declare(warehouse=None)
    every = len(STEPS) + 1
    for version in ("first", "second"):
        send(stack, {number: f"quokka{number}. {version}" for number in range(every)})
        assert stack.run().success
    for number, (step, interrupt) in enumerate(STEPS.items()):
        binding = bind(*load(stack.project, root=str(stack.lake)))
        erasure = erasing.Erasure(binding, stack.platform().lake, "users", {"user_id": FIRST + number})
        with monkeypatch.context() as at:
            interrupt(at)
            with pytest.raises(RuntimeError, match="killed here"):
                erasure.run(spark, run=f"stopped-{number}", tombstone=False, tell=print)
        done = erasure.run(spark, run=f"again-{number}", tombstone=False, tell=print)
        assert done.left == []
        assert holding(stack.lake, number) == [], step
        assert [row[0] for row in stack.serving_rows()] == list(range(FIRST + number + 1, FIRST + every)), step
    assert stack.run().success
    assert [row[1] for row in stack.serving_rows()] == [f"quokka{every - 1}. second"]
