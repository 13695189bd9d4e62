"""Tables that are asked side by side: an error of one is its own, and what they share is shared by threads, too."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from upsert_platform.core.errors import ChangelogError, EndpointError
from upsert_platform.core.unreachable import reaching, waiting_once
from upsert_platform.kafka import endpoint
from upsert_platform.kafka.endpoint import KafkaEndpoint, keeping_admins
from upsert_platform.sync.changelog_hop import ChangelogPlan
from upsert_platform.sync.looks import Asked, Kind, Look, Looks

TABLES = [Asked(Kind.CHANGELOG, f"t{number}") for number in range(20)]


def looks_of(monkeypatch: pytest.MonkeyPatch, plan: Callable[[str], ChangelogPlan]) -> dict[Asked, Look]:
    """Looks at twenty changelogs without a batch, of which each plan is told."""
    monkeypatch.setattr("upsert_platform.sync.looks.quarantined_count", lambda store: 0)

    def hop(table: str, *, run: str) -> Any:
        store = SimpleNamespace(begin_look=lambda: None, head=lambda: None)
        return SimpleNamespace(store=store, plan=lambda: plan(table))

    project: Any = SimpleNamespace(changelog_hop=hop)
    return Looks(project).of(TABLES)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ChangelogError("part-1.parquet: the file is gone"), "part-1.parquet: the file is gone"),
        (FileNotFoundError(2, "No such file", "part-1"), "FileNotFoundError: [Errno 2] No such file: 'part-1'"),
        (KeyError("id"), "KeyError: 'id'"),
    ],
)
@pytest.mark.parametrize("place", [0, 7])
def test_an_error_of_one_table_is_its_work_and_others_are_asked(
    place: int, error: Exception, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(table: str) -> ChangelogPlan:
        if table == TABLES[place].table:
            raise error
        return ChangelogPlan(None, (), ())

    found = looks_of(monkeypatch, plan)
    wrong = found.pop(TABLES[place])
    assert told in wrong.work
    assert wrong.failed
    assert len(found) == len(TABLES) - 1
    assert not any(look.work or look.failed for look in found.values())


def test_an_endpoint_that_is_away_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []

    def plan(table: str) -> ChangelogPlan:
        with reaching("broker:9092"):
            waited.append(table)
            raise EndpointError("Kafka broker:9092: not reachable")

    with waiting_once():
        found = looks_of(monkeypatch, plan)
    assert waited == ["t0"]
    assert {look.work.partition(" [")[0] for look in found.values()} == {"Kafka broker:9092: not reachable"}


def test_threads_share_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def open_admin(self: KafkaEndpoint) -> endpoint.ClusterAdmin:
        opened.append(self.servers)
        client: Any = None
        return endpoint.ClusterAdmin(self, client, [])

    monkeypatch.setattr(KafkaEndpoint, "_open_admin", open_admin)

    def plan(table: str) -> ChangelogPlan:
        with KafkaEndpoint("broker:9092").admin():
            return ChangelogPlan(None, (), ())

    with keeping_admins():
        looks_of(monkeypatch, plan)
        most = len(opened)
        looks_of(monkeypatch, plan)
    assert most <= 4, "one of each thread"
    assert len(opened) <= 4
