"""The sensor waits for enough records, and leaves out tables that fail, on real servers."""

from __future__ import annotations

import re
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import dagster as dg
import pytest

from upsert_platform.graph import tables_behind
from upsert_platform.kafka import endpoint
from upsert_platform.local.process import free_port
from upsert_platform.sync.looks import Asked, Look, Looks
from upsert_platform.tablestore.destination import TablestoreDestination
from upsert_platform_tests.graph.stack import Stack

NOWHERE = ", 'odps.tunnel.end.point' = 'http://127.0.0.1:1', 'upsert.writer.max-retries' = '0'"
pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.whole_runs]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


@pytest.fixture
def look(stack: Stack, instance: dg.DagsterInstance) -> Callable[[], Any]:
    """A look of the sensor, with what it remembers of the one before, whatever is declared by now."""
    remembered: list[str | None] = [None]

    def tick() -> Any:
        definitions = stack.definitions()
        with dg.build_sensor_context(
            instance=instance,
            cursor=remembered[0],
            definitions=definitions,
            resources={"platform": stack.platform()},
        ) as context:
            found = definitions.resolve_sensor_def("new_offsets").evaluate_tick(context)
        remembered[0] = found.cursor
        return found

    return tick


def follow(stack: Stack, instance: dg.DagsterInstance, found: Any) -> bool:
    """Runs what a look asked for; whether it succeeded."""
    (request,) = found.run_requests
    job = stack.definitions().resolve_job_def("sync")
    chosen = request.asset_selection
    result = job.execute_in_process(instance=instance, asset_selection=chosen, raise_on_error=False)
    return result.success


def test_few_records_wait_for_more_but_not_for_ever(stack: Stack, look: Callable[[], Any]) -> None:
    def declare(wait: str) -> None:
        stack.declare(warehouse=None, source=f", 'sync.min-records' = '5', 'sync.max-wait' = '{wait}'")

    declare("1 h")
    stack.produce([(b'{"user_id":1}', b'{"user_id":1}')] * 4)
    assert "4 records wait for more" in look().skip_message
    time.sleep(1.1)
    declare("1 s")  # it remembers since when they wait
    assert len(look().run_requests) == 1
    declare("1 h")
    assert look().run_requests == []
    stack.produce([(b'{"user_id":1}', b'{"user_id":1}')])
    assert len(look().run_requests) == 1


def test_a_table_that_fails_backs_off_alone(
    stack: Stack, look: Callable[[], Any], instance: dg.DagsterInstance
) -> None:
    serving, warehouse = (dg.AssetKey(["tables", name]) for name in ("users_serving", "users_warehouse"))
    stack.declare(warehouse=f"{NOWHERE}, 'sync.retry-after' = '1 h'")
    stack.produce(stack.users.first_wave(20))
    assert not follow(stack, instance, look())
    assert stack.serving_differences() == []
    found = look()
    assert found.run_requests == []
    assert "users_warehouse failed, and is tried again at" in found.skip_message
    stack.produce(stack.users.second_wave(10))
    found = look()
    chosen = found.run_requests[0].asset_selection
    assert serving in chosen
    assert warehouse not in chosen
    assert follow(stack, instance, found)
    assert stack.serving_differences() == []
    # A success of the others does not make it forgotten; when its time has come it is asked for by itself.
    assert "users_warehouse failed" in look().skip_message
    stack.declare(warehouse=f"{NOWHERE}, 'sync.retry-after' = '1 ms'")
    found = look()
    assert found.run_requests[0].asset_selection == [warehouse]
    assert not follow(stack, instance, found)
    stack.declare(warehouse=", 'sync.retry-after' = '1 h'")
    assert "users_warehouse failed" in look().skip_message  # twice by now
    # Whoever starts a sync by hand, or repairs, ends the wait.
    assert stack.run(instance=instance).success
    assert stack.warehouse_differences() == []
    assert look().skip_message == "no new offsets"


def test_a_table_is_asked_for_whatever_has_left_it_behind(
    stack: Stack, look: Callable[[], Any], instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    changelog, serving = dg.AssetKey(["changelogs", "users"]), dg.AssetKey(["tables", "users_serving"])
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(20))
    assert follow(stack, instance, look())
    assert look().skip_message == "no new offsets"
    stack.produce(stack.users.second_wave(10))
    job = stack.definitions().resolve_job_def("sync")
    assert job.execute_in_process(instance=instance, asset_selection=[changelog]).success  # as somebody does by hand
    started = dg.DagsterRunStatus.STARTED
    repair = instance.add_run(dg.DagsterRun(job_name="reconcile", run_id=str(uuid.uuid4()), status=started))
    assert look().run_requests == []  # a table that is being repaired is not asked
    ended = dg.DagsterEvent(dg.DagsterEventType.RUN_CANCELED.value, repair.job_name)
    instance.report_dagster_event(ended, repair.run_id)
    found = look()
    assert found.run_requests[0].asset_selection == [serving]
    assert follow(stack, instance, found)
    assert stack.serving_differences() == []
    assert look().skip_message == "no new offsets"
    with closing(stack.hop("users_serving").destination) as destination:
        assert isinstance(destination, TablestoreDestination)
        destination.drop_table()
    assert look().skip_message == "no new offsets"
    monkeypatch.setattr(tables_behind, "ASKED_ANEW_SECONDS", -1.0)
    found = look()
    assert found.run_requests[0].asset_selection == [serving]
    assert follow(stack, instance, found)
    assert stack.serving_differences() == []
    assert look().skip_message == "no new offsets"


