"""`upsert-platform erase` on real servers: tables, lake and history without the key, by readers of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from upsert_platform.changelog import erasure as lake_erasure
from upsert_platform.changelog.compaction import compact
from upsert_platform.cli.main import main
from upsert_platform.hops import erase as erasing
from upsert_platform.hops.binding import bind, load
from upsert_platform.hops.erasures import was_erased
from upsert_platform_tests.graph.stack import COLUMNS, KEY, Stack
from upsert_platform_tests.graph.test_topics import last_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = 7_700_000
COPY = """
CREATE TABLE users_copy ({columns}, {key}) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}-copy', 'auto.create' = 'true',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}', 'sink.delivery-guarantee' = 'at-least-once',
  'key.format' = 'json', 'value.format' = 'json', 'properties.max.request.size' = '1000'
);
INSERT INTO users_copy SELECT * FROM users;
"""


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


def erase(stack: Stack, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, Any]:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(stack.project))
    with monkeypatch.context() as kept_open:
        kept_open.setattr("upsert_platform.jvm.session.open_session", lambda **_: spark)
        kept_open.setattr(spark, "stop", lambda: None)
        done = CliRunner().invoke(main, ["erase", *arguments])
    return done.exit_code, json.loads(done.stdout) if "--json" in arguments and done.exit_code in (
        0,
        3,
    ) else done.output


def test_an_erased_key_is_in_no_table_and_in_no_file_of_the_lake(
    stack: Stack, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.declare()
    (stack.project / "zz_copy.sql").write_text(COPY.format(columns=COLUMNS, key=KEY, topic=stack.topic), "utf-8")
    send(stack, {number: f"quokka{number}. first" for number in range(4)})
    assert stack.run().success
    changelog = stack.platform().changelog_hop("users", run="test").store
    compact(spark, changelog, applied_everywhere=1)
    send(stack, {1: f"quokka1. {'long ' * 400}", 2: "quokka2. second"})
    send(stack, {1: {"name": "quokka1.", "balance": "much"}}, spelled='{"user_id": %d}')  # set aside
    assert stack.run().success
    kept = holding(stack.lake, 1)
    assert any(path.startswith("refused/users_copy/") for path in kept), kept
    assert sum(path.startswith("changelogs/users/") for path in kept) >= 3, "history, quarantine and a compaction"
    code, told = erase(stack, spark, monkeypatch, "users", str(FIRST + 1), "--dry-run", "--tombstone", "--json")
    assert code == 0
    assert (told["rows"], told["quarantined"], told["records_in_topics"]) == (3, 1, 3)
    assert sorted(told["tables"]) == ["users_copy", "users_serving", "users_warehouse"]
    assert told["older_files"] >= 1
    assert holding(stack.lake, 1) == kept, "a dry run writes nothing"

    code, told = erase(stack, spark, monkeypatch, "users", json.dumps({"user_id": FIRST + 1}), "--tombstone", "--json")
    assert (code, told["left"], told["refused_rows"]) == (0, [], 1), told
    assert (told["tombstones"], sorted(told["tables_read_back"])) == (
        2, ["users_copy", "users_serving", "users_warehouse"],
    )  # fmt: skip
    assert holding(stack.lake, 1) == []
    assert [row[0] for row in stack.serving_rows()] == [FIRST, FIRST + 2, FIRST + 3]
    assert FIRST + 1 not in last_values(stack, f"{stack.topic}-copy")
    names = {row[0]: row[1] for row in stack.serving_rows()}
    assert names == {FIRST: "quokka0. first", FIRST + 2: "quokka2. second", FIRST + 3: "quokka3. first"}
    again = stack.run()
    assert again.success, "positions are past the tombstones"
    assert holding(stack.lake, 1) == []
    verified = stack.run("verify")
    assert verified.success
    for check in verified.get_asset_check_evaluations():
        if "compared" in check.metadata:
            assert check.metadata["compared"].value == 3
    lake = stack.platform().lake
    assert len(was_erased(lake, "users", {"user_id": FIRST + 1})) == 1
    assert was_erased(lake, "users", {"user_id": FIRST + 2}) == []
    (audited,) = _audit(lake.erasures().uri)
    assert (audited["rows"], audited["complete"]) == (told["rows"], True)
    assert "@" in audited["by"]


def _audit(uri: str) -> list[dict[str, Any]]:
    return [row for path in Path(uri).glob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]


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
