"""Proto files as text, as registries keep them: parsed into what protoc would compile of them.

Syntax proto2 and proto3. What does not change how a message is read or written (options of one's own, services,
reserved numbers) is passed over. Names of types stay as they are written; the library finds what they mean.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

_TOKEN: Final = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | (?P<text>"(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*')
    | (?P<word>\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    | (?P<number>(?:0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?))
    | (?P<symbol>[{}\[\]()<>;,=:+/-])""",
    re.VERBOSE | re.DOTALL,
)
_SCALARS: Final = (
    "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32",
    "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
_CLOSING: Final = {"{": "}", "[": "]", "(": ")", "<": ">"}


class ProtoTextError(ValueError):
    """The text is not a proto file that can be read."""


def parse_proto(text: str, *, name: str) -> FileDescriptorProto:
    """The compiled form of a proto file.

    Args:
        name: path that other files import it by.

    Raises:
        ProtoTextError: with the line.
    """
    return _Parser(text, name).file()


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._name = name
        self._proto3 = False

    def file(self) -> FileDescriptorProto:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        file = FileDescriptorProto(name=self._name)
        while self._peek():
            match self._next():
                case ";":
                    pass
                case "syntax":
                    self._syntax(file)
                case "edition":
                    raise self._error("editions are not read; register the file with syntax proto2 or proto3")
                case "package":
                    file.package = self._next()
                    self._expect(";")
                case "import":
                    self._import(file)
                case "message":
                    self._message(file.message_type.add())
                case "enum":
                    self._enum(file.enum_type.add())
                case "option":
                    self._until(";")
                case "service" | "extend":
                    self._skip_block()
                case other:
                    raise self._error(f"'{other}' is not expected here")
        return file

    def _syntax(self, file: FileDescriptorProto) -> None:
        self._expect("=")
        syntax = _unquote(self._next())
        self._expect(";")
        if syntax not in ("proto2", "proto3"):
            raise self._error(f"syntax '{syntax}' is not known")
        self._proto3 = syntax == "proto3"
        file.syntax = syntax

    def _import(self, file: FileDescriptorProto) -> None:
        kind = self._next() if self._peek() in ("public", "weak") else ""
        if kind == "public":
            file.public_dependency.append(len(file.dependency))
        file.dependency.append(_unquote(self._next()))
        self._expect(";")

    def _message(self, message: DescriptorProto) -> None:
        message.name = self._next()
        entries: list[DescriptorProto] = []
        self._expect("{")
        while (word := self._next()) != "}":
            match word:
                case ";":
                    pass
                case "message":
                    self._message(message.nested_type.add())
                case "enum":
                    self._enum(message.enum_type.add())
                case "extend":
                    self._skip_block()
                case "option" if self._peek() == "map_entry":
                    message.options.map_entry = self._option((";",))[1] == ["true"]
                case "option" | "reserved" | "extensions":
                    self._until(";")
                case "oneof":
                    self._oneof(message)
                case "map" if self._peek() == "<":
                    entries.append(self._map(message))
                case "optional" | "required" | "repeated":
                    self._field(message, self._next(), label=word)
                case _:
                    self._field(message, word)
        # Behind the declared ones: the places of messages, which records name, do not count entries of maps.
        message.nested_type.extend(entries)
        # The oneofs that proto3's optional fields stand in come behind the declared ones.
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _oneof(self, message: DescriptorProto) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._next())
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "option":
                self._until(";")
            elif word != ";":
                self._field(message, word, oneof=index)

    def _field(self, message: DescriptorProto, kind: str, *, label: str = "", oneof: int | None = None) -> None:
        if kind == "group":
            raise self._error("groups are not read; declare a message")
        field = message.field.add(name=self._next())
        self._expect("=")
        field.number = self._number()
        field.label = _label_of(label or "optional")
        if kind in _SCALARS:
            field.type = _type_of(kind)
        else:
            field.type_name = kind
        if oneof is not None:
            field.oneof_index = oneof
        elif label == "optional" and self._proto3:
            field.proto3_optional = True
        self._field_options(field)
        self._expect(";")

    def _map(self, message: DescriptorProto) -> DescriptorProto:
        from google.protobuf.descriptor_pb2 import DescriptorProto

        self._expect("<")
        key = self._next()
        self._expect(",")
        value = self._next()
        self._expect(">")
        entry = DescriptorProto()
        entry.options.map_entry = True
        for number, (part, kind) in enumerate((("key", key), ("value", value)), 1):
            field = entry.field.add(name=part, number=number, label=_label_of("optional"))
            if kind in _SCALARS:
                field.type = _type_of(kind)
            else:
                field.type_name = kind
        self._field(message, "", label="repeated")
        field = message.field[-1]
        entry.name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"
        field.type_name = entry.name
        return entry

    def _field_options(self, field: FieldDescriptorProto) -> None:
        if self._peek() != "[":
            return
        self._next()
        while self._peek() != "]":
            name, value = self._option(("]", ","))
            if name == "default":
                of_bytes = field.type == _type_of("bytes")  # whose default stays escaped
                field.default_value = "".join(word[1:-1] if of_bytes else _unquote(word) for word in value)
            elif name == "packed":
                field.options.packed = value == ["true"]
            if self._peek() == ",":
                self._next()
        self._next()

    def _option(self, ends: tuple[str, ...]) -> tuple[str, list[str]]:
        name = ""
        while (word := self._next()) != "=":
            name += word
        value: list[str] = []
        while self._peek() not in ends:
            if self._peek() in ("{", "["):
                self._balanced()
            else:
                value.append(self._next())
        return name, value

    def _enum(self, enum: Any) -> None:
        enum.name = self._next()
        self._expect("{")
        while (word := self._next()) != "}":
            if word == ";":
                continue
            if word in ("option", "reserved") and self._peek() != "=":
                if word == "option" and self._peek() == "allow_alias":
                    name, value = self._option((";",))
                    enum.options.allow_alias = name == "allow_alias" and value == ["true"]
                self._until(";")
                continue
            self._expect("=")
            negative = self._peek() == "-"
            if negative:
                self._next()
            number = self._number()
            enum.value.add(name=word, number=-number if negative else number)
            if self._peek() == "[":
                self._balanced()
            self._expect(";")

    def _number(self) -> int:
        word = self._next()
        try:
            return int(word, 8) if re.fullmatch(r"0[0-7]+", word) else int(word, 0)
        except ValueError:
            raise self._error(f"a number expected, not '{word}'") from None

    def _skip_block(self) -> None:
        while self._peek() not in ("{", ""):
            self._next()
        self._balanced()

    def _balanced(self) -> None:
        """Passes over a pair of brackets and what stands between them."""
        closing = [_CLOSING[self._next()]]
        while closing:
            word = self._next()
            if word == closing[-1]:
                closing.pop()
            elif word in ("{", "[", "("):
                closing.append(_CLOSING[word])

    def _until(self, end: str) -> None:
        while (word := self._peek()) != end:
            if word in ("{", "[", "("):
                self._balanced()
            else:
                self._next()
        self._next()

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at][0] if at < len(self._tokens) else ""

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise ProtoTextError(f"{self._name}: the proto file ends too early")
        self._at += 1
        return self._tokens[self._at - 1][0]

    def _expect(self, wanted: str) -> None:
        found = self._next()
        if found != wanted:
            raise self._error(f"'{wanted}' expected, not '{found}'")

    def _error(self, reason: str) -> ProtoTextError:
        return ProtoTextError(f"{self._name}, line {self._tokens[self._at - 1][1]}: {reason}")


def _tokens(text: str) -> list[tuple[str, int]]:
    found, at, line = [], 0, 1
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ProtoTextError(f"line {line}: {text[at]!r} is not expected in a proto file")
        if token.lastgroup is not None:
            found.append((token[0], line))
        line += token[0].count("\n")
        at = token.end()
    return found


def _unquote(word: str) -> str:
    if word[:1] not in ("'", '"'):
        return word
    from google.protobuf.text_encoding import CUnescape

    return str(CUnescape(word[1:-1]).decode())


def _label_of(word: str) -> Any:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    return FieldDescriptorProto.Label.Value(f"LABEL_{word.upper()}")


def _type_of(word: str) -> Any:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    return FieldDescriptorProto.Type.Value(f"TYPE_{word.upper()}")
