"""The documents as a site: built without a network and without a warning, and it needs none to be read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

pytestmark = pytest.mark.systems
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    nowhere = "http://127.0.0.1:9"
    environment = {**os.environ, "HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "NO_MKDOCS_2_WARNING": "1"}
    command = [str(Path(sys.executable).parent / "mkdocs"), "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_there_and_needs_no_network(site: Path) -> None:
    pages = {path.name: path.read_text("utf-8") for path in site.glob("*.html")}
    documents = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert {f"{name}.html" for name in documents | {"architecture", "contributing", "releases"}} <= set(pages)
    for name, page in pages.items():
        loaded = re.findall(r"<(?:script|img|link)\b[^>]*?(?:src|href)=\"(https?://[^\"]+)\"", page)
        assert loaded == [], f"{name} needs a network"
        if name != "404.html":
            # Each is in the navigation of every other one.
            assert f'href="{name}"' in pages["index.html"] or name == "index.html"


def test_search_works_from_disk_and_asks_no_other_host(site: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert chromium, "Chromium is not on this machine: 'make test-systems' installs it"
    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.locator("input[data-md-component=search-query]").click()
        page.keyboard.type("schema.change.behavior")
        expect(page.locator(".md-search-result__item").first).to_be_visible(timeout=20_000)
        browser.close()
    assert asked
    assert [address for address in asked if not address.startswith("file:")] == []
