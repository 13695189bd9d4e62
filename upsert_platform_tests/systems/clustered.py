"""A project whose runs are of the installed wheel, whose Spark is a cluster, and whose lake is on object storage."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.referee.judging import tablestore_table
from upsert_platform_tests.s3 import S3
from upsert_platform_tests.systems.installed import Installed
from upsert_platform_tests.systems.spark_cluster import SparkCluster

# A function that only Spark computes: the query has a stage in executors, however little it reads.
_REGIONS = """
CREATE TABLE regions (region STRING, users BIGINT, PRIMARY KEY (region) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'table.name' = '{table}_regions',
  'tablestore.endpoint' = '${{UPSERT_TABLESTORE_ENDPOINT}}',
  'tablestore.instance.name' = '${{UPSERT_TABLESTORE_INSTANCE}}',
  'tablestore.access.key.id' = '${{UPSERT_TABLESTORE_ACCESS_KEY_ID}}',
  'tablestore.access.key.secret' = '${{UPSERT_TABLESTORE_ACCESS_KEY_SECRET}}', 'auto.create' = 'true');
INSERT INTO regions SELECT UPPER(region), COUNT(*) FROM users GROUP BY UPPER(region);
"""
_EVENT = re.compile(r"^\S+ (\S+)  (STEP_START|STEP_SUCCESS|STEP_FAILURE) ", re.MULTILINE)
_POLL_SECONDS = 0.05


@dataclass
class Clustered(Stack):
    """Runs from an environment of the wheel, on a cluster and with a lake on S3.

    Attributes:
        settings: of Spark, on top of profile `standalone`.
        lake_uri: root of the lake.
        lake_options: file of its storage options.
    """

    installed: Installed = field(kw_only=True)
    settings: Mapping[str, str] = field(kw_only=True)
    lake_uri: str = field(kw_only=True)
    lake_options: Path = field(kw_only=True)

    def declare_all(self, *, source: str = "") -> None:
        """Both tables, and one that a query feeds."""
        self.declare(source=source)
        sql = self.project / "users.sql"
        sql.write_text(sql.read_text("utf-8") + _REGIONS.format(table=self.table), "utf-8")

    def environment(self) -> dict[str, str]:
        """The environment of a run: nothing of the checkout is in it."""
        settings = self.path / "spark.conf"
        settings.write_text("".join(f"{name} {value}\n" for name, value in self.settings.items()), "utf-8")
        home = self.path / "dagster"
        home.mkdir(exist_ok=True)
        return self.installed.environment(
            **self.variables,
            DAGSTER_HOME=str(home),
            DAGSTER_DISABLE_TELEMETRY="yes",
            UPSERT_PLATFORM_PROJECT=str(self.project),
            UPSERT_PLATFORM_HOME=self.lake_uri,
            UPSERT_PLATFORM_LAKE_OPTIONS=str(self.lake_options),
            UPSERT_SPARK_PROFILE="standalone",
            UPSERT_SPARK_SETTINGS=str(settings),
        )

    def command(self, job: str = "sync", **more: Any) -> list[str]:
        """A run all of whose work is Spark's."""
        config = self.path / f"{job}.json"
        resources = {"spark": {"config": {"local_rows": 0}}}
        events = {"console": {"config": {"log_level": "DEBUG"}}}
        config.write_text(json.dumps({"resources": resources, "loggers": events, **more}), "utf-8")
        dagster = str(self.installed.bin / "dagster")
        return [dagster, "job", "execute", "-m", "upsert_platform.definitions", "-j", job, "-c", str(config)]

    def run_watched(self, job: str = "sync", *, seen: Callable[[str, str], None], timeout: float = 600) -> str:
        """Runs a job, telling of each step that begins or ends; returns its log. It must succeed.

        Args:
            seen: is given a step, and what Dagster says of it.
        """
        log = self.path / f"{job}-{time.monotonic_ns()}.log"
        told = 0
        with (
            log.open("wb") as output,
            subprocess.Popen(
                self.command(job), env=self.environment(), cwd=self.path, stdout=output, stderr=subprocess.STDOUT
            ) as process,
        ):
            deadline = time.monotonic() + timeout
            ended = False
            while not ended:
                ended = process.poll() is not None
                events = _EVENT.findall(log.read_text(errors="replace"))
                for step, event in events[told:]:
                    seen(step, event)
                told = len(events)
                if time.monotonic() > deadline:
                    process.kill()
                    raise AssertionError(log.read_text(errors="replace")[-6000:])
                time.sleep(_POLL_SECONDS)
        text = log.read_text(errors="replace")
        assert process.returncode == 0, text[-6000:]
        return text

    def differences(self) -> list[str]:
        """What is wrong in any of the three tables."""
        counted = Counter(row["region"].upper() for row in self.users.rows.values())
        columns = {"region": "STRING", "users": "BIGINT"}
        found = {
            row[0]: row[1] for row in tablestore_table(self.variables, f"{self.table}_regions", columns, ("region",))
        }
        wrong = [f"{name}: {found.get(name)}, should be {counted.get(name)}" for name in {*found, *counted}
                 if found.get(name) != counted.get(name)]  # fmt: skip
        return [*self.serving_differences(), *self.warehouse_differences(), *wrong]

    def differences_after(self, seconds: float) -> list[str]:
        """What is wrong when tables have had so long to catch up; returns as soon as nothing is."""
        deadline = time.monotonic() + seconds
        while (found := self.differences()) and time.monotonic() < deadline:
            time.sleep(3.0)
        return found


def settings_of(cluster: SparkCluster, **more: str) -> dict[str, str]:
    """Settings of sessions on a cluster: one executor a worker."""
    return {
        "spark.master": cluster.url,
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "800m",
        "spark.driver.memory": "1g",
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def cluster_of(installed: Installed, folder: Path) -> SparkCluster:
    """A cluster whose processes know nothing but the environment of the wheel."""
    (spark,) = installed.folder.glob("venv/lib/python3*/site-packages/pyspark")
    return SparkCluster(folder, spark, installed.environment())


def project_on(
    cluster: SparkCluster, installed: Installed, s3: S3, path: Path, variables: Mapping[str, str], topic: str
) -> Clustered:
    """A project whose executors run the Python of the wheel's environment."""
    return Clustered(
        path,
        variables,
        topic,
        installed=installed,
        settings=settings_of(cluster, spark__pyspark__python=str(installed.bin / "python")),
        lake_uri=f"{s3.uri}/{path.name}",
        lake_options=s3.options,
    )
