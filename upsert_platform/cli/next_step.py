"""The command to type next, which is the last thing that a command prints, and the project that it is about."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from upsert_platform.core.errors import (
    ChangelogError,
    DeclarationError,
    DestinationError,
    EndpointError,
    TopicError,
    UpsertPlatformError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_PROJECT: Final = "upsert_platform.project"
"""Key of a command's ``--project`` among the things that click's contexts share."""
NAMED: Final = re.compile(r"'(upsert-platform [^']+)'")
"""A command that a message names."""
_HERE: Final = re.compile(r"\b(?:127\.0\.0\.1|localhost)\b")
_COMMANDS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (DeclarationError, "upsert-platform validate"),
    (TopicError, "upsert-platform discover"),
    (EndpointError, "upsert-platform doctor"),
    (DestinationError, "upsert-platform status"),
    (ChangelogError, "upsert-platform status"),
)
"""Errors, the narrower first, to the command that shows more."""


class ProjectFolder(click.Path):
    """The folder of a project; of a file in it the message names the folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, exists=True, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the folder.

        Raises:
            click.BadParameter: it is none, or a file.
        """
        if Path(value).is_file():
            parent = Path(value).parent
            self.fail(
                f"'{value}' is a file, and a project is a folder, of which all files are read: {parent}", param, ctx
            )
        return super().convert(value, param, ctx)


def project_option(text: str = "Folder of the project.") -> Callable[[Any], Any]:
    """Return the option ``--project`` of a command; what the command says to type next names the same folder."""
    return click.option("--project", type=ProjectFolder(), callback=_remember, help=text)


def _remember(context: click.Context, _: click.Parameter, project: Path | None) -> Path | None:
    if project is not None:
        context.meta[_PROJECT] = project
    return project


def for_typed_project(command: str) -> str:
    """Return a command as it is to be typed after this one: with its ``--project``, where it takes one."""
    context = click.get_current_context(silent=True)
    if context is None or _PROJECT not in context.meta or "--project" in command.split():
        return command
    root = context.find_root()
    found: click.Command | None = root.command
    words = iter(shlex.split(command)[1:])
    while isinstance(found, click.Group):
        found = found.get_command(root, next(words, ""))
    folder = shlex.quote(str(context.meta[_PROJECT]))
    for parameter in found.params if found is not None else ():
        if parameter.name == "project":
            return f"{command} {folder}" if isinstance(parameter, click.Argument) else f"{command} --project {folder}"
    return command


def with_typed_project(text: str) -> str:
    """Return a message with its commands as they are to be typed after this one."""
    return NAMED.sub(lambda found: f"'{for_typed_project(found[1])}'", text)


def first_named(messages: Iterable[str]) -> str:
    """Return the first command that a message names; empty if none does."""
    return next((found[1] for text in messages if (found := NAMED.search(text)) is not None), "")


def next_step(error: Exception) -> str:
    """Return the command to type after an error; empty where the message says all that there is to do."""
    text = str(error)
    named = first_named([text])
    if named:
        return named
    if isinstance(error, EndpointError) and "not reachable" in text and _HERE.search(text):
        return "upsert-platform local up"
    if not isinstance(error, UpsertPlatformError):
        return ""
    return next((command for kind, command in _COMMANDS if isinstance(error, kind)), "")
