"""Words of a SQL text, for the data definition grammar and for splitting scripts."""

from __future__ import annotations

import re
from dataclasses import dataclass

from upsert_platform.local.maxcompute.errors import parse_error

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)|(?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*")|(?P<quoted>`[^`]+`)"""
    r"""|(?P<word>[\w$]+)|(?P<symbol>.)""",
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", "'": "'", '"': '"'}


@dataclass(frozen=True)
class Token:
    """A word, a string (``text`` without quotes), a quoted name or a symbol, and where it stands in the text."""

    kind: str
    text: str
    start: int
    end: int


def tokenize(sql: str) -> list[Token]:
    """The tokens of a SQL text, without blanks and comments."""
    found = []
    for match in _TOKEN.finditer(sql):
        kind, text = str(match.lastgroup), match[0]
        if kind == "space":
            continue
        if kind == "string":
            text = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), text[1:-1].replace("''", "'"), flags=re.DOTALL)
        elif kind == "quoted":
            text = text[1:-1]
        found.append(Token(kind, text, match.start(), match.end()))
    return found


def split_statements(sql: str) -> list[str]:
    """The statements of a script: cut at semicolons outside strings and comments."""
    statements, start = [], 0
    for token in [*tokenize(sql), Token("symbol", ";", len(sql), len(sql))]:
        if token.kind == "symbol" and token.text == ";":
            text = sql[start : token.start]
            if tokenize(text):
                statements.append(text.strip())
            start = token.end
    return statements


class Cursor:
    """Reads tokens one after the other."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self._tokens = tokenize(sql)
        self._position = 0

    @property
    def done(self) -> bool:
        return self._position >= len(self._tokens)

    def peek(self, ahead: int = 0) -> Token | None:
        place = self._position + ahead
        return self._tokens[place] if place < len(self._tokens) else None

    def next(self) -> Token:
        token = self.peek()
        if token is None:
            raise parse_error(f"unexpected end of statement: {self.sql.strip()[:200]}")
        self._position += 1
        return token

    def accept(self, *words: str) -> bool:
        """Takes these words or symbols if they come next."""
        for ahead, word in enumerate(words):
            token = self.peek(ahead)
            if token is None or token.kind not in ("word", "symbol") or token.text.upper() != word:
                return False
        self._position += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            token = self.peek()
            place = f"'{token.text}' at offset {token.start}" if token else "the end"
            raise parse_error(f"expected {' '.join(words)}, found {place}, in: {self.sql.strip()[:200]}")

    def name(self) -> str:
        """An identifier, in lower case."""
        token = self.next()
        if token.kind not in ("word", "quoted"):
            raise parse_error(f"expected a name, found '{token.text}' at offset {token.start}")
        return token.text.lower()

    def names(self) -> tuple[str, ...]:
        """A name with dots between its parts."""
        parts = [self.name()]
        while self.accept("."):
            parts.append(self.name())
        return tuple(parts)

    def string(self) -> str:
        token = self.next()
        if token.kind != "string":
            raise parse_error(f"expected a string, found '{token.text}' at offset {token.start}")
        return token.text

    def type_text(self) -> str:
        """The text of a data type: a word, and what brackets follow it."""
        start = self.next()
        end, depth = start.end, 0
        while (token := self.peek()) is not None:
            if token.text in ("<", "("):
                depth += 1
            elif token.text in (">", ")"):
                if not depth:
                    break
                depth -= 1
            elif not depth:
                break
            end = self.next().end
        return self.sql[start.start : end]

    def rest(self) -> str:
        """The remaining text."""
        token = self.peek()
        self._position = len(self._tokens)
        return self.sql[token.start :] if token else ""
