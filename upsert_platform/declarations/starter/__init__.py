"""A small project to begin with: its files lie beside this module as they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from upsert_platform.errors import DeclarationError, Problem, SourceLocation

FILES: Final = ("orders.sql",)


def write_starter(folder: Path) -> tuple[Path, ...]:
    """Writes the project into a folder, which is made if it is missing.

    Returns:
        The files written.

    Raises:
        DeclarationError: one of the files is there already, or the folder cannot be written; nothing is written then.
    """
    paths = tuple(folder / name for name in FILES)
    taken = [path for path in paths if path.exists()]
    if taken:
        message = "this file is there already, and is not overwritten: name another folder, or move the file away"
        raise DeclarationError([Problem(message, SourceLocation(str(path))) for path in taken])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in zip(FILES, paths, strict=True):
            with path.open("x", encoding="utf-8") as file:
                file.write((Path(__file__).parent / name).read_text("utf-8"))
    except OSError as error:
        message = f"the project cannot be written here ({error.strerror}): name a folder that you may write"
        raise DeclarationError([Problem(message, SourceLocation(str(folder)))]) from error
    return paths
