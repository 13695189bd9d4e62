"""Checks that look ahead and straight at the topic, and what declarations say of their severity."""

from __future__ import annotations

import time
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from upsert_platform.cli.main import main
from upsert_platform.sync.binding import bind, load
from upsert_platform_tests.graph.stack import COLUMNS, Stack, checks_of
from upsert_platform_tests.graph.test_reconcile import spoil_serving

HOUR = 3_600_000
pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.whole_runs]


def servers(stack: Stack) -> str:
    return stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]


def send(stack: Stack, *values: bytes, age: float = 0.0) -> None:
    """Records of keys 1, 2 and so on, so many hours old."""
    producer = Producer({"bootstrap.servers": servers(stack)})
    at = int(time.time() * 1000 - age * HOUR)
    for number, value in enumerate(values, 1):
        key = f'{{"user_id":{number}}}'
        producer.produce(stack.topic, key=key, value=value, partition=0, timestamp=at)
    producer.flush()


def value(key: int, name: str = "n") -> bytes:
    return f'{{"user_id":{key},"name":"{name}","region":"r"}}'.encode()


def found(stack: Stack, job: str, check: str) -> dict[str, dg.AssetCheckEvaluation]:
    """Evaluations of a check in a run of a job, by table."""
    result = stack.run(job)
    return {item.asset_key.path[-1]: item for item in result.get_asset_check_evaluations() if item.check_name == check}


def loss(stack: Stack) -> tuple[bool, str, dict[str, Any]]:
    item = found(stack, "watch", "no_unread_loss")["users"]
    return item.passed, item.severity.value, {name: told.value for name, told in item.metadata.items()}


def configure(stack: Stack, **settings: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), text, incremental_operation=AlterConfigOpType.SET)
        for name, text in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, stack.topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": servers(stack)})
    admin.incremental_alter_configs([resource])[resource].result(20)


def test_records_that_the_topic_may_delete_are_told_before_and_after(stack: Stack) -> None:
    stack.declare(warehouse=None)
    send(stack, value(1), age=20)
    nothing = {"lost": 0, "fails_soon": 0, "warned": 0}
    assert loss(stack) == (True, "WARN", nothing)  # nothing was read yet
    assert stack.run().success
    assert loss(stack) == (True, "WARN", nothing)
    send(stack, value(1), value(2), age=13)  # a compacted topic keeps deletes for a day
    assert loss(stack) == (False, "WARN", {**nothing, "warned": 2})
    stack.declare(warehouse=None, source=", 'check.no-unread-loss.warn-within' = '6 h'")
    assert loss(stack)[0]
    stack.declare(warehouse=None, source=", 'check.no-unread-loss.fail-within' = '12 h'")
    assert loss(stack) == (False, "ERROR", {**nothing, "fails_soon": 2})
    stack.declare(
        warehouse=None, source=", 'check.no-unread-loss.fail-within' = '12 h', 'check.no-unread-loss' = 'warn'"
    )
    assert loss(stack) == (False, "WARN", {**nothing, "fails_soon": 2})
    stack.declare(warehouse=None)
    configure(stack, cleanup_policy="delete", retention_ms=str(14 * HOUR))
    assert loss(stack) == (False, "ERROR", {**nothing, "fails_soon": 2})
    configure(stack, retention_ms="-1")
    assert loss(stack) == (True, "WARN", nothing)
    configure(stack, retention_ms=str(27 * HOUR))
    assert loss(stack)[0], "13 hours of 27"
    admin = AdminClient({"bootstrap.servers": servers(stack)})
    end = admin.list_offsets({TopicPartition(stack.topic, 0): _latest()})
    offset = next(iter(end.values())).result(20).offset
    admin.delete_records([TopicPartition(stack.topic, 0, offset - 1)])[TopicPartition(stack.topic, 0)].result(20)
    item = found(stack, "watch", "no_unread_loss")["users"]
    assert (item.passed, item.severity.value, item.metadata["lost"].value) == (False, "ERROR", 1)
    assert "1 offsets were deleted before they were read" in str(item.description)
    assert "upsert-platform run sync" in str(item.description)


def _latest() -> Any:
    from confluent_kafka.admin import OffsetSpec

    return OffsetSpec.latest()


