"""A file of Flink SQL to its declarations.

Statements end with ``;``. One with a fault is reported, and reading goes on with the next.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Options
from upsert_platform.core.options import nearest
from upsert_platform.sql.create_table import read_create_table
from upsert_platform.sql.declarations import Declarations, InsertDeclaration, ViewDeclaration
from upsert_platform.sql.hints import without_secrets
from upsert_platform.sql.lexer import Token, shown, tokenize
from upsert_platform.sql.reader import Fault, TokenReader
from upsert_platform.sql.session_names import SessionNames
from upsert_platform.sql.session_settings import (
    KERBEROS_LOGIN,
    LATENESS,
    MATERIALIZE,
    STATE_TTL,
    judge_setting,
    materializes_by,
    read_duration,
    setting_of,
)
from upsert_platform.sql.user_functions import read_create_function
from upsert_platform.sql.variables import Variables, expand

_REFUSED: Final = {
    "DROP": "the platform drops nothing: remove the declaration, and drop the table where it lives",
    "ALTER": "change the CREATE TABLE itself",
    "TRUNCATE": "the platform empties no table",
    "DELETE": "rows are deleted by tombstones of the source",
    "UPDATE": "rows are changed by records of the source",
    "USE": "Flink modules do not exist here",
    "SELECT": "a query needs a target: INSERT INTO <table> SELECT ...",
    "WITH": "a query needs a target: INSERT INTO <table> SELECT ...",
    "ADD": "put Python packages into the environment and jars into Spark's configuration",
    "REMOVE": "put Python packages into the environment and jars into Spark's configuration",
    "LOAD": "Flink modules do not exist here",
    "UNLOAD": "Flink modules do not exist here",
    "ANALYZE": "no statistics are kept",
    "CALL": "Flink procedures do not exist here",
    "MERGE": "rows are merged by primary key: INSERT INTO <table> SELECT ...",
}
_REFUSED_CREATE: Final = {
    "MODEL": "models are not supported",
    "MATERIALIZED": "materialized tables are not supported; declare a table and INSERT INTO it",
}


def read_statements(text: str, file: str, variables: Variables) -> Declarations:
    """Reads the statements of a file.

    Args:
        file: its name, as messages show it.
    """
    found = Declarations()
    tokens, problems = tokenize(text, file)
    found.problems += problems
    if problems:  # the rest of the text is in no statement
        found.unread |= set(re.findall(r"\w+", text))
    tokens, problems = expand(tokens, variables, file)
    found.problems += problems
    in_set = False
    names = SessionNames(found)
    for statement in _split(tokens):
        in_set = _read_statement(TokenReader(statement, file), found, names, in_set=in_set)
    _complete_logins(found)
    if in_set:
        found.problems.append(Problem("the STATEMENT SET is never closed: END expected", SourceLocation(file)))
    found.problems.sort(key=lambda problem: problem.location.line if problem.location else 0)
    return found


def _complete_logins(found: Declarations) -> None:
    """Gives the Kerberos login that a file sets to its tables that log in by GSSAPI; their own options win."""
    if not found.logins:
        return
    completed = False
    for place, table in enumerate(found.tables):
        if not _logs_in_by_kerberos(table.options):
            continue
        completed = True
        options = dict(table.options)
        locations = {name: at for name in options if (at := table.options.location(name)) is not None}
        for name, (value, at) in found.logins.items():
            if not {name, f"properties.{name}"} & options.keys():
                options[name], locations[name] = value, at
        found.tables[place] = replace(table, options=Options(options, locations))
    if not completed:
        for name, (_, at) in found.logins.items():
            message = (
                f"SET '{name}' has no effect: no table of this file logs in by Kerberos"
                " ('properties.security.protocol' = 'SASL_...', 'properties.sasl.mechanism' = 'GSSAPI')"
            )
            found.problems.append(Problem(message, at, "warning"))


def _logs_in_by_kerberos(options: Options) -> bool:
    protocol = options.get("properties.security.protocol", "").strip().upper()
    mechanism = options.get("properties.sasl.mechanism", options.get("properties.sasl.mechanisms", "GSSAPI"))
    return protocol.startswith("SASL_") and mechanism.strip() == "GSSAPI"


def _split(tokens: list[Token]) -> list[list[Token]]:
    statements: list[list[Token]] = [[]]
    for token in tokens:
        if token.is_word(";"):
            statements.append([])
        else:
            statements[-1].append(token)
    return [statement for statement in statements if statement]


def _read_statement(reader: TokenReader, found: Declarations, names: SessionNames, *, in_set: bool) -> bool:
    """Reads one statement; returns whether a statement set is open after it."""
    try:
        if reader.accept("EXECUTE", "STATEMENT", "SET", "BEGIN") or reader.accept("STATEMENT", "SET", "BEGIN"):
            in_set = _open(reader, in_set=in_set)
        elif reader.accept("BEGIN", "STATEMENT", "SET"):
            in_set = _open(reader, in_set=in_set)
            if reader.at_end():
                return in_set
        elif reader.next_is("EXECUTE", "INSERT"):
            reader.accept("EXECUTE")
        if reader.next_is("END"):
            if not in_set:
                raise reader.fault("END without STATEMENT SET; a statement expected")
            reader.accept("END")
            in_set = False
            if not reader.at_end():
                raise reader.fault("';' expected after END")
            return in_set
        _dispatch(reader, found, names)
    except Fault as fault:
        found.problems.append(Problem(fault.message, SourceLocation(reader.file, fault.line)))
        found.unread |= {token.value for token in reader.tokens}
    return in_set


def _open(reader: TokenReader, *, in_set: bool) -> bool:
    if in_set:
        raise reader.fault("STATEMENT SET inside another one; END expected first")
    return True


def _dispatch(reader: TokenReader, found: Declarations, names: SessionNames) -> None:
    if names.read(reader):
        return
    temporary = 1 if reader.next_is("CREATE", "TEMPORARY") else 0
    second = reader.peek(1 + temporary)
    if reader.next_is("CREATE") and second is not None:
        if second.is_word("TABLE"):
            table, problems = read_create_table(reader, names.of_table)
            found.problems += problems
            if table is not None:
                found.tables.append(table)
            return
        if second.is_word("VIEW"):
            found.views.append(_read_view(reader, names))
            return
        if second.is_word("FUNCTION"):
            found.functions.append(read_create_function(reader))
            return
        if second.is_word("OR") or second.is_word("SYSTEM"):
            raise reader.fault("CREATE TABLE or CREATE VIEW expected: OR REPLACE and SYSTEM are not supported")
        reason = _REFUSED_CREATE.get(second.value.upper())
        if reason is not None:
            raise Fault(f"CREATE {second.value.upper()} is not supported: {reason}", reader.line)
    elif reader.next_is("INSERT"):
        insert = replace(_read_insert(reader, names), lateness=found.lateness, materializes=found.materializes)
        found.inserts.append(replace(insert, state_ttl=found.state_ttl))
        return
    elif reader.next_is("SET") or reader.next_is("RESET"):
        name, value = setting_of(reader) if reader.next_is("SET") else ("", "")
        if name.startswith(KERBEROS_LOGIN):
            found.logins[name] = (value, reader.location)
        if name == MATERIALIZE:
            found.materializes = materializes_by(value)
        if name == LATENESS:
            found.lateness = read_duration(value)
        if name == STATE_TTL:
            found.state_ttl = (read_duration(value) or 0) // 1000 or None
        found.problems.extend(judge_setting(reader))
        return
    first = reader.take()
    reason = _REFUSED.get(first.value.upper())
    if reason is not None:
        raise Fault(f"{first.value.upper()} is not supported: {reason}", first.line)
    # What stands here may be a part of a text that held a quote and a semicolon.
    hint = nearest(first.value.upper(), ("CREATE", "INSERT", "SET", *_REFUSED))
    raise Fault(f"a statement cannot begin so{hint}: CREATE TABLE or INSERT INTO expected", first.line)


def _read_view(reader: TokenReader, names: SessionNames) -> ViewDeclaration:
    location = reader.location
    reader.accept("CREATE")
    reader.accept("TEMPORARY")
    reader.expect("VIEW", where="after CREATE")
    reader.accept("IF", "NOT", "EXISTS")
    name, _ = names.of_table(reader, "view name")
    columns: tuple[str, ...] = ()
    if reader.next_is("("):
        columns = tuple(reader.names_in_parentheses("column name"))
    if reader.accept("COMMENT"):
        reader.text("comment")
    reader.expect("AS", where="before the query of a view")
    query = tuple(reader.take_until())
    if not query:
        raise reader.fault("a query expected after AS")
    return ViewDeclaration(name, location, names.of_query(query, reader.file), columns)


def _read_insert(reader: TokenReader, names: SessionNames) -> InsertDeclaration:
    location, sql = reader.location, shown([without_secrets(token) for token in reader.tokens[reader.at :]])
    reader.accept("INSERT")
    overwrite = reader.accept("OVERWRITE")
    if not overwrite:
        reader.expect("INTO", where="after INSERT")
    target, _ = names.of_table(reader, "table name")
    partition: dict[str, tuple[Token, ...]] = {}
    if reader.accept("PARTITION"):
        reader.expect("(", where="after PARTITION")
        while True:
            column = reader.name("partition column")
            reader.expect("=", where=f"after the partition column '{column}'")
            constant = tuple(reader.take_until(",", ")"))
            if not constant:
                raise reader.fault(f"a constant expected for the partition column '{column}'")
            if column in partition:
                raise reader.fault(f"partition column '{column}' is given twice; ',' or ')' expected")
            partition[column] = constant
            if reader.accept(")"):
                break
            reader.expect(",", where="or ')' after a partition column")
    columns: tuple[str, ...] = ()
    after = reader.peek(1)
    if reader.next_is("(") and after is not None and not after.is_word("SELECT"):
        columns = tuple(reader.names_in_parentheses("column name"))
    query = tuple(reader.take_until())
    if not query:
        raise reader.fault("SELECT expected")
    query = names.of_query(query, reader.file)
    return InsertDeclaration(target, location, query, partition, columns, sql, overwrite)
