"""Configurations of the page on backfills fit the job that it names, in whatever project."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

import upsert_platform
from upsert_platform.graph.build import build_definitions
from upsert_platform.sync.binding import load
from upsert_platform_tests.graph.test_instances import project

PAGE = Path(upsert_platform.__file__).parent.parent / "docs" / "partitions.md"
LAUNCHES = re.findall(r"```yml\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> dg.JobDefinition:
    folder = tmp_path_factory.mktemp("project")
    (folder / "tables.sql").write_text(project("orders"))
    return build_definitions(load(folder)[0]).resolve_job_def("replay")


@pytest.mark.parametrize("launch", LAUNCHES)
def test_a_launch_of_the_page_fits_the_job(replay: dg.JobDefinition, launch: str) -> None:
    config: dict[str, Any] = yaml.safe_load(launch)
    assert dg.validate_run_config(replay, config)


def test_no_asset_has_partitions(tmp_path: Path) -> None:
    (tmp_path / "tables.sql").write_text(project("orders"))
    definitions = build_definitions(load(tmp_path)[0])
    graph = definitions.resolve_asset_graph()
    keys = graph.get_all_asset_keys()
    assert len(LAUNCHES) == 3
    assert {dg.AssetKey(["changelogs", "orders"]), dg.AssetKey(["tables", "orders_copy"])} <= keys
    assert not [key for key in keys if graph.get(key).is_partitioned]
    jobs = {job.name for job in definitions.get_repository_def().get_all_jobs()}
    assert {"sync", "replay", "reconcile"} <= jobs


def test_the_launchpad_begins_with_an_example_that_writes_nothing(replay: dg.JobDefinition) -> None:
    shown: dict[str, Any] = replay.run_config or {}
    example = shown["ops"]["replay_topic"]["config"]
    assert set(example) == {"table", "timestamp", "offsets", "into", "dry_run"}
    assert (example["table"], example["dry_run"]) == ("orders", True)
    assert dg.validate_run_config(replay, shown)


def test_the_example_of_an_instance_names_its_step(tmp_path: Path) -> None:
    (tmp_path / "tables.sql").write_text(project("orders"))
    job = build_definitions(load(tmp_path)[0], instance="crm").resolve_job_def("replay_crm")
    assert set((job.run_config or {})["ops"]) == {"replay_topic_crm"}
