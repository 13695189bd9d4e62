"""Files of other platforms into a project folder: what they are, and their secrets as variables.

The folder reads Flink SQL, ingestion pipelines and Kafka Connect configurations as they are, so a file is copied; only
values that must not lie in a project (passwords, keys, and what Connect's own providers would have put in) become
``${NAME}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from upsert_platform.core.errors import DeclarationError, Problem, SourceLocation
from upsert_platform.core.model import SQL_OPTION, is_secret_option
from upsert_platform.declarations.connect import is_connect
from upsert_platform.declarations.declared_yaml import is_declaration
from upsert_platform.declarations.local_tables import LocalOptions, on_local_servers
from upsert_platform.declarations.located import Located, read_json, read_properties, read_yaml
from upsert_platform.declarations.pipeline import is_pipeline
from upsert_platform.sql.lexer import VARIABLE
from upsert_platform.sql.variables import environment_name

SQL: Final = "Flink SQL"
CONNECT: Final = "Kafka Connect configuration"
PIPELINE: Final = "ingestion pipeline"
DECLARED: Final = "declared tables"
_SQL_PART: Final = re.compile(rf"(--[^\n]*|/\*.*?\*/)|{SQL_OPTION.pattern}|'(?:[^']|'')*'", re.DOTALL)
"""A comment, an option with its value, or another text."""
_PROVIDED: Final = re.compile(r"\$\{\w+:[^}]*\}")
"""What Kafka Connect's configuration providers replace: ``${file:/etc/keys.properties:secret}``."""
_PROPERTY: Final = re.compile(r"([ \t\f]*)([^=:\s\\#!](?:[^=:\s\\]|\\.)*)([ \t]*[=:][ \t]*|[ \t]+)(.*)", re.DOTALL)
_COMMENT: Final = re.compile(r"^(\s*[#!]+\s*([\w.\-]+)\s*[=:]\s*)\S.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Moved:
    """A value that became a variable.

    Attributes:
        provided: by a provider of Kafka Connect, so that nobody knows the value here.
    """

    option: str
    line: int
    variable: str
    provided: bool = False


@dataclass(frozen=True, slots=True)
class Imported:
    """A file, as it is written into the project.

    Attributes:
        changed: what was changed for servers of this machine, by line.
    """

    source: Path
    kind: str
    text: str = field(repr=False)
    moved: tuple[Moved, ...] = ()
    changed: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The files and variables that an import writes.

    Attributes:
        values: of the variables, as far as the files had them; for checking the project, never written.
    """

    files: tuple[Imported, ...]
    values: Mapping[str, str] = field(repr=False)


def plan_import(files: Sequence[Path], folder: Path, local: Mapping[str, LocalOptions] | None = None) -> Plan:
    """Reads files, and puts variables in the place of their secrets.

    Args:
        local: connector to the options of tables on servers of this machine, which Flink SQL is then changed to.

    Raises:
        DeclarationError: a file is not one of a known kind, or one of its name is in the folder already.
    """
    problems: list[Problem] = []
    names = _Names()
    found = [item for file in files if (item := _read(file, names, problems, local)) is not None]
    taken = [file.name for file in files]
    for file in files:
        place = SourceLocation(str(folder / file.name))
        if (folder / file.name).exists():
            problems.append(Problem("this file is there already, and is not overwritten: move it away", place))
        if taken.count(file.name) > 1:
            problems.append(Problem("two files of this name are imported: rename one", place))
    if problems:
        raise DeclarationError(dict.fromkeys(problems))
    return Plan(tuple(found), names.values)


def write_import(plan: Plan, folder: Path) -> list[Path]:
    """Writes the files of a plan.

    Raises:
        DeclarationError: the folder cannot be written.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for item in plan.files:
            path = folder / item.source.name
            with path.open("x", encoding="utf-8") as file:
                file.write(item.text)
            written.append(path)
    except OSError as error:
        message = f"the project cannot be written here ({error.strerror}): name a folder that you may write"
        raise DeclarationError([Problem(message, SourceLocation(str(folder)))]) from error
    return written


class _Names:
    """Names of variables: one per option and value, over all files."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self._known: dict[tuple[str, str], str] = {}

    def of(self, option: str, value: str, *, provided: bool) -> str:
        """The variable that takes the place of an option's value."""
        found = self._known.get((option, value))
        if found is None:
            found = environment_name(option)
            taken = set(self._known.values())
            number = 2
            while found in taken:
                found = f"{environment_name(option)}_{number}"
                number += 1
            self._known[option, value] = found
            if not provided:
                self.values[found] = value
        return found


def _read(
    file: Path, names: _Names, problems: list[Problem], local: Mapping[str, LocalOptions] | None
) -> Imported | None:
    place = SourceLocation(str(file))
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        problems.append(Problem("this file is not UTF-8; save it as UTF-8", place))
        return None
    except OSError as error:
        problems.append(Problem(f"this file cannot be read ({error.strerror})", place))
        return None
    text = text.expandtabs() if file.suffix == ".json" else text
    kind = _kind(file, text, problems)
    if kind is None:
        return None
    changed: list[tuple[int, str]] = []
    if local is not None:
        if kind != SQL:
            problems.append(Problem("--local takes Flink SQL: set the addresses of this file by hand", place))
            return None
        text, changed = on_local_servers(text, local)
    moved: list[Moved] = []

    def move(option: str, value: str, line: int) -> str | None:
        """Return the replacement of a value, or None if the value may stay."""
        provided = _PROVIDED.search(value) is not None
        if not provided and (not value or VARIABLE.search(value) or not is_secret_option(option)):
            return None
        name = names.of(option, value, provided=provided)
        moved.append(Moved(option, line, name, provided))
        return f"${{{name}}}"

    write = {".sql": _sql, ".properties": _properties}.get(file.suffix, _yaml)
    imported = write(text, move)
    return Imported(file, kind, imported, tuple(moved), tuple(changed))


def _kind(file: Path, text: str, problems: list[Problem]) -> str | None:
    if file.suffix == ".sql":
        return SQL
    found: list[Problem] = []
    documents: list[Located] = []
    if file.suffix == ".properties":
        place = SourceLocation(str(file))
        documents = [Located(read_properties(text, str(file), found), place)]
    elif file.suffix in (".json", ".yaml", ".yml"):
        documents = (read_json if file.suffix == ".json" else read_yaml)(text, str(file), found)
    problems += found
    for document in documents:
        if is_connect(document.entries):
            return CONNECT
        if file.suffix in (".yaml", ".yml") and is_pipeline(document):
            return PIPELINE
        if file.suffix in (".yaml", ".yml") and is_declaration(document):
            return DECLARED
    if not found:
        message = (
            "this is neither Flink SQL (.sql), nor a configuration of the Tablestore sink connector (.properties,"
            " .json), nor an ingestion pipeline (.yaml)"
        )
        problems.append(Problem(message, SourceLocation(str(file))))
    return None


_Move = Callable[[str, str, int], "str | None"]


def _sql(text: str, move: _Move) -> str:
    def replaced(match: re.Match[str]) -> str:
        if match[1] is not None:
            return SQL_OPTION.sub(_blanked, match[1])
        variable = None
        if match[2] is not None:
            variable = move(match[2], match[4].replace("''", "'"), text.count("\n", 0, match.start()) + 1)
        return match[0] if variable is None else f"'{match[2]}'{match[3]}'{variable}'"

    return _SQL_PART.sub(replaced, text)


def _blanked(match: re.Match[str]) -> str:
    """An option in a comment: a secret is not needed there, so it is taken out."""
    return f"'{match[1]}'{match[2]}'***'" if is_secret_option(match[1]) else match[0]


def _properties(text: str, move: _Move) -> str:
    known = read_properties(text, "", [])
    by_line = {item.location.line: (name, item.text or "") for name, item in known.items()}
    lines = text.splitlines(keepends=True)
    written: list[str] = []
    number = 0
    while number < len(lines):
        first, number = number, number + 1
        while number < len(lines) and _goes_on(lines[number - 1]) and first + 1 in by_line:
            number += 1
        logical = "".join(lines[first:number])
        option, value = by_line.get(first + 1, ("", ""))
        variable = move(option, value, first + 1) if option else None
        match = _PROPERTY.match(logical)
        written.append(logical if variable is None or match is None else f"{match[1]}{match[2]}{match[3]}{variable}\n")
    return _without_commented("".join(written))


def _goes_on(line: str) -> bool:
    stripped = line.rstrip("\r\n")
    return (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1


def _without_commented(text: str) -> str:
    """A secret in a comment is not needed, so it is taken out."""
    return _COMMENT.sub(lambda match: f"{match[1]}***" if is_secret_option(match[2]) else match[0], text)


def _yaml(text: str, move: _Move) -> str:
    import yaml

    spans: list[tuple[int, int, str]] = []
    for node in yaml.compose_all(text, Loader=yaml.SafeLoader):
        for name, value in _scalars(node):
            variable = move(name, str(value.value), value.start_mark.line + 1)
            if variable is not None:
                start, end = value.start_mark.index, value.end_mark.index
                spans.append((start, start + len(text[start:end].rstrip()), f'"{variable}"'))
    for start, end, variable in sorted(spans, reverse=True):
        text = text[:start] + variable + text[end:]
    return _without_commented(text)


def _scalars(node: Any) -> Iterable[tuple[str, Any]]:
    """Names and values of every mapping of a document."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _scalars(item)
    elif isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if isinstance(value, yaml.ScalarNode):
                yield str(name.value), value
            else:
                yield from _scalars(value)
