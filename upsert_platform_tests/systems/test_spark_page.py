"""Materialisations that Spark worked for lead to its page, and to that of a history server."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlparse

import dagster as dg
import pytest
import requests

from upsert_platform.local.process import free_port
from upsert_platform_tests.graph.stack import Stack

pytestmark = [pytest.mark.systems, pytest.mark.timeout(600)]


def run(stack: Stack, *configured: str, settings: str) -> None:
    """A sync as a user starts it."""
    file = stack.path / "spark.conf"
    file.write_text(settings)
    environment = {**stack.environment(), "UPSERT_SPARK_SETTINGS": str(file), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run([*stack.command(), *configured], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def pages(instance: dg.DagsterInstance, keys: Sequence[str], name: str = "spark_ui") -> list[str | None]:
    """Return the page that the last materialisation of each asset leads to."""
    found: list[str | None] = []
    for key in keys:
        event = instance.get_latest_materialization_event(dg.AssetKey.from_user_string(key))
        assert event is not None
        assert event.asset_materialization is not None
        link = event.asset_materialization.metadata.get(name)
        assert link is None or isinstance(link, dg.UrlMetadataValue)
        found.append(None if link is None else link.url)
    return found


def test_what_spark_did_leads_to_its_page_and_what_it_did_not_do_leads_nowhere(stack: Stack, tmp_path: Path) -> None:
    stack.declare(warehouse=None)
    much = tmp_path / "much.yaml"
    much.write_text("resources: {spark: {config: {local_rows: 0}}}\n")
    keys = ("changelogs/users", "tables/users_serving")
    with dg.DagsterInstance.from_config(stack.environment()["DAGSTER_HOME"]) as instance:
        stack.produce(stack.users.first_wave(20))
        run(stack, "-c", str(much), settings="spark.ui.enabled true\nspark.ui.port 0\n")
        changelog, table = pages(instance, keys)
        assert changelog is not None
        assert changelog == table
        assert urlparse(changelog).scheme == "http"
        assert urlparse(changelog).port not in (None, 0)

        stack.produce(stack.users.second_wave(5))
        run(stack, settings="spark.ui.enabled true\nspark.ui.port 0\n")
        assert pages(instance, keys) == [None, None], "a few rows need no JVM"
    assert stack.serving_differences() == []


@contextmanager
def history_server(events: Path, log: Path) -> Iterator[str]:
    """Spark's own history server over a folder of events, and its address."""
    import pyspark

    home, port = Path(pyspark.__file__).parent, free_port()
    settings = {"spark.history.fs.logDirectory": f"file://{events}", "spark.history.ui.port": port}
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else "java"
    command = [str(java), "-cp", f"{home}/jars/*", *(f"-D{name}={value}" for name, value in settings.items())]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("wb") as out:
        server = subprocess.Popen(
            [*command, "org.apache.spark.deploy.history.HistoryServer"], env=environment, stdout=out, stderr=out
        )
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(30)


@pytest.mark.soak
def test_the_page_on_a_history_server_is_there_when_the_run_has_ended(stack: Stack, tmp_path: Path) -> None:
    stack.declare(warehouse=None)
    much = tmp_path / "much.yaml"
    much.write_text("resources: {spark: {config: {local_rows: 0}}}\n")
    events = tmp_path / "events"
    events.mkdir()
    log = tmp_path / "history.log"
    keys = ("changelogs/users", "tables/users_serving")
    with (
        dg.DagsterInstance.from_config(stack.environment()["DAGSTER_HOME"]) as instance,
        history_server(events, log) as address,
    ):
        stack.produce(stack.users.first_wave(20))
        noted = f"spark.eventLog.enabled true\nspark.eventLog.dir file://{events}\n"
        run(stack, "-c", str(much), settings=f"{noted}spark.yarn.historyServer.address {address}\n")
        changelog, table = pages(instance, keys, "spark_history")
        assert changelog == table
        assert pages(instance, keys) == [None, None]  # the session has no page of its own
        assert changelog is not None
        assert changelog.startswith(f"http://{address}/history/local-")
        deadline = time.monotonic() + 60
        while not _shows_jobs(changelog):  # the server looks for new files every ten seconds
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(1)

        stack.produce(stack.users.second_wave(5))
        run(stack, "-c", str(much), settings=noted)
        assert pages(instance, keys, "spark_history") == [None, None], "no server is named"


def _shows_jobs(page: str) -> bool:
    try:
        answer = requests.get(page, timeout=10)
    except requests.ConnectionError:
        return False
    return answer.ok and "Completed Jobs" in answer.text
