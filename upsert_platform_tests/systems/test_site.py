"""The documents as a site: built without a network and without a warning, and it needs none to be read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.systems
ROOT = Path(__file__).parents[2]


def test_the_site_is_built_offline_and_every_page_is_there(tmp_path: Path) -> None:
    nowhere = "http://127.0.0.1:9"
    environment = {**os.environ, "HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "NO_MKDOCS_2_WARNING": "1"}
    command = [str(Path(sys.executable).parent / "mkdocs"), "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.name: path.read_text("utf-8") for path in (tmp_path / "site").glob("*.html")}
    documents = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert {f"{name}.html" for name in documents | {"architecture", "changelog", "contributing"}} <= set(pages)
    for name, page in pages.items():
        loaded = re.findall(r"<(?:script|img|link)\b[^>]*?(?:src|href)=\"(https?://[^\"]+)\"", page)
        assert loaded == [], f"{name} needs a network"
        if name != "404.html":
            # Each is in the navigation of every other one.
            assert f'href="{name}"' in pages["index.html"] or name == "index.html"
