"""Conditions for assets of one's own: they run when a table of the platform changed, or when they are overdue."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.freshness import FreshnessState, FreshnessStateChange

from upsert_platform import on_new_offsets, on_overdue, testing
from upsert_platform.graph.project_component import UpsertProjectComponent
from upsert_platform_tests.graph.test_affected import SQL
from upsert_platform_tests.graph.test_asset_attributes import COPIES, USERS, node_of
from upsert_platform_tests.graph.test_asset_attributes import SQL as DECLARED


@dg.asset(deps=[dg.AssetKey(["tables", "copies"])], automation_condition=on_new_offsets())
def report() -> None: ...


@dg.asset(freshness_policy=dg.FreshnessPolicy.time_window(timedelta(hours=6)), automation_condition=on_overdue())
def digest() -> None: ...


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[testing.ProjectUnderTest]:
    (tmp_path / "shop.sql").write_text(SQL, "utf-8")
    with testing.project(tmp_path, assets=[report, digest], local_rows=10_000) as found:
        yield found


class Daemon:
    """Looks at the conditions, a minute later each time."""

    def __init__(self, shop: testing.ProjectUnderTest) -> None:
        self.shop, self.at, self.cursor = shop, datetime(2026, 11, 24, 12, tzinfo=UTC), None

    def requested(self, asset: dg.AssetsDefinition) -> bool:
        self.at += timedelta(minutes=1)
        found = dg.evaluate_automation_conditions(
            self.shop.definitions, self.shop.instance, cursor=self.cursor, evaluation_time=self.at
        )
        self.cursor = found.cursor
        return found.get_num_requested(asset.key) > 0


def test_an_asset_downstream_runs_once_for_new_offsets_and_not_for_a_run_without_any(
    shop: testing.ProjectUnderTest,
) -> None:
    daemon = Daemon(shop)
    shop.send("users", [{"id": 1, "name": "a"}])
    shop.sync()
    assert not daemon.requested(report)  # the first look only begins
    assert daemon.requested(report)  # it has never run
    shop.materialize(report)
    assert not daemon.requested(report)
    shop.sync()  # materialises the tables again, with the same data versions
    assert not daemon.requested(report)
    shop.send("users", [{"id": 2, "name": "b"}])
    shop.sync()
    assert daemon.requested(report)
    assert not daemon.requested(report)  # it was requested


def test_an_asset_runs_once_when_it_is_overdue(shop: testing.ProjectUnderTest) -> None:
    daemon = Daemon(shop)

    def judged(state: FreshnessState, before: FreshnessState) -> None:
        """The freshness daemon of Dagster notes a state."""
        change = FreshnessStateChange(
            key=digest.key, new_state=state, previous_state=before, state_change_timestamp=datetime.now(UTC).timestamp()
        )
        shop.instance._report_runless_asset_event(change)

    shop.materialize(digest)
    judged(FreshnessState.PASS, FreshnessState.UNKNOWN)
    assert not daemon.requested(digest)
    judged(FreshnessState.FAIL, FreshnessState.PASS)
    assert daemon.requested(digest)
    assert not daemon.requested(digest)
    judged(FreshnessState.PASS, FreshnessState.FAIL)
    assert not daemon.requested(digest)
    judged(FreshnessState.WARN, FreshnessState.PASS)
    assert daemon.requested(digest)


def test_a_defs_yaml_names_the_conditions(tmp_path: Path) -> None:
    (tmp_path / "tables.sql").write_text(DECLARED, "utf-8")
    text = """
    translation: {automation_condition: "{{ on_overdue() if name == 'copies' else on_new_offsets() }}"}
    """
    component: UpsertProjectComponent = UpsertProjectComponent.resolve_from_yaml(
        text, scope=UpsertProjectComponent.get_additional_scope()
    )
    found = component.definitions_of(tmp_path)
    assert node_of(found, COPIES).automation_condition == on_overdue()
    assert node_of(found, USERS).automation_condition == on_new_offsets()
