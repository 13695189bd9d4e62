"""Commands that messages name can be typed as they stand: they exist, with their options and all their arguments."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

import upsert_platform
from upsert_platform.cli.main import main

PACKAGE = Path(upsert_platform.__file__).parent
NAMED = re.compile(r"'upsert-platform ([a-z][^']*)'")


def texts() -> Iterator[tuple[str, str]]:
    """File and text of every string of the package, with a word for each value that is put in."""
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                values = [str(item.value) if isinstance(item, ast.Constant) else "X" for item in node.values]
                yield str(file.relative_to(PACKAGE)), "".join(values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
                yield str(file.relative_to(PACKAGE)), node.value


def what_is_wrong(typed: str) -> str:
    """Why a command cannot be typed; empty if it can."""
    words, found = shlex.split(typed), click.Context(main).command
    while isinstance(found, click.Group):
        if not words or (inner := found.get_command(click.Context(found), words[0])) is None:
            return f"no command {words[:1]}"
        found, words = inner, words[1:]
    options = {name: item for item in found.params if isinstance(item, click.Option) for name in item.opts}
    values = 0
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            values += 1
        elif (option := options.get(word.partition("=")[0])) is None:
            return f"no option {word}"
        elif not option.is_flag and "=" not in word and words:
            words.pop(0)
    needed = [item.name for item in found.params if isinstance(item, click.Argument) and item.required]
    return f"needs {needed}" if values < len(needed) else ""


def test_they_are_complete() -> None:
    named = {(file, typed) for file, text in texts() for typed in NAMED.findall(text)}
    assert len(named) > 40
    wrong = {(file, typed): why for file, typed in named if (why := what_is_wrong(typed))}
    assert wrong == {}


def test_an_incomplete_one_is_found() -> None:
    assert what_is_wrong("quarantine show X") == "needs ['table', 'place']"
    assert what_is_wrong("quarantine shew X").startswith("no command")
    assert what_is_wrong("sync --everything").startswith("no option")
