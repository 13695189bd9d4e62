"""The options reference: every option of every connector and format.

``python -m upsert_platform.reference.markdown`` writes ``docs/options.md``, and ``docs/errors.md`` beside it;
`upsert-platform options` prints the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from upsert_platform.reference.rows import Section
from upsert_platform.reference.texts import INTRODUCTION


@lru_cache(maxsize=1)
def sections() -> Mapping[str, Section]:
    """Every section, by name, in the order of the reference."""
    from upsert_platform.reference.sections import all_sections

    return {section.name: section for section in all_sections()}


def markdown() -> str:
    """The whole reference."""
    lines = ["<!-- Written by: python -m upsert_platform.reference.markdown -->", "", *INTRODUCTION.splitlines(), ""]
    lines += [f"- [{section.title}](#{_anchor(section.title)})" for section in sections().values()]
    for section in sections().values():
        lines += ["", f"## {section.title}", "", section.about, "", _line(section.headings), _line(["---"] * 4)]
        lines += [_line([f"`{row.name}`", _code(row.second), row.third, row.text]) for row in section.rows]
    return "\n".join(lines) + "\n"


def _anchor(title: str) -> str:
    kept = "".join(char for char in title.lower() if char.isalnum() or char in " -_")
    return kept.replace(" ", "-")


def _code(text: str) -> str:
    return f"`{text}`" if text and not text.startswith("(") else text


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def main() -> None:
    """Writes ``docs/options.md`` and ``docs/errors.md`` of this checkout."""
    from upsert_platform.reference.errors import errors_page

    folder = Path(__file__).parents[2] / "docs"
    folder.mkdir(exist_ok=True)
    (folder / "options.md").write_text(markdown(), "utf-8")
    (folder / "errors.md").write_text(errors_page(), "utf-8")


if __name__ == "__main__":
    main()
