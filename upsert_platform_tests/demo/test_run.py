"""The demo around its runs: what it shows of them, and that nothing it started outlives it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from upsert_platform.changelog import lake
from upsert_platform.demo import instance, run
from upsert_platform.demo.pageviews import Pageviews, counted, looked_at_last
from upsert_platform.demo.run import DemoError
from upsert_platform.local import supervisor

Dagster = Callable[[str], Path]


@pytest.fixture
def dagster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dagster:
    """Puts a shell script in the place of the `dagster` command; returns the log that the demo writes."""
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "home"))

    def put(script: str) -> Path:
        command = tmp_path / "dagster"
        command.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        command.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        return tmp_path / "demo.log"

    return put


def test_lines_of_a_run_are_told_without_the_time_and_all_is_logged(dagster: Dagster) -> None:
    log = dagster("echo '10:00:01 users  batch 1'; echo 'a trace' >&2; echo '10:00:02 sync  succeeded'")
    told: list[str] = []
    run._sync(log, told.append)
    assert told == ["users  batch 1", "sync  succeeded"]
    assert log.read_text("utf-8") == "10:00:01 users  batch 1\na trace\n10:00:02 sync  succeeded\n"


def test_run_is_quiet_about_warnings_of_python_unless_asked(dagster: Dagster, monkeypatch: pytest.MonkeyPatch) -> None:
    log = dagster('echo "$PYTHONWARNINGS"')
    monkeypatch.delenv("PYTHONWARNINGS", raising=False)
    run._sync(log, print)
    assert log.read_text("utf-8") == "ignore\n"
    monkeypatch.setenv("PYTHONWARNINGS", "always")
    run._sync(log, print)
    assert log.read_text("utf-8") == "always\n"


def test_failed_run_names_its_log(dagster: Dagster) -> None:
    log = dagster("exit 1")
    with pytest.raises(DemoError, match=rf"exit code 1\); its log is {log}"):
        run._sync(log, print)


def test_interrupted_run_is_ended_before_the_demo_goes_on(dagster: Dagster, tmp_path: Path) -> None:
    log = dagster(f"trap 'touch {tmp_path}/ended; exit 130' INT; echo '10:00:01 begun'; while :; do sleep 0.05; done")

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run._sync(log, interrupt)
    assert (tmp_path / "ended").exists()


def test_servers_are_stopped_even_when_they_were_just_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the servers come up."""
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path))
    stopped: list[Path] = []

    def interrupted(directory: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(supervisor, "up", interrupted)
    monkeypatch.setattr(supervisor, "down", stopped.append)
    with pytest.raises(KeyboardInterrupt):
        run.run_demo(Console(quiet=True))
    assert stopped == [tmp_path / "local"]


def test_demo_takes_its_own_project_and_servers_whatever_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path))
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(tmp_path / "shop"))
    monkeypatch.setenv("UPSERT_KAFKA_BOOTSTRAP_SERVERS", "kafka.shop.example:9092")
    monkeypatch.setattr(supervisor, "up", lambda directory: {"UPSERT_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9"})
    monkeypatch.setattr(supervisor, "down", lambda directory: None)
    found: list[str | None] = []

    def waves(console: Console, variables: Mapping[str, str], *, command: str) -> None:
        environment = instance.environment()
        found.extend([str(lake.project_path()), environment["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], command])
        found.append(environment.get("UPSERT_PLATFORM_PROJECT"))

    monkeypatch.setattr(run, "_waves", waves)
    run.run_demo(Console(quiet=True))
    shipped = str(Path(run.__file__).parent / "project")
    assert found == [shipped, "127.0.0.1:9", "UPSERT_PLATFORM_PROJECT= upsert-platform", None]
    assert lake.project_path() == tmp_path / "shop", "the environment is as it was"


def test_tables_behind_queries_are_compared_with_a_plain_count() -> None:
    views = [json.loads(value) for _, value in Pageviews(seed=3).wave(200, most_users=5)]
    regions = counted(views)
    assert sum(pv for _, pv, _ in regions) == 200
    assert all(0 < uv <= 5 for _, _, uv in regions)
    (last,) = looked_at_last({3: {"name": "Ada"}, 9: {"name": "Bo"}}, views)
    latest = [view for view in views if view["user_id"] == 3][-1]
    assert last[:3] == [3, "Ada", latest["page_id"]]
    seconds = datetime.fromisoformat(latest["viewtime"]).replace(tzinfo=UTC).timestamp()
    assert last[3] == round(seconds * 1000) * 1_000_000
    run._compare("regions_serving", regions, counted(views), Console(quiet=True))
    for wrong in (regions[1:], [*regions, ["x", 1, 1]], [[region, pv + 1, uv] for region, pv, uv in regions]):
        with pytest.raises(DemoError, match="regions_serving is not what the records say; the first difference"):
            run._compare("regions_serving", wrong, regions, Console(quiet=True))