def test_a_table_that_stays_behind_is_asked_for_after_longer_and_longer(
    stack: Stack, look: Callable[[], Any], instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that succeeds, and yet leaves a table behind, is no reason for the next one at once."""
    serving = dg.AssetKey(["tables", "users_serving"])
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(20))
    assert follow(stack, instance, look())
    stays = [True]

    def ask(asking: Looks, wanted: Iterable[Asked], *, seconds: float) -> dict[Asked, Look]:
        return {item: Look(work="rows of before" if stays[0] else "") for item in wanted}

    monkeypatch.setattr(Looks, "of", ask)
    monkeypatch.setattr(tables_behind, "ASKED_ANEW_SECONDS", -1.0)
    found = look()
    assert found.run_requests[0].asset_selection == [serving]
    assert follow(stack, instance, found)
    for _ in range(2):
        found = look()
        assert found.run_requests == []
        assert "users_serving is behind its changelog, and is tried again at" in found.skip_message
    stays[0] = False
    assert look().skip_message == "no new offsets"
    stays[0] = True
    assert look().run_requests[0].asset_selection == [serving]


def test_a_changelog_that_fails_waits_and_holds_no_table_back(
    stack: Stack, look: Callable[[], Any], instance: dg.DagsterInstance
) -> None:
    """A record that nobody can read stands behind a batch that the table has not applied."""
    changelog, serving = dg.AssetKey(["changelogs", "users"]), dg.AssetKey(["tables", "users_serving"])
    stack.declare(warehouse=None, source=", 'on-error' = 'fail'")
    stack.produce(stack.users.first_wave(20))
    assert follow(stack, instance, look())
    stack.produce(stack.users.second_wave(10))
    job = stack.definitions().resolve_job_def("sync")
    assert job.execute_in_process(instance=instance, asset_selection=[changelog]).success
    stack.produce([(b'{"user_id":1}', b"no JSON")])
    found = look()
    assert changelog in found.run_requests[0].asset_selection
    assert not follow(stack, instance, found)
    found = look()
    assert found.run_requests[0].asset_selection == [serving]
    assert follow(stack, instance, found)
    assert stack.serving_differences() == []
    found = look()
    assert found.run_requests == []
    assert "users failed, and is tried again at" in found.skip_message
    stack.declare(warehouse=None, source=", 'on-error' = 'quarantine'")
    assert stack.run(instance=instance).success  # by hand
    assert look().skip_message == "no new offsets"


@pytest.mark.soak
def test_an_endpoint_that_is_silent_holds_no_other_table_back(
    stack: Stack, look: Callable[[], Any], instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes connections and never answers, so that whoever is asked behind it has no time left."""
    changelog, warehouse = dg.AssetKey(["changelogs", "users"]), dg.AssetKey(["tables", "users_warehouse"])
    monkeypatch.setattr(tables_behind, "_ASKING_SECONDS", 3.0)
    stack.declare()
    stack.produce(stack.users.first_wave(20))
    assert follow(stack, instance, look())
    stack.produce(stack.users.second_wave(10))
    job = stack.definitions().resolve_job_def("sync")
    assert job.execute_in_process(instance=instance, asset_selection=[changelog]).success
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        monkeypatch.setenv("UPSERT_TABLESTORE_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        found = look()
    assert found.run_requests[0].asset_selection == [warehouse]


def test_a_table_of_the_latest_offset_reads_what_comes_behind_the_first_look(
    stack: Stack, look: Callable[[], Any], instance: dg.DagsterInstance
) -> None:
    stack.produce(stack.users.first_wave(20))
    stack.declare(warehouse=None, source=", 'scan.startup.mode' = 'latest-offset'")
    assert follow(stack, instance, look())
    assert look().skip_message == "no new offsets"
    stack.produce([(b'{"user_id":1}', b'{"user_id":1}')] * 4)
    found = look()
    assert found.run_requests[0].tags["upsert/lag"] == "4"
    assert follow(stack, instance, found)
    head = stack.platform().destination_hop("users_serving", run="test").plan().head
    assert head is not None
    assert head.batch == 2


AWAY = """
CREATE TABLE away{n} (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'a{n}',
  'properties.bootstrap.servers' = '{servers}', 'properties.group.id' = 'reader{n}', 'key.format' = 'json',
  'value.format' = 'json');
CREATE TABLE copy{n} (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'c{n}',
  'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json', 'value.format' = 'json');
INSERT INTO copy{n} SELECT id FROM away{n};
"""


def test_brokers_that_are_away_hold_no_other_topics_up(
    stack: Stack, look: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty tables whose brokers are away cost a look one wait; the table of other brokers is asked for."""
    monkeypatch.setattr(endpoint, "REQUEST_SECONDS", 2.0)
    stack.declare(warehouse=None)
    servers = f"127.0.0.1:{free_port()}"
    text = "".join(AWAY.format(n=number, servers=servers) for number in range(20))
    (stack.project / "away.sql").write_text(text, "utf-8")
    started = time.monotonic()
    told = look().skip_message
    assert time.monotonic() - started < 20
    assert re.match(r"(away\d+, ){4}away\d+ and 35 more: Kafka ", told), "with the tables that are written"
    assert told.count("not reachable") == 1
    stack.produce(stack.users.first_wave(5))
    (request,) = look().run_requests
    assert int(request.tags["upsert/lag"]) == stack.users.produced
