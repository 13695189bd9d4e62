"""Job sync on real servers: topic to both tables, through Dagster."""

from __future__ import annotations

import re
from collections.abc import Callable
from unittest.mock import patch

import dagster as dg
import pytest
from confluent_kafka import Producer

from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform_tests.graph.stack import Stack, checks_of, metadata_of

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.whole_runs]


def test_two_waves_make_both_tables_equal_and_nothing_new_writes_nothing(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stack.produce(stack.users.first_wave(300))
    first = stack.run()
    assert first.success
    assert stack.serving_differences() == []
    assert stack.warehouse_differences() == []
    warehouse = metadata_of(first, "tables", "users_warehouse")
    assert warehouse["deletes_unmatched"] == sum(row["region"] == "test" for row in stack.users.rows.values()) > 0
    assert warehouse["deletes_never_written"] == warehouse["deletes"] >= warehouse["deletes_unmatched"]
    observed = [event.asset_observation_data.asset_observation for event in first.get_asset_observation_events()]
    lags = [item.metadata["lag"].value for item in observed if item.asset_key.path[-1] == stack.topic]
    assert lags == [stack.users.produced, 0], "what the run has read is still shown as waiting"
    done = metadata_of(first, "changelogs", "users")
    assert done["records"] == done["rows"] + done["superseded"] == stack.users.produced
    assert checks_of(first) == {
        "offsets_accounted:users": True,
        "quarantine_below:users": True,
        "last_value_per_key:users_serving": True,
        "last_value_per_key:users_warehouse": True,
    }
    stack.produce(stack.users.second_wave(200))
    monkeypatch.setattr("upsert_platform.changelog.progress.EVERY", 0.002)  # as of a write that takes minutes
    second = stack.run()
    assert second.success
    told = capsys.readouterr().err
    for name in ("users_serving", "users_warehouse"):
        assert re.search(rf"tables__{name}  table '{name}': \d+ of at most \d+ rows in \d+ s, ", told), told
    assert stack.serving_differences() == []
    assert stack.warehouse_differences() == []
    serving = metadata_of(second, "tables", "users_serving")
    assert serving["deletes"] > serving["deletes_never_written"] == serving["deletes_unmatched"] == 0
    assert all(checks_of(second).values())

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a Spark session was asked for")

    opens = patch.object(KafkaEndpoint, "_open_admin", autospec=True, side_effect=KafkaEndpoint._open_admin)
    with monkeypatch.context() as without_spark, opens as opened:
        without_spark.setattr("upsert_platform.graph.resources.session_for_run", refuse)
        again = stack.run()
    assert opened.call_count == 1, "one connection serves all short questions of a run"
    assert again.success
    assert "records" not in metadata_of(again, "changelogs", "users"), "a run without work puts no zero into the plot"
    assert checks_of(again) == checks_of(first)
    standing = {item.check_name: item.metadata for item in again.get_asset_check_evaluations()}
    for name in ("offsets_accounted", "last_value_per_key"):
        assert (standing[name]["new"].value, standing[name]["batch"].value) == (False, 2)
    assert stack.run("verify").success


def test_failed_destination_does_not_hold_the_other(stack: Stack) -> None:
    nowhere = "'odps.tunnel.end.point' = 'http://127.0.0.1:1', 'upsert.writer.max-retries' = '0'"
    stack.declare(warehouse=f", {nowhere}")
    stack.produce(stack.users.first_wave(30))
    result = stack.run()
    assert not result.success
    assert stack.serving_differences() == []
    stack.declare()
    assert stack.run().success
    assert stack.warehouse_differences() == []


def test_backlog_is_worked_through_in_bounded_batches_and_a_later_table_starts_from_the_changelog(stack: Stack) -> None:
    stack.declare(source=", 'batch.max-records' = '100'", warehouse=None)
    stack.produce(stack.users.first_wave(400))
    result = stack.run()
    assert result.success
    done = metadata_of(result, "changelogs", "users")
    assert done["batches"] >= 4
    assert done["records"] == stack.users.produced
    assert stack.serving_differences() == []
    stack.declare()
    added = stack.run()
    assert added.success
    assert "records" not in metadata_of(added, "changelogs", "users")
    assert stack.warehouse_differences() == []


def test_malformed_records_are_quarantined_and_change_nothing(stack: Stack, make_topic: Callable[..., str]) -> None:
    # Not compacted: brokers refuse a null key there, and its whole batch.
    stack.topic = make_topic(partitions=4, name=f"{stack.topic}-kept")
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(20))
    producer = Producer(
        {"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], "partitioner": "murmur2_random"}
    )
    bad: list[tuple[bytes | None, bytes | None]] = [
        (b'{"user_id":1}', b'{"user_id":1,"name":"cut'),
        (b'{"user_id":2}', b'{"user_id":3,"name":"contradicts its key"}'),
        (b'{"user_id":"x"}', b'{"name":"no number"}'),
        (None, b'{"user_id":4,"name":"no key"}'),
        (b'{"user_id":5}', b'{"user_id":5,"updated_at":"yesterday"}'),
        (b'{"user_id":99999999999999999999}', b"{}"),
    ]
    refused: list[object] = []
    for key, value in bad:
        producer.produce(stack.topic, key=key, value=value, on_delivery=lambda error, _: refused.append(error))
    producer.flush()
    assert refused == [None] * len(bad)
    result = stack.run()
    assert result.success, result.all_events[-1]
    done = metadata_of(result, "changelogs", "users")
    assert done["quarantined"] == len(bad)
    assert stack.serving_differences() == []
    assert checks_of(result)["offsets_accounted:users"]
    told = {item.check_name: item for item in result.get_asset_check_evaluations()}["quarantine_below"]
    assert (told.passed, told.severity.value, told.metadata["in_quarantine"].value) == (False, "WARN", len(bad))
    stack.declare(warehouse=None, source=f", 'quarantine.fail-count' = '{len(bad)}', 'quarantine.fail-percent' = '50'")
    again = stack.run()
    assert again.success
    (worse,) = [item for item in again.get_asset_check_evaluations() if item.check_name == "quarantine_below"]
    assert (worse.check_name, worse.passed, worse.severity.value) == ("quarantine_below", False, "ERROR")
    assert f"fail-count' = '{len(bad)}'" in str(worse.description)
    assert "fail-percent" not in str(worse.description)


def test_corrupted_table_is_found_and_keeps_the_job_failing(stack: Stack) -> None:
    from tablestore import OTSClient, Row

    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(20))
    assert stack.run().success
    client = OTSClient(
        stack.variables["UPSERT_TABLESTORE_ENDPOINT"],
        stack.variables["UPSERT_TABLESTORE_ACCESS_KEY_ID"],
        stack.variables["UPSERT_TABLESTORE_ACCESS_KEY_SECRET"],
        stack.variables["UPSERT_TABLESTORE_INSTANCE"],
    )
    client.delete_row(stack.table, [("user_id", 1)])
    client.put_row(stack.table, Row([("user_id", 777_777)], [("name", "nobody")]))
    client.update_row(stack.table, Row([("user_id", 2)], {"PUT": [("name", "someone else")]}), None)
    found = stack.run("verify")
    assert not found.success
    verdict = found.get_asset_check_evaluations()[0]
    counts = {name: verdict.metadata[name].value for name in ("missing", "extra", "stale")}
    assert counts == {"missing": 1, "extra": 1, "stale": 1}
    idle = stack.run()
    assert not idle.success
    (told,) = [item for item in idle.get_asset_check_evaluations() if item.check_name == "last_value_per_key"]
    assert "verify" in str(told.description)
    assert not told.metadata["new"].value


def test_topic_is_observed_with_its_offsets_and_a_sensor_requests_a_sync_when_there_are_new_ones(stack: Stack) -> None:
    stack.declare(warehouse=None)
    definitions = stack.definitions()
    sensor = definitions.resolve_sensor_def("new_offsets")
    with dg.DagsterInstance.ephemeral() as instance:

        def evaluate() -> object:
            with dg.build_sensor_context(
                instance=instance, definitions=definitions, resources={"platform": stack.platform()}
            ) as context:
                return sensor.evaluate_tick(context)

        stack.produce(stack.users.first_wave(10))
        assert len(evaluate().run_requests) == 1  # type: ignore[attr-defined]
        assert stack.run(instance=instance).success
        record = instance.fetch_observations(dg.AssetKey(["topics", stack.topic]), limit=1).records[0]
        observed = record.asset_observation
        assert observed is not None
        assert observed.metadata["partitions"].value == 4
        assert sum(int(part.split(":")[1]) for part in observed.tags["dagster/data_version"].split(",")) == (
            stack.users.produced
        )
        quiet = evaluate()
        assert quiet.run_requests == []  # type: ignore[attr-defined]
        assert "no new offsets" in str(quiet.skip_message)  # type: ignore[attr-defined]
