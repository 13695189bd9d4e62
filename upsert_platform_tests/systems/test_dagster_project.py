"""The page `docs/dagster-project.md`: its commands in an empty folder, its clicks in a headless Chromium.

`UPSERT_SCREENSHOTS` names the folder of the pictures, which the page shows; the test's own is used without it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from playwright.sync_api import Browser, Page, expect, sync_playwright

from upsert_platform.local.process import free_port
from upsert_platform_tests.systems.installed import CHECKOUT, Installed

pytestmark = [pytest.mark.systems, pytest.mark.timeout(1200)]
SECONDS = 1000.0
"""Of the waits of the browser, in milliseconds."""
SCHEMES = ("light", "dark")
"""Checks of tables that *Materialize all* leaves out: they warn, since nothing was compared."""
QUERY = """{ assetNodes { assetKey { path } assetMaterializations(limit: 9) { timestamp }
  assetChecksOrError { ... on AssetChecks { checks { name executionForLatestMaterialization { status } } } } } }"""


def blocks() -> list[str]:
    text = (CHECKOUT / "docs" / "dagster-project.md").read_text("utf-8")
    return re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@dataclass
class Shell:
    """The terminals of a reader: the first commands of a terminal are those that set its variables."""

    folder: Path
    variables: dict[str, str]
    settings: str = ""

    def type(self, commands: str, *, timeout: float = 300) -> str:
        """Types commands into a terminal and returns what they print, on both streams."""
        if commands.startswith("export "):
            self.settings = "\n".join(line for line in commands.splitlines() if line.startswith("export "))
        script = f"set -euo pipefail\n{self.settings}\n{commands}"
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=self.variables, text=True, timeout=timeout,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, f"{commands}\n{done.stdout[-4000:]}"
        return done.stdout

    @contextmanager
    def running(self, command: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
        """A command that runs until Ctrl-C."""
        with log.open("wb") as out:
            started = subprocess.Popen(
                ["bash", "-c", f"{self.settings}\nexec {command}"], cwd=self.folder, env=self.variables,
                stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
            try:
                yield started
            finally:
                os.killpg(started.pid, signal.SIGINT)
                try:
                    started.wait(60)
                except subprocess.TimeoutExpired:
                    os.killpg(started.pid, signal.SIGKILL)
                    started.wait(10)


@dataclass
class Ui:
    """Dagster's pages."""

    browser: Browser
    address: str
    shots: Path

    def page(self, path: str, scheme: Any = "light") -> Page:
        found = self.browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
        found.set_default_timeout(60 * SECONDS)
        found.goto(f"{self.address}/{path}")
        return found

    def states(self) -> dict[str, tuple[list[str], dict[str, str | None]]]:
        """Asset to the times of its materialisations, and its checks to the results that the graph shows."""
        answer = requests.post(f"{self.address}/graphql", json={"query": QUERY}, timeout=60).json()
        return {
            "/".join(node["assetKey"]["path"]): (
                [item["timestamp"] for item in node["assetMaterializations"]],
                {
                    check["name"]: (check["executionForLatestMaterialization"] or {}).get("status")
                    for check in node["assetChecksOrError"].get("checks", [])
                },
            )
            for node in answer["data"]["assetNodes"]
        }

    def materialise_all(self, ends: str = "Success") -> float:
        """Clicks *Materialize all*, and returns the seconds until a run has ended so for the first time."""
        page = self.page("asset-groups")
        started = time.monotonic()
        page.get_by_role("button", name="Materialize all").click()
        page.wait_for_timeout(2 * SECONDS)
        page.goto(f"{self.address}/runs")
        expect(page.get_by_text(ends, exact=True)).to_have_count(1, timeout=240 * SECONDS)
        page.close()
        return time.monotonic() - started

    def keep_graph(self, name: str = "project", *, passed: int = 4) -> None:
        """The checks of so many assets are shown as they ended, light and dark; the others have failed."""
        for scheme in SCHEMES:
            page = self.page("asset-groups", scheme)
            expect(page.get_by_text("changelogs", exact=True).first).to_be_visible(timeout=60 * SECONDS)
            page.wait_for_timeout(2 * SECONDS)
            page.keyboard.press("Alt+KeyE")  # expands all groups
            if passed == 4:
                expect(page.get_by_text("4 / 4 Passed")).to_have_count(4, timeout=60 * SECONDS)
            expect(page.get_by_text("Failed", exact=True)).to_have_count(4 - passed, timeout=60 * SECONDS)
            page.wait_for_timeout(2 * SECONDS)  # edges are drawn behind the groups
            page.screenshot(path=self.shots / f"{name}-{scheme}.png")
            page.close()


