"""`upsert-platform erase` on real servers: tables, lake and history without the key, by readers of their own."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from upsert_platform.changelog.compaction import compact
from upsert_platform.changelog.upkeep import remove_unused
from upsert_platform.cli.main import main
from upsert_platform.sync import leased
from upsert_platform_tests.graph.erase_steps import STEPS, gateway_of
from upsert_platform_tests.graph.stack import COLUMNS, KEY, Stack
from upsert_platform_tests.graph.test_topics import last_values
from upsert_platform_tests.referee.judging import tablestore_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

FIRST = 7_700_000
COPY = """
CREATE TABLE users_copy ({columns}, {key}) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}-copy', 'auto.create' = 'true',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}', 'sink.delivery-guarantee' = 'at-least-once',
  'key.format' = 'json', 'value.format' = 'json', 'properties.max.request.size' = '1000'
);
INSERT INTO users_copy SELECT * FROM users;
"""
VISITS = """
CREATE TABLE visits (person STRING, visit_day INT, note STRING, PRIMARY KEY (person, visit_day) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}', 'mask.columns' = 'person, note',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}',
  'key.format' = 'json', 'value.format' = 'json'
);
"""
VISITS_COPY = """
CREATE TABLE {name} (person STRING, visit_day INT, note STRING, PRIMARY KEY (person, visit_day) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'table.name' = '{table}', 'auto.create' = 'true',
  'tablestore.endpoint' = '${{UPSERT_TABLESTORE_ENDPOINT}}',
  'tablestore.instance.name' = '${{UPSERT_TABLESTORE_INSTANCE}}',
  'tablestore.access.key.id' = '${{UPSERT_TABLESTORE_ACCESS_KEY_ID}}',
  'tablestore.access.key.secret' = '${{UPSERT_TABLESTORE_ACCESS_KEY_SECRET}}'
);
INSERT INTO {name} SELECT * FROM visits;
"""


def send_bytes(stack: Stack, records: list[tuple[bytes, bytes]]) -> None:
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    for key, value in records:
        producer.produce(stack.topic, key=key, value=value)
    producer.flush()


def send(stack: Stack, rows: dict[int, Any], *, spelled: str = '{"user_id":%d}') -> None:
    """A record a row; a bare text is the name."""
    values = {
        FIRST + number: {
            "user_id": FIRST + number,
            "region": "r",
            **({"name": told} if isinstance(told, str) else told),
        }
        for number, told in rows.items()
    }
    send_bytes(stack, [((spelled % key).encode(), json.dumps(value).encode()) for key, value in values.items()])


def cells(value: Any) -> Iterator[Any]:
    """Every scalar in a value, bytes as text."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from cells(item)
    else:
        yield value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def files_with(lake: Path, *texts: str) -> list[str]:
    """Files below a lake in which any of some texts is: in a cell, where a reader of its own decodes them, or as bytes.

    Every file, whether a table has it or not; of Parquet also what its footer tells of smallest and greatest values.
    """
    found = []
    for path in sorted(lake.rglob("*")):
        if not path.is_file():
            continue
        held = path.read_bytes()
        whole = any(text.encode() in held for text in texts)
        if path.suffix == ".parquet":
            values = (str(item) for row in pq.ParquetFile(path).read().to_pylist() for item in cells(row))
            whole = whole or any(text in item for item in values for text in texts)
        if whole:
            found.append(str(path.relative_to(lake)))
    return found


def holding(lake: Path, number: int) -> list[str]:
    """Files below a lake that hold a key, or a name of it."""
    return files_with(lake, str(FIRST + number), f"quokka{number}.")


def run_erase(
    stack: Stack, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[int, dict[str, Any], str]:
    """The command in this process: its exit code, its JSON, and all that it told."""
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(stack.project))
    with monkeypatch.context() as kept_open:
        kept_open.setattr("upsert_platform.spark.warm_session.open_session", lambda *_, **__: spark)
        kept_open.setattr(spark, "stop", lambda: None)
        done = CliRunner().invoke(main, ["erase", *arguments])
    assert isinstance(done.exception, SystemExit | None), done.exception
    read = "--json" in arguments and done.exit_code != 1
    return done.exit_code, json.loads(done.stdout) if read else {}, done.output


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
    send_bytes(stack, [(b"broken", b"{}")])  # set aside too, and nobody can tell whose it is
    assert stack.run().success
    kept = holding(stack.lake, 1)
    assert any(path.startswith("refused/users_copy/") for path in kept), kept
    assert sum(path.startswith("changelogs/users/") for path in kept) >= 3, "history, quarantine and a compaction"
    key = str(FIRST + 1)
    aside = stack.lake / "reset" / "2026-01-01T00-00-00Z"
    shutil.copytree(stack.lake / "changelogs" / "users", aside / "changelogs" / "users")
    shutil.copytree(stack.lake / "refused" / "users_copy", aside / "refused" / "users_copy")
    code, told, shown = run_erase(stack, spark, monkeypatch, "users", key, "--dry-run")
    assert code == 0
    left = [line for line in shown.splitlines() if line.startswith("would be left: ")]
    places = {f"{aside}/changelogs/users", f"{aside}/refused/users_copy"}
    assert {line.rpartition(" ")[2] for line in left} == places, shown
    assert "refused by tables: 1 row of the key" in shown
    shutil.rmtree(aside.parent)
    code, told, _ = run_erase(stack, spark, monkeypatch, "users", key, "--dry-run", "--tombstone", "--json")
    assert (code, told["elsewhere"], told["refused_rows"], told["refused_rows_unsought"]) == (0, [], 1, [])
    assert (told["rows"], told["quarantined"], told["untold_quarantined"], told["records_in_topics"]) == (3, 1, 1, 3)
    assert sorted(told["tables"]) == ["users_copy", "users_serving", "users_warehouse"]
    assert told["older_files"] >= 1
    assert holding(stack.lake, 1) == kept, "a dry run writes nothing"

    wanted = json.dumps({"user_id": FIRST + 1})
    code, told, _ = run_erase(stack, spark, monkeypatch, "users", wanted, "--tombstone", "--json")
    assert (code, told["left"], told["found"], told["refused_rows"]) == (0, [], True, 1), told
    assert told["untold_quarantined"] == 1
    assert (told["tombstones"], sorted(told["tables_read_back"])) == (
        2, ["users_copy", "users_serving", "users_warehouse"],
    )  # fmt: skip
    assert holding(stack.lake, 1) == []
    names = {row[0]: row[1] for row in stack.serving_rows()}
    assert names == {FIRST: "quokka0. first", FIRST + 2: "quokka2. second", FIRST + 3: "quokka3. first"}
    assert sorted(last_values(stack, f"{stack.topic}-copy")) == sorted(names)
    remove_unused(changelog, hours=0)  # what was deleted already is no hindrance
    assert stack.run().success, "positions are past the tombstones"
    assert holding(stack.lake, 1) == []
    verified = stack.run("verify")
    assert verified.success
    compared = [
        check.metadata["compared"].value
        for check in verified.get_asset_check_evaluations()
        if "compared" in check.metadata
    ]
    assert compared == [3, 3, 3]
    lake = stack.platform().lake
    (audited,) = _audit(lake.erasures().uri)
    hashed = f'{audited["salt"]}{{"user_id":"{FIRST + 1}"}}'
    assert (audited["table"], audited["key_hash"]) == ("users", hashlib.sha256(hashed.encode()).hexdigest())
    assert (audited["rows"], audited["refused"], audited["complete"]) == (told["rows"], 1, True)
    assert "@" in audited["by"]

    code, _, text = run_erase(stack, spark, monkeypatch, "users", key)
    assert code == 0
    assert "nothing held the key" in text
    assert "a changelog that is made anew, brings the key back" in " ".join(text.split())
    assert holding(stack.lake, 1) == []
    assert len(stack.serving_rows()) == 3


def _audit(uri: str) -> list[dict[str, Any]]:
    return [row for path in Path(uri).glob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]


