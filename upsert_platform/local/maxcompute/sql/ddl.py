"""Data definition statements, read into data (spec 2.2)."""

from __future__ import annotations

from dataclasses import dataclass, field

from upsert_platform.local.maxcompute.errors import parse_error
from upsert_platform.local.maxcompute.schema import Column
from upsert_platform.local.maxcompute.sql.tokens import Cursor
from upsert_platform.local.maxcompute.types import parse_type

Name = tuple[str, ...]
Spec = dict[str, str]


@dataclass(frozen=True)
class CreateTable:
    name: Name
    columns: tuple[Column, ...] = ()
    partition_keys: tuple[Column, ...] = ()
    primary_key: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    lifecycle: int = -1
    comment: str = ""
    if_not_exists: bool = False
    like: Name | None = None
    query: str = ""


@dataclass(frozen=True)
class CreateView:
    """``columns`` are names and comments; without them the query's are taken."""

    name: Name
    query: str
    columns: tuple[tuple[str, str], ...] = ()
    comment: str = ""
    if_not_exists: bool = False
    replaces: bool = False


@dataclass(frozen=True)
class DropTable:
    """``DROP TABLE``, or ``DROP VIEW``."""

    name: Name
    if_exists: bool = False
    view: bool = False


@dataclass(frozen=True)
class AlterTable:
    """``ALTER TABLE``, or ``ALTER VIEW``: ``action`` names what is done, such as add columns; the other fields are its
    words.
    """

    name: Name
    action: str
    columns: tuple[Column, ...] = ()
    names: tuple[str, ...] = ()
    specs: tuple[Spec, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    number: int = 0
    text: str = ""
    guarded: bool = False
    view: bool = False


@dataclass(frozen=True)
class Truncate:
    name: Name
    specs: tuple[Spec, ...] = ()


@dataclass(frozen=True)
class SchemaStatement:
    name: Name
    action: str
    guarded: bool = False


@dataclass(frozen=True)
class Show:
    """``what`` is partitions, tables, views, schemas, desc, create or history; ``pattern`` is of names, with ``*``."""

    what: str
    name: Name = ()
    spec: Spec | None = None
    pattern: str = "*"


Statement = CreateTable | CreateView | DropTable | AlterTable | Truncate | SchemaStatement | Show


def parse_ddl(sql: str) -> Statement | None:
    """The statement, or None when it is no data definition.

    Raises:
        ServiceError: it begins as one and does not go on as one.
    """
    cursor = Cursor(sql)
    found: Statement | None = None
    if cursor.accept("CREATE", "TABLE"):
        found = _create_table(cursor)
    elif cursor.accept("CREATE", "OR", "REPLACE", "VIEW"):
        found = _create_view(cursor, replaces=True)
    elif cursor.accept("CREATE", "VIEW"):
        found = _create_view(cursor, replaces=False)
    elif cursor.accept("CREATE", "SCHEMA"):
        guarded = cursor.accept("IF", "NOT", "EXISTS")
        found = SchemaStatement(cursor.names(), "create", guarded)
    elif cursor.accept("CREATE", "ROW", "ACCESS", "POLICY"):
        found = _row_policy(cursor)
    elif cursor.accept("DROP", "ROW", "ACCESS", "POLICY"):
        found = _no_row_policy(cursor)
    elif cursor.accept("DROP", "SCHEMA"):
        guarded = cursor.accept("IF", "EXISTS")
        found = SchemaStatement(cursor.names(), "drop", guarded)
    elif cursor.accept("DROP", "TABLE"):
        guarded = cursor.accept("IF", "EXISTS")
        found = DropTable(cursor.names(), guarded)
    elif cursor.accept("DROP", "VIEW"):
        guarded = cursor.accept("IF", "EXISTS")
        found = DropTable(cursor.names(), guarded, view=True)
    elif cursor.accept("ALTER", "TABLE"):
        found = _alter_table(cursor)
    elif cursor.accept("ALTER", "VIEW"):
        found = _alter_view(cursor)
    elif cursor.accept("TRUNCATE", "TABLE"):
        found = Truncate(cursor.names(), _specs(cursor))
    elif cursor.accept("SHOW"):
        found = _show(cursor)
    elif cursor.accept("DESC") or cursor.accept("DESCRIBE"):
        cursor.accept("EXTENDED")
        name = cursor.names()
        specs = _specs(cursor)
        found = Show("desc", name, specs[0] if specs else None)
    if found is not None and not cursor.done:
        raise parse_error(f"unexpected text: {cursor.rest()[:200]}")
    return found


def _create_table(cursor: Cursor) -> CreateTable:
    guarded = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.names()
    if cursor.accept("LIKE"):
        return CreateTable(name, if_not_exists=guarded, like=cursor.names())
    columns: tuple[Column, ...] = ()
    primary_key: tuple[str, ...] = ()
    if cursor.accept("("):
        columns, primary_key = _column_list(cursor)
    partition_keys: tuple[Column, ...] = ()
    properties: dict[str, str] = {}
    lifecycle, comment, query = -1, "", ""
    while not cursor.done:
        if cursor.accept("COMMENT"):
            comment = cursor.string()
        elif cursor.accept("PARTITIONED", "BY", "("):
            partition_keys, _ = _column_list(cursor)
        elif _clustering(cursor):
            pass
        elif cursor.accept("STORED", "AS"):
            cursor.name()
        elif cursor.accept("TBLPROPERTIES"):
            properties.update(_properties(cursor))
        elif cursor.accept("LIFECYCLE"):
            lifecycle = _number(cursor)
        elif cursor.accept("AS"):
            query = cursor.rest()
        else:
            raise parse_error(f"unexpected text in CREATE TABLE: {cursor.rest()[:200]}")
    if not columns and not query:
        raise parse_error(f"CREATE TABLE {'.'.join(name)} declares no columns")
    return CreateTable(name, columns, partition_keys, primary_key, properties, lifecycle, comment, guarded, query=query)


def _create_view(cursor: Cursor, *, replaces: bool) -> CreateView:
    guarded = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.names()
    columns: list[tuple[str, str]] = []
    if cursor.accept("("):
        while True:
            column = cursor.name()
            columns.append((column, cursor.string() if cursor.accept("COMMENT") else ""))
            if cursor.accept(")"):
                break
            cursor.expect(",")
    comment = cursor.string() if cursor.accept("COMMENT") else ""
    cursor.expect("AS")
    return CreateView(name, cursor.rest(), tuple(columns), comment, guarded, replaces)


def _column_list(cursor: Cursor) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """Columns and primary key up to the closing bracket; the opening one is read."""
    columns: list[Column] = []
    primary_key: list[str] = []
    while True:
        if cursor.accept("PRIMARY", "KEY", "("):
            primary_key.append(cursor.name())
            while cursor.accept(","):
                primary_key.append(cursor.name())
            cursor.expect(")")
        else:
            column, is_key = _column(cursor)
            columns.append(column)
            if is_key:
                primary_key.append(column.name)
        if cursor.accept(")"):
            return tuple(columns), tuple(primary_key)
        cursor.expect(",")


def _column(cursor: Cursor) -> tuple[Column, bool]:
    name = cursor.name()
    data_type = parse_type(cursor.type_text())
    nullable, is_key, comment = True, False, ""
    while True:
        if cursor.accept("NOT", "NULL"):
            nullable = False
        elif cursor.accept("NULL"):
            nullable = True
        elif cursor.accept("PRIMARY", "KEY"):
            is_key = True
        elif cursor.accept("COMMENT"):
            comment = cursor.string()
        else:
            return Column(name, data_type, nullable, comment), is_key


def _properties(cursor: Cursor) -> dict[str, str]:
    found = {}
    cursor.expect("(")
    while True:
        key = cursor.next().text
        cursor.expect("=")
        found[key] = cursor.next().text
        if cursor.accept(")"):
            return found
        cursor.expect(",")


def _number(cursor: Cursor) -> int:
    token = cursor.next()
    if not token.text.isdigit():
        raise parse_error(f"expected a number, found '{token.text}'")
    return int(token.text)


def _specs(cursor: Cursor) -> tuple[Spec, ...]:
    """``PARTITION (ds='1', hh='2')``, any number of times."""
    found = []
    while cursor.accept("PARTITION", "("):
        spec: Spec = {}
        while True:
            key = cursor.name()
            cursor.expect("=")
            spec[key] = cursor.next().text
            if cursor.accept(")"):
                break
            cursor.expect(",")
        found.append(spec)
        cursor.accept(",")
    return tuple(found)


def _clustering(cursor: Cursor) -> bool:
    """Passes over a clause on clustering, if one comes next: nothing that a reader could see depends on it."""
    if not (cursor.accept("CLUSTERED", "BY", "(") or cursor.accept("RANGE", "CLUSTERED", "BY", "(")):
        return False
    while not cursor.accept(")"):
        cursor.next()
    if cursor.accept("SORTED", "BY", "("):
        while not cursor.accept(")"):
            cursor.next()
    if cursor.accept("INTO"):
        cursor.next()
        cursor.expect("BUCKETS")
    return True


def _alter_table(cursor: Cursor) -> AlterTable:
    name = cursor.names()
    if cursor.accept("ADD", "COLUMNS") or cursor.accept("ADD", "COLUMN"):
        guarded = cursor.accept("IF", "NOT", "EXISTS")
        if cursor.accept("("):
            columns, _ = _column_list(cursor)
        else:
            columns = (_column(cursor)[0],)
        return AlterTable(name, "add columns", columns=columns, guarded=guarded)
    if cursor.accept("ADD"):
        guarded = cursor.accept("IF", "NOT", "EXISTS")
        return AlterTable(name, "add partitions", specs=_specs(cursor), guarded=guarded)
    if cursor.accept("DROP", "COLUMNS") or cursor.accept("DROP", "COLUMN"):
        bracket = cursor.accept("(")
        names = [cursor.name()]
        while cursor.accept(","):
            names.append(cursor.name())
        if bracket:
            cursor.expect(")")
        return AlterTable(name, "drop columns", names=tuple(names))
    if cursor.accept("DROP"):
        guarded = cursor.accept("IF", "EXISTS")
        return AlterTable(name, "drop partitions", specs=_specs(cursor), guarded=guarded)
    if cursor.accept("RENAME", "TO"):
        return AlterTable(name, "rename", names=cursor.names())
    if cursor.accept("CHANGE", "COLUMN") or cursor.accept("CHANGE"):
        before = cursor.name()
        if cursor.accept("RENAME", "TO"):
            return AlterTable(name, "rename column", names=(before, cursor.name()))
        if cursor.accept("COMMENT"):
            return AlterTable(name, "comment column", names=(before,), text=cursor.string())
        if cursor.accept("NULL"):
            return AlterTable(name, "allow nulls", names=(before,))
        column, _ = _column(cursor)
        return AlterTable(name, "change column", names=(before,), columns=(column,))
    if cursor.accept("SET", "TBLPROPERTIES"):
        return AlterTable(name, "set properties", properties=_properties(cursor))
    if cursor.accept("UNSET", "TBLPROPERTIES", "("):
        keys = [cursor.next().text]
        while cursor.accept(","):
            keys.append(cursor.next().text)
        cursor.expect(")")
        return AlterTable(name, "unset properties", names=tuple(keys))
    if cursor.accept("CHANGEOWNER", "TO"):
        return AlterTable(name, "set owner", text=cursor.string())
    if cursor.accept("SET", "COMMENT"):
        return AlterTable(name, "set comment", text=cursor.string())
    if cursor.accept("SET", "LIFECYCLE"):
        return AlterTable(name, "set lifecycle", number=_number(cursor))
    if cursor.accept("NOT", "CLUSTERED") or _clustering(cursor):
        return AlterTable(name, "cluster")
    specs = _specs(cursor)
    if specs and cursor.accept("RENAME", "TO"):
        return AlterTable(name, "rename partition", specs=(*specs, *_specs(cursor)))
    if cursor.accept("COMPACT", "MAJOR"):
        return AlterTable(name, "compact major", specs=specs)
    if cursor.accept("COMPACT", "MINOR") or cursor.accept("MERGE", "SMALLFILES"):
        return AlterTable(name, "compact minor", specs=specs)
    if cursor.accept("TOUCH"):
        return AlterTable(name, "touch", specs=specs or _specs(cursor))
    raise parse_error(f"ALTER TABLE {'.'.join(name)}: unsupported action: {cursor.rest()[:200]}")


def _alter_view(cursor: Cursor) -> AlterTable:
    name = cursor.names()
    if cursor.accept("RENAME", "TO"):
        return AlterTable(name, "rename", names=cursor.names(), view=True)
    if cursor.accept("CHANGEOWNER", "TO"):
        return AlterTable(name, "set owner", text=cursor.string(), view=True)
    if cursor.accept("SET", "COMMENT"):
        return AlterTable(name, "set comment", text=cursor.string(), view=True)
    raise parse_error(f"ALTER VIEW {'.'.join(name)}: unsupported action: {cursor.rest()[:200]}")


def _row_policy(cursor: Cursor) -> AlterTable:
    """``CREATE ROW ACCESS POLICY p ON TABLE t TO ... FILTER USING (...)``: the table is under one from then on."""
    cursor.accept("IF", "NOT", "EXISTS")
    policy = cursor.name()
    cursor.expect("ON")
    cursor.accept("TABLE")
    name = cursor.names()
    cursor.rest()
    return AlterTable(name, "set row policy", text=policy)


def _no_row_policy(cursor: Cursor) -> AlterTable:
    """``DROP ROW ACCESS POLICY p ON TABLE t``."""
    cursor.accept("IF", "EXISTS")
    policy = cursor.name()
    cursor.expect("ON")
    cursor.accept("TABLE")
    return AlterTable(cursor.names(), "drop row policy", text=policy)


def _show(cursor: Cursor) -> Show:
    if cursor.accept("PARTITIONS"):
        name = cursor.names()
        specs = _specs(cursor)
        return Show("partitions", name, specs[0] if specs else None)
    if cursor.accept("HISTORY", "FOR", "TABLE"):
        return Show("history", cursor.names())
    if cursor.accept("VIEWS"):
        return Show("views", cursor.names() if cursor.accept("IN") else ())
    if cursor.accept("CREATE", "TABLE"):
        return Show("create", cursor.names())
    if cursor.accept("TABLES"):
        schema = cursor.names() if cursor.accept("IN") else ()
        return Show("tables", schema, pattern=cursor.string() if cursor.accept("LIKE") else "*")
    if cursor.accept("SCHEMAS"):
        return Show("schemas")
    raise parse_error(f"unsupported SHOW statement: {cursor.rest()[:200]}")
