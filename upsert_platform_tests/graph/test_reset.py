"""`upsert-platform reset`: what it shows and leaves alone, with and without --drop-target, and what it refuses."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from upsert_platform.cli.main import main
from upsert_platform.sync import leased
from upsert_platform_tests.graph.stack import Stack

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.whole_runs]


@pytest.fixture
def synced(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """A table of two rows in Tablestore, made from a topic of two keys."""
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    stack.declare(warehouse=None)
    send(stack, {1: "one", 2: "two"})
    assert stack.run().success
    assert names(stack) == {1: "one", 2: "two"}
    return stack


def send(stack: Stack, users: dict[int, str | None]) -> None:
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    for key, name in users.items():
        value = None if name is None else json.dumps({"user_id": key, "name": name})
        producer.produce(stack.topic, key=json.dumps({"user_id": key}), value=value, partition=0)
    producer.flush()


def lose_first_record(stack: Stack) -> None:
    admin = AdminClient({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, stack.topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
    for future in admin.delete_records([TopicPartition(stack.topic, 0, 1)]).values():
        future.result(30)


def names(stack: Stack) -> dict[int, str]:
    return {row[0]: row[1] for row in stack.serving_rows()}


def applied(stack: Stack) -> int:
    hop = stack.hop("users_serving")
    try:
        return hop.destination.state().applied_batch
    finally:
        hop.destination.close()


def files(stack: Stack) -> set[str]:
    return {str(path.relative_to(stack.lake)) for path in stack.lake.rglob("*.parquet")}


def reset(*words: str) -> Result:
    return CliRunner().invoke(main, ["reset", *words])


def test_dry_run_shows_what_would_happen_and_changes_nothing(synced: Stack) -> None:
    before = (files(synced), names(synced), applied(synced))
    shown = reset("users", "--drop-target", "--dry-run")
    assert shown.exit_code == 0, shown.output
    assert "changelog of users (up to batch 1): goes aside" in shown.stdout
    assert "held batch 1; would be dropped, and is written again" in shown.stdout
    assert shown.stdout.splitlines()[-1] == "nothing was changed: --dry-run"
    told: dict[str, Any] = json.loads(reset("users", "--drop-target", "--dry-run", "--json").stdout)
    assert told["dry_run"]
    assert [(item["kind"], item["name"], item["moved"]) for item in told["lake"]] == [("changelog", "users", "")]
    assert [(item["name"], item["applied"], item["drops"]) for item in told["tables"]] == [("users_serving", 1, True)]
    assert (files(synced), names(synced), applied(synced)) == before


def test_rows_stay_until_the_next_sync_and_reconcile_deletes_what_the_topic_does_not_have(synced: Stack) -> None:
    lose_first_record(synced)
    send(synced, {3: "three"})
    done = reset("users")
    assert done.exit_code == 0, done.output
    first, second = done.stdout.splitlines()[-2:]
    assert first == "next: upsert-platform sync"
    assert second.startswith("then, to delete rows whose keys 'users' does not have: upsert-platform reconcile ")
    assert (names(synced), applied(synced)) == ({1: "one", 2: "two"}, 0)
    assert any(path.startswith("reset/") for path in files(synced))
    assert not any(path.startswith("changelogs/users/") for path in files(synced))
    assert synced.run().success
    assert names(synced) == {1: "one", 2: "two", 3: "three"}, "the topic has lost key 1"
    command = second.rpartition("upsert-platform ")[2].split()
    assert CliRunner().invoke(main, command).exit_code == 0
    assert names(synced) == {2: "two", 3: "three"}


def test_dropped_table_is_created_again_by_the_next_sync(synced: Stack) -> None:
    done = reset("users_serving", "--drop-target")
    assert done.exit_code == 0, done.output
    assert "dropped, and is written again" in done.stdout
    assert any(path.startswith("changelogs/users/") for path in files(synced)), "the changelog of a table that is read"
    assert synced.run().success
    assert (names(synced), applied(synced)) == ({1: "one", 2: "two"}, 1)


@pytest.mark.parametrize("damage", ["a commit is gone", "a commit is empty", "a move was killed"])
def test_a_table_whose_log_is_damaged_is_built_anew(synced: Stack, damage: str) -> None:
    log = synced.lake / "changelogs" / "users" / "_delta_log"
    commits = sorted(log.glob("*.json"))
    if damage == "a commit is gone":
        commits[0].unlink()
    elif damage == "a commit is empty":
        commits[-1].write_bytes(b"")
    else:
        for file in log.iterdir():
            file.unlink()
    shown = reset("users", "--drop-target", "--dry-run")
    assert f"changelog of users: goes aside: {log.parent}" in shown.stdout, shown.output
    done = reset("users", "--drop-target")
    assert done.exit_code == 0, done.output
    assert not log.parent.exists()
    assert any(path.startswith("reset/") for path in files(synced))
    assert synced.run().success
    assert (names(synced), applied(synced)) == ({1: "one", 2: "two"}, 1)


@pytest.mark.parametrize(
    ("declared", "words", "message"),
    [
        ({}, ["nothing"], "no insert reads or writes a table 'nothing'; there are: users, users_serving"),
        ({"source": ", 'scan.startup.mode' = 'latest-offset'"}, ["users"], "declare 'earliest-offset' or 'timestamp'"),
        ({"serving": ", 'auto.create' = 'false'"}, ["users", "--drop-target"], "auto.create"),
    ],
)
def test_what_would_lose_rows_is_refused_and_changes_nothing(
    synced: Stack, declared: dict[str, str], words: list[str], message: str
) -> None:
    before = (files(synced), names(synced), applied(synced))
    if "serving" in declared:
        file: Path = synced.project / "users.sql"
        file.write_text(file.read_text().replace("'auto.create' = 'true'", "'auto.create' = 'false'"))
    elif declared:
        synced.declare(warehouse=None, **declared)
    done = reset(*words)
    assert done.exit_code == 1
    assert message in done.stderr
    assert (files(synced), names(synced), applied(synced)) == before


def test_table_that_is_being_written_is_left_alone(synced: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leased, "PATIENCE", timedelta(seconds=1))
    before = (files(synced), names(synced), applied(synced))
    hop = synced.hop("users_serving")
    with hop.destination.lease(owner="a run", duration=timedelta(minutes=1)):
        done = reset("users", "--drop-target")
    hop.destination.close()
    assert done.exit_code == 1
    assert "a run" in done.stderr
    assert (files(synced), names(synced), applied(synced)) == before
