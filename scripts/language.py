"""Checks the language of docstrings and documents; `make lint` runs it.

A docstring begins with what a function returns or does, or with a noun phrase: not with a question word or "Of".
The documents use the words of the field for what a program reports, shows or returns.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
OPENING: Final = re.compile(r"(Of|What|Whether|Who|Whose|Which|Where|When|Why|How|Tells?|Told)\b")
OWN_WORDS: Final = re.compile(r"\b(told|tells?)\b", re.IGNORECASE)
MOST_PER_10_000: Final = 2.0
FENCED: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def docstrings(folder: Path) -> Iterator[tuple[Path, int, str]]:
    """Yield file, line and text of each docstring of a folder's modules."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node)
                if text:
                    yield file, node.body[0].lineno, text


def documents() -> Iterator[Path]:
    """Yield the README and the pages of the documentation."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").glob("**/*.md"))


def problems() -> Iterator[str]:
    """Yield one line per violation."""
    for file, line, text in docstrings(ROOT / "upsert_platform"):
        if OPENING.match(text):
            place = f"{file.relative_to(ROOT)}:{line}"
            yield f"{place}: the docstring begins with {text.split()[0]!r}: say what is returned or done"
    words = uses = 0
    for page in documents():
        text = FENCED.sub("", page.read_text(encoding="utf-8"))
        words += len(text.split())
        uses += len(OWN_WORDS.findall(text))
    rate = uses * 10_000 / words
    if rate >= MOST_PER_10_000:
        yield f"README and docs: told, tells, tell: {rate:.1f} in 10,000 words: reports, shows, returns, says"


if __name__ == "__main__":
    sys.exit("\n".join(problems()) or 0)
