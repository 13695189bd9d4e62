"""Flink's SQL dialect for sqlglot: its quoting, and functions kept by name.

Only the syntax is sqlglot's business here. Functions stay as they are named, so that `functions` alone decides what
they become in Spark; types in casts are read by `types.parse_type`.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.tokens import Tokenizer, TokenType

from upsert_platform.core.types import LogicalType, TypeSyntaxError, parse_type, quote_name
from upsert_platform.sql.clauses import unread_part
from upsert_platform.sql.hints import planned_hints
from upsert_platform.sql.intervals import QUALIFIER_KEY, UNITS, IntervalFault, Qualifier, length_of, qualifier_of
from upsert_platform.sql.lexer import Token, TokenKind, to_sql
from upsert_platform.sql.reader import Fault
from upsert_platform.sql.row_values import without_rows

TYPE_KEY: Final = "flink_type"
"""Key in a node's meta: the type after AS in CAST, or after RETURNING in JSON_VALUE."""
CLAUSES_KEY: Final = "flink_clauses"
"""Key in a node's meta: clauses of a JSON function, name to a word."""
DEFAULT_KEYS: Final = {"EMPTY": "flink_on_empty", "ERROR": "flink_on_error"}
"""Arguments of JSON_VALUE: the expressions after DEFAULT."""
LATERAL_KEY: Final = "flink_lateral"
"""Key in the meta of a function's call: it stands in LATERAL TABLE(...)."""
COMMA_KEY: Final = "flink_comma"
"""Key in a join's meta: it is written as a comma."""
_MISSING: Final = re.compile(r"Required keyword: .* missing for <class '[\w.]*\.(\w+)'>")


class _FlinkTokenizer(Tokenizer):
    QUOTES: ClassVar = ["'"]
    IDENTIFIERS: ClassVar = ["`"]
    STRING_ESCAPES: ClassVar = ["'"]
    HEX_STRINGS: ClassVar = [("x'", "'"), ("X'", "'")]


