"""Faults of topics and destinations in a whole run: its step says what happened, and nothing is written over it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform_tests.graph.stack import Stack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

SECRET = "not-the-secret-of-anybody"


def failures(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    """Step to the text that a user reads."""
    return {
        str(event.step_key): (event.step_failure_data.user_failure_data.description or "")
        for event in result.get_step_failure_events()
        if event.step_failure_data.user_failure_data is not None
    }


def refused(stack: Stack, text: str) -> None:
    """A run fails in the changelog's step with the text, and commits nothing."""
    before = stack.platform().changelog_hop("users", run="test").store.head()
    result = stack.run()
    assert not result.success
    assert text in failures(result)["changelogs__users"]
    assert stack.platform().changelog_hop("users", run="test").store.head() == before


def remove(stack: Stack, *, records: bool = False) -> None:
    """Removes the topic, or all of its records as retention would."""
    from confluent_kafka import OFFSET_END, TopicPartition
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    with KafkaEndpoint(stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]).admin() as admin:
        if records:
            policy = ConfigEntry("cleanup.policy", "compact,delete", incremental_operation=AlterConfigOpType.SET)
            topic = ConfigResource(ConfigResource.Type.TOPIC, stack.topic, incremental_configs=[policy])
            admin.client.incremental_alter_configs([topic])[topic].result(30)
            places = [TopicPartition(stack.topic, number, OFFSET_END) for number in range(4)]
            for future in admin.client.delete_records(places).values():
                future.result(30)
            return
        admin.client.delete_topics([stack.topic])[stack.topic].result(30)
        deadline = time.monotonic() + 20
        while admin.topics(stack.topic).topics[stack.topic].error is None and time.monotonic() < deadline:
            time.sleep(0.1)


@pytest.mark.usefixtures("spark")
def test_faults_of_a_topic_stop_a_run_before_it_commits(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(10))
    result = stack.run()
    assert result.success
    (written,) = result.asset_materializations_for_node("changelogs__users")
    tags = written.tags or {}
    assert tags[f"dagster/input_data_version/topics/{stack.topic}"] == tags["dagster/data_version"], "shown as unsynced"
    with monkeypatch.context() as patched:
        patched.setenv("UPSERT_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9")
        patched.setattr("upsert_platform.kafka.endpoint.REQUEST_SECONDS", 1.0)
        refused(stack, "127.0.0.1:9")
    stack.produce(stack.users.second_wave(40))
    remove(stack, records=True)
    refused(stack, "were deleted before they were read")
    remove(stack)
    refused(stack, "does not exist on")
    stack.produce([(b'{"user_id":1}', b'{"user_id":1,"name":"anew"}')])
    refused(stack, "was deleted and created anew")


def test_faults_of_destinations_are_told_and_show_no_secret(
    spark: SparkSession, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tablestore import CapacityUnit, OTSClient, ReservedThroughput, TableMeta, TableOptions

    client = OTSClient(
        stack.variables["UPSERT_TABLESTORE_ENDPOINT"],
        stack.variables["UPSERT_TABLESTORE_ACCESS_KEY_ID"],
        stack.variables["UPSERT_TABLESTORE_ACCESS_KEY_SECRET"],
        stack.variables["UPSERT_TABLESTORE_INSTANCE"],
    )
    foreign = TableMeta(stack.table, [("name", "STRING")])
    client.create_table(foreign, TableOptions(), ReservedThroughput(CapacityUnit(0, 0)))
    monkeypatch.setenv("UPSERT_MAXCOMPUTE_ACCESS_KEY", SECRET)
    stack.produce(stack.users.first_wave(10))
    result = stack.run()
    assert not result.success
    told = failures(result)
    assert set(told) == {"tables__users_serving", "tables__users_warehouse"}
    assert "differs from its declaration" in told["tables__users_serving"]
    assert "name" in told["tables__users_serving"]
    assert "odps.access.key" in told["tables__users_warehouse"]
    assert SECRET not in str([event.event_specific_data for event in result.all_events])
    client.delete_table(stack.table)
    monkeypatch.setenv("UPSERT_MAXCOMPUTE_ACCESS_KEY", stack.variables["UPSERT_MAXCOMPUTE_ACCESS_KEY"])
    monkeypatch.setenv("UPSERT_TABLESTORE_ACCESS_KEY_SECRET", SECRET)
    again = stack.run()
    assert set(failures(again)) == {"tables__users_serving"}
    assert "tablestore.access.key" in failures(again)["tables__users_serving"]
    assert SECRET not in str([event.event_specific_data for event in again.all_events])
    assert stack.warehouse_differences() == []
    monkeypatch.setenv("UPSERT_TABLESTORE_ACCESS_KEY_SECRET", stack.variables["UPSERT_TABLESTORE_ACCESS_KEY_SECRET"])
    assert stack.run().success
    assert stack.serving_differences() == []


def test_a_table_that_is_gone_fails_verify_and_is_filled_again_loudly(
    spark: SparkSession, stack: Stack, capfd: pytest.CaptureFixture[str]
) -> None:
    from tablestore import CapacityUnit, OTSClient, ReservedThroughput, TableMeta, TableOptions

    stack.declare(warehouse=None)
    client = OTSClient(
        stack.variables["UPSERT_TABLESTORE_ENDPOINT"],
        stack.variables["UPSERT_TABLESTORE_ACCESS_KEY_ID"],
        stack.variables["UPSERT_TABLESTORE_ACCESS_KEY_SECRET"],
        stack.variables["UPSERT_TABLESTORE_INSTANCE"],
    )
    stack.produce(stack.users.first_wave(10))
    assert stack.run().success
    client.delete_table(stack.table)
    verdict = stack.run("verify").get_asset_check_evaluations()[0]
    assert not verdict.passed
    assert "is gone" in str(verdict.description)
    meta = TableMeta(stack.table, [("user_id", "INTEGER")])
    client.create_table(meta, TableOptions(), ReservedThroughput(CapacityUnit(0, 0)))
    verdict = stack.run("verify").get_asset_check_evaluations()[0]
    assert not verdict.passed
    assert "was dropped and made anew" in str(verdict.description)
    capfd.readouterr()
    assert stack.run().success
    assert "was dropped and made anew" in capfd.readouterr().err
    assert stack.serving_differences() == []
    assert stack.run("verify").success
