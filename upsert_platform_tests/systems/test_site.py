"""The documents as a site: built without a network and without a warning, and it needs none to be read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert chromium, "Chromium is not on this machine: 'make test-systems' installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


def test_no_table_is_wider_than_its_page(site: Path, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    wider = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.innerText.slice(0, 80))"
    tables = 0
    for file in sorted(site.glob("*.html")):
        page.goto(file.as_uri())
        # The theme wraps each table by a script, some time after the page is loaded.
        page.wait_for_function("() => !document.querySelector('article table:not([class]):not(.md-typeset__table *)')")
        wraps = page.locator(".md-typeset__scrollwrap")
        tables += wraps.count()
        assert (file.name, wraps.evaluate_all(wider)) == (file.name, [])
    page.close()
    assert tables > 100


def test_search_works_from_disk_and_asks_no_other_host(site: Path, browser: Browser) -> None:
    asked: list[str] = []
    page = browser.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.locator("input[data-md-component=search-query]").click()
    page.keyboard.type("schema.change.behavior")
    expect(page.locator(".md-search-result__item").first).to_be_visible(timeout=20_000)
    page.close()
    assert asked
    assert [address for address in asked if not address.startswith("file:")] == []