class _FlinkParser(Parser):
    FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": lambda self: self._parse_case()}
    FUNC_TOKENS: ClassVar = {*Parser.FUNC_TOKENS, TokenType.SESSION}
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
        "TIMESTAMPADD": lambda self: self._parse_flink_timestamps("TIMESTAMPADD"),
        "TIMESTAMPDIFF": lambda self: self._parse_flink_timestamps("TIMESTAMPDIFF"),
        "JSON_VALUE": lambda self: self._parse_flink_json("JSON_VALUE"),
        "JSON_QUERY": lambda self: self._parse_flink_json("JSON_QUERY"),
        "JSON_EXISTS": lambda self: self._parse_flink_json("JSON_EXISTS"),
        "JSON_OBJECT": lambda self: self._parse_flink_json_object(),
        "JSON_ARRAY": lambda self: self._parse_flink_json_array(),
        "JSON_ARRAYAGG": lambda self: self._parse_flink_json_arrayagg(),
        "JSON_OBJECTAGG": lambda self: self._parse_flink_json_objectagg(),
        "ARRAY_AGG": lambda self: self._parse_flink_array_agg(),
    }

    def _parse_join(self, *arguments: Any, **named: Any) -> exp.Join | None:
        comma = self._curr is not None and self._curr.token_type == TokenType.COMMA
        found = super()._parse_join(*arguments, **named)
        if found is not None and comma:
            found.meta[COMMA_KEY] = True
        return found

    def _parse_interval(self, *_arguments: Any, **_named: Any) -> exp.Interval | None:
        """INTERVAL with a text, or a number, and a qualifier; without both it is a name."""
        index = self._index
        if not self._match(TokenType.INTERVAL):
            return None
        line = self._prev.line
        sign = "-" if self._match(TokenType.DASH) else ""
        if not sign:
            self._match(TokenType.PLUS)
        value: exp.Expr | None
        if self._match_set((TokenType.STRING, TokenType.NUMBER)):
            text = self._prev.text.strip()
            value = exp.Literal.string(text[1:] if sign and text.startswith("-") else f"{sign}{text}")
        else:
            value = self._parse_wrapped(self._parse_disjunction, optional=True)
            value = exp.Neg(this=value) if sign and value is not None else value
        first = self._parse_interval_field()
        if value is None or (first is None and not isinstance(value, exp.Literal)):
            self._retreat(index)
            return None
        to = self._match_text_seq("TO")
        last = self._parse_interval_field() if to else None
        if to and last is None:
            self.raise_error("a field such as SECOND expected after TO")
        unit: exp.Expr | None = None
        if first is not None:
            unit = exp.Var(this=first[0])
            unit = unit if last is None else exp.IntervalSpan(this=unit, expression=exp.Var(this=last[0]))
        node = exp.Interval(this=value, unit=unit)
        node.meta["line"] = line
        if first is not None:
            node.meta[QUALIFIER_KEY] = _qualifier(first, last)
        return node

    def _parse_interval_field(self) -> tuple[str, tuple[int, ...]] | None:
        """A field of an interval, in capitals, and the numbers in parentheses behind it."""
        word = self._curr.text.upper()
        if self._curr.token_type != TokenType.VAR and word.removesuffix("S") not in UNITS:
            return None
        self._advance()
        numbers: tuple[int, ...] = ()
        if self._match(TokenType.L_PAREN):
            given = [item.name for item in self._parse_csv(self._parse_number)]
            self._match_r_paren()
            if not 1 <= len(given) <= 2 or not all(item.isdigit() for item in given):
                self.raise_error(f"a field of an interval has digits in parentheses: {word}(3)")
            numbers = tuple(map(int, given))
        return word, numbers

    def _parse_case(self) -> exp.Case:
        """CASE: of ``CASE x WHEN 1, 2 THEN y`` each value has a branch of its own."""
        subject = None if self._match(TokenType.WHEN, advance=False) else self._parse_disjunction()
        branches: list[exp.If] = []
        while self._match(TokenType.WHEN):
            tested = self._parse_csv(self._parse_disjunction) if subject is not None else [self._parse_disjunction()]
            if not self._match(TokenType.THEN):
                self.raise_error("THEN expected in CASE")
            result = self._parse_disjunction()
            for item in tested:
                if item is None or result is None:
                    self.raise_error("WHEN and THEN take an expression in CASE")
                else:
                    branches.append(exp.If(this=item, true=result.copy()))
        default = self._parse_disjunction() if self._match(TokenType.ELSE) else None
        if not branches or not self._match(TokenType.END):
            self.raise_error("WHEN or END expected in CASE")
        return exp.Case(this=subject, ifs=branches, default=default)

    def _parse_flink_cast(self, kind: type[exp.Cast]) -> exp.Expr:
        this = self._parse_disjunction()
        if not self._match(TokenType.ALIAS):
            self.raise_error("AS and a type expected in CAST")
        return self._typed(kind(this=this, to=exp.DataType.build("unknown")))

    def _parse_flink_timestamps(self, name: str) -> exp.Expr:
        """TIMESTAMPADD and TIMESTAMPDIFF, whose first argument is a word: the unit."""
        arguments = self._parse_csv(self._parse_disjunction)
        if arguments and isinstance(arguments[0], exp.Column) and len(arguments[0].parts) == 1:
            arguments[0] = exp.Var(this=arguments[0].name)
        return exp.Anonymous(this=name, expressions=arguments)

    def _parse_flink_json(self, name: str) -> exp.Expr:
        """JSON_VALUE, JSON_QUERY and JSON_EXISTS with their clauses, which go into the node's meta."""
        arguments = self._parse_csv(self._parse_disjunction)
        node: exp.Expr = exp.Anonymous(this=name, expressions=arguments)
        clauses: dict[str, exp.Expr | str] = {}
        if name != "JSON_EXISTS" and self._match_text_seq("RETURNING"):
            node = self._typed(node)
        if name == "JSON_QUERY":
            clauses["WRAPPER"] = self._parse_wrapper()
        while self._curr.token_type != TokenType.R_PAREN:
            chosen = self._parse_on(name)
            if not self._match_text_seq("ON"):
                self.raise_error(f"{name}: ON EMPTY or ON ERROR expected")
            case = "EMPTY" if name != "JSON_EXISTS" and self._match_text_seq("EMPTY") else "ERROR"
            if case == "ERROR" and not self._match_text_seq("ERROR"):
                self.raise_error(f"{name}: EMPTY or ERROR expected after ON")
            clauses[case] = chosen
        _note(node, CLAUSES_KEY, {name: item for name, item in clauses.items() if isinstance(item, str)})
        for case in ("EMPTY", "ERROR"):  # children, whose columns are resolved as those of any other expression
            if isinstance(clauses.get(case), exp.Expr):
                node.set(DEFAULT_KEYS[case], clauses[case])
        return node

    def _parse_wrapper(self) -> str:
        if self._match_text_seq("WITHOUT"):
            found = "WITHOUT"
        elif self._match_text_seq("WITH"):
            found = "CONDITIONAL" if self._match_text_seq("CONDITIONAL") else "UNCONDITIONAL"
            self._match_text_seq("UNCONDITIONAL")
        else:
            return "WITHOUT"
        self._match_text_seq("ARRAY")
        if not self._match_text_seq("WRAPPER"):
            self.raise_error("JSON_QUERY: WRAPPER expected")
        return found

    def _parse_on(self, name: str) -> exp.Expr | str:
        words = ("TRUE", "FALSE", "UNKNOWN", "ERROR") if name == "JSON_EXISTS" else ("NULL", "ERROR")
        for word in words:
            if self._match_text_seq(word):
                return word
        if name == "JSON_VALUE" and self._match_text_seq("DEFAULT"):
            found: exp.Expr | None = self._parse_disjunction()
            if found is not None:
                return found
        if name == "JSON_QUERY" and self._match_text_seq("EMPTY"):
            if self._match_text_seq("ARRAY"):
                return "[]"
            if self._match_text_seq("OBJECT"):
                return "{}"
        taken = {
            "JSON_VALUE": "RETURNING <type>, and NULL, ERROR or DEFAULT <value> ON EMPTY and ON ERROR",
            "JSON_QUERY": "WITH or WITHOUT WRAPPER, and NULL, ERROR, EMPTY ARRAY or EMPTY OBJECT ON EMPTY and ON ERROR",
            "JSON_EXISTS": "TRUE, FALSE, UNKNOWN or ERROR ON ERROR",
        }[name]
        self.raise_error(f"{name} takes {taken} here")
        return "NULL"

    def _parse_flink_json_object(self) -> exp.Expr:
        """JSON_OBJECT(KEY 'k' VALUE v, ... ABSENT ON NULL): keys and values by turns."""
        arguments: list[exp.Expr | None] = []
        while self._curr.token_type != TokenType.R_PAREN and not self._at_nulls():
            self._match_text_seq("KEY")
            arguments.append(self._parse_bitwise())
            if not self._match_text_seq("VALUE") and not self._match(TokenType.COLON):
                self.raise_error("JSON_OBJECT: KEY <text> VALUE <value> expected")
            arguments.append(self._parse_disjunction())
            if not self._match(TokenType.COMMA):
                break
        return self._with_nulls(exp.Anonymous(this="JSON_OBJECT", expressions=arguments), absent=False)

    def _parse_flink_json_array(self) -> exp.Expr:
        arguments: list[exp.Expr | None] = []
        while self._curr.token_type != TokenType.R_PAREN and not self._at_nulls():
            arguments.append(self._parse_disjunction())
            if not self._match(TokenType.COMMA):
                break
        return self._with_nulls(exp.Anonymous(this="JSON_ARRAY", expressions=arguments), absent=True)

    def _parse_flink_json_arrayagg(self) -> exp.Expr:
        """JSON_ARRAYAGG(v [NULL | ABSENT ON NULL]): the value, and what nulls are, which tells two calls apart."""
        value = self._parse_disjunction()
        return self._aggregated("JSON_ARRAYAGG", [value], absent=True)

    def _parse_flink_json_objectagg(self) -> exp.Expr:
        """JSON_OBJECTAGG([KEY] k VALUE v [NULL | ABSENT ON NULL]): key, value, and what nulls are."""
        self._match_text_seq("KEY")
        key = self._parse_bitwise()
        if not self._match_text_seq("VALUE") and not self._match(TokenType.COLON):
            self.raise_error("JSON_OBJECTAGG: KEY <text> VALUE <value> expected")
        return self._aggregated("JSON_OBJECTAGG", [key, self._parse_disjunction()], absent=False)

    def _aggregated(self, name: str, arguments: list[exp.Expr | None], *, absent: bool) -> exp.Expr:
        node = self._with_nulls(exp.Anonymous(this=name, expressions=arguments), absent=absent)
        word = "ABSENT" if node.meta[CLAUSES_KEY]["ABSENT"] == "TRUE" else "NULL"
        node.append("expressions", exp.Literal.string(f"{word} ON NULL"))
        return node

    def _parse_flink_array_agg(self) -> exp.Expr:
        """ARRAY_AGG([DISTINCT] v [RESPECT NULLS | IGNORE NULLS]): the value, and what nulls are."""
        distinct = self._match(TokenType.DISTINCT)
        if not distinct:
            self._match(TokenType.ALL)
        value = self._parse_disjunction()
        word = next((word for word in ("IGNORE", "RESPECT") if self._match_text_seq(word)), "")
        if word and not self._match_text_seq("NULLS"):
            self.raise_error(f"ARRAY_AGG: NULLS expected after {word}")
        argument = exp.Distinct(expressions=[value]) if distinct else value
        nulls = exp.Literal.string(f"{word or 'RESPECT'} NULLS")
        return exp.Anonymous(this="ARRAY_AGG", expressions=[argument, nulls])

    def _at_nulls(self) -> bool:
        word = self._curr.text.upper()
        return word in ("NULL", "ABSENT") and bool(self._next) and self._next.text.upper() == "ON"

    def _with_nulls(self, node: exp.Expr, *, absent: bool) -> exp.Expr:
        if self._at_nulls():
            absent = self._curr.text.upper() == "ABSENT"
            self._advance(2)
            if not self._match_text_seq("NULL"):
                self.raise_error(f"{node.this}: NULL expected after ON")
        _note(node, CLAUSES_KEY, {"ABSENT": "TRUE" if absent else "FALSE"})
        return node

    def _typed(self, node: exp.Expr) -> exp.Expr:
        """Reads a type up to the closing parenthesis (or ON) into the node's meta."""
        words: list[str] = []
        depth = 0
        while self._curr and self._curr.token_type != TokenType.SENTINEL:
            if depth == 0 and (
                self._curr.token_type == TokenType.R_PAREN
                or self._curr.text.upper() in ("NULL", "ERROR", "DEFAULT", "WITH", "WITHOUT", "EMPTY")
            ):
                break
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(self._curr.token_type, 0)
            quoted = self._curr.token_type == TokenType.IDENTIFIER
            words.append(quote_name(self._curr.text) if quoted else self._curr.text)
            self._advance()
        try:
            _note(node, TYPE_KEY, parse_type(" ".join(words)))
        except TypeSyntaxError as error:
            self.raise_error(str(error))
        return node