@pytest.mark.soak
def test_a_key_of_two_columns_is_erased_from_two_tables_once_nobody_else_writes_them_and_not_shown_if_masked(
    stack: Stack, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = {"visits_a": f"{stack.table}_a", "visits_b": f"{stack.table}_b"}
    text = VISITS.format(topic=stack.topic)
    text += "".join(VISITS_COPY.format(name=name, table=table) for name, table in tables.items())
    (stack.project / "users.sql").write_text(text, "utf-8")
    visits = [("anna", 1), ("anna", 2), ("bert", 1)]
    records = [{"person": person, "visit_day": day, "note": f"{person}-{day}-met"} for person, day in visits]
    keys = [json.dumps({name: row[name] for name in ("person", "visit_day")}).encode() for row in records]
    send_bytes(stack, [(key, json.dumps(row).encode()) for key, row in zip(keys, records, strict=True)])
    assert stack.run().success
    kept = files_with(stack.lake, "anna-1-met")
    assert kept

    def rows() -> list[list[list[Any]]]:
        types = {"person": "STRING", "visit_day": "INT", "note": "STRING"}
        return [
            list(tablestore_table(stack.variables, table, types, ("person", "visit_day"))) for table in tables.values()
        ]

    arguments = ("visits", '{"visit_day": 1, "person": "anna"}', "--json")
    other = stack.hop("visits_b").destination
    with monkeypatch.context() as hurried, other.lease(owner="another", duration=timedelta(seconds=30)):
        hurried.setattr(leased, "PATIENCE", timedelta(seconds=1))
        code, _, told = run_erase(stack, spark, monkeypatch, *arguments)
    other.close()
    assert code == 1
    assert "has not applied the delete of the key" in " ".join(told.split())
    assert "anna" not in told
    assert set(kept) <= set(files_with(stack.lake, "anna-1-met")), "nothing is taken out of the lake"
    assert [len(found) for found in rows()] == [2, 3]

    proof = stack.lake / "proofs" / "visits_a" / "proof-1"  # it was killed: nobody removes it
    shutil.copytree(stack.lake / "changelogs" / "visits", proof / "changelogs" / "visits")
    code, done, told = run_erase(stack, spark, monkeypatch, *arguments)
    assert (code, done["rows"], sorted(done["tables_read_back"])) == (3, 1, sorted(tables))
    assert all(f"delete the folder {proof}, as job" in left for left in done["left"]), done["left"]
    assert "anna" not in told
    shutil.rmtree(proof)
    head = stack.platform().changelog_hop("visits", run="test").store.head()
    assert head is not None
    assert (head.floor, head.erased) == (0, head.batch), "the deletes of other keys are there"
    assert rows() == [[["anna", 2, "anna-2-met"], ["bert", 1, "bert-1-met"]]] * 2
    assert files_with(stack.lake, "anna-1-met") == []
    assert files_with(stack.lake, "anna-2-met") != []
    assert files_with(stack.lake, "bert-1-met") != []


@pytest.mark.soak
@pytest.mark.systems
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", [0, 1, 2])
def test_killed_at_any_step_it_ends_right_when_run_again(
    stack: Stack, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    steps = list(STEPS)[part::3]
    stack.declare(warehouse=None)
    (stack.project / "zz_copy.sql").write_text(COPY.format(columns=COLUMNS, key=KEY, topic=stack.topic), "utf-8")
    every = len(steps) + 1
    for version in ("first", "second " * 200):  # the copy refuses the second
        send(stack, {number: f"quokka{number}. {version}" for number in range(every)})
        assert stack.run().success
    send(stack, {number: {"balance": "much"} for number in range(every)}, spelled='{"user_id": %d}')
    command = [sys.executable, "-m", "upsert_platform_tests.graph.erase_steps"]
    environment = {**stack.environment(), **gateway_of(spark)}
    for number, step in enumerate(steps):
        arguments = ("users", str(FIRST + number), "--tombstone", "--json")
        killed = subprocess.run(
            [*command, step, *arguments], env=environment, capture_output=True, text=True, timeout=300
        )
        assert killed.returncode == -signal.SIGKILL, (step, killed.stdout[-2000:], killed.stderr[-4000:])
        code, told, _ = run_erase(stack, spark, monkeypatch, *arguments)
        assert (code, told["left"]) == (0, []), step
        assert holding(stack.lake, number) == [], step
        left = list(range(FIRST + number + 1, FIRST + every))
        assert [row[0] for row in stack.serving_rows()] == left, step
        assert sorted(last_values(stack, f"{stack.topic}-copy")) == left, step
    assert stack.run().success
    last = every - 1
    assert [row[0] for row in stack.serving_rows()] == [FIRST + last]
    code, told, _ = run_erase(stack, spark, monkeypatch, "users", str(FIRST + last), "--tombstone", "--json")
    assert (code, told["left"], stack.serving_rows()) == (0, [], [])
    assert holding(stack.lake, last) == []
    stack.declare()
    assert stack.run().success, "a table that is declared when everything is erased begins empty"
    assert stack.run("verify").success
