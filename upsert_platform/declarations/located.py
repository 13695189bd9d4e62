"""YAML, JSON and .properties as data that knows its lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.sql.lexer import Token, tokenize
from upsert_platform.sql.variables import Variables

_QUOTED: Final = re.compile(r"'([^']*)'")
_SEPARATOR: Final = re.compile(r"[=:]")


@dataclass(frozen=True, slots=True)
class Located:
    """A value of a file: a text, a list, or a mapping in the order of the file.

    Attributes:
        value: str, tuple of Located, or dict of str to Located. Scalars are texts as written; null is an empty one.
        location: where it begins; of a value in a mapping, where its name stands.
    """

    value: str | tuple[Located, ...] | dict[str, Located]
    location: SourceLocation

    @property
    def text(self) -> str | None:
        """The value if it is a text."""
        return self.value if isinstance(self.value, str) else None

    @property
    def entries(self) -> dict[str, Located]:
        """The entries of a mapping; nothing if it is none."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> tuple[Located, ...]:
        """The items of a list; the value itself if it is none."""
        return self.value if isinstance(self.value, tuple) else (self,)


def read_yaml(text: str, file: str, problems: list[Problem]) -> list[Located]:
    """The documents of a YAML or JSON file."""
    import yaml

    try:
        nodes = [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = SourceLocation(file, mark.line + 1 if mark is not None else 0)
        problems.append(Problem(f"this is not YAML: {_reason(getattr(error, 'problem', None))}", place))
        return []
    return [_convert(node, file, node.start_mark.line + 1, problems) for node in nodes]


def read_json(text: str, file: str, problems: list[Problem]) -> list[Located]:
    """The value of a JSON file, as `read_yaml` gives it."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        reason = error.msg.partition(":")[0].removesuffix(" at").lower()
        problems.append(Problem(f"this is not JSON: {reason}", SourceLocation(file, error.lineno)))
        return []
    # JSON is YAML but for tabs between its tokens; inside texts JSON has none.
    return read_yaml(text.expandtabs(), file, problems)


def _reason(problem: str | None) -> str:
    """Return PyYAML's reason without its quotation of the file, which may contain a secret."""
    if problem is None:
        return "it cannot be read"
    named = [quoted for quoted in _QUOTED.findall(problem) if len(quoted) > 1 and not quoted.startswith("<")]
    return "a text that begins with *, & or ! stands in quotes" if named else problem


def _convert(node: Any, file: str, line: int, problems: list[Problem]) -> Located:
    import yaml

    place = SourceLocation(file, line)
    if isinstance(node, yaml.MappingNode):
        entries: dict[str, Located] = {}
        for key, value in node.value:
            key_line = key.start_mark.line + 1
            name = str(key.value)
            if node.flow_style and value.start_mark.index == key.end_mark.index:
                message = "an entry has a name and no value; a text that holds a comma stands in quotes"
                problems.append(Problem(message, SourceLocation(file, key_line)))
                continue
            if name in entries:
                problems.append(Problem(f"'{name}' is given twice; keep one", SourceLocation(file, key_line)))
                continue
            entries[name] = _convert(value, file, key_line, problems)
        return Located(entries, place)
    if isinstance(node, yaml.SequenceNode):
        return Located(tuple(_convert(item, file, item.start_mark.line + 1, problems) for item in node.value), place)
    return Located("" if node.tag == "tag:yaml.org,2002:null" else str(node.value), place)


def read_properties(text: str, file: str, problems: list[Problem]) -> dict[str, Located]:
    """A Java properties file: ``name=value`` or ``name: value``, ``#`` and ``!`` comments, ``\\`` at line ends."""
    entries: dict[str, Located] = {}
    for number, line in _logical_lines(text):
        name, value = _split_property(line)
        place = SourceLocation(file, number)
        if not value and not _SEPARATOR.search(line):
            message = "a line is written name=value; one that goes on in the next line ends with a backslash"
            problems.append(Problem(message, place))
            continue
        if name in entries:
            problems.append(Problem(f"'{name}' is given twice; keep one", place))
            continue
        entries[name] = Located(value, place)
    return entries


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    pending, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.lstrip()
        if not pending and (not line or line[0] in "#!"):
            continue
        start = start if pending else number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield start, pending + line
        pending = ""
    if pending:
        yield start, pending


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _split_property(line: str) -> tuple[str, str]:
    """Name and value; the name ends at the first ``=``, ``:`` or blank that is not escaped."""
    parts: list[str] = []
    current: list[str] = []
    position = 0
    while position < len(line):
        character = line[position]
        if character == "\\" and position + 1 < len(line):
            following = line[position + 1]
            if following == "u" and len(line) >= position + 6:
                current.append(chr(int(line[position + 2 : position + 6], 16)))
                position += 6
                continue
            current.append(_ESCAPES.get(following, following))
            position += 2
            continue
        if not parts and character in "=: \t":
            parts.append("".join(current))
            current = []
            rest = line[position:].lstrip(" \t")
            rest = rest[1:].lstrip(" \t") if rest[:1] in ("=", ":") else rest
            line, position = rest, 0
            continue
        current.append(character)
        position += 1
    parts.append("".join(current))
    return parts[0], parts[1] if len(parts) > 1 else ""


def with_variables(found: Located, variables: Variables, problems: list[Problem]) -> Located:
    """The value with variables put in, at every depth."""
    if isinstance(found.value, dict):
        return replace(
            found, value={name: with_variables(item, variables, problems) for name, item in found.value.items()}
        )
    if isinstance(found.value, tuple):
        return replace(found, value=tuple(with_variables(item, variables, problems) for item in found.value))
    return replace(found, value=variables.put_into(found.value, found.location, problems))


def sql_tokens(text: str, location: SourceLocation, problems: list[Problem]) -> tuple[Token, ...]:
    """Tokens of a piece of SQL inside another file, on the lines of that file."""
    tokens, faults = tokenize(text, location.file)
    for fault in faults:
        line = fault.location.line if fault.location else 1
        problems.append(replace(fault, location=SourceLocation(location.file, location.line + line - 1)))
    return tuple(
        replace(token, line=token.line + location.line - 1, spaced=token.spaced or index == 0)
        for index, token in enumerate(tokens)
    )
