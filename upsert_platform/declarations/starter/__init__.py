"""A small project to begin with: its files lie beside this module as they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from upsert_platform.errors import DeclarationError, Problem, SourceLocation

FILES: Final = {"orders.sql": "orders.sql", "test_orders.py": "test_orders.txt"}
"""File of the project to the file beside this module that holds its text."""


def write_starter(folder: Path, *, tests: bool = True) -> tuple[Path, ...]:
    """Writes the project into a folder, which is made if it is missing.

    Args:
        tests: whether its test is written too.

    Returns:
        The files written.

    Raises:
        DeclarationError: one of the files is there already, or the folder cannot be written; nothing is written then.
    """
    names = {name: text for name, text in FILES.items() if tests or not name.startswith("test_")}
    paths = tuple(folder / name for name in names)
    taken = [path for path in paths if path.exists()]
    if taken:
        message = "this file is there already, and is not overwritten: name another folder, or move the file away"
        raise DeclarationError([Problem(message, SourceLocation(str(path))) for path in taken])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for text, path in zip(names.values(), paths, strict=True):
            with path.open("x", encoding="utf-8") as file:
                file.write((Path(__file__).parent / text).read_text("utf-8"))
    except OSError as error:
        message = f"the project cannot be written here ({error.strerror}): name a folder that you may write"
        raise DeclarationError([Problem(message, SourceLocation(str(folder)))]) from error
    return paths
