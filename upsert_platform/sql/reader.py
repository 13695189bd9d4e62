"""Walking over the tokens of a statement."""

from __future__ import annotations

from collections.abc import Sequence

from upsert_platform.core.errors import SourceLocation
from upsert_platform.sql.lexer import Token, TokenKind

_OPEN = {"(": ")", "<": ">", "[": "]"}


class Fault(Exception):  # noqa: N818 - not an error of the program: it ends the reading of one item
    """A token stands where the grammar has none like it."""

    def __init__(self, message: str, line: int) -> None:
        self.message = message
        self.line = line
        super().__init__(message)


class ToldFault(Fault):
    """A dependency has an error that was reported already; another message would repeat it."""

    def __init__(self) -> None:
        super().__init__("", 0)


class NeedsState(Fault):
    """A query needs more than one row at a time; `sql.planning` plans such queries."""


class TokenReader:
    """A position in the tokens of one statement."""

    def __init__(self, tokens: Sequence[Token], file: str) -> None:
        self.tokens = tokens
        self.file = file
        self.at = 0

    def peek(self, ahead: int = 0) -> Token | None:
        """The next token, or one further ahead."""
        index = self.at + ahead
        return self.tokens[index] if index < len(self.tokens) else None

    @property
    def line(self) -> int:
        """Line of the next token; of the last one at the end."""
        token = self.peek() or (self.tokens[-1] if self.tokens else None)
        return token.line if token else 0

    @property
    def location(self) -> SourceLocation:
        """Place of the next token."""
        return SourceLocation(self.file, self.line)

    def next_is(self, *words: str) -> bool:
        """Return whether the next tokens are these keywords or symbols."""
        for ahead, word in enumerate(words):
            token = self.peek(ahead)
            if token is None or not token.is_word(word):
                return False
        return True

    def accept(self, *words: str) -> bool:
        """Takes these keywords or symbols if they come next."""
        if self.next_is(*words):
            self.at += len(words)
            return True
        return False

    def expect(self, *words: str, where: str) -> None:
        """Takes these keywords or symbols, or raises Fault."""
        if not self.accept(*words):
            raise self.fault(f"{' '.join(words)} expected {where}")

    def fault(self, wanted: str) -> Fault:
        """A fault at the next token."""
        token = self.peek()
        return Fault(f"{wanted}, but {f'{token.text!r} stands there' if token else 'the statement ends'}", self.line)

    def take(self) -> Token:
        """The next token, taken.

        Raises:
            Fault: there is none.
        """
        token = self.peek()
        if token is None:
            raise self.fault("more expected")
        self.at += 1
        return token

    def name(self, what: str) -> str:
        """Takes an identifier."""
        token = self.peek()
        if token is None or token.kind not in (TokenKind.WORD, TokenKind.QUOTED):
            raise self.fault(f"{what} expected")
        self.at += 1
        return token.value

    def qualified_name(self, what: str) -> str:
        """Takes identifiers joined by dots."""
        return ".".join(self.name_parts(what))

    def name_parts(self, what: str) -> list[str]:
        """Takes identifiers joined by dots, one by one."""
        parts = [self.name(what)]
        while self.accept("."):
            parts.append(self.name(what))
        return parts

    def text(self, what: str) -> str:
        """Takes a quoted text."""
        token = self.peek()
        if token is None or token.kind is not TokenKind.STRING:
            raise self.fault(f"{what} expected, in single quotes")
        self.at += 1
        return token.value

    def names_in_parentheses(self, what: str) -> list[str]:
        """Takes ``(a, b)``."""
        self.expect("(", where=f"before the {what}s")
        names = [self.name(what)]
        while self.accept(","):
            names.append(self.name(what))
        self.expect(")", where=f"after the {what}s")
        return names

    def take_until(self, *stops: str, angles: bool = False) -> list[Token]:
        """Takes tokens up to one of the stops outside of parentheses (and of ``<>`` if `angles`)."""
        openers = {key: value for key, value in _OPEN.items() if angles or key != "<"}
        start, closers = self.at, list[str]()
        while (token := self.peek()) is not None:
            if not closers and any(token.is_word(stop) for stop in stops):
                break
            if token.kind is TokenKind.SYMBOL:
                if token.value in openers:
                    closers.append(openers[token.value])
                elif closers and token.value == closers[-1]:
                    closers.pop()
            self.at += 1
        return list(self.tokens[start : self.at])

    def skip_to(self, *stops: str) -> None:
        """Goes on to one of the stops outside of parentheses, to read on after a fault."""
        self.take_until(*stops)

    def at_end(self) -> bool:
        """Return whether every token was taken."""
        return self.at >= len(self.tokens)
