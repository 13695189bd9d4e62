"""Names of tables in catalogs and databases, as a session of Flink resolves them, and the one name that each has here.

A table of the default database is named by its last part alone, however it is written: ``t``, ``default_database.t``,
```vvp`.`default`.`t```. Any other is named by its database too (``ods.t``), and by its catalog where that is another
one, so that two tables of one last name stay apart, and no declaration changes the name of another table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.types import quote_name
from upsert_platform.sql.flink import Flink
from upsert_platform.sql.lexer import Token, TokenKind, to_sql
from upsert_platform.sql.planning.windows import FUNCTIONS, unwrap_tables
from upsert_platform.sql.reader import Fault

_CATALOGS: Final = {"default_catalog": "default_database", "vvp": "default"}
"""Catalogs that a session has by itself, Flink's and that of Alibaba's platform, with their databases."""
_DATABASES: Final = frozenset(_CATALOGS.values())
IN_MEMORY: Final = "generic_in_memory"
"""The type of catalog that holds what a script declares, and nothing else."""
Path = tuple[str, str, str]
"""Catalog, database and table."""


@dataclass(frozen=True, slots=True)
class Session:
    """The catalog and database of names that do not say them, as USE statements before say."""

    catalog: str = "default_catalog"
    database: str = "default_database"

    def path(self, parts: Sequence[str], line: int) -> Path:
        """The catalog, database and table of a name.

        Raises:
            Fault: it has more than three parts.
        """
        if len(parts) > 3:
            raise Fault(f"'{'.'.join(parts)}' has {len(parts)} parts: catalog, database and table are three", line)
        catalog, database, table = (*(self.catalog, self.database)[: 3 - len(parts)], *parts)
        return catalog, database, table

    def use_catalog(self, catalog: str, declared: Mapping[str, str]) -> Session:
        """The session behind USE CATALOG.

        Args:
            declared: catalog to its default database.
        """
        return Session(catalog, declared.get(catalog) or _CATALOGS.get(catalog, "default"))


def short_parts(path: Path) -> tuple[str, ...]:
    """The parts that name a table here."""
    catalog, database, table = path
    if catalog not in _CATALOGS:
        return path
    return (table,) if database in _DATABASES else (database, table)


def short_name(path: Path) -> str:
    """Return the name of a table: its asset has it."""
    return ".".join(short_parts(path))


def unknown_catalogs(named: Sequence[tuple[str, SourceLocation]], declared: Collection[str]) -> Iterator[Problem]:
    """Yield a problem for each catalog that statements name, where it is named first.

    Args:
        declared: catalogs that are known: of CREATE CATALOG, or in the name of a declared table.
    """
    told = {*_CATALOGS, *declared}
    for catalog, place in named:
        if catalog not in told:
            told.add(catalog)
            message = (
                f"catalog '{catalog}' is not known: the tables of a project are those that it declares. Write CREATE"
                f" TABLE {quote_name(catalog)}.<database>.<table> (...) WITH ('connector' = ...) for each table in it"
            )
            yield Problem(message, place)


def with_short_names(tokens: tuple[Token, ...], session: Session) -> tuple[tuple[Token, ...], list[tuple[str, int]]]:
    """Writes the tables of a query, and the columns behind names of tables, by the names that these have here.

    A query that cannot be parsed stays as it is: what is wrong with it is said where it is read.

    Returns:
        The tokens, and the catalogs that they named, with their lines.

    Raises:
        Fault: a name has more than three parts.
    """
    if session == Session() and not _is_qualified(tokens):
        return tokens, []
    parsed = _parsed(tokens)
    if parsed is None:
        return tokens, []
    written: dict[int, tuple[int, tuple[str, ...]]] = {}
    catalogs: list[tuple[str, int]] = []
    unnamed: set[str] = set()
    for node in parsed.root.walk():
        name = _table_of(node)
        if name is None or (len(name) == 1 and _is_common(node, name[0].name)):
            continue
        place, last = parsed.place(name[0]), parsed.place(name[-1])
        if place is None or last is None:
            continue
        path = session.path([part.name for part in name], tokens[place].line)
        if len(name) > 1 and _is_common(node, short_name(path)):
            message = (
                f"table '{'.'.join(path)}' has the name of a query of WITH, '{short_name(path)}': rename that query"
            )
            raise Fault(message, tokens[place].line)
        catalogs += [(path[0], tokens[place].line)] if path[0] != "default_catalog" else []
        if [part.name for part in name] != list(short_parts(path)):
            written[place] = (last + 1, short_parts(path))
        if not node.args.get("alias"):
            unnamed.add(short_name(path))
    for column in parsed.root.find_all(exp.Column):
        parts = [part for part in column.parts if isinstance(part, (exp.Identifier, exp.Star))]
        for length in (3, 2):
            names = [part.name for part in parts[:length]]
            first, last = parsed.place(parts[0]), parsed.place(parts[length - 1]) if len(parts) > length else None
            if first is None or last is None or first in written:
                continue
            path = session.path(names, 0)
            if short_name(path) in unnamed:
                written[first] = (last + 1, short_parts(path))
    found: list[Token] = []
    at = 0
    while at < len(tokens):
        if at in written:
            end, names_of = written[at]
            found += _tokens(names_of, tokens[at])
            at = end
        else:
            found.append(tokens[at])
            at += 1
    return tuple(found), catalogs


def _is_qualified(tokens: Sequence[Token]) -> bool:
    """Return whether a name may begin with a database of every session, or have three parts."""
    for at, token in enumerate(tokens[:-2]):
        if tokens[at + 1].is_word(".") and token.kind in (TokenKind.WORD, TokenKind.QUOTED):
            if token.value in _CATALOGS or token.value in _DATABASES:
                return True
            if at + 4 < len(tokens) and tokens[at + 3].is_word("."):
                return True
    return False


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A query with the places of its names among the tokens.

    Attributes:
        places: of tokens, by the character of the parsed text at which each begins.
    """

    root: exp.Expr
    places: Mapping[int, int]

    def place(self, part: exp.Expr) -> int | None:
        """The place of the token that a name is; None where the parser made it of another."""
        return self.places.get(part.meta.get("start", -1))


