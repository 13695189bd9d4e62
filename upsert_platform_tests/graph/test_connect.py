"""Kafka Connect configurations through job sync: the catalogue of the connector, read back by the vendor's client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import dagster as dg
import pytest

from upsert_platform_tests.graph.connector_cases import CASES, CONNECTORS, POINTS
from upsert_platform_tests.graph.connectors import Case, Connectors, Sent
from upsert_platform_tests.graph.stack import Stack

pytestmark = pytest.mark.whole_runs

SERIES_OFFSET = {rule: offset for offset, (rule, *_) in enumerate(POINTS)}
DIRTY_POINTS = 8
PASSED = {"missing": 0, "extra": 0, "stale": 0}


@pytest.fixture(scope="module")
def synced(
    spark: object,
    variables: Mapping[str, str],
    make_topic: Callable[..., str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Connectors, dg.ExecuteInProcessResult]]:
    """Every connector of the catalogue, after one sync."""
    stack = Stack(tmp_path_factory.mktemp("connect"), variables, "unused")
    stack.project.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        connectors = Connectors(stack, make_topic)
        connectors.declare(CONNECTORS)
        series = [Sent("ignored", value) for _, value, _, _ in POINTS]
        connectors.of["series"].sent += series
        connectors.of["millis"].sent += [Sent(None, {"ds": "h", "ts": 1_700_000_000_123, "f": 1})]
        connectors.of["generated"].sent += [Sent({"pk0": "k"}, {"A": n}) for n in (1, 2)]
        connectors.of["search"].sent += [Sent(None, "v", timestamp=1_700_000_000_000)]
        connectors.prepare(CASES)
        yield connectors, connectors.sync()


def test_the_sync_succeeds_and_every_check_passes(synced: tuple[Connectors, dg.ExecuteInProcessResult]) -> None:
    connectors, result = synced
    assert result.success, [event.event_specific_data for event in result.all_events if event.is_failure]
    checked = {item.asset_key.path[-1]: item for item in result.get_asset_check_evaluations()}
    for connector in connectors.of.values():
        if connector.name == "generated":
            continue
        found = checked[connector.asset]
        # Nothing differs; rows that were kept aside are warned of.
        assert (found.passed, found.severity.value) == (not connectors.refused(connector.name), "WARN")
        assert {name: found.metadata[name].value for name in PASSED} == PASSED
        assert found.metadata["compared"].value


@pytest.mark.parametrize("case", CASES, ids=str)
def test_8(synced: tuple[Connectors, dg.ExecuteInProcessResult], case: Case) -> None:
    connectors, _ = synced
    rows = connectors.rows(case.sink)
    offsets = connectors.offsets[str(case)]
    key = case.key if case.key is not None else (f"{connectors.of[case.sink].topic}_0", offsets[-1])
    assert rows.get(key) == case.row
    refused = connectors.refused(case.sink)
    kept_aside = [offset for offset in offsets if offset in refused]
    assert len(kept_aside) == case.dirty
    assert all(refused[offset]["reason"] for offset in kept_aside)


def test_nothing_else_is_in_the_tables_and_every_dirty_record_is_in_the_lake(
    synced: tuple[Connectors, dg.ExecuteInProcessResult],
) -> None:
    connectors, _ = synced
    for name in {case.sink for case in CASES}:
        cases = [case for case in CASES if case.sink == name]
        assert len(connectors.rows(name)) == sum(case.row is not None for case in cases), name
        assert len(connectors.refused(name)) == sum(case.dirty for case in cases), name


def test_1_1_the_group_of_the_connector_shows_that_there_is_no_lag(
    synced: tuple[Connectors, dg.ExecuteInProcessResult],
) -> None:
    from confluent_kafka import Consumer, TopicPartition

    connectors, _ = synced
    servers = connectors.stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]
    for name in ("put_none", "series"):
        connector = connectors.of[name]
        consumer = Consumer({"bootstrap.servers": servers, "group.id": f"connect-{name}"})
        place = TopicPartition(connector.topic, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=10)
        (committed,) = consumer.committed([place], timeout=10)
        consumer.close()
        assert committed.offset == end > 0


def test_38_generated_keys_are_new_rows(synced: tuple[Connectors, dg.ExecuteInProcessResult]) -> None:
    rows = synced[0].rows("generated")
    assert sorted(cells["A"] for cells in rows.values()) == ["1", "2"]
    assert len({key[1] for key in rows}) == 2


def test_72_search_mode(synced: tuple[Connectors, dg.ExecuteInProcessResult]) -> None:
    import hashlib

    topic = synced[0].of["search"].topic
    digest = hashlib.md5(f"{topic}_0_0".encode(), usedforsecurity=False).hexdigest()[:5]
    assert synced[0].rows("search") == {(digest, topic, 0, 0): {"value": "v", "timestamp": 1_700_000_000_000}}


def test_74_to_82_time_series(synced: tuple[Connectors, dg.ExecuteInProcessResult]) -> None:
    connectors, _ = synced
    assert connectors.points("series") == {key: fields for _, _, key, fields in POINTS if key is not None}
    refused = connectors.refused("series")
    assert len(refused) == DIRTY_POINTS
    assert "quotation mark or '='" in refused[SERIES_OFFSET["82"]]["reason"]
    topic = connectors.of["millis"].topic
    assert connectors.points("millis") == {(topic, "h", (), 1_700_000_000_123_000): {"f": 1.0}}


def test_67_a_record_is_kept_aside_whole(synced: tuple[Connectors, dg.ExecuteInProcessResult]) -> None:
    connectors, _ = synced
    (offset,) = connectors.offsets["1.4-broken-put_none"]
    stored = connectors.refused("put_none")[offset]
    import base64

    assert base64.b64decode(stored["value"]) == b'{"A":'
    assert base64.b64decode(stored["key"]) == b'{"pk0": "1.4 broken"}'
    assert stored["error"] == "UndecodableError"


def test_90_a_second_sync_finds_nothing_to_do_and_all_rows_are_verified(
    synced: tuple[Connectors, dg.ExecuteInProcessResult], tmp_path: Path
) -> None:
    connectors, _ = synced
    standing = connectors.sync().get_asset_check_evaluations()
    assert standing
    assert not any(item.metadata["new"].value for item in standing if "new" in item.metadata)
    assert all(item.passed or item.severity is dg.AssetCheckSeverity.WARN for item in standing)  # of refused rows
