"""Text of Flink SQL to tokens that know their line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.types import quote_name

VARIABLE: Final = re.compile(r"\$\{\s*([A-Za-z0-9_.\-/]+)\s*\}")
"""A variable as Flink SQL platforms write it: ``${NAME}``, ``${secret_values.kafka-ak}``."""


class TokenKind(Enum):
    """The kind of a token."""

    WORD = "word"
    QUOTED = "quoted name"
    STRING = "text"
    DOUBLE = "double-quoted text"
    NUMBER = "number"
    SYMBOL = "symbol"
    HINT = "hint"


@dataclass(frozen=True, slots=True)
class Token:
    """A token.

    Attributes:
        text: as written in the file, variables not replaced: what messages may show.
        value: what it means: a name without backquotes, a text without quotes, both with variables replaced.
        line: from 1.
        spaced: whether blanks or a comment stand before it.
    """

    kind: TokenKind
    text: str
    value: str
    line: int
    spaced: bool

    def is_word(self, word: str) -> bool:
        """Return whether it is this keyword or symbol (given in upper case), not a quoted name."""
        return self.kind in (TokenKind.WORD, TokenKind.SYMBOL) and self.value.upper() == word


_BLANK = re.compile(r"\s+|--[^\n]*|//[^\n]*|/\*(?!\+).*?\*/", re.DOTALL)
_NAME = r"\$\{\s*[A-Za-z0-9_.\-/]+\s*\}"
_PATTERNS: Final = {
    TokenKind.HINT: r"/\*\+.*?\*/",
    TokenKind.STRING: r"'(?:[^']|'')*'",
    TokenKind.QUOTED: r"`(?:[^`]|``)*`",
    TokenKind.DOUBLE: r'"[^"]*"',
    TokenKind.NUMBER: r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w$])",
    TokenKind.WORD: rf"(?:[^\W\d]|{_NAME})(?:\w|\$(?!\{{)|{_NAME})*",
    TokenKind.SYMBOL: r"\.\.\.|/(?!\*)|[-+*%=<>(),;.:|!?\[\]{}&^~]",
}
_TOKEN: Final = re.compile("|".join(f"(?P<{kind.name}>{text})" for kind, text in _PATTERNS.items()), re.DOTALL)
"""One expression: tried one by one, the patterns took most of the time in which a project is read."""
_BEFORE_TEXT: Final = frozenset(
    [
        "AND",
        "AS",
        "BETWEEN",
        "BOTH",
        "CASE",
        "COMMENT",
        "DATE",
        "ELSE",
        "ESCAPE",
        "FROM",
        "IN",
        "INTERVAL",
        "LEADING",
        "LIKE",
        "NOT",
        "OR",
        "PLACING",
        "SELECT",
        "THEN",
        "TIME",
        "TIMESTAMP",
        "TO",
        "TRAILING",
        "WHEN",
        "WHERE",
        "X",
    ]
)
_AFTER_TEXT: Final = frozenset(
    [
        "AND",
        "AS",
        "BETWEEN",
        "COMMENT",
        "DAY",
        "ELSE",
        "END",
        "ESCAPE",
        "FOR",
        "FROM",
        "HOUR",
        "IN",
        "IS",
        "LIKE",
        "MINUTE",
        "MONTH",
        "NOT",
        "ON",
        "OR",
        "PLACING",
        "QUARTER",
        "RETURNING",
        "SECOND",
        "SIMILAR",
        "THEN",
        "WEEK",
        "WHEN",
        "WHERE",
        "YEAR",
    ]
)
"""Words that may touch the quotes of a text."""
_OPENERS: Final = {"'": "text", "`": "name", '"': "text"}


def tokenize(text: str, file: str) -> tuple[list[Token], list[Problem]]:
    """Splits SQL into tokens; comments go, hints stay.

    Returns:
        The tokens, and a problem for each character that starts none. An open quote or comment ends the tokens there,
        and so does a quote where none can stand: what follows may be the inside of a text, a password even.
    """
    tokens: list[Token] = []
    problems: list[Problem] = []
    position, line, spaced = 0, 1, False
    while position < len(text):
        blank = _BLANK.match(text, position)
        if blank is not None:
            line += blank[0].count("\n")
            position, spaced = blank.end(), True
            continue
        match = _TOKEN.match(text, position)
        if match is not None:
            kind = TokenKind[str(match.lastgroup)]
            if tokens and not spaced and _is_torn(tokens[-1], kind, match[0]):
                message = "a text ends or begins in the middle of a word: a quote inside a text is written twice ('')"
                return tokens[:-1], [*problems, Problem(message, SourceLocation(file, line))]
            tokens.append(Token(kind, match[0], _meaning(kind, match[0]), line, spaced))
            line += match[0].count("\n")
            position, spaced = match.end(), False
            continue
        character = text[position]
        place = SourceLocation(file, line)
        if character in _OPENERS:
            problems.append(Problem(f"the {_OPENERS[character]} opened with {character} is never closed", place))
            return tokens, problems
        if text.startswith("/*", position):
            problems.append(Problem("the comment opened with /* is never closed", place))
            return tokens, problems
        if text.startswith("${", position):
            problems.append(Problem("a variable is written ${NAME}, of letters, digits, '_', '.' and '-'", place))
        else:
            problems.append(Problem(f"unexpected character {character!r}", place))
        position += 1
    return tokens, problems


def _is_torn(before: Token, kind: TokenKind, text: str) -> bool:
    """Return whether a text and a word touch that cannot, as after a quote that was not written twice."""
    words = (TokenKind.WORD, TokenKind.NUMBER)
    if before.kind is TokenKind.STRING:
        return kind in words and text.upper() not in _AFTER_TEXT
    return kind is TokenKind.STRING and before.kind in words and before.value.upper() not in _BEFORE_TEXT


def _meaning(kind: TokenKind, text: str) -> str:
    match kind:
        case TokenKind.STRING:
            return text[1:-1].replace("''", "'")
        case TokenKind.QUOTED:
            return text[1:-1].replace("``", "`")
        case TokenKind.DOUBLE:
            return text[1:-1]
    return text


def to_sql(tokens: Sequence[Token]) -> str:
    """Writes tokens as SQL again, with variables replaced and quotes escaped; lines stay apart as they were."""
    parts: list[str] = []
    line = tokens[0].line if tokens else 1
    for index, token in enumerate(tokens):
        if token.line > line:
            parts.append("\n" * (token.line - line))
            line = token.line
        elif index and token.spaced:
            parts.append(" ")
        written = _written(token)
        parts.append(written)
        line += written.count("\n")
    return "".join(parts)


def _written(token: Token) -> str:
    match token.kind:
        case TokenKind.STRING:
            return "'" + token.value.replace("'", "''") + "'"
        case TokenKind.QUOTED:
            return quote_name(token.value)
        case TokenKind.DOUBLE:
            return f'"{token.value}"'
    return token.value


def shown(tokens: Iterable[Token]) -> str:
    """Tokens as the user wrote them, on one line, for messages and metadata: no variable is replaced."""
    parts: list[str] = []
    for token in tokens:
        if parts and token.spaced:
            parts.append(" ")
        parts.append(token.text)
    return "".join(parts)