def _parsed(tokens: Sequence[Token]) -> _Parsed | None:
    """A query as parsed; None where it is none."""
    numbered = tuple(
        replace(token, line=at) for at, token in enumerate(tokens) if token.kind is not TokenKind.HINT
    )  # what is left out of them for the parser changes no numbers
    places: dict[int, int] = {}
    text = ""
    try:
        for token in unwrap_tables(numbered):
            text += " " if token.spaced else ""
            places[len(text)] = token.line
            text += to_sql([token])
        parsed = Flink().parse(text)
    except (Fault, ParseError, TokenError):
        return None
    return _Parsed(parsed[0], places) if len(parsed) == 1 and parsed[0] is not None else None


def _table_of(node: exp.Expr) -> list[exp.Expr] | None:
    """The parts of the name of a table that a node reads; None for other nodes."""
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        return list(node.parts)
    if isinstance(node, exp.Anonymous) and str(node.this).upper() in FUNCTIONS and isinstance(node.parent, exp.Table):
        first = node.expressions[0] if node.expressions else None
        if isinstance(first, exp.Column) and all(isinstance(part, exp.Identifier) for part in first.parts):
            return list(first.parts)
    return None


def _is_common(node: exp.Expr, name: str) -> bool:
    """Return whether a name is that of a query of WITH, which a node sees: of its own WITH those before it."""
    below: exp.Expr = node
    while (above := below.parent) is not None:
        clause = above.args.get("with_")
        if clause is not None and clause is not below and any(item.alias == name for item in clause.expressions):
            return True
        if isinstance(above, exp.With):
            before = above.expressions[: above.expressions.index(below)]
            if any(item.alias == name for item in before):
                return True
        below = above
    return False


def _tokens(parts: Sequence[str], first: Token) -> Iterator[Token]:
    """The tokens of a name in the place of one that begins with a token."""
    for at, part in enumerate(parts):
        if at:
            yield Token(TokenKind.SYMBOL, ".", ".", first.line, spaced=False)
        yield Token(TokenKind.QUOTED, quote_name(part), part, first.line, spaced=first.spaced and not at)
