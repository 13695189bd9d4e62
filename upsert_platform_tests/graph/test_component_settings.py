"""Steps, jobs, sensor and schedules of a project, as a `defs.yaml` sets them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox
from pydantic import ValidationError

import upsert_platform
from upsert_platform.core.errors import DeclarationError
from upsert_platform.graph.build import build_definitions
from upsert_platform.graph.component_settings import JOBS
from upsert_platform.graph.project_component import UpsertProjectComponent
from upsert_platform.sync.binding import load
from upsert_platform_tests.graph.test_instances import project

SCHEDULES = {"verify_weekly": "0 3 * * 0", "compact_daily": "0 2 * * *", "watch_hourly": "7 * * * *"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("users")
    (made / "tables.sql").write_text(project("users"))
    return made


def definitions(
    folder: Path, attributes: str, kind: type[UpsertProjectComponent] = UpsertProjectComponent
) -> dg.Definitions:
    """The definitions of the component of a `defs.yaml`."""
    text = f"home: {folder}/lake\n{textwrap.dedent(attributes)}"
    component: UpsertProjectComponent = kind.resolve_from_yaml(text)
    return component.definitions_of(folder)


def test_op_gives_steps_their_tags_pool_and_retries(folder: Path) -> None:
    found = definitions(
        folder,
        """
        op:
          tags: {dagster/priority: "3", dagster-k8s/config: {container_config: {resources: {limits: {memory: 4Gi}}}}}
          pool: kafka_eu
          retry_policy: {max_retries: 2, delay: 5, backoff: exponential, jitter: full}
        """,
    )
    for key in (["changelogs", "users"], ["tables", "users_copy"]):
        op: Any = found.resolve_assets_def(dg.AssetKey(key)).op
        assert op.tags["dagster/priority"] == "3"
        assert "4Gi" in str(op.tags["dagster-k8s/config"])
        assert op.pool == "kafka_eu"
        assert op.retry_policy == dg.RetryPolicy(
            max_retries=2, delay=5, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.FULL
        )


def test_tables_of_a_connector_have_a_pool_of_their_own(folder: Path) -> None:
    found = definitions(folder, "op: {pool: others, pools: {upsert-kafka: brokers}}")
    assert found.resolve_assets_def(dg.AssetKey(["changelogs", "users"])).op.pool == "brokers"
    found = definitions(folder, "op: {pool: others, pools: {tablestore: brokers}}")
    assert found.resolve_assets_def(dg.AssetKey(["changelogs", "users"])).op.pool == "others"


def test_jobs_have_tags_beside_their_own_and_may_be_off(folder: Path) -> None:
    found = definitions(
        folder,
        """
        name: crm
        jobs:
          sync: {tags: {dagster/priority: "5"}}
          verify: {tags: {team: sales}}
          compact: {tags: {team: lake}}
          reconcile: {enabled: false}
        """,
    )
    assert found.resolve_job_def("sync").run_tags["dagster/priority"] == "5"
    verify, compact = found.resolve_job_def("verify"), found.resolve_job_def("compact")
    assert verify.run_tags == {"team": "sales", "upsert/complete": "true"}
    assert compact.run_tags["team"] == "lake"
    assert compact.run_config == verify.run_config == {"loggers": {"console": {}}}
    assert compact.executor_def.name == verify.executor_def.name == "in_process"
    assert "Compares every row" in str(verify.description)
    jobs = {job.name for job in found.get_repository_def().get_all_jobs()}
    assert "reconcile" not in jobs
    assert "drain_quarantine" in jobs


def test_settings_know_every_job_of_a_project(folder: Path) -> None:
    jobs = {job.name for job in build_definitions(load(folder)[0]).get_repository_def().get_all_jobs()}
    assert {name for name in jobs if not name.startswith("__")} <= set(JOBS)


def test_the_sensor_has_a_name_an_interval_and_a_status(folder: Path) -> None:
    found = definitions(folder, "sensor: {name: orders_arrive, interval_seconds: 120, default_status: running}")
    sensor = found.resolve_sensor_def("orders_arrive")
    assert sensor.minimum_interval_seconds == 120
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    assert not list(definitions(folder, "sensor: {enabled: false}").sensors or ())


def test_schedules_have_a_cron_a_time_zone_and_a_status(folder: Path) -> None:
    assert _crons(definitions(folder, "schedules: {}")) == SCHEDULES
    found = definitions(
        folder,
        """
        schedules:
          sync: {cron: "*/10 * * * *"}
          verify: {cron: "30 4 * * 1", timezone: Asia/Shanghai, default_status: running, name: mondays}
          compact: {enabled: false}
          watch: {default_status: running}
        """,
    )
    assert _crons(found) == {"sync_schedule": "*/10 * * * *", "mondays": "30 4 * * 1", "watch_hourly": "7 * * * *"}
    mondays, watch = found.resolve_schedule_def("mondays"), found.resolve_schedule_def("watch_hourly")
    assert mondays.execution_timezone == "Asia/Shanghai"
    assert mondays.job_name == "verify"
    assert mondays.default_status is watch.default_status is dg.DefaultScheduleStatus.RUNNING
    assert found.resolve_schedule_def("sync_schedule").default_status is dg.DefaultScheduleStatus.STOPPED


def _crons(found: dg.Definitions) -> dict[str, str]:
    return {item.name: str(item.cron_schedule) for item in found.get_repository_def().schedule_defs}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("jobs: {synk: {enabled: false}}", r"jobs: there is no job 'synk'; jobs are: sync, ingest"),
        ("schedules: {synk: {cron: '* * * * *'}}", r"schedules: there is no job 'synk'"),
        ("schedules: {sync: {default_status: running}}", r"job 'sync' has no schedule of its own; give its 'cron'"),
        ("schedules: {stream: {cron: '* * * * *'}}", r"job 'stream' takes no schedule: it runs until"),
        ("jobs: {sync: {enabled: false}}", r"the sensor requests 'sync', which is not enabled; give 'sensor:"),
        ("automation: conditions\nsensor: {interval_seconds: 5}", r"with 'automation: conditions' there is none"),
        ("op: {pools: {mongodb: a}}", r"op\.pools: there is no connector 'mongodb'; connectors are: upsert-kafka"),
    ],
)
def test_settings_that_nothing_would_follow_are_refused(folder: Path, attributes: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        definitions(folder, attributes)


@pytest.mark.parametrize("attributes", ["sensor: {interval: 5}", "op: {retries: 2}", "jobs: {sync: {cron: x}}"])
def test_fields_that_do_not_exist_are_refused(folder: Path, attributes: str) -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        definitions(folder, attributes)


class Announcing(UpsertProjectComponent):
    """A component with something to do around each step."""

    def execute(
        self, context: dg.AssetExecutionContext, compute: Callable[[], dg.MaterializeResult[Any]]
    ) -> dg.MaterializeResult[Any]:
        """Skip what the platform does."""
        return dg.MaterializeResult(metadata={"asked": context.asset_key.to_user_string()})


def test_execute_stands_around_every_step(folder: Path) -> None:
    found = definitions(folder, "op: {}", Announcing)
    with dg.DagsterInstance.ephemeral() as instance:
        job = found.resolve_implicit_global_asset_job_def()
        key = dg.AssetKey(["changelogs", "users"])
        done = job.get_subset(asset_selection={key}, asset_check_selection=set()).execute_in_process(instance=instance)
    (event,) = done.get_asset_materialization_events()
    assert event.materialization.metadata["asked"].value == "changelogs/users"


def test_post_processing_changes_assets_of_a_selection() -> None:
    with create_defs_folder_sandbox() as sandbox:
        place = sandbox.scaffold_component(
            component_cls=UpsertProjectComponent,
            defs_path="users",
            defs_yaml_contents={
                "type": f"{upsert_platform.__name__}.{UpsertProjectComponent.__name__}",
                "attributes": {"home": "lake"},
                "post_processing": {"assets": [{"target": "group:tables", "attributes": {"tags": {"tier": "gold"}}}]},
            },
        )
        for file in place.glob("*.sql"):
            file.unlink()
        (place / "tables.sql").write_text(project("users"))
        with sandbox.build_all_defs() as found:
            graph = found.resolve_asset_graph()
            assert graph.get(dg.AssetKey(["tables", "users_copy"])).tags["tier"] == "gold"
            assert "tier" not in graph.get(dg.AssetKey(["changelogs", "users"])).tags
