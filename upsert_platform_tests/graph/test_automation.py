"""Automation by data versions: an asset is asked for when what it reads has changed, and only then."""

from __future__ import annotations

import datetime

import dagster as dg
import pytest
from dagster._core.definitions.observe import observe

from upsert_platform.core.errors import DeclarationError
from upsert_platform.graph.automation import VARIABLE
from upsert_platform.graph.build import build_definitions
from upsert_platform.sync.binding import load
from upsert_platform_tests.graph.stack import Stack

CHANGELOG, TABLE = dg.AssetKey(["changelogs", "users"]), dg.AssetKey(["tables", "users_serving"])


@pytest.mark.usefixtures("spark")
def test_what_changed_is_followed_step_by_step(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "conditions")
    stack.declare(warehouse=None)
    defs = stack.definitions()
    topic = dg.AssetKey(["topics", stack.topic])
    assert list(defs.sensors or ()) == []
    clock = datetime.datetime(2026, 11, 22, 12, 0, 30, tzinfo=datetime.UTC)
    cursor = None
    with dg.DagsterInstance.ephemeral() as instance:

        def tick() -> set[dg.AssetKey]:
            """A look of the daemon a minute later; what it asks for is run."""
            nonlocal clock, cursor
            clock += datetime.timedelta(minutes=1)
            found = dg.evaluate_automation_conditions(defs, instance, cursor=cursor, evaluation_time=clock)
            cursor = found.cursor
            asked = {key for key in (topic, CHANGELOG, TABLE) if found.get_num_requested(key)}
            chosen_assets = [key for key in (CHANGELOG, TABLE) if key in asked]
            if chosen_assets:  # in one run, which has them in their order
                assert run(instance, chosen_assets)
            if topic in asked:
                chosen = [item for item in defs.assets or () if item.key == topic]
                assert observe(chosen, instance=instance, resources={"platform": stack.platform()}).success
            return asked

        def run(instance: dg.DagsterInstance, assets: list[dg.AssetKey]) -> bool:
            job = defs.resolve_implicit_global_asset_job_def()
            return job.execute_in_process(instance=instance, asset_selection=assets, raise_on_error=False).success

        stack.produce(stack.users.first_wave(30))
        seen = [tick() for _ in range(4)]
        assert {CHANGELOG, TABLE} <= set().union(*seen)
        assert stack.serving_differences() == []
        quiet = [tick() for _ in range(3)]
        assert set().union(*quiet) <= {topic}, "nothing has changed"
        stack.produce(stack.users.second_wave(20))
        seen = [tick() for _ in range(4)]
        assert {CHANGELOG, TABLE} <= set().union(*seen)
        assert stack.serving_differences() == []


def test_an_automation_that_there_is_not_is_refused(stack: Stack) -> None:
    project, _ = load(stack.project, root=str(stack.lake))
    with pytest.raises(DeclarationError, match="takes sensor or conditions, not 'cron'"):
        build_definitions(project, platform=stack.platform(), automation="cron")
