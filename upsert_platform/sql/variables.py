"""``${NAME}`` in declarations: where values come from, and putting them in.

A value is looked up in the process environment, then in ``variables.yaml`` beside the declarations, then in what the
caller passes (the environment of the local stack), so a deployment can override what a project folder says. Values
never appear in messages: they may be secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.sql.lexer import VARIABLE, Token, TokenKind, tokenize

VARIABLES_FILES: Final = ("variables.yaml", "variables.yml")


def environment_name(name: str) -> str:
    """The name under which a shell can export a variable: ``secret_values.kafka-ak`` is ``SECRET_VALUES_KAFKA_AK``."""
    return re.sub(r"\W", "_", name).upper()


@dataclass(frozen=True, repr=False)
class Variables:
    """Values by name, from several places.

    Attributes:
        environment: of the process; asked by the name itself, then by `environment_name`.
        declared: of ``variables.yaml``; nested mappings are joined with dots.
        extra: passed by the caller.
        given: values that win over all of them: those that a run's resources are configured with.
        unset: gives the value of a name that nobody sets; None where that is a problem.
    """

    environment: Mapping[str, str]
    declared: Mapping[str, str]
    extra: Mapping[str, str]
    given: Mapping[str, str] = field(default_factory=dict)
    unset: Callable[[str], str] | None = None

    def __repr__(self) -> str:
        return f"Variables({len(self.declared)} declared, {len(self.extra)} extra)"

    def get(self, name: str) -> str | None:
        """The value, or None if nobody sets it."""
        for values in (self.given, self.environment, self.declared, self.extra):
            for spelling in (name, environment_name(name)):
                if spelling in values:
                    return values[spelling]
        return self.unset(name) if self.unset is not None else None

    def put_into(self, text: str, location: SourceLocation, problems: list[Problem]) -> str:
        """Replaces the variables of a text; one that nobody sets stays, with a problem added for it."""

        def value(match: re.Match[str]) -> str:
            found = self.get(match[1])
            if found is None:
                problem = missing(match[1], location)
                if problem not in problems:
                    problems.append(problem)
                return match[0]
            return found

        return VARIABLE.sub(value, text)


def missing(name: str, location: SourceLocation) -> Problem:
    """The problem of a variable that nobody sets."""
    exported = environment_name(name)
    spelling = f"the environment variable {name}" if name == exported else f"the environment variable {exported}"
    message = f"variable ${{{name}}} is not set: set {spelling}, or '{name}' in variables.yaml"
    return Problem(message, location, variable=name)


def load_variables(
    folder: Path,
    extra: Mapping[str, str] | None = None,
    *,
    given: Mapping[str, str] | None = None,
    unset: Callable[[str], str] | None = None,
) -> tuple[Variables, list[Problem]]:
    """Reads the variables that declarations of a folder can use.

    Args:
        folder: where ``variables.yaml`` may stand; flat or nested names to scalars.
        extra: values that apply where neither the environment nor the file sets a name.
        given: values that win over the environment.
        unset: gives the value of a name that nobody sets; such a name is a problem without it.
    """
    declared: dict[str, str] = {}
    problems: list[Problem] = []
    for name in VARIABLES_FILES:
        path = folder / name
        if path.is_file():
            _read_yaml(path, declared, problems)
    return Variables(os.environ, declared, dict(extra or {}), dict(given or {}), unset), problems


def _read_yaml(path: Path, declared: dict[str, str], problems: list[Problem]) -> None:
    import yaml

    try:
        # BaseLoader keeps every scalar as it is written: 007, 1.50, yes and no are texts.
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 0
        problems.append(Problem("this is not YAML; write 'name: value' lines", SourceLocation(str(path), line)))
        return
    if content is None or content == "":
        return
    if not isinstance(content, dict):
        problems.append(Problem("variables are a mapping of names to values", SourceLocation(str(path))))
        return
    _flatten("", content, declared, problems, SourceLocation(str(path)))


def _flatten(
    prefix: str, content: dict[Any, Any], declared: dict[str, str], problems: list[Problem], place: SourceLocation
) -> None:
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            _flatten(f"{name}.", value, declared, problems, place)
        elif isinstance(value, str):
            declared[name] = value
        else:
            problems.append(Problem(f"variable '{name}' is a list; a value is one text or number", place))


def expand(tokens: list[Token], variables: Variables, file: str) -> tuple[list[Token], list[Problem]]:
    """Replaces variables in tokens; their texts stay as written.

    Inside quotes a value is taken as it is, quotes included. Outside, it is read as SQL.
    """
    expanded: list[Token] = []
    problems: list[Problem] = []
    for token in tokens:
        if "${" not in token.text:
            expanded.append(token)
            continue
        before = len(problems)
        value = variables.put_into(token.value, SourceLocation(file, token.line), problems)
        if token.kind is not TokenKind.WORD:
            expanded.append(replace(token, value=value))
        elif len(problems) > before:
            # Any name will do: the problem is told, and what follows can still be checked.
            expanded.append(replace(token, value=re.sub(r"\W+", "_", token.value).strip("_")))
        else:
            expanded.extend(_as_sql(token, value, file, problems))
    return expanded, problems


def _as_sql(token: Token, value: str, file: str, problems: list[Problem]) -> list[Token]:
    inner, faults = tokenize(value, file)
    if faults or not inner:
        what = "empty" if not inner and not faults else "no SQL"
        remedy = "quote it, '${NAME}', if it is a text"
        problems.append(Problem(f"the value of {token.text} is {what}; {remedy}", SourceLocation(file, token.line)))
        return [replace(token, kind=TokenKind.STRING, value=value)]
    return [
        replace(item, text=token.text, line=token.line, spaced=item.spaced if index else token.spaced)
        for index, item in enumerate(inner)
    ]
