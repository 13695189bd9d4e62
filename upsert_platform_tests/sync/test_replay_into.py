"""Replays into new tables: whose changelog and refused rows are whose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from upsert_platform.changelog.head import Positions
from upsert_platform.changelog.lake import Lake
from upsert_platform.cli.main import main
from upsert_platform.core.destination import DestinationState
from upsert_platform.core.errors import ChangelogError, DeclarationError, DestinationError
from upsert_platform.core.model import Insert, Options, SourceLocation
from upsert_platform.core.source import Start
from upsert_platform.kafka.source.offsets import PartitionOffsets, TopicOffsets
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.proofs.shadow import Shadowing
from upsert_platform.sync import replay_into
from upsert_platform.sync.binding import Binding, Target
from upsert_platform.sync.changelog_hop import ChangelogPlan
from upsert_platform.sync.connectors import CONNECTORS
from upsert_platform_tests.kafka.tables import declare, read

START = Start()


def target(name: str, source: str, *, instance: str) -> Target:
    """A Tablestore table that is written from a topic of its source's name."""
    declared = replace(declare(topic=source), name=source)
    options = {
        "connector": "tablestore",
        "table.name": "serving",
        "tablestore.endpoint": "https://ots.example.com",
        "tablestore.instance.name": instance,
        "tablestore.access.key.id": "a",
        "tablestore.access.key.secret": "b",
    }
    table = replace(declare(), name=name, options=Options(options))
    connector = CONNECTORS["tablestore"]
    checked, problems = connector.check(table)
    assert checked is not None, problems
    insert = Insert(source, name, ("`id`", "`name`"), None, "", SourceLocation("x", 1))
    return Target(table, insert, TopicSource(declared, read(declared)), connector, checked)


def bound(*targets: Target) -> Binding:
    binding: Any = Binding.__new__(Binding)
    object.__setattr__(binding, "targets", {item.table.name: item for item in targets})
    found: Binding = binding
    return found


def replayed(*targets: Target, new: str = "serving_2") -> list[Target]:
    binding = bound(*targets)
    return [replay_into.new_target(binding, item.table.name, new, start=START) for item in targets]


def test_tables_of_one_new_name_in_two_instances_share_nothing(tmp_path: Path) -> None:
    one, other = replayed(
        target("eu_serving", "orders_eu", instance="eu"), target("us_serving", "orders_us", instance="us")
    )
    lake = Lake(str(tmp_path))
    mine, its = (replay_into._kept(item, lake, START) for item in (one, other))
    assert mine[0].uri != its[0].uri
    assert mine[1].location != its[1].location
    again, _ = replayed(
        target("eu_serving", "orders_eu", instance="eu"), target("us_serving", "orders_us", instance="us")
    )
    assert replay_into._kept(again, lake, START)[0].uri == mine[0].uri, "the same replay goes on where it stopped"
    apart = {
        replay_into.folder_of(*replayed(target(name, source, instance=instance)))
        for name in ("a", "b")
        for source in ("x", "y")
        for instance in ("eu", "us")
    }
    assert len(apart) == 8


@pytest.mark.parametrize("own", [True, False], ids=["its table was written from it", "another table was"])
def test_a_replay_that_an_earlier_version_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool) -> None:
    (item,) = replayed(target("serving", "orders", instance="eu"))
    lake = Lake(str(tmp_path))
    begun = replay_into.ChangelogStore(lake.replay("serving_2", START.label), item.source.table, mode=item.source.mode)
    head = begun.create()
    begun.append([], head=head, positions=Positions({"orders": {0: 5}}, {"orders": "id"}), run="r")

    class Opened:
        def state(self) -> DestinationState:
            return DestinationState(1, head.changelog_id) if own else DestinationState()

        def close(self) -> None: ...

    monkeypatch.setattr(Target, "open", lambda self: Opened())
    store, refused = replay_into._kept(item, lake, START)
    assert (store.uri == begun.uri) is own
    assert ("/replays/serving_2/" in refused.location.uri) is own


def test_a_changelog_with_rows_of_other_topics_is_refused(tmp_path: Path) -> None:
    (item,) = replayed(target("serving", "orders_us", instance="us"))
    store, _ = replay_into._kept(item, Lake(str(tmp_path)), START)
    streams = (TopicOffsets("orders_us", "id-us", (PartitionOffsets(0, 0, 7),)),)
    head = store.create()
    replay_into._check_topics(item, store, ChangelogPlan(head, streams, ()))
    head = store.append([], head=head, positions=Positions({"orders_us": {0: 5}}, {"orders_us": "u"}), run="r")
    replay_into._check_topics(item, store, ChangelogPlan(head, streams, ()))
    head = store.append([], head=head, positions=Positions({"orders_eu": {0: 5}}, {"orders_eu": "e"}), run="r")
    with pytest.raises(
        ChangelogError, match=r"has rows of orders_eu, which table 'orders_us' does not read.*another name"
    ):
        replay_into._check_topics(item, store, ChangelogPlan(head, streams, ()))


def test_tables_of_another_topic_are_not_replayed_with_it() -> None:
    """Its offsets say nothing of theirs."""
    eu, us = target("eu_serving", "orders_eu", instance="eu"), target("us_serving", "orders_us", instance="us")
    binding = bound(eu, us)
    assert set(replay_into.new_targets(binding, "orders_eu", {"eu_serving": "serving_2"}, start=START)) == {
        "eu_serving"
    }
    with pytest.raises(DeclarationError, match="table 'us_serving' is not written from 'orders_eu'"):
        replay_into.new_targets(binding, "orders_eu", {"eu_serving": "a", "us_serving": "b"}, start=START)


def test_a_second_table_beside_another_writers_is_none_that_the_project_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    first = target("serving", "orders", instance="eu")
    taken = target("others", "orders", instance="eu")
    options = Options({**taken.table.options, "table.name": "serving_new"})
    table = replace(taken.table, options=options)
    taken = replace(taken, table=table, checked=taken.connector.check(table)[0])
    monkeypatch.setattr(Target, "open", lambda item: pytest.fail("nothing is opened"))
    with pytest.raises(DestinationError, match="'serving_new' is where table 'others' of the project is"):
        Shadowing(None, first, bound(first, taken), None, suffix="_new", run="run")  # type: ignore[arg-type]


def test_the_command_reads_the_topic_of_its_table_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    eu, us = target("eu_serving", "orders_eu", instance="eu"), target("us_serving", "orders_us", instance="us")
    binding = bound(eu, us)
    object.__setattr__(binding, "sources", {item.source.table.name: item.source for item in (eu, us)})
    monkeypatch.setattr("upsert_platform.cli.location.project_binding", lambda project: binding)
    monkeypatch.setattr("upsert_platform.cli.session.spark_session", lambda name: pytest.fail("nothing is read"))
    done = CliRunner().invoke(main, ["replay", "orders_eu", "--offset", "0:42", "--into", "us_serving=us_serving_2"])
    assert done.exit_code == 1
    assert "table 'us_serving' is not written from 'orders_eu'" in done.output