def test_lake_and_tables_that_are_declared_otherwise_are_told(stack: Stack) -> None:
    assert {item.passed for item in found(stack, "watch", "schema_matches").values()} == {True}  # nothing is there yet
    send(stack, value(1))
    assert stack.run().success
    matches = found(stack, "watch", "schema_matches")
    assert {name: item.passed for name, item in matches.items()} == dict.fromkeys(
        ("users", "users_serving", "users_warehouse"), True
    )
    stack.declare(
        columns=COLUMNS.replace("user_id BIGINT", "user_id STRING"), warehouse=", 'check.schema-matches' = 'warn'"
    )
    matches = found(stack, "watch", "schema_matches")
    assert {item.passed for item in matches.values()} == {False}
    assert {name: item.severity.value for name, item in matches.items()} == {
        "users": "ERROR", "users_serving": "ERROR", "users_warehouse": "WARN",
    }  # fmt: skip
    for name, told in {
        "users": "'upsert-platform reset users --drop-target'",
        "users_serving": "is INTEGER, declared is STRING",
    }.items():
        assert told in str(matches[name].description)
    assert "user_id" in str(matches["users_warehouse"].description)


def test_the_referee_judges_tables_by_their_topic(stack: Stack) -> None:
    stack.declare(warehouse=", 'check.equals-topic' = 'off'")
    stack.produce(stack.users.first_wave(300))
    synced = stack.run()
    assert synced.success
    assert not [name for name in checks_of(synced) if name.startswith(("equals_topic", "schema", "no_unread"))]
    ((table, judged),) = found(stack, "audit", "equals_topic").items()
    assert (table, judged.passed, judged.metadata["equal_rows"].value) == ("users_serving", True, len(stack.users.rows))
    spoil_serving(stack, sorted(stack.users.rows)[:200])
    stack.declare(warehouse=", 'check.equals-topic' = 'off'", serving=", 'check.equals-topic' = 'warn'")
    judged = found(stack, "audit", "equals_topic")["users_serving"]
    counts = {name: judged.metadata[name].value for name in ("missing", "extra", "stale")}
    assert (judged.passed, judged.severity.value, counts) == (False, "WARN", dict.fromkeys(counts, 100))
    assert "'upsert-platform reconcile users_serving'" in str(judged.description)
    assert "'upsert-platform replay users'" in str(judged.description)


def test_blocking_and_counts_are_declared(stack: Stack) -> None:
    blocking = ", 'check.quarantine-below.blocking' = 'true', 'quarantine.fail-count' = '2'"
    stack.declare(warehouse=None, source=blocking, serving=", 'check.last-value-per-key.refused-fail-count' = '1'")
    send(stack, value(1), b"{broken")
    first = stack.run()
    assert (first.success, checks_of(first)["quarantine_below:users"]) == (True, False)  # a warning
    send(stack, value(1, "later"), b"{broken again")
    second = stack.run()
    assert not second.success
    assert [row[1] for row in stack.serving_rows()] == ["n"], "what is written from it was to be stopped"
    stack.declare(warehouse=None, serving=", 'check.last-value-per-key.refused-fail-count' = '1'")
    computes_a_number(stack)
    send(stack, value(1, "none"))
    third = stack.run()
    (check,) = [item for item in third.get_asset_check_evaluations() if item.check_name == "last_value_per_key"]
    assert (third.success, check.passed, check.severity.value) == (False, False, "ERROR")
    assert check.metadata["refused_rows"].value == 1
    stack.declare(
        warehouse=None,
        serving=", 'check.last-value-per-key.refused-fail-count' = '1', 'check.last-value-per-key.blocking' = 'false'",
    )
    computes_a_number(stack)
    send(stack, value(2, "none"))
    fourth = stack.run()
    assert (fourth.success, checks_of(fourth)["last_value_per_key:users_serving"]) == (True, False)


def computes_a_number(stack: Stack) -> None:
    """Declares an insert that refuses rows whose name is not a number."""
    file = stack.project / "users.sql"
    computed = "SELECT user_id, name, region, CAST(name AS DECIMAL(12, 2)), updated_at FROM users"
    file.write_text(file.read_text().replace("SELECT * FROM users", computed))