def _qualifier(first: tuple[str, tuple[int, ...]], last: tuple[str, tuple[int, ...]] | None) -> Qualifier:
    """The qualifier of an interval from its fields, each with what stands in parentheses behind it."""
    word, numbers = first
    behind = last[1] if last is not None else numbers[1:]
    ending = (last[0] if last is not None else word).removesuffix("S")
    return Qualifier(word.removesuffix("S"), ending, numbers[0] if numbers else None, behind[0] if behind else None)


def _note(node: exp.Expr, key: str, value: Any) -> None:
    """Put a value into a node's meta, and what tells it from others into an argument: sqlglot compares those alone."""
    node.meta[key] = value
    node.set(key, repr(value).encode().hex())  # texts of arguments are compared without their case


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


def clauses_of(node: exp.Expr) -> dict[str, exp.Expr | str]:
    """The clauses that were read for a JSON function."""
    words: dict[str, str] = node.meta.get(CLAUSES_KEY, {})
    return words | {case: node.args[key] for case, key in DEFAULT_KEYS.items() if node.args.get(key) is not None}


def is_comma(join: exp.Join) -> bool:
    """Return whether a join is written as a comma."""
    return bool(join.meta.get(COMMA_KEY))


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
    tokens = planned_hints(tokens)
    for token in tokens:
        if token.kind is TokenKind.DOUBLE:
            raise Fault("texts are written in single quotes, names in backquotes, not in double quotes", token.line)
    for token, following in pairwise(tokens):
        if token.is_word("MATCH_RECOGNIZE") and following.is_word("("):
            raise Fault("MATCH_RECOGNIZE is not supported: patterns over rows are not kept up to date", token.line)
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
    unread = unread_part(found[0])
    if unread is not None:
        raise Fault(f"{unread[1]} is not supported", line_of(unread[0], first))
    for node in found[0].find_all(exp.Interval):
        try:
            _ = qualifier_of(node).fields
            length_of(node)
        except IntervalFault as fault:
            raise Fault(str(fault), line_of(node, first)) from None
    return without_rows(found[0], first)
