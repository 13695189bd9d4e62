"""Proto files as text: messages with their fields, and enums, as far as their names and numbers are needed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from upsert_platform.referee.errors import UnjudgedError

_WORDS = re.compile(
    r"//[^\n]*|/\*.*?\*/|\s+|(\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[\w.]+|[^\w\s])", re.DOTALL | re.ASCII
)
_PAIRS = {"{": "}", "[": "]", "(": ")"}


@dataclass(frozen=True)
class Field:
    """A field of a message.

    Attributes:
        type: as written; of a map that of its values.
        key: type of the keys of a map, else empty.
        repeated: whether it has any number of values.
        presence: whether being absent differs from having the default.
        oneof: name of the group of which one field is set; empty where it stands alone.
    """

    name: str
    type: str
    key: str = ""
    repeated: bool = False
    presence: bool = False
    oneof: str = ""


@dataclass
class Message:
    """A message.

    Attributes:
        name: in full, with package and the messages around it.
        fields: by number.
        nested: messages within, in their order.
    """

    name: str
    fields: dict[int, Field] = field(default_factory=dict)
    nested: list[Message] = field(default_factory=list)


@dataclass
class ProtoFile:
    """A proto file and those it imports.

    Attributes:
        roots: messages of the file itself, in their order.
        messages: of all files, by full name.
        enums: names by number, by full name.
    """

    roots: list[Message] = field(default_factory=list)
    messages: dict[str, Message] = field(default_factory=dict)
    enums: dict[str, dict[int, str]] = field(default_factory=dict)

    def resolve(self, name: str, within: str) -> str:
        """The full name of a type that is named within a message; empty where no file declares it."""
        if name.startswith("."):
            return name[1:] if self._has(name[1:]) else ""
        scope = within
        while True:
            full = f"{scope}.{name}" if scope else name
            if self._has(full):
                return full
            if not scope:
                return ""
            scope = scope.rpartition(".")[0]

    def _has(self, name: str) -> bool:
        return name in self.messages or name in self.enums


def read_proto(text: str, imports: Mapping[str, str]) -> ProtoFile:
    """Reads a proto file.

    Args:
        imports: texts of other files; those that are not there leave their types unknown.

    Raises:
        UnjudgedError: it has something that the referee does not read (groups, editions, a compiled file).
    """
    found = ProtoFile()
    for other in imports.values():
        _Reader(other, found).read()
    found.roots = _Reader(text, found).read()
    return found


class _Reader:
    def __init__(self, text: str, into: ProtoFile) -> None:
        self._words = [word for word in _WORDS.findall(text) if word] + [""]
        self._at = 0
        self._into = into
        self._proto3 = False
        self._package = ""

    def read(self) -> list[Message]:
        roots: list[Message] = []
        while word := self._next():
            match word:
                case "syntax":
                    self._proto3 = "proto3" in self._statement()[-1]
                case "package":
                    self._package = self._statement()[0]
                case "message":
                    roots.append(self._message(self._package))
                case "enum":
                    self._enum(self._package)
                case "import" | "option" | ";":
                    if word != ";":
                        self._statement()
                case "service" | "extend":
                    self._block()
                case _:
                    raise UnjudgedError(f"a proto file with '{word[:20]}'")
        return roots

    def _message(self, scope: str) -> Message:
        made = Message(_joined(scope, self._next()))
        self._into.messages[made.name] = made
        self._next()
        self._body(made, "")
        return made

    def _body(self, made: Message, oneof: str) -> None:
        while (word := self._next()) != "}":
            match word:
                case ";":
                    pass
                case "message":
                    made.nested.append(self._message(made.name))
                case "enum":
                    self._enum(made.name)
                case "oneof":
                    group = self._next()
                    self._next()
                    self._body(made, group)
                case "option" | "reserved" | "extensions":
                    self._statement()
                case "extend":
                    self._block()
                case "":
                    raise UnjudgedError("a proto file that ends early")
                case _:
                    self._field(made, word, oneof)

    def _field(self, made: Message, word: str, oneof: str) -> None:
        rest = [word, *self._statement()]
        label = rest.pop(0) if rest[0] in ("optional", "required", "repeated") else ""
        key, kind = "", rest.pop(0)
        if kind == "map" and rest[:1] == ["<"]:
            key, kind = rest[1], rest[3]
            del rest[:5]
        if kind == "group" or len(rest) < 3 or rest[1] != "=":
            raise UnjudgedError(f"a field '{' '.join(rest)[:40]}' of a proto file")
        presence = not self._proto3 or label == "optional" or bool(oneof)
        made.fields[int(rest[2], 0)] = Field(rest[0], kind, key, bool(key) or label == "repeated", presence, oneof)

    def _enum(self, scope: str) -> None:
        names: dict[int, str] = {}
        self._into.enums[_joined(scope, self._next())] = names
        self._next()
        while (word := self._next()) != "}":
            if word == ";":
                continue
            rest = self._statement()
            if word not in ("option", "reserved") or rest[0] == "=":
                sign = -1 if rest[1] == "-" else 1
                names.setdefault(sign * int(rest[2 if sign < 0 else 1], 0), word)

    def _statement(self) -> list[str]:
        """The words up to a semicolon, which is taken; what stands in brackets belongs to it."""
        words: list[str] = []
        depth = 0
        while (word := self._next()) != ";" or depth:
            if not word:
                raise UnjudgedError("a proto file that ends early")
            depth += (word in _PAIRS) - (word in _PAIRS.values())
            words.append(word)
        return words or [""]

    def _block(self) -> None:
        depth = 0
        while word := self._next():
            depth += (word in _PAIRS) - (word in _PAIRS.values())
            if word == "}" and not depth:
                return

    def _next(self) -> str:
        word = self._words[self._at]
        self._at = min(self._at + 1, len(self._words) - 1)
        return word


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
