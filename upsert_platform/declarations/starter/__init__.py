"""A small project to begin with: its files lie beside this module as they are written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from upsert_platform.core.errors import DeclarationError, Problem, SourceLocation

FILES: Final = {"orders.sql": "orders.sql", "test_orders.py": "test_orders.txt"}
"""File of the project to the file beside this module that holds its text."""


_TOPIC: Final = "orders"
_NAMES: Final = re.compile(rf"^(?!\s*--)(.*?)\b(open_)?{_TOPIC}\b", re.MULTILINE)
"""The name of its topic and of its tables, in lines that are not comments."""


def write_starter(
    folder: Path, *, topic: str = _TOPIC, tests: bool = True, options: Mapping[str, str] | None = None
) -> tuple[Path, ...]:
    """Writes the project into a folder, which is made if it is missing.

    Args:
        topic: the name of its topic and of the table that reads it; the table written is ``open_TOPIC``, and the file
            is ``TOPIC.sql``. An SQL identifier.
        tests: whether its test is written too; it is one of the topic `orders`.
        options: connector and endpoint of the table that is written, in place of those of Tablestore.

    Returns:
        The files written.

    Raises:
        DeclarationError: one of the files is there already, or the folder cannot be written; nothing is written then.
    """
    names = {name: text for name, text in FILES.items() if tests or not name.startswith("test_")}
    paths = tuple(folder / name.replace(_TOPIC, topic) for name in names)
    taken = [path for path in paths if path.exists()]
    if taken:
        message = "this file is there already, and is not overwritten: name another folder, or move the file away"
        raise DeclarationError([Problem(message, SourceLocation(str(path))) for path in taken])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for text, path in zip(names.values(), paths, strict=True):
            with path.open("x", encoding="utf-8") as file:
                held = _with_options((Path(__file__).parent / text).read_text("utf-8"), options)
                file.write(_NAMES.sub(rf"\1\2{topic}", held))
    except OSError as error:
        message = f"the project cannot be written here ({error.strerror}): name a folder that you may write"
        raise DeclarationError([Problem(message, SourceLocation(str(folder)))]) from error
    return paths


def _with_options(text: str, options: Mapping[str, str] | None) -> str:
    """Return the text of a file with other options of the written table."""
    head, found, rest = text.partition("  'connector' = 'tablestore',\n")
    if options is None or not found:
        return text
    own = "".join(f"  '{name}' = '{value}',\n" for name, value in options.items())
    return (
        head.replace("options tablestore", f"options {options['connector']}") + own + rest[rest.index("  -- Makes") :]
    )
