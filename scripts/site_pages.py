"""A hook of mkdocs: documents of the repository's root are pages, and links out of the site are plain text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "releases.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages."""
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        text = (ROOT / source).read_text("utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Leads links to documents of the root to their pages, and takes the link from what is no page."""

    def led(found: re.Match[str]) -> str:
        text, target = found.groups()
        file, hash_, anchor = target.partition("#")
        if "://" in target or not file:
            return found.group(0)
        name = PAGES.get(file.removeprefix("../"), file)
        if files.get_file_from_path(name) is None:
            return text
        return f"[{text}]({name}{hash_}{anchor})"

    return _LINK.sub(led, markdown)
