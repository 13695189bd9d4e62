"""Dagster as deployed: records in PostgreSQL, code served by gRPC, a daemon that starts what a sensor asks for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from upsert_platform.local.process import Server, accepts, free_port, start, stop
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.systems.installed import CHECKOUT
from upsert_platform_tests.systems.postgres import postgres

pytestmark = [pytest.mark.systems, pytest.mark.timeout(600)]

DEPLOY = CHECKOUT / "deploy"
SECONDS = 240.0


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The URL of an empty database."""
    with postgres() as url:
        yield url


def test_a_sensor_starts_runs_over_grpc_and_their_records_are_in_postgresql(
    stack: Stack, database: str, tmp_path: Path
) -> None:
    import psycopg2

    stack.produce(stack.users.first_wave(200))
    port = free_port()
    environment = {
        **stack.environment(),
        "DAGSTER_POSTGRES_URL": database.replace("postgresql://", "postgresql+psycopg2://"),
        "UPSERT_CODE_HOST": "127.0.0.1",
        "UPSERT_CODE_PORT": str(port),
    }
    for name in ("dagster.yaml", "workspace.yaml"):
        shutil.copy(DEPLOY / name, environment["DAGSTER_HOME"])
    workspace = ["-w", str(Path(environment["DAGSTER_HOME"]) / "workspace.yaml")]
    programs = Path(sys.executable).parent
    code = Server(
        name="the code location",
        command=(
            str(programs / "python"), str(programs / "dagster"), "api", "grpc", "-m", "upsert_platform.definitions",
            "-h", "127.0.0.1", "-p", str(port),
        ),
        home=tmp_path / "code",
        port=port,
        answers=lambda: accepts(port),
        environment=environment,
    )  # fmt: skip
    with ExitStack() as held:
        start(code, die_with_parent=True)
        held.callback(stop, code)
        done = subprocess.run(
            [str(programs / "dagster"), "sensor", "start", *workspace, "-l", "upsert_platform", "new_offsets"],
            env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        log = held.enter_context((tmp_path / "daemon.log").open("wb"))
        daemon = subprocess.Popen(
            [str(programs / "dagster-daemon"), "run", *workspace], env=environment, stdout=log, stderr=log
        )
        held.callback(daemon.wait, 60)
        held.callback(daemon.terminate)
        runs: list[tuple[str, str, str]] = []
        deadline = time.monotonic() + SECONDS
        while not any(status in ("SUCCESS", "FAILURE") for _, status, _ in runs):
            assert time.monotonic() < deadline, (runs, (tmp_path / "daemon.log").read_text()[-3000:])
            time.sleep(1.0)
            with psycopg2.connect(database) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT pipeline_name, status, run_body FROM runs")
                runs = cursor.fetchall()
            connection.close()
    ((job, status, body),) = runs
    assert (job, status) == ("sync", "SUCCESS"), (tmp_path / "daemon.log").read_text()[-3000:]
    assert "upsert/lag" in body
    assert f'"upsert/host": "{os.uname().nodename}"' in body
    assert stack.serving_differences() == []
    assert stack.warehouse_differences() == []
    assert not list(Path(environment["DAGSTER_HOME"]).rglob("*.db"))
