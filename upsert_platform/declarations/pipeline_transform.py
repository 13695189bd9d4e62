"""``transform`` of an ingestion pipeline: which columns of a table go on, what they are computed of, which rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Column, ColumnKind, Table
from upsert_platform.core.options import nearest
from upsert_platform.core.types import LogicalType, quote_name
from upsert_platform.declarations.located import Located, sql_tokens
from upsert_platform.declarations.pipeline_source import named_in_database
from upsert_platform.sql.declarations import ColumnDeclaration, TableDeclaration
from upsert_platform.sql.lexer import Token, TokenKind, shown
from upsert_platform.sql.tables import resolve_tables

TRANSFORM_ENTRIES: Final = (
    "source-table", "projection", "filter", "primary-keys", "partition-keys", "table-options", "description",
)  # fmt: skip
_EVENT_TYPE: Final = "__data_event_type__"


@dataclass(frozen=True)
class Flow:
    """Rows of one table on their way to a sink table.

    Attributes:
        columns: of the sink, in order: name, type and the expression that gives it.
        where: the filter; empty without one.
    """

    table: Table
    columns: tuple[tuple[str, LogicalType, tuple[Token, ...]], ...]
    primary_key: tuple[str, ...]
    where: tuple[Token, ...]
    partitioned_by: tuple[str, ...] = ()
    options: Mapping[str, str] | None = None


class Transforms:
    """The entries of ``transform``, of which the first that matches a table counts."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems

    def flow(self, table: Table, entry: Located | None) -> Flow:
        """Return the flow of a table's rows."""
        columns = [_as_is(column) for column in table.physical_columns]
        if entry is None:
            return Flow(table, tuple(_known(columns)), table.primary_key, ())
        projection, condition = entry.entries.get("projection"), entry.entries.get("filter")
        if projection is not None and projection.text and projection.text.strip():
            columns = self._projected(table, projection)
        where: tuple[Token, ...] = ()
        if condition is not None and condition.text:
            where = self._with_names(table, sql_tokens(condition.text, condition.location, self.problems))
        key = _names(entry, "primary-keys") or table.primary_key
        given = {name for name, _, _ in columns}
        for name in key:
            if name not in given:
                self._tell(
                    f"key column '{name}' of '{table.name}' is not among the columns{nearest(name, given)}", entry
                )
        return Flow(table, tuple(_known(columns)), key, where, _names(entry, "partition-keys"), self._options(entry))

    def _tell(self, message: str, place: Located) -> None:
        self.problems.append(Problem(f"pipeline: transform: {message}", place.location))

    def _options(self, entry: Located) -> Mapping[str, str] | None:
        found = entry.entries.get("table-options")
        if found is None or not found.text:
            return None
        options = {}
        for part in found.text.split(","):
            name, equals, value = part.partition("=")
            if not equals or not name.strip():
                self._tell(f"table-options: '{part.strip()}' is not name=value", found)
            options[name.strip()] = value.strip()
        return options

    def _projected(self, table: Table, projection: Located) -> list[tuple[str, LogicalType | None, tuple[Token, ...]]]:
        by_name = {column.name: column for column in table.physical_columns}
        text = (projection.text or "").replace("\\*", "*")
        chosen: dict[str, tuple[str, LogicalType | None, tuple[Token, ...]]] = {}
        computed: dict[str, tuple[Token, ...]] = {}
        for part in _parts(sql_tokens(text, projection.location, self.problems)):
            if len(part) == 1 and part[0].is_word("*"):
                chosen |= {name: _as_is(column) for name, column in by_name.items() if name not in chosen}
                continue
            expression, name = _alias(part)
            if name is None:
                self._tell(f"'{shown(part)}' of '{table.name}' needs a name: {shown(part)} AS name", projection)
            elif len(expression) == 1 and (found := by_name.get(expression[0].value)) is not None:
                chosen[name] = (name, found.type, expression)
            elif len(part) == 1 and not _is_metadata(part[0]):
                known = nearest(name, by_name)
                self._tell(f"projection takes columns of '{table.name}', not '{name}'{known}", projection)
            else:
                computed[name] = self._with_names(table, expression)
                chosen[name] = (name, None, computed[name])
        types = self._types(table, computed, projection.location)
        return [(name, kind or types.get(name), tokens) for name, kind, tokens in chosen.values()]

    def _types(
        self, table: Table, computed: Mapping[str, tuple[Token, ...]], location: SourceLocation
    ) -> Mapping[str, LogicalType | None]:
        """Types of expressions over a table's columns."""
        if not computed:
            return {}
        given = tuple(ColumnDeclaration(item.name, location, item.type) for item in table.physical_columns)
        added = {f"_computed_{number}": name for number, name in enumerate(computed)}
        made = tuple(
            ColumnDeclaration(name, location, kind=ColumnKind.COMPUTED, expression=computed[target])
            for name, target in added.items()
        )
        found, problems = resolve_tables([TableDeclaration(table.name, location, (*given, *made))])
        self.problems += problems
        columns = found.by_name[table.name].columns
        return {added[item.name]: item.expression_type for item in columns if item.name in added}

    def _with_names(self, table: Table, tokens: Sequence[Token]) -> tuple[Token, ...]:
        """An expression with metadata columns replaced by what they are for the table."""
        schema, _, name = named_in_database(table).rpartition(".")
        values = {"__schema_name__": schema, "__table_name__": name, "__namespace_name__": ""}
        found = []
        for token in tokens:
            if token.kind is TokenKind.WORD and token.value.lower() == _EVENT_TYPE:
                told = f"{_EVENT_TYPE} is not known: a topic of last values does not tell inserts from updates"
                self.problems.append(Problem(f"pipeline: transform: {told}", SourceLocation("", token.line)))
            if token.kind is TokenKind.WORD and token.value.lower() in values:
                value = values[token.value.lower()]
                token = replace(token, kind=TokenKind.STRING, text=f"'{value}'", value=value)
            found.append(token)
        return tuple(found)


def _is_metadata(token: Token) -> bool:
    return token.value.startswith("__") and token.value.endswith("__")


def _as_is(column: Column) -> tuple[str, LogicalType | None, tuple[Token, ...]]:
    quoted = quote_name(column.name)
    return column.name, column.type, (Token(TokenKind.QUOTED, quoted, column.name, 1, True),)


def _known(
    columns: Sequence[tuple[str, LogicalType | None, tuple[Token, ...]]],
) -> Iterator[tuple[str, LogicalType, tuple[Token, ...]]]:
    """Those whose type could be read; the others were told."""
    for name, kind, tokens in columns:
        if kind is not None:
            yield name, kind, tokens


def _names(entry: Located, name: str) -> tuple[str, ...]:
    found = entry.entries.get(name)
    text = found.text if found is not None else None
    return tuple(part.strip().strip("`") for part in (text or "").split(",") if part.strip())


def _parts(tokens: Sequence[Token]) -> Iterator[tuple[Token, ...]]:
    """Tokens between commas that stand in no brackets."""
    part: list[Token] = []
    depth = 0
    for token in tokens:
        if token.kind is TokenKind.SYMBOL:
            depth += (token.value in "([") - (token.value in ")]")
            if token.value == "," and depth == 0:
                yield tuple(part)
                part = []
                continue
        part.append(token)
    if part:
        yield tuple(part)


def _alias(part: Sequence[Token]) -> tuple[tuple[Token, ...], str | None]:
    """An expression, and the name that it gets: behind AS, or its own."""
    if len(part) > 2 and part[-2].is_word("AS"):
        return tuple(part[:-2]), part[-1].value
    return tuple(part), part[0].value if len(part) == 1 else None
