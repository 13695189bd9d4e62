"""The Dagster UI as a user sees it, in a headless Chromium. `UPSERT_SCREENSHOTS` names a folder for what it showed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright
from tablestore import Condition, OTSClient, Row, RowExistenceExpectation

from upsert_platform.local.process import free_port
from upsert_platform_tests.graph.stack import Stack

pytestmark = [pytest.mark.systems, pytest.mark.timeout(600)]

LOCATION = "upsert_platform.definitions"
SECONDS = 1000.0
"""Of the waits of the browser, in milliseconds."""


@dataclass
class Ui:
    """A page of a running UI."""

    page: Page
    address: str
    shots: Path

    def open(self, path: str) -> None:
        self.page.goto(f"{self.address}/{path}")

    def keep(self, name: str) -> None:
        """A screenshot, when what is still drawn had time to come."""
        self.page.wait_for_timeout(2 * SECONDS)
        self.page.screenshot(path=self.shots / f"{name}.png")

    def keep_asset(self, key: str, text: str) -> None:
        """The pages of an asset, light and dark, where screenshots are asked for."""
        for scheme in ("light", "dark") if os.environ.get("UPSERT_SCREENSHOTS") else ():
            self.page.emulate_media(color_scheme=scheme)
            for view in ("overview", "events", "checks", "lineage"):
                self.open(f"assets/{key}?view={view}")
                self.page.wait_for_timeout(2 * SECONDS)
                if view == "overview":
                    expect(self.page.get_by_text(text, exact=True).first).to_be_visible()
                    self.page.set_viewport_size({"width": 1440, "height": 1800})
                self.keep(f"{key.replace('/', '-')}-{view}-{scheme}")
                self.page.set_viewport_size({"width": 1440, "height": 900})

    def ended(self, *, successes: int, failures: int) -> None:
        """Waits until so many runs have ended so."""
        self.open("runs")
        for word, count in (("Success", successes), ("Failure", failures)):
            expect(self.page.get_by_text(word, exact=True)).to_have_count(count, timeout=240 * SECONDS)

    def check(self) -> None:
        """Opens the check of the table."""
        self.open("assets/tables/users_serving?view=checks&checkDetail=last_value_per_key")
        expect(self.page.get_by_text("Latest execution")).to_be_visible()


@pytest.fixture
def stack(variables: Mapping[str, str], make_topic: Callable[..., str], tmp_path: Path) -> Stack:
    """A project that no process of the test runs."""
    topic = make_topic(name=f"users-{uuid.uuid4().hex[:8]}", partitions=2, config={"cleanup.policy": "compact"})
    found = Stack(tmp_path, variables, topic)
    found.declare()
    return found


@pytest.fixture
def ui(stack: Stack, tmp_path: Path) -> Iterator[Ui]:
    """`upsert-platform ui` on the project, and a browser."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert chromium, "Chromium is not on this machine: 'make test-systems' installs it"
    port = free_port()
    command = [str(Path(sys.executable).parent / "upsert-platform"), "ui", "--port", str(port)]
    shots = Path(os.environ.get("UPSERT_SCREENSHOTS", tmp_path / "shots"))
    shots.mkdir(parents=True, exist_ok=True)
    with (tmp_path / "ui.log").open("wb") as log, sync_playwright() as playwright:
        server = subprocess.Popen(
            command, cwd=tmp_path, env=stack.environment(), stdout=log, stderr=log, preexec_fn=_in_background
        )
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.set_default_timeout(60 * SECONDS)
            expect.set_options(timeout=60 * SECONDS)
            _wait(page, f"http://127.0.0.1:{port}", server)
            yield Ui(page, f"http://127.0.0.1:{port}", shots)
        finally:
            page.screenshot(path=shots / "last.png")
            browser.close()
            server.terminate()
            server.wait(60)


