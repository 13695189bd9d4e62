"""Job and command `replay`: tables are corrected, or new ones written, from an earlier place of the topic."""

from __future__ import annotations

import shutil
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from upsert_platform.cli.main import main
from upsert_platform_tests.graph.stack import COLUMNS, USERS, Stack, metadata_of
from upsert_platform_tests.referee.judging import tablestore_table

pytestmark = pytest.mark.whole_runs

WIDER = COLUMNS + ", note STRING"


def send(stack: Stack, *records: tuple[int, str, str | None]) -> None:
    """Keys, names and notes."""
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    for key, name, note in records:
        noted = "" if note is None else f',"note":"{note}"'
        value = f'{{"user_id":{key},"name":"{name}","region":"r"{noted}}}'
        producer.produce(stack.topic, key=f'{{"user_id":{key}}}', value=value, partition=key % 4)
    producer.flush()


def run(stack: Stack, **config: Any) -> dg.ExecuteInProcessResult:
    job = stack.definitions().resolve_job_def("replay")
    return job.execute_in_process(run_config={"ops": {"replay_topic": {"config": config}}}, raise_on_error=False)


def notes(stack: Stack, table: str) -> dict[int, tuple[str, str | None]]:
    columns = {**USERS.columns, "note": "STRING"}
    found = tablestore_table(stack.variables, table, columns, USERS.primary_key)
    return {row[0]: (row[1], row[-1]) for row in found}


def observed(result: dg.ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
    return {
        item.asset_key.path[-1]: {name: value.value for name, value in item.metadata.items()}
        for event in result.get_asset_observation_events()
        for item in [event.asset_observation_data.asset_observation]
    }


@pytest.fixture
def serving(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Stack:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(stack.project))
    stack.declare(warehouse=None)
    return stack


def test_a_column_that_was_added_is_filled_from_the_topic_and_newer_rows_stay(serving: Stack) -> None:
    send(serving, (1, "one", "first"), (2, "two", "second"), (3, "three", None))
    assert serving.run().success
    send(serving, (2, "zwei", "newer"))
    serving.declare(warehouse=None, columns=WIDER)
    assert serving.run().success
    assert notes(serving, serving.table) == {1: ("one", None), 2: ("zwei", "newer"), 3: ("three", None)}
    shown = run(serving, table="users", dry_run=True)
    assert shown.success
    counts = {"offsets": 4, "records": 4, "rows_changed": 1, "quarantined": 0, "left_quarantine": 0}
    assert observed(shown)["users"] == {**counts, "dry_run": True, "batch": 0}
    done = run(serving, table="users")
    assert done.success
    assert observed(done)["users_serving"]["upserts"] == 1
    assert notes(serving, serving.table) == {1: ("one", "first"), 2: ("zwei", "newer"), 3: ("three", None)}
    # The next sync has nothing to write, and what it checks is right.
    assert serving.run().success
    assert serving.run("verify").success
    again = CliRunner().invoke(main, ["replay", "users", "--offset", "1:0"])
    assert (again.exit_code, "rows changed: 0" in again.output) == (0, True), again.output


def test_a_table_that_another_run_writes_is_left_to_it(serving: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upsert_platform.sync.leased.PATIENCE", timedelta(0))
    send(serving, (1, "one", "first"))
    assert serving.run().success
    serving.declare(warehouse=None, columns=WIDER)
    hop = serving.hop("users_serving")
    with closing(hop.destination), hop.destination.lease(owner="stream", duration=timedelta(seconds=30)):
        done = run(serving, table="users")
    assert done.success
    assert "users_serving" not in observed(done)
    assert notes(serving, serving.table) == {1: ("one", None)}
    assert serving.run().success
    assert notes(serving, serving.table) == {1: ("one", "first")}


def test_a_new_table_is_written_beside_the_old_one_and_goes_on_where_it_stopped(serving: Stack) -> None:
    send(serving, (1, "one", None), (2, "two", None))
    assert serving.run().success
    before = serving.serving_rows()
    new = f"{serving.table}_2"
    done = run(serving, table="users", into={"users_serving": new})
    assert done.success
    told = observed(done)["users_serving"]
    assert (told["offsets"], told["upserts"], told["compared"], told["missing"]) == (2, 2, 2, 0)
    assert list(tablestore_table(serving.variables, new, USERS.columns, USERS.primary_key)) == before
    send(serving, (2, "zwei", None), (3, "three", None))
    again = CliRunner().invoke(main, ["replay", "users", "--into", f"users_serving={new}"])
    assert again.exit_code == 0, again.output
    assert "2 offsets to read, 2 put, 0 deleted; equal, 3 keys compared" in again.output
    changelog = again.output.split("its changelog: ")[1].strip()
    assert changelog == observed(done)["users_serving"]["changelog"]
    assert serving.serving_rows() == before
    # Taken over as the manual tells, it is the table.
    serving.project.joinpath("users.sql").rename(serving.path / "declared.sql")
    (serving.project / "users.sql").write_text((serving.path / "declared.sql").read_text().replace(serving.table, new))
    shutil.move(serving.lake / "changelogs" / "users", serving.path / "old")
    shutil.copytree(changelog, serving.lake / "changelogs" / "users")
    taken_over = serving.run()
    assert taken_over.success
    assert metadata_of(taken_over, "tables", "users_serving")["batches"] == 0
    shutil.rmtree(serving.lake / "changelogs" / "users")
    shutil.move(serving.path / "old", serving.lake / "changelogs" / "users")
    serving.declare(warehouse=None)
    # Another start is another replay, which the table refuses; so is a place that is taken.
    other = CliRunner().invoke(main, ["replay", "users", "--offset", "1:0", "--into", f"users_serving={new}"])
    assert (other.exit_code, "written from another changelog" in other.output) == (1, True), other.output
    taken = run(serving, table="users", into={"users_serving": serving.table})
    assert not taken.success
    for arguments, said in (
        (["users_serving"], "read are: users"),
        (["users", "--offset", "9:1"], "has no partition 9; it has 0 to 3"),
        (["users", "--offset", "one"], "is not of the form 0:42"),
        (["users", "--timestamp", "soon"], "'soon' is not a timestamp"),
    ):
        refused = CliRunner().invoke(main, ["replay", *arguments])
        assert refused.exit_code in (1, 2)
        assert said in refused.output


def test_a_replay_into_a_new_table_that_an_earlier_version_began_goes_on(serving: Stack) -> None:
    """Its folder had the name of the new table alone."""
    send(serving, (1, "one", None), (2, "two", None))
    new = f"{serving.table}_2"
    command = ["replay", "users", "--into", f"users_serving={new}"]
    begun = CliRunner().invoke(main, command)
    assert begun.exit_code == 0, begun.output
    folder = Path(begun.output.split("its changelog: ")[1].strip())
    shutil.move(folder.parent, serving.lake / "replays" / new)
    send(serving, (3, "three", None))
    again = CliRunner().invoke(main, command)
    assert again.exit_code == 0, again.output
    assert "1 offset to read, 1 put, 0 deleted; equal, 3 keys compared" in again.output
    assert again.output.split("its changelog: ")[1].strip() == str(serving.lake / "replays" / new / "earliest")
