"""Tables and inserts written in YAML instead of SQL; the same model comes of both.

tables:
  - name: users
    columns:
      - {name: user_id, type: BIGINT}
      - {name: at, type: TIMESTAMP_LTZ(3), metadata: timestamp, virtual: true}
      - {name: day, expression: "DATE_FORMAT(at, 'yyyyMMdd')"}
    primary_key: [user_id]
    options: {connector: upsert-kafka, topic: users}
inserts:
  - {into: users_serving, select: "user_id, name", from: users, where: "region <> 'test'"}
  - {into: users_whole, from: users, overwrite: true}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import ColumnKind, Options
from upsert_platform.core.options import nearest, parse_boolean
from upsert_platform.core.types import TypeSyntaxError, parse_type, quote_name
from upsert_platform.declarations.located import Located, sql_tokens
from upsert_platform.sql.declarations import (
    ColumnDeclaration,
    Declarations,
    InsertDeclaration,
    KeyDeclaration,
    TableDeclaration,
)
from upsert_platform.sql.lexer import Token, shown

SECTIONS: Final = ("tables", "inserts")
TABLE_ENTRIES: Final = ("name", "columns", "primary_key", "partitioned_by", "options", "comment")
COLUMN_ENTRIES: Final = ("name", "type", "metadata", "virtual", "expression", "comment")
INSERT_ENTRIES: Final = ("into", "columns", "select", "from", "where", "overwrite")


def is_declaration(content: Located) -> bool:
    """Return whether a YAML document declares tables or inserts."""
    return any(name in content.entries for name in SECTIONS)


def read_declared_yaml(content: Located) -> Declarations:
    """Reads a YAML document with ``tables`` and ``inserts``, its variables replaced."""
    found = Declarations()
    problems = found.problems
    _known(content, SECTIONS, "declaration", problems)
    for item in content.entries["tables"].items if "tables" in content.entries else ():
        if _known(item, TABLE_ENTRIES, "table", problems) and _needed(
            item, ("name", "columns", "options"), "table", problems
        ):
            found.tables.append(_table(item, problems))
    for item in content.entries["inserts"].items if "inserts" in content.entries else ():
        if _known(item, INSERT_ENTRIES, "insert", problems) and _needed(item, ("into", "from"), "insert", problems):
            found.inserts.append(_insert(item, problems))
    return found


def _known(item: Located, names: tuple[str, ...], what: str, problems: list[Problem]) -> bool:
    if not isinstance(item.value, dict):
        problems.append(Problem(f"a {what} is a mapping with {', '.join(names)}", item.location))
        return False
    for name, value in item.entries.items():
        if name not in names:
            problems.append(Problem(f"{what}: unknown entry '{name}'{nearest(name, names)}", value.location))
    return True


def _needed(item: Located, names: tuple[str, ...], what: str, problems: list[Problem]) -> bool:
    missing = [name for name in names if name not in item.entries]
    problems += [Problem(f"{what}: '{name}' is missing", item.location) for name in missing]
    return not missing


def _text(item: Located, name: str) -> str:
    found = item.entries.get(name)
    return found.text.strip() if found is not None and found.text is not None else ""


def _names(item: Located, name: str) -> tuple[str, ...]:
    found = item.entries.get(name)
    return tuple(part.text for part in found.items if part.text) if found is not None else ()


def _table(item: Located, problems: list[Problem]) -> TableDeclaration:
    columns: list[ColumnDeclaration] = []
    faulty = False
    for part in item.entries["columns"].items:
        column = _column(part, problems)
        if column is None:
            faulty = True
        else:
            columns.append(column)
    key, partitions = item.entries.get("primary_key"), item.entries.get("partitioned_by")
    options = dict(_options(item.entries["options"], problems))
    return TableDeclaration(
        name=_text(item, "name"),
        location=item.location,
        columns=tuple(columns),
        key=KeyDeclaration(_names(item, "primary_key"), key.location) if key is not None else None,
        partitioned_by=_names(item, "partitioned_by"),
        partition_location=partitions.location if partitions is not None else None,
        options=Options(
            {name: value for name, (value, _) in options.items()}, {name: place for name, (_, place) in options.items()}
        ),
        comment=_text(item, "comment") or None,
        faulty=faulty,
    )


def _options(found: Located, problems: list[Problem]) -> Iterator[tuple[str, tuple[str, SourceLocation]]]:
    for name, value in found.entries.items():
        if value.text is None:
            problems.append(Problem(f"option '{name}' takes one value", value.location))
        else:
            yield name, (value.text, value.location)


def _column(item: Located, problems: list[Problem]) -> ColumnDeclaration | None:
    if not _known(item, COLUMN_ENTRIES, "column", problems) or not _needed(item, ("name",), "column", problems):
        return None
    name, comment = _text(item, "name"), _text(item, "comment") or None
    if "expression" in item.entries:
        if "type" in item.entries or "metadata" in item.entries:
            message = f"column '{name}': an expression stands alone, without type and metadata"
            problems.append(Problem(message, item.location))
            return None
        tokens = sql_tokens(_text(item, "expression"), item.entries["expression"].location, problems)
        if not tokens:
            problems.append(Problem(f"column '{name}': the expression is empty", item.location))
            return None
        return ColumnDeclaration(name, item.location, kind=ColumnKind.COMPUTED, expression=tokens, comment=comment)
    if not _needed(item, ("type",), f"column '{name}'", problems):
        return None
    try:
        kind = parse_type(_text(item, "type"))
    except TypeSyntaxError as error:
        problems.append(Problem(f"column '{name}': {error}", item.entries["type"].location))
        return None
    metadata = "metadata" in item.entries
    return ColumnDeclaration(
        name,
        item.location,
        kind,
        kind=ColumnKind.METADATA if metadata else ColumnKind.PHYSICAL,
        metadata_key=(_text(item, "metadata") or name) if metadata else None,
        virtual=metadata and _text(item, "virtual").lower() in ("true", "yes"),
        comment=comment,
    )


def _insert(item: Located, problems: list[Problem]) -> InsertDeclaration:
    entries, place = item.entries, item.location
    select: tuple[Token, ...]
    chosen = entries.get("select")
    if chosen is not None and chosen.text is None:
        select = sql_tokens(", ".join(_names(item, "select")), chosen.location, problems)
    else:
        select = sql_tokens(_text(item, "select") or "*", chosen.location if chosen is not None else place, problems)
    query = (
        *sql_tokens("SELECT", place, problems),
        *select,
        *sql_tokens(f"FROM {quote_name(_text(item, 'from'))}", entries["from"].location, problems),
    )
    if "where" in entries:
        query += (
            *sql_tokens("WHERE", entries["where"].location, problems),
            *sql_tokens(_text(item, "where"), entries["where"].location, problems),
        )
    target, overwrite = _text(item, "into"), False
    if "overwrite" in entries:
        try:
            overwrite = parse_boolean(_text(item, "overwrite")) is True
        except ValueError as error:
            problems.append(Problem(f"insert: 'overwrite' {error}", entries["overwrite"].location))
    sql = f"INSERT {'OVERWRITE' if overwrite else 'INTO'} {target} {shown(query)}"
    return InsertDeclaration(target, place, query, {}, _names(item, "columns"), sql, overwrite)
