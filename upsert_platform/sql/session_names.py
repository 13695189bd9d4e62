"""Statements about catalogs and databases, and those that only show something: what they mean for the rest of a file.

A file is a session: USE holds for the statements behind it, as SET does. Catalogs hold nothing by themselves.
"""

from __future__ import annotations

from typing import Final

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.types import quote_name
from upsert_platform.sql.declarations import Declarations
from upsert_platform.sql.lexer import Token, TokenKind
from upsert_platform.sql.reader import Fault, TokenReader
from upsert_platform.sql.table_names import IN_MEMORY, Path, Session, short_name, with_short_names

_SHOWING: Final = {
    "SHOW": "'upsert-platform validate' and Dagster show what is declared",
    "DESCRIBE": "'upsert-platform validate' and Dagster show what is declared",
    "DESC": "'upsert-platform validate' and Dagster show what is declared",
    "EXPLAIN": "'upsert-platform explain' shows the operators of every query",
}
"""Statements that change nothing, with what takes their place."""
_DEFAULT_DATABASE: Final = "default-database"


class SessionNames:
    """The names of a file, as its USE statements have them.

    Args:
        found: what the file declares; catalogs, their places and problems are added.
    """

    def __init__(self, found: Declarations) -> None:
        self.found = found
        self.session = Session()

    def of_table(self, reader: TokenReader, what: str) -> tuple[str, Path | None]:
        """Takes the name of a table; gives the one that it has here, and its path if more than a word is known of it.

        Raises:
            Fault: there is no name, or one of more than three parts.
        """
        place = reader.location
        parts = reader.name_parts(what)
        path = self.session.path(parts, place.line or 0)
        self.found.named_catalogs.append((path[0], place))
        return short_name(path), path if len(parts) > 1 or self.session != Session() else None

    def of_query(self, query: tuple[Token, ...], file: str) -> tuple[Token, ...]:
        """A query whose tables have the names that they have here.

        Raises:
            Fault: a name has more than three parts.
        """
        tokens, catalogs = with_short_names(query, self.session)
        self.found.named_catalogs += [(catalog, SourceLocation(file, line)) for catalog, line in catalogs]
        return tokens

    def read(self, reader: TokenReader) -> bool:
        """Reads a statement that names things or shows them; returns False, and takes nothing, for any other.

        Raises:
            Fault: it is not written as one.
        """
        first = reader.peek()
        if first is not None and (reason := _SHOWING.get(first.value.upper())) is not None:
            self._has_no_effect(first.value.upper(), reason, reader)
        elif reader.accept("USE", "CATALOG"):
            place = reader.location
            catalog = reader.name("catalog name")
            self.found.named_catalogs.append((catalog, place))
            self.session = self.session.use_catalog(catalog, self.found.catalogs)
        elif reader.next_is("USE") and not reader.next_is("USE", "MODULES"):
            reader.accept("USE")
            self.session = self._database(reader)
        elif reader.accept("CREATE", "DATABASE"):
            reader.accept("IF", "NOT", "EXISTS")
            self._database(reader)
            self._comment(reader)
            if reader.accept("WITH"):
                self._options(reader)
                self._has_no_effect("WITH of CREATE DATABASE", "a database only holds names here", reader)
        elif reader.accept("CREATE", "CATALOG"):
            self._catalog(reader)
        elif reader.next_is("DROP") and self._drops_nothing(reader):
            self._has_no_effect("DROP ... IF EXISTS", "the file declares nothing of that name before it", reader)
        else:
            return False
        if not reader.at_end():
            raise reader.fault("';' expected")
        return True

    def _drops_nothing(self, reader: TokenReader) -> bool:
        """Return whether a DROP ... IF EXISTS, as scripts begin with, names nothing that stands before it."""
        dropped = TokenReader(reader.tokens, reader.file)
        dropped.accept("DROP")
        dropped.accept("TEMPORARY")
        if not any(dropped.accept(kind, "IF", "EXISTS") for kind in ("TABLE", "VIEW")):
            return False
        name = short_name(self.session.path(dropped.name_parts("name"), dropped.line))
        declared = {table.name for table in self.found.tables} | {view.name for view in self.found.views}
        return dropped.at_end() and name not in declared

    def _database(self, reader: TokenReader) -> Session:
        place = reader.location
        parts = reader.name_parts("database name")
        if len(parts) > 2:
            raise Fault(f"'{'.'.join(parts)}' has {len(parts)} parts: catalog and database are two", place.line or 0)
        catalog, database = (*(self.session.catalog,)[: 2 - len(parts)], *parts)
        self.found.named_catalogs.append((catalog, place))
        return Session(catalog, database)

    def _catalog(self, reader: TokenReader) -> None:
        place = reader.location
        reader.accept("IF", "NOT", "EXISTS")
        name = reader.name("catalog name")
        self._comment(reader)
        options = self._options(reader) if reader.accept("WITH") else {}
        self.found.catalogs[name] = options.get(_DEFAULT_DATABASE, "default")
        kind = options.get("type", "")
        if kind != IN_MEMORY:
            raise Fault(
                f"CREATE CATALOG {name}: tables of a catalog of the type '{kind}' are not known without it. Write"
                f" 'type' = '{IN_MEMORY}', and CREATE TABLE {quote_name(name)}.<database>.<table> (...) WITH"
                " ('connector' = ...) for each table that is read or written",
                place.line or 0,
            )
        for option in options.keys() - {"type", _DEFAULT_DATABASE}:
            self._has_no_effect(f"option '{option}' of CREATE CATALOG", "a catalog only holds names here", reader)

    def _comment(self, reader: TokenReader) -> None:
        if reader.accept("COMMENT"):
            reader.text("comment")

    def _options(self, reader: TokenReader) -> dict[str, str]:
        """The options of WITH; faults show no text of them, which may be a secret."""
        options: dict[str, str] = {}
        reader.expect("(", where="after WITH")
        while not reader.accept(")"):
            tokens = reader.take_until(",", ")")
            if [token.kind for token in tokens] != [TokenKind.STRING, TokenKind.SYMBOL, TokenKind.STRING]:
                raise Fault("an option is written 'name' = 'value', both in single quotes", reader.line)
            options[tokens[0].value] = tokens[2].value
            reader.accept(",")
        return options

    def _has_no_effect(self, what: str, instead: str, reader: TokenReader) -> None:
        place = SourceLocation(reader.file, reader.tokens[0].line)
        self.found.problems.append(Problem(f"{what} has no effect: {instead}", place, "warning"))
        reader.at = len(reader.tokens)
