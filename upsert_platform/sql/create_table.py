"""Reads CREATE TABLE as Flink writes it.

Grammar: Flink's CREATE TABLE with physical, metadata and computed columns, WATERMARK, PRIMARY KEY ... NOT ENFORCED,
COMMENT, PARTITIONED BY, WITH and LIKE. A fault ends the reading of one column or option; the next one is read on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import ColumnKind, Options
from upsert_platform.core.types import TypeSyntaxError, parse_type
from upsert_platform.sql.declarations import (
    ColumnDeclaration,
    KeyDeclaration,
    LikeDeclaration,
    TableDeclaration,
    WatermarkDeclaration,
)
from upsert_platform.sql.lexer import TokenKind, shown, to_sql
from upsert_platform.sql.reader import Fault, TokenReader
from upsert_platform.sql.table_names import Path

_AFTER_TYPE: Final = ("METADATA", "PRIMARY", "CONSTRAINT", "UNIQUE", "COMMENT", "AS", "DEFAULT", ",", ")")
_LIKE_FEATURES: Final = (
    "ALL", "CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS",
)  # fmt: skip
_LIKE_RULES: Final = ("INCLUDING", "EXCLUDING", "OVERWRITING")
NOT_ENFORCED: Final = "a primary key is declared PRIMARY KEY (...) NOT ENFORCED: the platform does not check the data"


def read_create_table(
    reader: TokenReader, name_of: Callable[[TokenReader, str], tuple[str, Path | None]]
) -> tuple[TableDeclaration | None, list[Problem]]:
    """Reads a statement whose first tokens are CREATE [TEMPORARY] TABLE.

    Args:
        name_of: takes the name of a table, and gives the one that it has here, and its path if that is written.

    Returns:
        The declaration (None when not even its columns can be told), and every problem in it.
    """
    return _TableReader(reader, name_of).read()


class _TableReader:
    def __init__(self, reader: TokenReader, name_of: Callable[[TokenReader, str], tuple[str, Path | None]]) -> None:
        self.reader = reader
        self.name_of = name_of
        self.problems: list[Problem] = []
        self.columns: list[ColumnDeclaration] = []
        self.key: KeyDeclaration | None = None
        self.watermark: WatermarkDeclaration | None = None
        self.partitioned_by: tuple[str, ...] = ()
        self.partition_location: SourceLocation | None = None
        self.options: dict[str, str] = {}
        self.option_places: dict[str, SourceLocation] = {}
        self.comment: str | None = None
        self.like: LikeDeclaration | None = None
        self.elided = False
        self.faulty = False

    def read(self) -> tuple[TableDeclaration | None, list[Problem]]:
        reader, location = self.reader, self.reader.location
        if_not_exists = False
        if any(token.is_word("TBLPROPERTIES") for token in reader.tokens):
            message = "this is DDL of MaxCompute itself: declare the table with WITH ('connector' = 'maxcompute', ...)"
            return None, [Problem(message, location)]
        try:
            reader.expect("CREATE", where="first")
            reader.accept("TEMPORARY")
            reader.expect("TABLE", where="after CREATE")
            if_not_exists = reader.accept("IF", "NOT", "EXISTS")
            name, path = self.name_of(reader, "table name")
            if reader.accept("("):
                self._read_items()
            self._read_clauses()
        except Fault as fault:
            self._add(fault)
            return None, self.problems
        table = TableDeclaration(
            name=name,
            location=location,
            columns=tuple(self.columns),
            key=self.key,
            watermark=self.watermark,
            partitioned_by=self.partitioned_by,
            partition_location=self.partition_location,
            options=Options(self.options, self.option_places),
            comment=self.comment,
            like=self.like,
            elided=self.elided,
            faulty=self.faulty,
            if_not_exists=if_not_exists,
            path=path,
        )
        return table, self.problems

    def _add(self, fault: Fault) -> None:
        self.problems.append(Problem(fault.message, SourceLocation(self.reader.file, fault.line)))

    def _warn_elision(self, what: str) -> None:
        self.elided = self.elided or what == "columns"
        message = f"'...' stands for {what} that were left out: write them, or remove the dots"
        self.problems.append(Problem(message, self.reader.location, "warning"))

    def _read_items(self) -> None:
        """The column list, after its opening parenthesis."""
        reader = self.reader
        for start in self._items("columns"):
            try:
                self._read_item()
                if not reader.next_is(",") and not reader.next_is(")"):
                    raise reader.fault("',' or ')' expected after a column")
            except Fault as fault:
                self._add(fault)
                self.faulty = True
                reader.at = start
                token = reader.peek(1)
                computed = token is not None and token.is_word("AS")
                reader.take_until(",", ")", angles=not computed)

    def _items(self, what: str) -> Iterator[int]:
        """Yield the start of each item of a list up to its closing parenthesis; each is read before the next is
        requested.

        Dots in the place of items are passed over, with a warning.
        """
        reader = self.reader
        if reader.accept(")"):
            return
        while True:
            if reader.accept("..."):
                self._warn_elision(what)
                if reader.accept(")"):
                    return
                reader.accept(",")
                continue
            yield reader.at
            if reader.accept(")"):
                return
            if not reader.accept(","):
                raise Fault(f"',' or ')' expected after the {what}", reader.line)

    def _read_item(self) -> None:
        reader = self.reader
        if reader.next_is("WATERMARK", "FOR"):
            self._read_watermark()
        elif reader.next_is("PRIMARY", "KEY") or reader.next_is("CONSTRAINT"):
            self._read_key_constraint()
        elif reader.next_is("UNIQUE"):
            raise reader.fault("UNIQUE constraints are not supported; a column or PRIMARY KEY expected")
        elif reader.next_is("PERIOD", "FOR"):
            raise reader.fault("PERIOD FOR is not supported; a column expected")
        else:
            self._read_column()

    def _read_watermark(self) -> None:
        reader, location = self.reader, self.reader.location
        reader.accept("WATERMARK", "FOR")
        column = reader.qualified_name("column name")
        reader.expect("AS", where="after WATERMARK FOR <column>")
        expression = reader.take_until(",", ")")
        if not expression:
            raise reader.fault("an expression expected after AS")
        if self.watermark is not None:
            raise Fault("a table has one WATERMARK; keep one", location.line)
        text = f"WATERMARK FOR {column} AS {shown(expression)}"
        self.watermark = WatermarkDeclaration(column, text, location)

    def _read_key_constraint(self) -> None:
        reader, location = self.reader, self.reader.location
        if reader.accept("CONSTRAINT"):
            reader.name("constraint name")
        reader.expect("PRIMARY", "KEY", where="(the only constraint of a table here)")
        columns = tuple(reader.names_in_parentheses("key column"))
        self._set_key(columns, location)

    def _set_key(self, columns: tuple[str, ...], location: SourceLocation) -> None:
        reader = self.reader
        if self.key is not None:
            raise Fault("a table has one PRIMARY KEY; keep one", location.line)
        self.key = KeyDeclaration(columns, location)
        if not reader.accept("NOT", "ENFORCED"):
            reader.accept("ENFORCED")
            self.problems.append(Problem(f"{NOT_ENFORCED}; add NOT ENFORCED", location))

    def _read_column(self) -> None:
        reader, location = self.reader, self.reader.location
        name = reader.name("column name")
        if reader.accept("AS"):
            expression = tuple(reader.take_until(",", ")", "COMMENT"))
            if not expression:
                raise reader.fault(f"an expression expected for the computed column '{name}'")
            comment = reader.text("comment") if reader.accept("COMMENT") else None
            self.columns.append(
                ColumnDeclaration(name, location, kind=ColumnKind.COMPUTED, expression=expression, comment=comment)
            )
            return
        written = reader.take_until(*_AFTER_TYPE, angles=True)
        if not written:
            raise reader.fault(f"a type expected after the column name '{name}'")
        try:
            kind_of = parse_type(to_sql(written).replace("\n", " "))
        except TypeSyntaxError as error:
            # The error's own text has variables replaced.
            reason = f"{shown(written)} is not a SQL type" if "${" in shown(written) else str(error)
            raise Fault(f"column '{name}': {reason}", location.line) from None
        if reader.next_is("DEFAULT"):
            raise reader.fault(f"column '{name}': Flink's DDL has no DEFAULT; ',' or ')' expected")
        metadata_key, virtual, kind = None, False, ColumnKind.PHYSICAL
        if reader.accept("METADATA"):
            kind = ColumnKind.METADATA
            metadata_key = reader.text("metadata key") if reader.accept("FROM") else name
            virtual = reader.accept("VIRTUAL")
        if reader.accept("CONSTRAINT"):
            reader.name("constraint name")
        if reader.next_is("PRIMARY", "KEY"):
            key_location = reader.location
            reader.accept("PRIMARY", "KEY")
            self._set_key((name,), key_location)
        comment = reader.text("comment") if reader.accept("COMMENT") else None
        self.columns.append(
            ColumnDeclaration(
                name, location, kind_of, kind=kind, metadata_key=metadata_key, virtual=virtual, comment=comment
            )
        )

    def _read_clauses(self) -> None:
        """Read the clauses after the column list."""
        reader = self.reader
        while not reader.at_end():
            if reader.accept("COMMENT"):
                self.comment = reader.text("comment")
            elif reader.next_is("PARTITIONED", "BY"):
                self.partition_location = reader.location
                reader.accept("PARTITIONED", "BY")
                self.partitioned_by = tuple(reader.names_in_parentheses("partition column"))
            elif reader.accept("WITH"):
                self._read_options()
            elif reader.next_is("LIKE"):
                self._read_like()
            elif reader.next_is("AS"):
                raise reader.fault("CREATE TABLE ... AS SELECT is not supported: declare the columns, and INSERT INTO")
            elif reader.next_is("DISTRIBUTED"):
                raise reader.fault("DISTRIBUTED BY is not supported; PARTITIONED BY, WITH or LIKE expected")
            else:
                raise reader.fault("';', COMMENT, PARTITIONED BY, WITH or LIKE expected after the columns")

    def _read_options(self) -> None:
        """Reads the WITH clause; its faults show no text of it, which may be a part of a secret."""
        reader = self.reader
        reader.expect("(", where="after WITH")
        for start in self._items("options"):
            try:
                self._read_option()
                if not reader.next_is(",") and not reader.next_is(")"):
                    raise Fault("',' or ')' expected after an option", reader.line)
            except Fault as fault:
                self._add(fault)
                reader.at = start
                reader.skip_to(",", ")")

    def _read_option(self) -> None:
        reader, location = self.reader, self.reader.location
        token = reader.peek()
        if token is None or token.kind is not TokenKind.STRING:
            raise Fault("an option is written 'name' = 'value', both in single quotes", location.line)
        name = reader.text("option name")
        if not reader.accept("="):
            # Without a text after it, this may be a value itself, after a comma in the place of '='.
            following = reader.peek()
            named = f" '{name}'" if following is not None and following.kind is TokenKind.STRING else ""
            raise Fault(f"option{named} has no value: it is written 'name' = 'value'", location.line)
        token = reader.peek()
        if token is None or token.kind is not TokenKind.STRING:
            line = token.line if token is not None else location.line
            raise Fault(f"option '{name}': its value stands in single quotes: '{name}' = '...'", line)
        value = reader.text("value")
        if name in self.options:
            first = self.option_places[name].line
            raise Fault(f"option '{name}' is given twice (first on line {first}); keep one", location.line)
        self.options[name] = value
        self.option_places[name] = location

    def _read_like(self) -> None:
        reader, location = self.reader, self.reader.location
        reader.accept("LIKE")
        base, _ = self.name_of(reader, "table name")
        rules: dict[str, str] = {}
        if reader.accept("("):
            while not reader.accept(")"):
                rule = next((word for word in _LIKE_RULES if reader.accept(word)), None)
                if rule is None:
                    raise reader.fault("INCLUDING, EXCLUDING or OVERWRITING expected in LIKE (...)")
                feature = next((word for word in _LIKE_FEATURES if reader.accept(word)), None)
                if feature is None:
                    raise reader.fault(f"one of {', '.join(_LIKE_FEATURES)} expected after {rule}")
                rules[feature] = rule
        self.like = LikeDeclaration(base, location, rules)
