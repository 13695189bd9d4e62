"""Hand Spark's settings to its JVM in a file: everybody on the machine can read the command line of a process."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from upsert_platform.core.errors import EndpointError

_VARIABLE: Final = "PYSPARK_SUBMIT_ARGS"
"""Arguments of spark-submit, which PySpark adds to its own."""
_OPTION: Final = "--properties-file"
_ESCAPED: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
_ESCAPED_IN_NAMES: Final = {**_ESCAPED, " ": "\\ ", "=": "\\=", ":": "\\:", "#": "\\#", "!": "\\!"}


@contextmanager
def settings_file(settings: Mapping[str, str], folder: Path) -> Iterator[bool]:
    """While the block runs, a JVM that PySpark starts reads these settings from a file that only this user can read.

    The file is removed at the end of the block. ``spark-defaults.conf`` is read too, and a properties file that
    ``PYSPARK_SUBMIT_ARGS`` names; the settings win over both.

    Args:
        folder: for the file; exists.

    Yields:
        Whether the JVM is given these settings alone: ``PYSPARK_SUBMIT_ARGS`` names no file and no option.

    Raises:
        EndpointError: the file that ``PYSPARK_SUBMIT_ARGS`` names cannot be read.
    """
    before = os.environ.get(_VARIABLE)
    arguments, named = _split(shlex.split(before or "pyspark-shell"))
    path = folder / "spark-settings.properties"
    path.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(_content_of(named))
            file.writelines(
                f"{_escape(name, _ESCAPED_IN_NAMES)}={_escape(text, _ESCAPED)}\n" for name, text in settings.items()
            )
        os.environ[_VARIABLE] = shlex.join((_OPTION, str(path), "--load-spark-defaults", *arguments))
        yield named is None and arguments == ["pyspark-shell"]
    finally:
        path.unlink(missing_ok=True)
        if before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = before


def _split(arguments: list[str]) -> tuple[list[str], str | None]:
    """Return the arguments without a properties file, and the name of that file."""
    kept: list[str] = []
    named = None
    rest = iter(arguments)
    for one in rest:
        if one == _OPTION:
            named = next(rest, None)
        elif one.startswith(f"{_OPTION}="):
            named = one.partition("=")[2]
        else:
            kept.append(one)
    return kept, named


def _content_of(named: str | None) -> str:
    if named is None:
        return ""
    try:
        return Path(named).read_text("utf-8") + "\n"
    except (OSError, UnicodeError) as error:
        raise EndpointError(
            f"'{named}', which {_VARIABLE} names as {_OPTION}, cannot be read ({error}); correct the variable"
        ) from None


def _escape(text: str, special: Mapping[str, str]) -> str:
    """Return a text as `java.util.Properties` reads it."""
    escaped = "".join(special.get(one, one) for one in text)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped
