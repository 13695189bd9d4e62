"""Columns to which a statement may give other values in rows that are there: its log has no row of that."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from upsert_platform.mysql.columns import MySqlColumn, MySqlTable
from upsert_platform.mysql.tokens import plain, tokens

if TYPE_CHECKING:
    from upsert_platform.mysql.connection import Connection

_NOT_COLUMNS: Final = frozenset(
    (
        "INDEX", "KEY", "UNIQUE", "PRIMARY", "FULLTEXT", "SPATIAL", "VECTOR", "CONSTRAINT", "FOREIGN", "CHECK",
        "PARTITION", "PERIOD", "SYSTEM",
    )
)  # fmt: skip
"""Words behind ADD that begin something else than a column."""
_INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")
_TEXTS: Final = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_GIVEN: Final = (
    "SELECT column_name, column_default, is_nullable, extra FROM information_schema.columns"
    " WHERE table_schema = %s AND table_name = %s"
)


@dataclass(frozen=True, slots=True)
class Given:
    """Columns whose values come from the table's definition.

    Attributes:
        filled: lower-case names of those that are not NULL in a row that is older than they are.
        computed: of those that are computed from others.
    """

    filled: frozenset[str] = frozenset()
    computed: frozenset[str] = frozenset()


def given_values(connection: Connection, table: MySqlTable) -> Given:
    """Asks a server; MariaDB writes the default NULL as a word, MySQL leaves it out."""
    none = (None, "NULL") if connection.is_mariadb() else (None,)
    rows = connection.query(_GIVEN, (table.schema, table.name))
    computed = frozenset(str(row[0]).casefold() for row in rows if "GENERATED" in str(row[3]).upper().split())
    filled = [str(row[0]).casefold() for row in rows if row[1] not in none or row[2] == "NO"]
    return Given(computed.union(filled), computed)


@dataclass(slots=True)
class _Steps:
    """The names in an ALTER TABLE, in lower case.

    Attributes:
        added: columns that were not there right before.
        dropped: columns that are not there, or are others, behind it.
        renamed: new names.
        defined: columns whose definition is told anew, each with its type: ``varchar(30)``.
    """

    added: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    renamed: set[str] = field(default_factory=set)
    defined: dict[str, str] = field(default_factory=dict)


def rewritten_columns(
    before: MySqlTable,
    now: MySqlTable,
    *,
    sql: str,
    strict: bool,
    last: bool = True,
    given: Given,
    followed: Collection[str],
    known: Collection[str] = (),
) -> list[str]:
    """Columns of rows that are there whose values may be other ones since a statement, and rows that may be gone.

    Args:
        before: the table as it was known.
        now: as it is.
        strict: whether the statement fails where a value does not fit the new type of its column.
        last: whether no other statement has followed, so that `now` has the types that this one gave.
        followed: names of the columns that count.
        known: names of the columns of which rows have values from before, though the table may have dropped them.
    """
    words = tokens(sql)
    steps = _steps(words)
    # Tools that put a copy in the place of a table fill it by INSERT IGNORE, whatever the session is that swaps them.
    swapped = steps is None
    strict = strict and not swapped and "IGNORE" not in [word.upper() for word in words[:4]]
    columns = {column.name.casefold(): column for column in before.columns}
    names = {column.name.casefold() for column in now.columns}
    renames = swapped and not columns.keys() <= names
    wanted, held = ({name.casefold() for name in some} for some in (followed, known))
    steps = steps or _Steps()
    found = []
    for column in now.columns:
        name = column.name.casefold()
        old = columns.get(name)
        if old is None or name in steps.added or name in steps.dropped:
            other = renames or name in given.filled or name in held
        else:
            other = not _keeps(old, column, strict=strict)
            if name in steps.defined:
                # Which values a type had that the next statement took back, nobody tells.
                shown = (column.kind, column.declared.casefold().split(" ")[0])
                other = other or name in given.computed or not (last or strict or steps.defined[name] in shown)
        if name in wanted and (other or name in steps.renamed):
            found.append(column.name)
    return [*found, *(_lost_rows(before, now) if swapped else ())]


def _lost_rows(before: MySqlTable, now: MySqlTable) -> Iterator[str]:
    """Yield the unique indexes that rows of a table may not have fitted, of which its copy then has one each.

    An index on more columns than one that was there accepts the same rows.
    """
    if not before.unique:  # noted by an earlier version, which did not look at them: each table has its key at least
        return
    for index in now.unique:
        if not any(set(other) <= set(index) for other in before.unique):
            yield f"rows that share a value of the unique index ({', '.join(index)})"


def _keeps(old: MySqlColumn, new: MySqlColumn, *, strict: bool) -> bool:
    """Return whether every value of a column is the same in its new type, or the statement fails."""
    if old.nullable and not new.nullable and not strict:
        return False
    if replace(old, nullable=new.nullable, declared=new.declared, name=new.name) == new:
        return True
    if old.kind in _INTEGERS and new.kind in _INTEGERS:
        wider = _INTEGERS.index(old.kind) <= _INTEGERS.index(new.kind) and old.unsigned == new.unsigned
        return strict or wider
    if old.kind in _TEXTS and new.kind in _TEXTS:
        # CHAR gives texts back without the blanks at their end.
        same = old.charset == new.charset or new.charset == "utf8mb4"
        longer = _TEXTS.index(old.kind) <= _TEXTS.index(new.kind) and (old.length or 0) <= (new.length or 0)
        return ((same and longer) or strict) and (new.kind != "char" or old.kind == "char")
    if old.kind != new.kind or old.unsigned != new.unsigned:
        return False
    match new.kind:
        case "decimal":
            return old.fraction == new.fraction and (strict or (old.precision or 0) <= (new.precision or 0))
        case "time" | "datetime" | "timestamp":
            return old.fraction <= new.fraction
        case "enum" | "set":
            return strict or set(old.elements) <= set(new.elements)
        case "varbinary":
            return strict or (old.length or 0) <= (new.length or 0)
    return False


def _steps(words: list[str]) -> _Steps | None:
    """Return the column changes of a statement, or None if it is not ALTER TABLE."""
    upper = [word.upper() for word in words]
    if upper[:1] != ["ALTER"] or "TABLE" not in upper[:5]:
        return None
    found = _Steps()
    for step in _parts(words[upper.index("TABLE") + 1 :]):
        _take(step, found)
    return found


def _parts(words: list[str]) -> Iterator[list[str]]:
    """Yield the parts between commas outside brackets."""
    part: list[str] = []
    depth = 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if word == "," and not depth:
            yield part
            part = []
        else:
            part.append(word)
    yield part


_VERBS: Final = ("ADD", "ALTER", "CHANGE", "DROP", "MODIFY", "RENAME")


def _take(words: list[str], found: _Steps) -> None:
    """One step; the first one has the table's name before it."""
    upper = [word.upper() for word in words]
    start = next((at for at, word in enumerate(upper) if word in _VERBS), None)
    if start is None:
        return
    verb, at = upper[start], start + 1
    names_column = upper[at : at + 1] == ["COLUMN"]
    at += names_column
    exists = upper[at : at + 1] == ["IF"]
    while upper[at : at + 1] and upper[at] in ("IF", "NOT", "EXISTS"):
        at += 1
    rest = words[at:]
    if not rest:
        return
    first = plain(rest[0]).casefold()
    if verb == "ADD":
        if rest[0] == "(":
            for part in _parts(rest[1:-1]):
                found.added.update(plain(word).casefold() for word in part[:1])
        elif not exists and (names_column or rest[0].upper() not in _NOT_COLUMNS):
            found.added.add(first)
    elif verb == "DROP":
        if names_column or rest[0].upper() not in _NOT_COLUMNS:
            found.dropped.add(first)
    elif verb == "MODIFY":
        found.defined[first] = _type_in(rest[1:])
    elif verb == "CHANGE" and len(rest) > 1:
        second = plain(rest[1]).casefold()
        if first == second:
            found.defined[second] = _type_in(rest[2:])
        else:
            found.renamed.add(second)
    elif verb == "RENAME" and names_column and len(rest) > 2:
        found.renamed.add(plain(rest[2]).casefold())


def _type_in(words: list[str]) -> str:
    """Return the type that a definition begins with, as a catalogue shows it."""
    if words[1:2] != ["("] or ")" not in words:
        return "".join(words[:1]).casefold()
    return "".join(words[: words.index(")") + 1]).casefold()
