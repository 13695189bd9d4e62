"""Flink's SQL dialect for sqlglot: its quoting, and functions kept by name.

Only the syntax is sqlglot's business here. Functions stay as they are named, so that `functions` alone decides what
they become in Spark; types in casts are read by `types.parse_type`.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.tokens import Tokenizer, TokenType

from upsert_platform.sql.lexer import Token, TokenKind, to_sql
from upsert_platform.sql.reader import Fault
from upsert_platform.types import LogicalType, TypeSyntaxError, parse_type

TYPE_KEY: Final = "flink_type"
"""Key in a node's meta: the type after AS in CAST, or after RETURNING in JSON_VALUE."""
_MISSING: Final = re.compile(r"Required keyword: .* missing for <class '[\w.]*\.(\w+)'>")


class _FlinkTokenizer(Tokenizer):
    QUOTES: ClassVar = ["'"]
    IDENTIFIERS: ClassVar = ["`"]
    STRING_ESCAPES: ClassVar = ["'"]
    HEX_STRINGS: ClassVar = [("x'", "'"), ("X'", "'")]


class _FlinkParser(Parser):
    FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": lambda self: self._parse_case()}
    COLUMN_OPERATORS: ClassVar = {TokenType.DOT: None}
    FUNCTION_PARSERS: ClassVar = {
        "CAST": lambda self: self._parse_flink_cast(exp.Cast),
        "TRY_CAST": lambda self: self._parse_flink_cast(exp.TryCast),
        "EXTRACT": lambda self: self._parse_extract(),
        "TRIM": lambda self: self._parse_trim(),
        "SUBSTRING": lambda self: self._parse_substring(),
        "POSITION": lambda self: self._parse_position(),
        "OVERLAY": lambda self: self._parse_overlay(),
        "CEIL": lambda self: self._parse_ceil_floor(exp.Ceil),
        "FLOOR": lambda self: self._parse_ceil_floor(exp.Floor),
        "JSON_VALUE": lambda self: self._parse_flink_json_value(),
    }

    def _parse_flink_cast(self, kind: type[exp.Cast]) -> exp.Expr:
        this = self._parse_disjunction()
        if not self._match(TokenType.ALIAS):
            self.raise_error("AS and a type expected in CAST")
        return self._typed(kind(this=this, to=exp.DataType.build("unknown")))

    def _parse_flink_json_value(self) -> exp.Expr:
        arguments = self._parse_csv(self._parse_disjunction)
        node: exp.Expr = exp.Anonymous(this="JSON_VALUE", expressions=arguments)
        if self._match_text_seq("RETURNING"):
            node = self._typed(node)
        while self._match_text_seq("NULL", "ON"):
            if not (self._match_text_seq("EMPTY") or self._match_text_seq("ERROR")):
                self.raise_error("EMPTY or ERROR expected after NULL ON")
        if self._curr.token_type != TokenType.R_PAREN:
            self.raise_error("JSON_VALUE takes RETURNING <type>, NULL ON EMPTY and NULL ON ERROR here")
        return node

    def _typed(self, node: exp.Expr) -> exp.Expr:
        """Reads a type up to the closing parenthesis (or ON) into the node's meta."""
        words: list[str] = []
        depth = 0
        while self._curr and self._curr.token_type != TokenType.SENTINEL:
            if depth == 0 and (
                self._curr.token_type == TokenType.R_PAREN
                or (self._curr.text.upper() == "NULL" and self._next and self._next.text.upper() == "ON")
            ):
                break
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(self._curr.token_type, 0)
            quoted = self._curr.token_type == TokenType.IDENTIFIER
            words.append("`" + self._curr.text.replace("`", "``") + "`" if quoted else self._curr.text)
            self._advance()
        try:
            node.meta[TYPE_KEY] = parse_type(" ".join(words))
        except TypeSyntaxError as error:
            self.raise_error(str(error))
        return node


class Flink(Dialect):
    """Flink SQL, as far as queries over declared tables need it."""

    Tokenizer = _FlinkTokenizer
    Parser = _FlinkParser


def _reworded(description: str) -> str:
    """Without the names of sqlglot's classes."""
    match = _MISSING.search(description)
    if match is not None:
        return f"{match[1].upper()} is not complete"
    return description.split(" but got ")[0].rstrip(".")


def declared_type(node: exp.Expr) -> LogicalType | None:
    """The type that was read for a CAST or JSON_VALUE; None for a typed literal."""
    found: Any = node.meta.get(TYPE_KEY)
    return found


def line_of(node: exp.Expr, first_line: int) -> int:
    """The line of a node in its file.

    Args:
        first_line: line of the file on which the parsed text begins.
    """
    for part in node.walk():
        line = part.meta.get("line")
        if isinstance(line, int):
            return first_line + line - 1
    return first_line


def parse_query(tokens: tuple[Token, ...], what: str) -> exp.Expr:
    """Parses a query, or a single expression.

    Args:
        what: ``query`` or ``expression``.

    Raises:
        Fault: the text is none. The message does not repeat it: variables are replaced in it.
    """
    first = tokens[0].line
    for token in tokens:
        if token.kind is TokenKind.HINT:
            raise Fault(
                "hints (/*+ ... */) are not supported: give options in the WITH clause of the table", token.line
            )
        if token.kind is TokenKind.DOUBLE:
            raise Fault("texts are written in single quotes, names in backquotes, not in double quotes", token.line)
    text = to_sql(tokens)
    into: Any = exp.Expr if what == "query" else exp.Condition
    try:
        dialect = Flink()
        parsed = dialect.parse(text) if what == "query" else dialect.parse_into(into, text)
    except ParseError as error:
        detail = error.errors[0] if error.errors else {}
        line = detail.get("line")
        reason = _reworded(str(detail.get("description") or "it is not complete"))
        at = detail.get("highlight")
        if at and not any("${" in token.text for token in tokens):
            reason = f"{reason} at {at!r}"
        shown_line = first + line - 1 if isinstance(line, int) else first
        raise Fault(f"the {what} is not SQL: {reason}", shown_line) from None
    except TokenError:
        raise Fault(f"the {what} is not SQL: a quote is never closed", first) from None
    found = [item for item in parsed if item is not None]
    if len(found) != 1:
        raise Fault(f"one {what} expected", first)
    return found[0]