def _in_background() -> None:
    """What shells do for a process in the background; it is to end at SIGTERM all the same."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _wait(page: Page, address: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(120):
        assert server.poll() is None
        try:
            page.goto(f"{address}/asset-groups")
        except Exception as error:  # noqa: BLE001 - Playwright has one class for all, told apart by its text
            # The browser itself loads a page again that was refused.
            assert "ERR_CONNECTION_REFUSED" in str(error) or "interrupted by another navigation" in str(error)
            page.wait_for_timeout(SECONDS)
        else:
            return
    raise AssertionError("the UI did not come up")


def test_a_user_sees_the_graph_a_failed_check_and_the_repair(ui: Ui, stack: Stack) -> None:
    page = ui.page
    stack.produce(stack.users.first_wave(200))

    ui.open("asset-groups")
    for group in ("topics", "changelogs", "tables"):
        expect(page.get_by_text(group, exact=True).first).to_be_visible()
    page.get_by_role("button", name="Materialize all").click()
    page.wait_for_timeout(3 * SECONDS)
    ui.ended(successes=1, failures=0)
    assert stack.serving_differences() == []

    ui.open("asset-groups")
    expect(page.get_by_text("changelogs", exact=True).first).to_be_visible()
    page.keyboard.press("Alt+KeyE")  # expands all groups
    expect(page.get_by_text("users_serving", exact=True).first).to_be_visible()
    page.wait_for_timeout(10 * SECONDS)  # the states of assets are asked for after the graph is drawn
    ui.keep("graph")

    ui.open("assets/tables/users_serving")
    for text in ("PRIMARY KEY (user_id)", "DECIMAL(12, 2)", "from users.balance", "upserts"):
        expect(page.get_by_text(text, exact=True).first).to_be_visible()
    ui.keep("table")
    ui.check()
    for text in ("Passed", "compared", "Plots"):
        expect(page.get_by_text(text, exact=True).first).to_be_visible()
    ui.keep("check-passed")

    spoiled = min(stack.users.rows)
    _spoil(stack, spoiled)
    page.get_by_role("button", name="Execute all").click()
    page.wait_for_timeout(3 * SECONDS)
    ui.ended(successes=1, failures=1)  # the check is a blocking one
    ui.check()
    expect(page.get_by_text("Failed", exact=True).first).to_be_visible()
    expect(page.get_by_text("stale", exact=True).first).to_be_visible()
    expect(page.get_by_text(f"user_id={spoiled}", exact=True).first).to_be_visible()
    expect(page.get_by_text("found 'nobody'").first).to_be_visible()
    expect(page.get_by_text("job 'reconcile' writes just the rows").first).to_be_visible()
    ui.keep("check-failed")

    ui.open(f"locations/{LOCATION}/jobs/reconcile/playground")
    expect(page.get_by_text("No errors")).to_be_visible()
    ui.keep("launchpad")
    page.get_by_role("button", name="Launch Run").click()
    page.wait_for_timeout(3 * SECONDS)
    ui.ended(successes=2, failures=1)
    ui.check()
    expect(page.get_by_text("Passed", exact=True).first).to_be_visible()
    assert stack.serving_differences() == []
    ui.keep_asset(f"topics/{stack.topic}", stack.topic)
    ui.keep_asset("changelogs/users", "users")
    ui.keep_asset("tables/users_serving", "users_serving")


def test_continuous_mode_draws_plots_and_serves_its_metrics(ui: Ui, stack: Stack, tmp_path: Path) -> None:
    page, port = ui.page, free_port()
    stack.produce(stack.users.first_wave(200))
    command = [str(Path(sys.executable).parent / "upsert-platform"), "stream"]
    options = ["--metrics-port", str(port), "--report-every", "3s"]
    with (tmp_path / "stream.log").open("wb") as log:
        process = subprocess.Popen([*command, *options], cwd=tmp_path, env=stack.environment(), stdout=log, stderr=log)
        try:
            text = ""
            for turn in range(60):  # of which a quick machine needs twelve
                stack.produce(stack.users.second_wave(300))
                page.wait_for_timeout(2 * SECONDS)
                if turn >= 11:
                    page.goto(f"http://127.0.0.1:{port}/metrics")
                    text = page.inner_text("body")
                    if 'upsert_platform_check_passed{kind="table",table="users_serving"} 1.0' in text:
                        break
            ui.keep("metrics")
        finally:
            process.terminate()
            assert process.wait(120) == 0, (tmp_path / "stream.log").read_text()
    assert 'upsert_platform_delay_seconds_count{kind="table",table="users_serving"}' in text
    assert 'upsert_platform_check_passed{kind="table",table="users_serving"} 1.0' in text
    assert stack.serving_differences() == []
    ui.open("assets/tables/users_serving")
    plots = page.get_by_role("button", name="Plots")
    plots.click()
    expect(page.get_by_text("delay_p95", exact=True).first).to_be_visible()
    page.get_by_text("commit_seconds", exact=True).first.evaluate("plot => plot.scrollIntoView({block: 'start'})")
    ui.keep("stream-plots")


def _spoil(stack: Stack, user: int) -> None:
    """Another program writes into a row."""
    found = stack.variables
    client = OTSClient(
        found["UPSERT_TABLESTORE_ENDPOINT"],
        found["UPSERT_TABLESTORE_ACCESS_KEY_ID"],
        found["UPSERT_TABLESTORE_ACCESS_KEY_SECRET"],
        found["UPSERT_TABLESTORE_INSTANCE"],
    )
    row = Row([("user_id", user)], {"PUT": [("name", "nobody")]})
    client.update_row(stack.table, row, Condition(RowExistenceExpectation.EXPECT_EXIST))