@contextmanager
def browsing(address: str, shots: Path) -> Iterator[Ui]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert chromium, "Chromium is not on this machine: 'make test-systems' installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            yield Ui(browser, address, shots)
        finally:
            browser.close()


def came_up(address: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(120):
        assert server.poll() is None
        try:
            if requests.get(f"{address}/server_info", timeout=5).ok:
                return
        except requests.ConnectionError:
            time.sleep(1)
    raise AssertionError("the UI did not come up")


def reader(installed: Installed, folder: Path) -> Shell:
    """A shell in an empty folder, whose `pip` is that of the environment."""
    tools = folder / "tools"
    tools.mkdir()
    pip = tools / "pip"
    constraints = installed.folder / "constraints.txt"
    pip.write_text(
        f'#!/bin/sh\nexport PIP_CONSTRAINT="{constraints}"\nexec {sys.executable} -m pip --disable-pip-version-check'
        f' --python {installed.bin / "python"} "$@" --quiet\n'
    )
    pip.chmod(0o755)
    variables = installed.environment(
        UPSERT_SPARK_SESSION="off", NO_COLOR="1", COLUMNS="200", VIRTUAL_ENV=str(installed.bin.parent)
    )
    variables["PATH"] = f"{tools}:{variables['PATH']}"
    (folder / "empty").mkdir()
    return Shell(folder / "empty", variables)


def _nothing_new_leaves_everything_green(shell: Shell, ui: Ui, found: dict[str, Any]) -> None:
    assert "nothing" in shell.type("upsert-platform sync")
    assert ui.states() == found  # no run, no event
    shell.type("dg launch --job sync_retail_orders")  # runs in any case, and succeeds
    assert ui.states() == found  # no materialisation, and each check has its result


@pytest.mark.soak
def test_the_page_leads_from_an_empty_folder_to_a_green_graph(installed: Installed, tmp_path: Path) -> None:
    create, scaffold, servers, dev, commands, down = blocks()
    shots = Path(os.environ.get("UPSERT_SCREENSHOTS", tmp_path / "shots"))
    shots.mkdir(parents=True, exist_ok=True)
    shell = reader(installed, tmp_path)
    assert "UpsertProjectComponent" in shell.type(create)
    shell.folder /= "shop"
    scaffolded = shell.type(scaffold)
    assert "All definitions loaded successfully" in scaffolded
    assert "UPSERT_TABLESTORE_ACCESS_KEY_SECRET" in scaffolded
    assert "sync_wholesale_orders" in scaffolded
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    try:
        shell.type(servers)
        started = time.monotonic()
        with shell.running(f"{dev.strip()} --port {port}", tmp_path / "dev.log") as server:
            came_up(address, server)
            up = time.monotonic() - started
            with browsing(address, shots) as ui:
                seconds = ui.materialise_all()
                (shots / "seconds.txt").write_text(f"dg dev: {up:.1f} s; from the click to green: {seconds:.1f} s\n")
                # Half of it where nothing else runs: other tests share the cores.
                assert seconds < 120, f"{seconds:.0f} s from the click to green"
                found = ui.states()
                assert len(found) == 6
                for key, (times, checks) in found.items():
                    if not key.startswith("topics/"):
                        assert len(times) == 1, key
                        assert len(checks) == 4, key
                        assert set(checks.values()) == {"SUCCEEDED"}, key
                ui.keep_graph()
                printed = shell.type(commands)
                assert "no error" in printed
                assert "ann" in printed
                assert "open_wholesale_orders" in printed
                _nothing_new_leaves_everything_green(shell, ui, found)
    finally:
        shell.type(down)


BROKEN = """CREATE TABLE {name} (order_id BIGINT, PRIMARY KEY (order_id) NOT ENFORCED)
  WITH ('connector' = 'tablestore', 'no.such.option' = '1');
INSERT INTO {name} SELECT order_id FROM orders;
"""
DECLARED = """CREATE TABLE orders (order_id BIGINT, state STRING, PRIMARY KEY (order_id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE open_orders (order_id BIGINT, state STRING, PRIMARY KEY (order_id) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'table.name' = '{table}', 'auto.create' = 'true', 'check.equals-source' = 'off',
  'check.equals-topic' = 'off');
INSERT INTO open_orders SELECT * FROM orders WHERE state = 'open';
"""
REASON = "'no.such.option'"


@pytest.mark.soak
def test_of_a_project_with_a_broken_table_that_one_alone_is_red(
    variables: Mapping[str, str], make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic(partitions=2)
    project = tmp_path / "project"
    project.mkdir()
    (project / "orders.sql").write_text(DECLARED.format(topic=topic, table=topic.replace("-", "_")), "utf-8")
    shots = Path(os.environ.get("UPSERT_SCREENSHOTS", tmp_path / "shots"))
    shots.mkdir(parents=True, exist_ok=True)
    (tmp_path / "dagster").mkdir()
    given = {
        **os.environ, **variables, "DAGSTER_HOME": str(tmp_path / "dagster"), "UPSERT_SPARK_SESSION": "off",
        "UPSERT_PLATFORM_PROJECT": str(project), "UPSERT_PLATFORM_HOME": str(tmp_path / "home"),
    }  # fmt: skip
    shell = Shell(tmp_path, given)
    command = str(Path(sys.executable).parent / "upsert-platform")
    shell.type(f"""echo '{{"order_id": 1, "state": "open"}}' | {command} send orders""")
    (project / "wrong.sql").write_text(BROKEN.format(name="wrong"), "utf-8")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with shell.running(f"{command} ui --port {port}", tmp_path / "ui.log") as server:
        came_up(address, server)
        with browsing(address, shots) as ui:
            ui.materialise_all("Failure")
            for key, (times, checks) in ui.states().items():
                if key == "tables/wrong":
                    assert times == []
                elif not key.startswith("topics/"):
                    assert len(times) == 1, key
                    assert set(checks.values()) == {"SUCCEEDED"}, key
            for scheme in SCHEMES:
                page = ui.page("asset-groups", scheme)
                expect(page.get_by_text("changelogs", exact=True).first).to_be_visible(timeout=60 * SECONDS)
                page.wait_for_timeout(2 * SECONDS)
                page.keyboard.press("Alt+KeyE")
                expect(page.get_by_text("Failed", exact=True)).to_have_count(1, timeout=60 * SECONDS)
                page.wait_for_timeout(3 * SECONDS)
                page.screenshot(path=shots / f"broken-{scheme}.png")
                page.goto(f"{address}/assets/tables/wrong")
                expect(page.get_by_text(REASON).first).to_be_visible(timeout=60 * SECONDS)
                expect(page.get_by_text("wrong.sql:2").first).to_be_visible(timeout=60 * SECONDS)
                expect(page.get_by_text("in editor").first).to_be_visible(timeout=60 * SECONDS)
                page.wait_for_timeout(2 * SECONDS)
                page.screenshot(path=shots / f"broken-table-{scheme}.png")
                page.close()
            page = ui.page("assets/tables/open_orders", "dark")
            page.wait_for_timeout(5 * SECONDS)
            page.screenshot(path=shots / "open-orders-dark.png", full_page=True)
            page = ui.page("locations/upsert_platform.definitions/jobs/replay/playground")
            expect(page.get_by_text("No errors")).to_be_visible(timeout=60 * SECONDS)
            page.wait_for_timeout(2 * SECONDS)
            page.screenshot(path=shots / "replay-launchpad.png")
