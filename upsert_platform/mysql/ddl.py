"""The effect of a DDL statement on one table."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from itertools import pairwise
from typing import Final

from upsert_platform.mysql.tokens import plain, tokens

_UNLOGGED: Final = frozenset(("TRUNCATE", "DROP", "EXCHANGE", "DISCARD", "IMPORT", "REORGANIZE", "CONVERT"))
"""Words before PARTITION or TABLESPACE that make rows come or go without a row in the log."""


_DELETING: Final = frozenset(("UNIQUE", "PRIMARY", "PARTITION"))
"""Words that make ALTER IGNORE TABLE delete the rows that do not fit."""


class Effect(StrEnum):
    """The fate of the table.

    Attributes:
        INDEXED: an index came or went; its rows look as before.
        ROWS: rows came or went that are not in the log, or not under the table's name.
    """

    NONE = "none"
    INDEXED = "indexed"
    ALTERED = "altered"
    TRUNCATED = "truncated"
    GONE = "gone"
    ROWS = "rows"


def effect_on(sql: str, *, schema: str, table: tuple[str, str], exact: bool = False) -> Effect:
    """Return the effect of a statement on a table.

    Args:
        schema: that names without one belong to.
        table: schema and name.
        exact: whether names that differ by case alone are of two tables.
    """
    return _Statement(tokens(sql), schema, table, str if exact else str.casefold).effect()


def index_of(sql: str) -> tuple[str, bool]:
    """Return the lower-case name of the index that a statement is about, and whether it makes the index."""
    statement = _Statement(tokens(sql), "", ("", ""), str)
    statement.effect()
    return statement.index.casefold(), statement.tokens[0].upper() == "CREATE"


class _Statement:
    def __init__(self, words: list[str], schema: str, table: tuple[str, str], fold: Callable[[str], str]) -> None:
        self.tokens = words
        self.schema = schema
        self.table = (fold(table[0]), fold(table[1]))
        self.fold = fold
        self.at = 0
        self.index = ""

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
            replaces = self._accept("OR") and self._accept("REPLACE")
            if replaces and self._accept("DATABASE", "SCHEMA"):
                return Effect.GONE if self.fold(self._plain()) == self.table[0] else Effect.NONE
            if not self._accept("TABLE"):
                return self._indexed()
            self._skip("IF", "NOT", "EXISTS")
            if self._name() != self.table:
                return Effect.NONE
            # The rows that an earlier table of the name had are gone, without a word in the log.
            return Effect.ROWS if replaces else Effect.ALTERED
        return Effect.NONE

    def _dropped(self) -> Effect:
        if self._accept("DATABASE", "SCHEMA"):
            self._skip("IF", "EXISTS")
            return Effect.GONE if self.fold(self._plain()) == self.table[0] else Effect.NONE
        if not self._accept("TABLE", "TABLES"):
            return self._indexed()
        self._skip("IF", "EXISTS")
        return Effect.GONE if self.table in self._names() else Effect.NONE

    def _indexed(self) -> Effect:
        """CREATE INDEX and DROP INDEX, from the word behind the verb on."""
        while self._accept("ONLINE", "OFFLINE", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR"):
            pass
        if not self._accept("INDEX"):
            return Effect.NONE
        self._skip("IF", "NOT", "EXISTS")
        self.index = self._plain()
        if self._accept("USING", "TYPE"):
            self.at += 1
        if not self._accept("ON") or self._name() != self.table:
            return Effect.NONE
        return Effect.ALTERED if self.index.upper() == "PRIMARY" else Effect.INDEXED

    def _renamed(self) -> Effect:
        """Pairs are carried out one after the other: the last one that names the table counts.

        Another table that takes the name has rows that were logged under its own. Only of the copies that tools for
        changing tables online put in the place of a table it is known that they hold the same rows.
        """
        self._skip("IF", "EXISTS")
        effect, away = Effect.NONE, self.table
        while True:
            source = self._name()
            while self._accept("WAIT", "NOWAIT") or (self._word().isdigit() and self._accept(self._word())):
                pass
            self._accept("TO")
            target = self._name()
            if source == self.table:
                effect, away = Effect.GONE, target
            elif target == self.table:
                same = effect is Effect.GONE and (source == away or self._is_copy(source))
                effect = Effect.ALTERED if same else Effect.ROWS
            if not self._accept(","):
                return effect

    def _altered(self) -> Effect:
        ignores = "IGNORE" in (word.upper() for word in self.tokens[:4])
        while self._accept("ONLINE", "OFFLINE", "IGNORE"):
            pass
        if not self._accept("TABLE"):
            return Effect.NONE
        self._skip("IF", "EXISTS")
        named = self._name()
        words = [token.upper() for token in self.tokens[self.at :]]
        pairs = list(pairwise(words))
        others = self._others(pairs)
        becomes = self._new_name(pairs)
        if named != self.table:
            return Effect.ROWS if self.table in (becomes, *others) else Effect.NONE
        if others or any(word in _UNLOGGED and following in ("PARTITION", "TABLESPACE") for word, following in pairs):
            return Effect.ROWS
        if ignores and not _DELETING.isdisjoint(words):
            return Effect.ROWS
        return Effect.ALTERED if becomes in (None, self.table) else Effect.GONE

    def _others(self, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Tables that give rows to this one, or get them, by EXCHANGE PARTITION and CONVERT TABLE or PARTITION."""
        start, found = self.at, []
        for index, (word, following) in enumerate(pairs):
            if word in ("WITH", "CONVERT", "TO") and following == "TABLE":
                self.at = start + index + 2
                found.append(self._name())
        self.at = start
        return found

    def _new_name(self, pairs: list[tuple[str, str]]) -> tuple[str, str] | None:
        """The name that ALTER TABLE gives to the table; None if it keeps its own.

        Args:
            pairs: of words that follow each other, behind the table's name.
        """
        for index, (word, following) in enumerate(pairs):
            if word == "RENAME" and following not in ("COLUMN", "INDEX", "KEY"):
                self.at += index + 1
                self._accept("TO", "AS")
                return self._name()
        return None

    def _is_copy(self, other: tuple[str, str]) -> bool:
        """Return whether a table has the name of the copy that gh-ost and pt-online-schema-change make."""
        schema, name = self.table
        return other[0] == schema and re.fullmatch(f"_+{re.escape(name)}_(gho|new)", other[1]) is not None

    def _names(self) -> list[tuple[str, str]]:
        found = [self._name()]
        while self._accept(","):
            found.append(self._name())
        return found

    def _name(self) -> tuple[str, str]:
        first = self._plain()
        if self._accept("."):
            return self.fold(first), self.fold(self._plain())
        return self.fold(self.schema), self.fold(first)

    def _plain(self) -> str:
        word = self._word()
        self.at += 1
        return plain(word)

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