def test_what_is_declared_wrongly_is_told_with_its_place(stack: Stack) -> None:
    stack.declare(
        source=", 'check.no-unread-los' = 'warn', 'owners' = 'nobody'", serving=", 'check.equals-topic' = 'loud'"
    )
    _, problems = load(stack.project, root=str(stack.lake))
    told = [str(problem) for problem in problems if problem.severity == "error"]
    assert len(told) == 3
    assert any("unknown option 'check.no-unread-los'; did you mean 'check.no-unread-loss'?" in text for text in told)
    assert any("option 'owners' takes e-mail addresses and team:NAME, not 'nobody'" in text for text in told)
    assert any("'check.equals-topic'" in text and "users.sql:" in text for text in told)
    stack.declare(source=", 'owners' = 'team:data, ann@example.org', 'tags' = 'tier=1, gdpr'")
    binding = bind(*load(stack.project, root=str(stack.lake)))
    assert "owners" not in binding.sources["users"].table.options
    (asset,) = [item for item in stack.definitions().assets or () if item.key.path == ["changelogs", "users"]]
    assert list(asset.owners_by_key[asset.key]) == ["team:data", "ann@example.org"]
    assert {"tier": "1", "gdpr": ""}.items() <= asset.tags_by_key[asset.key].items()


@pytest.mark.soak
def test_topic_of_which_no_record_is_read_fails_its_run_until_one_is(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in stack.environment().items():
        monkeypatch.setenv(name, text)
    stack.declare(warehouse=None)
    producer = Producer({"bootstrap.servers": servers(stack)})
    for key in ("7", "8"):
        producer.produce(stack.topic, key=key, value=value(int(key)))
    producer.flush()
    for _ in range(2):  # and a run that finds nothing new fails too
        run = stack.run()
        (below,) = [item for item in run.get_asset_check_evaluations() if item.check_name == "quarantine_below"]
        assert (run.success, below.passed, below.severity.value) == (False, False, "ERROR")
        assert "none of its records can be read, 2 are in quarantine" in str(below.description)
        assert "'key.format' = 'csv' reads them" in str(below.description)
    shown = CliRunner().invoke(main, ["status", "--project", str(stack.project)])
    assert shown.exit_code == 1
    assert "table 'users' stays empty" in shown.output.replace("\n", " ")
    shown = CliRunner().invoke(main, ["sync", "--project", str(stack.project)])
    assert shown.exit_code == 1
    typed = f"--project {stack.project}"
    assert f"'upsert-platform quarantine replay users {typed}'" in shown.stdout  # commands that can be copied
    following = shown.stdout.rstrip().rpartition("\nnext: upsert-platform ")[2]
    assert following == f"quarantine list users {typed}"
    listed = CliRunner().invoke(main, following.split())
    assert (listed.exit_code, "2 records could not be decoded" in listed.output) == (0, True), listed.output
    stack.declare(warehouse=None)
    file = stack.project / "users.sql"
    file.write_text(file.read_text().replace("'key.format' = 'json'", "'key.format' = 'csv'"))
    assert CliRunner().invoke(main, ["quarantine", "replay", "users"]).exit_code == 0
    assert stack.run().success
    assert [row[0] for row in stack.serving_rows()] == [7, 8]
    shown = CliRunner().invoke(main, ["status", "--project", str(stack.project)])
    assert shown.exit_code == 0, shown.output


@pytest.mark.parametrize("changed", ["users", "users_warehouse"])
def test_sync_with_nothing_new_compares_lake_and_table_with_what_is_declared(stack: Stack, changed: str) -> None:
    stack.declare(serving=None)
    send(stack, value(1))
    assert stack.run().success
    file = stack.project / "users.sql"
    before, marker, after = file.read_text().partition("CREATE TABLE users_warehouse")
    if changed == "users":
        before = before.replace("updated_at TIMESTAMP(3)", "updated_at TIMESTAMP_LTZ(3)")
        told = "column 'updated_at' is declared as"
    else:
        after = after.replace("updated_at TIMESTAMP(3)", "updated_at TIMESTAMP(3), again STRING")
        after = after.replace("updated_at FROM", "updated_at, name FROM")
        told = "again"
    file.write_text(before + marker + after)
    run = stack.run()
    assert not run.success
    reasons = [str(event.event_specific_data) for event in run.all_events if event.is_step_failure]
    assert told in "\n".join(reasons)
