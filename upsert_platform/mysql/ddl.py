"""What a statement that changes tables does to one of them."""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import pairwise
from typing import Final

_TOKEN: Final = re.compile(
    r"/\*(?!!|M!).*?\*/|--[ \t][^\n]*|#[^\n]*|/\*M?!\d*|\*/"
    r"|'(?:[^'\\]|''|\\.)*'|`(?:[^`]|``)*`|\"(?:[^\"]|\"\")*\"|[\w$]+|\S",
    re.DOTALL,
)
_COMMENTS: Final = ("/*", "--", "#", "*/")
_UNLOGGED: Final = frozenset(("TRUNCATE", "DROP", "EXCHANGE", "DISCARD", "IMPORT", "REORGANIZE", "CONVERT"))
"""Words before PARTITION or TABLESPACE that make rows come or go without a row in the log."""


class Effect(StrEnum):
    """What becomes of the table.

    Attributes:
        ROWS: rows came or went that are not in the log.
    """

    NONE = "none"
    ALTERED = "altered"
    TRUNCATED = "truncated"
    GONE = "gone"
    ROWS = "rows"


def effect_on(sql: str, *, schema: str, table: tuple[str, str]) -> Effect:
    """What a statement does to a table.

    Args:
        schema: that names without one belong to.
        table: schema and name.
    """
    tokens = [token for token in _TOKEN.findall(sql) if not token.startswith(_COMMENTS)]
    return _Statement(tokens, schema, (table[0].casefold(), table[1].casefold())).effect()


class _Statement:
    def __init__(self, tokens: list[str], schema: str, table: tuple[str, str]) -> None:
        self.tokens = tokens
        self.schema = schema
        self.table = table
        self.at = 0

    def effect(self) -> Effect:
        if self._accept("TRUNCATE"):
            self._accept("TABLE")
            return Effect.TRUNCATED if self._name() == self.table else Effect.NONE
        if self._accept("RENAME"):
            return self._renamed() if self._accept("TABLE", "TABLES") else Effect.NONE
        if self._accept("DROP"):
            return self._dropped()
        if self._accept("ALTER"):
            return self._altered()
        if self._accept("CREATE"):
            while self._accept("OR", "REPLACE"):
                pass
            if not self._accept("TABLE"):
                return Effect.NONE
            self._skip("IF", "NOT", "EXISTS")
            return Effect.ALTERED if self._name() == self.table else Effect.NONE
        return Effect.NONE

    def _dropped(self) -> Effect:
        if self._accept("DATABASE", "SCHEMA"):
            self._skip("IF", "EXISTS")
            return Effect.GONE if self._plain().casefold() == self.table[0] else Effect.NONE
        if not self._accept("TABLE", "TABLES"):
            return Effect.NONE
        self._skip("IF", "EXISTS")
        return Effect.GONE if self.table in self._names() else Effect.NONE

    def _renamed(self) -> Effect:
        """Pairs are carried out one after the other: the last one that names the table counts."""
        self._skip("IF", "EXISTS")
        effect = Effect.NONE
        while True:
            source = self._name()
            while self._accept("WAIT", "NOWAIT") or (self._word().isdigit() and self._accept(self._word())):
                pass
            self._accept("TO")
            target = self._name()
            if source == self.table:
                effect = Effect.GONE
            if target == self.table:
                effect = Effect.ALTERED
            if not self._accept(","):
                return effect

    def _altered(self) -> Effect:
        while self._accept("ONLINE", "OFFLINE", "IGNORE"):
            pass
        if not self._accept("TABLE"):
            return Effect.NONE
        self._skip("IF", "EXISTS")
        if self._name() != self.table:
            return Effect.NONE
        words = [token.upper() for token in self.tokens[self.at :]]
        pairs = list(pairwise(words))
        if any(word in _UNLOGGED and following in ("PARTITION", "TABLESPACE") for word, following in pairs):
            return Effect.ROWS
        for index, (word, following) in enumerate(pairs):
            if word == "RENAME" and following not in ("COLUMN", "INDEX", "KEY"):
                self.at += index + 1
                self._accept("TO", "AS")
                return Effect.ALTERED if self._name() == self.table else Effect.GONE
        return Effect.ALTERED

    def _names(self) -> list[tuple[str, str]]:
        found = [self._name()]
        while self._accept(","):
            found.append(self._name())
        return found

    def _name(self) -> tuple[str, str]:
        first = self._plain()
        if self._accept("."):
            return first.casefold(), self._plain().casefold()
        return self.schema.casefold(), first.casefold()

    def _plain(self) -> str:
        word = self._word()
        self.at += 1
        if word[:1] in ("`", '"'):
            return word[1:-1].replace(word[0] * 2, word[0])
        return word

    def _word(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _accept(self, *words: str) -> bool:
        if self._word().upper() in words and self._word():
            self.at += 1
            return True
        return False

    def _skip(self, *words: str) -> None:
        for word in words:
            self._accept(word)
