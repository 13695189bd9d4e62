"""Several projects in one code location: names are theirs, resources are bound to their assets, runs are their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

import upsert_platform
from upsert_platform.graph.build import build_definitions
from upsert_platform.graph.own_runs import LAKE_TAG, OwnRuns, lake_mark
from upsert_platform.graph.resources import KafkaResource, MaxComputeResource, PlatformResource, TablestoreResource
from upsert_platform.sync.binding import load
from upsert_platform_tests.graph.stack import COLUMNS, KEY

TABLES = """
CREATE TABLE {name} ({columns}, {key}) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{name}', 'properties.bootstrap.servers' = '127.0.0.1:1',
  'key.format' = 'json', 'value.format' = 'json'
);
CREATE TABLE {name}_copy ({columns}, {key}) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{name}_copy', 'properties.bootstrap.servers' = '127.0.0.1:1',
  'key.format' = 'json', 'value.format' = 'json'
);
INSERT INTO {name}_copy SELECT * FROM {name};
"""
LOADER = """
import json, sys
from pathlib import Path
import dagster as dg
from dagster._core.execution.api import create_execution_plan
defs = dg.load_from_defs_folder(path_within_project=Path(sys.argv[1]))
dg.Definitions.validate_loadable(defs)
repository = defs.get_repository_def()
job = defs.resolve_implicit_global_asset_job_def()
print(json.dumps({
    "jobs": sorted(job.name for job in repository.get_all_jobs()),
    "resources": sorted(repository.get_top_level_resources()),
    "sensors": sorted(sensor.name for sensor in repository.sensor_defs),
    "assets": sorted(key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()),
    "executor": job.executor_def.name,
    "needs": {name: sorted(repository.get_job("sync" + name).required_resource_keys) for name in sys.argv[2:]},
}))
"""


def project(name: str) -> str:
    return TABLES.format(name=name, columns=COLUMNS, key=KEY)


def component(folder: Path, tables: str, **attributes: str) -> None:
    folder.mkdir(parents=True)
    (folder / "tables.sql").write_text(project(tables))
    lines = "".join(f"\n  {name}: {value}" for name, value in {"home": "lake", **attributes}.items())
    kind = "upsert_platform.graph.project_component.UpsertProjectComponent"
    (folder / "defs.yaml").write_text(f"type: {kind}\nattributes:{lines}\n")


def location(folder: Path, *instances: str) -> dict[str, Any]:
    (folder / "pyproject.toml").write_text(
        textwrap.dedent("""
            [tool.dg]
            directory_type = "project"
            [tool.dg.project]
            root_module = "shop"
        """)
    )
    for package in (folder / "shop", folder / "shop" / "defs"):
        (package / "__init__.py").touch()
    checkout = Path(upsert_platform.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOADER, str(folder / "shop" / "defs"), *instances],
        capture_output=True, text=True, cwd=folder,
        env={
            "PYTHONPATH": os.pathsep.join([str(folder), str(checkout)]), "PATH": os.environ["PATH"],
            "UPSERT_PLATFORM_ALERT_WEBHOOK": "http://127.0.0.1:1",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_components_without_names_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    component(tmp_path / "shop" / "defs" / "crm", "users")
    component(tmp_path / "shop" / "defs" / "sales" / "eu", "orders")
    found = location(tmp_path, "_crm", "_sales_eu")
    assert {"sync_crm", "sync_sales_eu", "verify_crm", "stream_sales_eu"} <= set(found["jobs"])
    assert {"platform_crm", "platform_sales_eu", "kafka_crm", "destination_io_sales_eu"} <= set(found["resources"])
    assert found["sensors"] == ["alerts_of_checks", "alerts_of_failed_runs", "new_offsets_crm", "new_offsets_sales_eu"]
    assert {"changelogs/users", "tables/orders_copy"} <= set(found["assets"])
    for instance, needed in found["needs"].items():
        assert {f"platform{instance}", f"spark{instance}", f"changelog_io{instance}"} <= set(needed)
        assert all(name.endswith(instance) for name in needed if name != "io_manager")
    assert found["executor"] == "in_process"


def test_a_component_beside_a_named_one_keeps_its_names(tmp_path: Path) -> None:
    component(tmp_path / "shop" / "defs" / "crm", "users")
    component(tmp_path / "shop" / "defs" / "sales", "orders", name="eu")
    found = location(tmp_path, "", "_eu")
    assert {"sync", "sync_eu"} <= set(found["jobs"])
    assert {"platform", "platform_eu"} <= set(found["resources"])


def test_each_project_works_with_its_own_resources(tmp_path: Path) -> None:
    found: dict[str, str] = {}
    definitions = []
    for name in ("users", "orders"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "tables.sql").write_text(project(name))
        platform = PlatformResource(
            project=str(folder), home=str(tmp_path / f"lake of {name}"),
            kafka=KafkaResource(), tablestore=TablestoreResource(), maxcompute=MaxComputeResource(),
        )  # fmt: skip
        definitions.append(build_definitions(load(folder)[0], platform=platform, instance=name, alerts=False))

    @dg.op(required_resource_keys={"platform_users", "platform_orders"})
    def look(context) -> None:  # type: ignore[no-untyped-def]
        for name in ("users", "orders"):
            platform = getattr(context.resources, f"platform_{name}")
            found[name] = f"{platform.root} {'/'.join(platform.binding().targets)}"

    @dg.job
    def looking() -> None:
        look()

    merged = dg.Definitions.merge(*definitions, dg.Definitions(jobs=[looking]))
    launched = {"resources": {"lake_orders": {"config": {"root": "/launched"}}}}
    assert merged.resolve_job_def("looking").execute_in_process(run_config=launched).success
    assert found == {"users": f"{tmp_path}/lake of users users_copy", "orders": "/launched orders_copy"}


@pytest.mark.parametrize(
    ("tags", "counts"),
    [
        ({}, True),
        ({".dagster/repository": "__repository__@ours"}, True),
        ({".dagster/repository": "__repository__@theirs"}, False),
        ({".dagster/repository": "__repository__@theirs", LAKE_TAG: lake_mark("/lake")}, False),
        ({LAKE_TAG: lake_mark("/lake")}, True),
        ({LAKE_TAG: lake_mark("/other")}, False),
    ],
)
def test_runs_of_other_locations_do_not_count(tags: dict[str, str], counts: bool) -> None:
    @dg.job(name="sync")
    def job() -> None:
        pass

    with dg.DagsterInstance.ephemeral() as instance:
        instance.create_run_for_job(job, tags=tags)
        context: Any = SimpleNamespace(
            instance=instance,
            repository_name="__repository__",
            code_location_origin=SimpleNamespace(location_name="ours"),
        )
        assert bool(OwnRuns.of(context, "/lake").records("sync", limit=1)) is counts
