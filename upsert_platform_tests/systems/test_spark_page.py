"""Materialisations that Spark worked for lead to its page, where the session has one."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlparse

import dagster as dg
import pytest

from upsert_platform_tests.graph.stack import Stack

pytestmark = [pytest.mark.systems, pytest.mark.timeout(600)]


def run(stack: Stack, *configured: str, settings: str) -> None:
    """A sync as a user starts it."""
    file = stack.path / "spark.conf"
    file.write_text(settings)
    environment = {**stack.environment(), "UPSERT_SPARK_SETTINGS": str(file), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run([*stack.command(), *configured], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def pages(instance: dg.DagsterInstance, keys: Sequence[str]) -> list[str | None]:
    """Where the last materialisation of each asset leads to."""
    found: list[str | None] = []
    for key in keys:
        event = instance.get_latest_materialization_event(dg.AssetKey.from_user_string(key))
        assert event is not None
        assert event.asset_materialization is not None
        link = event.asset_materialization.metadata.get("spark_ui")
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
